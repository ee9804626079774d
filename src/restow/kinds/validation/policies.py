"""Rules of ValidatingAdmissionPolicies and of their bindings.

Each expression must compile: who writes one that cannot run is told so at once, and where it is
wrong. Objects have no types in expressions, so a field that no object has is found only when one is
looked for. An expression that was stored already is not looked at again.

Not here: whether the author may see the parameters, which needs to know who that is.
"""

from __future__ import annotations

import re
from typing import Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery.name_formats import (
    dns_1035_label_problem,
    path_segment_problem,
    qualified_name_problem,
    subdomain_problem,
)
from restow.apimachinery.structural.cel import CompileError, types
from restow.apimachinery.structural.cel.admission import Scope
from restow.apimachinery.structural.cel.keywords import KEYWORDS
from restow.kinds.validation.fields import Causes, Object, listed, part
from restow.kinds.validation.match_rules import check_match_resources, check_selector

CONDITIONS_MAX: Final = 64
ANNOTATIONS_MAX: Final = 20
VALUE_EXPRESSION_BYTES_MAX: Final = 5 * 1024
_FAILURE_POLICIES: Final = ("Fail", "Ignore")
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_NOT_FOUND_ACTIONS: Final = ("Deny", "Allow")
_TEXT_OR_NULL: Final = (types.STRING, types.NULL)
_NAME: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)
_REINVOCATIONS: Final = ("IfNeeded", "Never")
_PATCHES: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
_BOTH_EMPTY: Final = "validations or auditAnnotations must contain at least one item"


def validate_policy(new: Object, old: Object | None) -> Causes:
    """What is wrong with a policy."""
    spec, before = part(new, "spec"), part(old, "spec")
    if old is not None and spec == before:
        return []
    causes = _check_matching(spec)
    if spec.get("matchConditions") != before.get("matchConditions"):
        scope = Scope(has_params=spec.get("paramKind") is not None)
        causes += check_conditions(spec, "spec.matchConditions", scope)
    return causes + _check_expressions(new, spec)


def _check_matching(spec: Object) -> Causes:
    """What policies of both kinds say about the requests they look at."""
    causes: Causes = []
    policy = spec.get("failurePolicy")
    if policy is None:
        causes.append(errors.required("spec.failurePolicy"))
    elif policy not in _FAILURE_POLICIES:
        causes.append(errors.not_supported("spec.failurePolicy", policy, _FAILURE_POLICIES))
    if spec.get("paramKind") is not None:
        causes += _check_param_kind(part(spec, "paramKind"), "spec.paramKind")
    if spec.get("matchConstraints") is None:
        causes.append(errors.required("spec.matchConstraints"))
    else:
        match = part(spec, "matchConstraints")
        causes += check_match_resources(match, "spec.matchConstraints")
        if not match.get("resourceRules"):
            causes.append(errors.required("spec.matchConstraints.resourceRules"))
    return causes


def validate_mutating_policy(new: Object, old: Object | None) -> Causes:
    """What is wrong with a policy that changes objects; its expressions are left alone."""
    spec = part(new, "spec")
    if old is not None and spec == part(old, "spec"):
        return []
    causes = _check_matching(spec)
    if spec.get("matchConditions") != part(old, "spec").get("matchConditions"):
        scope = Scope(has_params=spec.get("paramKind") is not None)
        causes += check_conditions(spec, "spec.matchConditions", scope)
    scope = Scope(has_params=spec.get("paramKind") is not None, has_variables=True)
    for field, variable in listed(spec, "variables", "spec.variables"):
        causes += _check_variable(scope, variable, field)
    if not spec.get("mutations"):
        why = "mutations must contain at least one item"
        causes.append(errors.required("spec.mutations", why))
    for field, mutation in listed(spec, "mutations", "spec.mutations"):
        causes += _check_mutation(mutation, field)
    policy = spec.get("reinvocationPolicy")
    if not policy:
        causes.append(errors.required("spec.reinvocationPolicy"))
    elif policy not in _REINVOCATIONS:
        causes.append(errors.not_supported("spec.reinvocationPolicy", policy, _REINVOCATIONS))
    return causes


def _check_mutation(mutation: Object, where: str) -> Causes:
    kind = mutation.get("patchType")
    if not kind:
        return [errors.required(f"{where}.patchType")]
    if kind not in _PATCHES:
        return [errors.not_supported(f"{where}.patchType", kind, tuple(_PATCHES))]
    name = _PATCHES[kind]
    if mutation.get(name) is None:
        why = f"must be specified when patchType is {kind}"
        return [errors.required(f"{where}.{name}", why)]
    if not (part(mutation, name).get("expression") or "").strip():
        return [errors.required(f"{where}.{name}.expression")]
    return []


