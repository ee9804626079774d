"""Validation of match rules and selectors of webhooks, policies and roles.

Not here: the webhooks, policies and roles themselves, and matching.
"""

from __future__ import annotations

from typing import Any, Final

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


def check_match_resources(causes: Causes, match: Object, where: str) -> None:
    """Validate the match resources of a policy or of a binding."""
    policy = match.get("matchPolicy")
    if policy is None:
        causes.required(f"{where}.matchPolicy")
    elif policy not in MATCH_POLICIES:
        causes.not_supported(f"{where}.matchPolicy", policy, MATCH_POLICIES)
    for name in ("namespaceSelector", "objectSelector"):
        if match.get(name) is None:
            causes.required(f"{where}.{name}")
        else:
            check_selector(causes, part(match, name), f"{where}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for field, rule in listed(match, name, f"{where}.{name}"):
            _check_names(causes, rule, field)
            check_rule(causes, rule, field)


def _check_names(causes: Causes, rule: Object, where: str) -> None:
    seen: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        field = f"{where}.resourceNames[{index}]"
        if problem := path_segment_problem(name):
            causes.invalid(field, name, problem)
        causes.once(field, name, seen)


def check_rule(causes: Causes, rule: Object, where: str) -> None:
    """Validate one rule."""
    operations = rule.get("operations") or []
    if not operations:
        causes.required(f"{where}.operations")
    _check_alone(causes, operations, f"{where}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            field = f"{where}.operations[{index}]"
            causes.not_supported(field, operation, OPERATIONS)
    groups, versions = rule.get("apiGroups") or [], rule.get("apiVersions") or []
    if not groups:
        causes.required(f"{where}.apiGroups")
    _check_alone(causes, groups, f"{where}.apiGroups", "API groups")
    if not versions:
        causes.required(f"{where}.apiVersions")
    _check_alone(causes, versions, f"{where}.apiVersions", "API versions")
    for index, version in enumerate(versions):
        if not version:
            causes.required(f"{where}.apiVersions[{index}]")
    _check_resources(causes, rule.get("resources") or [], f"{where}.resources")
    scope = rule.get("scope")
    if scope is not None and scope not in _SCOPES:
        causes.not_supported(f"{where}.scope", scope, _SCOPES)


def _check_alone(causes: Causes, values: list[Any], where: str, noun: str) -> None:
    if len(values) > 1 and "*" in values:
        why = f"if '*' is present, must not specify other {noun}"
        causes.invalid(where, values, why)
        return


def _check_resources(causes: Causes, resources: list[str], where: str) -> None:
    if not resources:
        causes.required(where)
    all_of: set[str] = set()
    """Resources whose subresources are all listed already."""
    of_all: set[str] = set()
    """Subresources that are listed for all resources already."""
    has_plain = False
    for index, text in enumerate(resources):
        field = f"{where}[{index}]"
        if not text:
            causes.required(field)
            continue
        name, slash, sub = text.partition("/")
        if not slash:
            has_plain = text != "*"
            continue
        if name in all_of:
            causes.invalid(field, text, f"if '{name}/*' is present, must not specify {text}")
        if sub in of_all:
            causes.invalid(field, text, f"if '*/{sub}' is present, must not specify {text}")
        if sub == "*":
            all_of.add(name)
        if name == "*":
            of_all.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        causes.invalid(where, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and has_plain:
        why = "if '*' is present, must not specify other resources without subresources"
        causes.invalid(where, resources, why)


def check_selector(causes: Causes, selector: Object, where: str) -> None:
    """Validate a label selector."""
    for name, value in part(selector, "matchLabels").items():
        if problem := qualified_name_problem(name):
            causes.invalid(f"{where}.matchLabels", name, problem)
        if problem := label_value_problem(value):
            causes.invalid(f"{where}.matchLabels", value, problem)
    for field, requirement in listed(selector, "matchExpressions", f"{where}.matchExpressions"):
        operator, values = requirement.get("operator") or "", requirement.get("values") or []
        if operator in _WITH_VALUES and not values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            causes.required(f"{field}.values", why)
        elif operator in _WITHOUT_VALUES and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.forbidden(f"{field}.values", why)
        elif operator not in (*_WITH_VALUES, *_WITHOUT_VALUES):
            causes.invalid(f"{field}.operator", operator, "not a valid selector operator")
        key = requirement.get("key") or ""
        if problem := qualified_name_problem(key):
            causes.invalid(f"{field}.key", key, problem)
        for index, value in enumerate(values):
            if problem := label_value_problem(value):
                causes.invalid(f"{field}.values[{index}]", value, problem)
