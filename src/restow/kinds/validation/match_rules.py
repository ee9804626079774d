"""Rules and selectors by which webhooks, policies and roles say what they are about.

Not here: the webhooks, policies and roles themselves, and whether something matches.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery.name_formats import (
    label_value_problem,
    path_segment_problem,
    qualified_name_problem,
)
from restow.kinds.validation.fields import Causes, Object, listed, part

OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MATCH_POLICIES: Final = ("Equivalent", "Exact")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


def check_match_resources(match: Object, where: str) -> Causes:
    """What is wrong with the constraints of a policy or of a binding."""
    causes: Causes = []
    policy = match.get("matchPolicy")
    if policy is None:
        causes.append(errors.required(f"{where}.matchPolicy"))
    elif policy not in MATCH_POLICIES:
        causes.append(errors.not_supported(f"{where}.matchPolicy", policy, MATCH_POLICIES))
    for name in ("namespaceSelector", "objectSelector"):
        if match.get(name) is None:
            causes.append(errors.required(f"{where}.{name}"))
        else:
            causes += check_selector(part(match, name), f"{where}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for field, rule in listed(match, name, f"{where}.{name}"):
            causes += _check_names(rule, field)
            causes += check_rule(rule, field)
    return causes


def _check_names(rule: Object, where: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        field = f"{where}.resourceNames[{index}]"
        if problem := path_segment_problem(name):
            causes.append(errors.invalid(field, name, problem))
        if name in seen:
            causes.append(errors.duplicate(field, name))
        seen.add(name)
    return causes


def check_rule(rule: Object, where: str) -> Causes:
    """What is wrong with one rule."""
    causes: Causes = []
    operations = rule.get("operations") or []
    if not operations:
        causes.append(errors.required(f"{where}.operations"))
    causes += _check_alone(operations, f"{where}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            field = f"{where}.operations[{index}]"
            causes.append(errors.not_supported(field, operation, OPERATIONS))
    groups, versions = rule.get("apiGroups") or [], rule.get("apiVersions") or []
    if not groups:
        causes.append(errors.required(f"{where}.apiGroups"))
    causes += _check_alone(groups, f"{where}.apiGroups", "API groups")
    if not versions:
        causes.append(errors.required(f"{where}.apiVersions"))
    causes += _check_alone(versions, f"{where}.apiVersions", "API versions")
    for index, version in enumerate(versions):
        if not version:
            causes.append(errors.required(f"{where}.apiVersions[{index}]"))
    causes += _check_resources(rule.get("resources") or [], f"{where}.resources")
    scope = rule.get("scope")
    if scope is not None and scope not in _SCOPES:
        causes.append(errors.not_supported(f"{where}.scope", scope, _SCOPES))
    return causes


def _check_alone(values: list[Any], where: str, noun: str) -> Causes:
    if len(values) > 1 and "*" in values:
        why = f"if '*' is present, must not specify other {noun}"
        return [errors.invalid(where, values, why)]
    return []


def _check_resources(resources: list[str], where: str) -> Causes:
    causes: Causes = [] if resources else [errors.required(where)]
    all_of: set[str] = set()
    """Resources of which all subresources are named already."""
    of_all: set[str] = set()
    """Subresources that are named already of all resources."""
    has_plain = False
    for index, text in enumerate(resources):
        field = f"{where}[{index}]"
        if not text:
            causes.append(errors.required(field))
            continue
        name, slash, sub = text.partition("/")
        if not slash:
            has_plain = text != "*"
            continue
        if name in all_of:
            why = f"if '{name}/*' is present, must not specify {text}"
            causes.append(errors.invalid(field, text, why))
        if sub in of_all:
            why = f"if '*/{sub}' is present, must not specify {text}"
            causes.append(errors.invalid(field, text, why))
        if sub == "*":
            all_of.add(name)
        if name == "*":
            of_all.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        why = "if '*/*' is present, must not specify other resources"
        causes.append(errors.invalid(where, resources, why))
    if "*" in resources and has_plain:
        why = "if '*' is present, must not specify other resources without subresources"
        causes.append(errors.invalid(where, resources, why))
    return causes


def check_selector(selector: Object, where: str) -> Causes:
    """What is wrong with a selector of labels."""
    causes: Causes = []
    for name, value in part(selector, "matchLabels").items():
        if problem := qualified_name_problem(name):
            causes.append(errors.invalid(f"{where}.matchLabels", name, problem))
        if problem := label_value_problem(value):
            causes.append(errors.invalid(f"{where}.matchLabels", value, problem))
    for field, requirement in listed(selector, "matchExpressions", f"{where}.matchExpressions"):
        operator, values = requirement.get("operator") or "", requirement.get("values") or []
        if operator in _WITH_VALUES and not values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            causes.append(errors.required(f"{field}.values", why))
        elif operator in _WITHOUT_VALUES and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(errors.forbidden(f"{field}.values", why))
        elif operator not in (*_WITH_VALUES, *_WITHOUT_VALUES):
            why = "not a valid selector operator"
            causes.append(errors.invalid(f"{field}.operator", operator, why))
        key = requirement.get("key") or ""
        if problem := qualified_name_problem(key):
            causes.append(errors.invalid(f"{field}.key", key, problem))
        for index, value in enumerate(values):
            if problem := label_value_problem(value):
                causes.append(errors.invalid(f"{field}.values[{index}]", value, problem))
    return causes