def check_conditions(holder: Object, where: str, scope: Scope) -> Causes:
    """What is wrong with the `matchConditions` of a policy or of a webhook."""
    causes: Causes = []
    conditions = holder.get("matchConditions") or []
    if len(conditions) > CONDITIONS_MAX:
        causes.append(errors.too_many(where, count=len(conditions), count_max=CONDITIONS_MAX))
    names: set[str] = set()
    for field, condition in listed(holder, "matchConditions", where):
        source = (condition.get("expression") or "").strip()
        if source:
            causes += _check_expression(scope, source, f"{field}.expression")
        else:
            causes.append(errors.required(f"{field}.expression"))
        name = condition.get("name") or ""
        if not name:
            causes.append(errors.required(f"{field}.name"))
        elif problem := qualified_name_problem(name):
            causes.append(errors.invalid(f"{field}.name", name, problem))
        if name and name in names:
            causes.append(errors.duplicate(f"{field}.name", name))
        names.add(name)
    return causes


def _check_expressions(policy: Object, spec: Object) -> Causes:
    causes: Causes = []
    has_params, has_variables = spec.get("paramKind") is not None, bool(spec.get("variables"))
    scope = Scope(has_params=has_params, has_variables=has_variables)
    for field, variable in listed(spec, "variables", "spec.variables"):
        causes += _check_variable(scope, variable, field)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        causes.append(errors.required("spec.validations", _BOTH_EMPTY))
        causes.append(errors.required("spec.auditAnnotations", _BOTH_EMPTY))
        return causes
    for field, validation in listed(spec, "validations", "spec.validations"):
        causes += _check_validation(scope, validation, field)
    annotations = spec.get("auditAnnotations") or []
    if len(annotations) > ANNOTATIONS_MAX:
        why = f"must not have more than {ANNOTATIONS_MAX} auditAnnotations"
        causes.append(errors.invalid("spec.auditAnnotations", annotations, why))
    keys: set[str] = set()
    name = part(policy, "metadata").get("name") or ""
    for field, annotation in listed(spec, "auditAnnotations", "spec.auditAnnotations"):
        causes += _check_annotation(scope, annotation, field, policy=name)
        key = annotation.get("key") or ""
        if key in keys:
            causes.append(errors.duplicate(f"{field}.key", key))
        keys.add(key)
    return causes


def _check_param_kind(kind: Object, where: str) -> Causes:
    causes: Causes = []
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    if not version:
        causes.append(errors.required(f"{where}.apiVersion"))
    else:
        causes += _check_api_version(version, f"{where}.apiVersion")
    if not name:
        causes.append(errors.required(f"{where}.kind"))
    elif problem := dns_1035_label_problem(name.lower()):
        why = f"may have mixed case, but should otherwise match: {problem}"
        causes.append(errors.invalid(f"{where}.kind", name, why))
    return causes


def _check_api_version(text: str, where: str) -> Causes:
    if text.count("/") > 1:
        return [errors.invalid(where, text, f"unexpected GroupVersion string: {text[:256]}")]
    causes: Causes = []
    group, _, version = text.rpartition("/")
    if group and (problem := subdomain_problem(group)):
        causes.append(errors.invalid(where, group, problem))
    if not version:
        causes.append(errors.invalid(where, text, "version must be specified"))
    elif problem := dns_1035_label_problem(version):
        causes.append(errors.invalid(where, version, problem))
    return causes


def _check_variable(scope: Scope, variable: Object, where: str) -> Causes:
    causes: Causes = []
    name, source = variable.get("name") or "", variable.get("expression") or ""
    if not name.strip():
        causes.append(errors.required(f"{where}.name", "name is not specified"))
    elif _NAME.fullmatch(name) is None or name in KEYWORDS:
        why = "must be a valid CEL identifier"
        causes.append(errors.invalid(f"{where}.name", name, why))
    if not source.strip():
        causes.append(errors.required(f"{where}.expression", "expression is not specified"))
        return causes
    try:
        scope.name(name, source)
    except CompileError as error:
        causes.append(errors.invalid(f"{where}.expression", source, str(error)))
    return causes


def _check_validation(scope: Scope, validation: Object, where: str) -> Causes:
    causes: Causes = []
    source = validation.get("expression") or ""
    if source.strip():
        causes += _check_expression(scope, source, f"{where}.expression")
    else:
        causes.append(errors.required(f"{where}.expression", "expression is not specified"))
    said = validation.get("messageExpression") or ""
    field = f"{where}.messageExpression"
    if said and not said.strip():
        causes.append(errors.invalid(field, said, "must be non-empty if specified"))
    elif said:
        causes += _check_expression(
            scope, said, field, wanted=(types.STRING,), has_authorizer=False
        )
    message = validation.get("message") or ""
    if message and not message.strip():
        why = "must be non-empty if specified"
        causes.append(errors.invalid(f"{where}.message", message, why))
    elif "\n" in message.strip() or "\r" in message.strip():
        why = "must not contain line breaks"
        causes.append(errors.invalid(f"{where}.message", message, why))
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        causes.append(errors.not_supported(f"{where}.reason", reason, _REASONS))
    return causes


def _check_annotation(scope: Scope, annotation: Object, where: str, *, policy: str) -> Causes:
    causes: Causes = []
    key = annotation.get("key") or ""
    if not policy:
        why = "requires metadata.name be non-empty"
        causes.append(errors.invalid(f"{where}.key", key, why))
    elif problem := qualified_name_problem(f"{policy}/{key}"):
        causes.append(errors.invalid(f"{where}.key", f"{policy}/{key}", problem))
    source, field = annotation.get("valueExpression") or "", f"{where}.valueExpression"
    trimmed = source.strip()
    if not trimmed:
        causes.append(errors.required(field, "valueExpression is not specified"))
    elif len(trimmed.encode(errors="replace")) > VALUE_EXPRESSION_BYTES_MAX:
        why = f"must not exceed {VALUE_EXPRESSION_BYTES_MAX} bytes in length"
        causes.append(errors.required(field, why))
    else:
        causes += _check_expression(scope, trimmed, field, wanted=_TEXT_OR_NULL)
    return causes


def _check_expression(
    scope: Scope,
    source: str,
    where: str,
    *,
    wanted: tuple[types.Type, ...] = (types.BOOL,),
    has_authorizer: bool = True,
) -> Causes:
    try:
        scope.compile(source, wanted=wanted, has_authorizer=has_authorizer)
    except CompileError as error:
        return [errors.invalid(where, source, str(error))]
    return []


def validate_policy_binding(new: Object, old: Object | None) -> Causes:
    """What is wrong with a binding."""
    spec = part(new, "spec")
    if old is not None and spec == part(old, "spec"):
        return []
    actions = _check_actions(spec.get("validationActions") or [], "spec.validationActions")
    return validate_mutating_binding(new, old) + actions


def validate_mutating_binding(new: Object, old: Object | None) -> Causes:
    """What is wrong with a binding of a policy that changes objects."""
    spec = part(new, "spec")
    if old is not None and spec == part(old, "spec"):
        return []
    causes: Causes = []
    name = spec.get("policyName") or ""
    if not name:
        causes.append(errors.required("spec.policyName"))
    elif problem := subdomain_problem(name):
        causes.append(errors.invalid("spec.policyName", name, problem))
    if spec.get("paramRef") is not None:
        causes += _check_param_ref(part(spec, "paramRef"), "spec.paramRef")
    if spec.get("matchResources") is not None:
        causes += check_match_resources(part(spec, "matchResources"), "spec.matchResources")
    return causes


def _check_param_ref(reference: Object, where: str) -> Causes:
    causes: Causes = []
    name, selector = reference.get("name") or "", reference.get("selector")
    both = "name and selector are mutually exclusive"
    if name:
        if problem := path_segment_problem(name):
            causes.append(errors.invalid(f"{where}.name", name, problem))
        if selector is not None:
            causes.append(errors.forbidden(f"{where}.name", both))
    if selector is not None:
        causes += check_selector(part(reference, "selector"), f"{where}.selector")
        if name:
            causes.append(errors.forbidden(f"{where}.selector", both))
    if not name and selector is None:
        causes.append(errors.required(where, "one of name or selector must be specified"))
    action = reference.get("parameterNotFoundAction")
    if not action:
        causes.append(errors.required(f"{where}.parameterNotFoundAction"))
    elif action not in _NOT_FOUND_ACTIONS:
        field = f"{where}.parameterNotFoundAction"
        causes.append(errors.not_supported(field, action, _NOT_FOUND_ACTIONS))
    return causes


def _check_actions(actions: list[str], where: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            causes.append(errors.not_supported(f"{where}[{index}]", action, _ACTIONS))
        if action in seen:
            causes.append(errors.duplicate(f"{where}[{index}]", action))
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information"
            " in the API response and headers serves no purpose)"
        )
        causes.append(errors.invalid(where, actions, why))
    if not seen:
        causes.append(errors.required(where, "at least one validation action is required"))
    return causes
