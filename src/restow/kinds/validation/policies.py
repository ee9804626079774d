"""Validation of admission policies and their bindings.

Each expression must compile, so that the author gets the error and its position at once.
Expressions see untyped objects, so a field that does not exist is found only at evaluation. An
expression that is unchanged is not compiled again.

Not here: whether the author may read the parameters, which needs the user.
"""

from __future__ import annotations

import re
from typing import Final

from restow.apimachinery.name_formats import (
    dns_1035_label_problem,
    path_segment_problem,
    qualified_name_problem,
    subdomain_problem,
)
from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.admission import Scope
from restow.apimachinery.structural.cel.keywords import KEYWORDS
from restow.apimachinery.structural.cel.program import CompileError
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


def validate_policy(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a ValidatingAdmissionPolicy."""
    spec, before = part(new, "spec"), part(old, "spec")
    if old is not None and spec == before:
        return
    _check_matching(causes, spec)
    if spec.get("matchConditions") != before.get("matchConditions"):
        scope = Scope(has_params=spec.get("paramKind") is not None)
        check_conditions(causes, spec, "spec.matchConditions", scope)
    _check_expressions(causes, new, spec)


def _check_matching(causes: Causes, spec: Object) -> None:
    """Validate the fields of both kinds of policies that select requests."""
    policy = spec.get("failurePolicy")
    if policy is None:
        causes.required("spec.failurePolicy")
    elif policy not in _FAILURE_POLICIES:
        causes.not_supported("spec.failurePolicy", policy, _FAILURE_POLICIES)
    if spec.get("paramKind") is not None:
        _check_param_kind(causes, part(spec, "paramKind"), "spec.paramKind")
    if spec.get("matchConstraints") is None:
        causes.required("spec.matchConstraints")
    else:
        match = part(spec, "matchConstraints")
        check_match_resources(causes, match, "spec.matchConstraints")
        if not match.get("resourceRules"):
            causes.required("spec.matchConstraints.resourceRules")


def validate_mutating_policy(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a MutatingAdmissionPolicy; the expressions of its mutations are not compiled."""
    spec = part(new, "spec")
    if old is not None and spec == part(old, "spec"):
        return
    _check_matching(causes, spec)
    if spec.get("matchConditions") != part(old, "spec").get("matchConditions"):
        scope = Scope(has_params=spec.get("paramKind") is not None)
        check_conditions(causes, spec, "spec.matchConditions", scope)
    scope = Scope(has_params=spec.get("paramKind") is not None, has_variables=True)
    for field, variable in listed(spec, "variables", "spec.variables"):
        _check_variable(causes, scope, variable, field)
    if not spec.get("mutations"):
        causes.required("spec.mutations", "mutations must contain at least one item")
    for field, mutation in listed(spec, "mutations", "spec.mutations"):
        _check_mutation(causes, mutation, field)
    policy = spec.get("reinvocationPolicy")
    if not policy:
        causes.required("spec.reinvocationPolicy")
    elif policy not in _REINVOCATIONS:
        causes.not_supported("spec.reinvocationPolicy", policy, _REINVOCATIONS)


def _check_mutation(causes: Causes, mutation: Object, where: str) -> None:
    kind = mutation.get("patchType")
    if not kind:
        causes.required(f"{where}.patchType")
        return
    if kind not in _PATCHES:
        causes.not_supported(f"{where}.patchType", kind, tuple(_PATCHES))
        return
    name = _PATCHES[kind]
    if mutation.get(name) is None:
        why = f"must be specified when patchType is {kind}"
        causes.required(f"{where}.{name}", why)
        return
    if not (part(mutation, name).get("expression") or "").strip():
        causes.required(f"{where}.{name}.expression")
        return


def check_conditions(causes: Causes, holder: Object, where: str, scope: Scope) -> None:
    """Validate the `matchConditions` of a policy or of a webhook."""
    conditions = holder.get("matchConditions") or []
    if len(conditions) > CONDITIONS_MAX:
        causes.too_many(where, count=len(conditions), count_max=CONDITIONS_MAX)
    names: set[str] = set()
    for field, condition in listed(holder, "matchConditions", where):
        source = (condition.get("expression") or "").strip()
        if source:
            _check_expression(causes, scope, source, f"{field}.expression")
        else:
            causes.required(f"{field}.expression")
        name = condition.get("name") or ""
        if not name:
            causes.required(f"{field}.name")
        elif problem := qualified_name_problem(name):
            causes.invalid(f"{field}.name", name, problem)
        if name and name in names:
            causes.duplicate(f"{field}.name", name)
        names.add(name)


def _check_expressions(causes: Causes, policy: Object, spec: Object) -> None:
    has_params, has_variables = spec.get("paramKind") is not None, bool(spec.get("variables"))
    scope = Scope(has_params=has_params, has_variables=has_variables)
    for field, variable in listed(spec, "variables", "spec.variables"):
        _check_variable(causes, scope, variable, field)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        causes.required("spec.validations", _BOTH_EMPTY)
        causes.required("spec.auditAnnotations", _BOTH_EMPTY)
        return
    for field, validation in listed(spec, "validations", "spec.validations"):
        _check_validation(causes, scope, validation, field)
    annotations = spec.get("auditAnnotations") or []
    if len(annotations) > ANNOTATIONS_MAX:
        why = f"must not have more than {ANNOTATIONS_MAX} auditAnnotations"
        causes.invalid("spec.auditAnnotations", annotations, why)
    keys: set[str] = set()
    name = part(policy, "metadata").get("name") or ""
    for field, annotation in listed(spec, "auditAnnotations", "spec.auditAnnotations"):
        _check_annotation(causes, scope, annotation, field, policy=name)
        key = annotation.get("key") or ""
        causes.once(f"{field}.key", key, keys)


def _check_param_kind(causes: Causes, kind: Object, where: str) -> None:
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    if not version:
        causes.required(f"{where}.apiVersion")
    else:
        _check_api_version(causes, version, f"{where}.apiVersion")
    if not name:
        causes.required(f"{where}.kind")
    elif problem := dns_1035_label_problem(name.lower()):
        why = f"may have mixed case, but should otherwise match: {problem}"
        causes.invalid(f"{where}.kind", name, why)


def _check_api_version(causes: Causes, text: str, where: str) -> None:
    if text.count("/") > 1:
        causes.invalid(where, text, f"unexpected GroupVersion string: {text[:256]}")
        return
    group, _, version = text.rpartition("/")
    if group and (problem := subdomain_problem(group)):
        causes.invalid(where, group, problem)
    if not version:
        causes.invalid(where, text, "version must be specified")
    elif problem := dns_1035_label_problem(version):
        causes.invalid(where, version, problem)


def _check_variable(causes: Causes, scope: Scope, variable: Object, where: str) -> None:
    name, source = variable.get("name") or "", variable.get("expression") or ""
    if not name.strip():
        causes.required(f"{where}.name", "name is not specified")
    elif _NAME.fullmatch(name) is None or name in KEYWORDS:
        causes.invalid(f"{where}.name", name, "must be a valid CEL identifier")
    if not source.strip():
        causes.required(f"{where}.expression", "expression is not specified")
        return
    try:
        scope.name(name, source)
    except CompileError as error:
        causes.invalid(f"{where}.expression", source, str(error))


def _check_validation(causes: Causes, scope: Scope, validation: Object, where: str) -> None:
    source = validation.get("expression") or ""
    if source.strip():
        _check_expression(causes, scope, source, f"{where}.expression")
    else:
        causes.required(f"{where}.expression", "expression is not specified")
    said = validation.get("messageExpression") or ""
    field = f"{where}.messageExpression"
    if said and not said.strip():
        causes.invalid(field, said, "must be non-empty if specified")
    elif said:
        _check_expression(causes, scope, said, field, wanted=(types.STRING,), has_authorizer=False)
    message = validation.get("message") or ""
    if message and not message.strip():
        causes.invalid(f"{where}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        causes.invalid(f"{where}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        causes.not_supported(f"{where}.reason", reason, _REASONS)


def _check_annotation(
    causes: Causes, scope: Scope, annotation: Object, where: str, *, policy: str
) -> None:
    key = annotation.get("key") or ""
    if not policy:
        causes.invalid(f"{where}.key", key, "requires metadata.name be non-empty")
    elif problem := qualified_name_problem(f"{policy}/{key}"):
        causes.invalid(f"{where}.key", f"{policy}/{key}", problem)
    source, field = annotation.get("valueExpression") or "", f"{where}.valueExpression"
    trimmed = source.strip()
    if not trimmed:
        causes.required(field, "valueExpression is not specified")
    elif len(trimmed.encode(errors="replace")) > VALUE_EXPRESSION_BYTES_MAX:
        causes.required(field, f"must not exceed {VALUE_EXPRESSION_BYTES_MAX} bytes in length")
    else:
        _check_expression(causes, scope, trimmed, field, wanted=_TEXT_OR_NULL)


def _check_expression(
    causes: Causes,
    scope: Scope,
    source: str,
    where: str,
    *,
    wanted: tuple[types.Type, ...] = (types.BOOL,),
    has_authorizer: bool = True,
) -> None:
    try:
        scope.compile(source, wanted=wanted, has_authorizer=has_authorizer)
    except CompileError as error:
        causes.invalid(where, source, str(error))
        return


def validate_policy_binding(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a ValidatingAdmissionPolicyBinding."""
    spec = part(new, "spec")
    if old is not None and spec == part(old, "spec"):
        return
    validate_mutating_binding(causes, new, old)
    _check_actions(causes, spec.get("validationActions") or [], "spec.validationActions")


def validate_mutating_binding(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a MutatingAdmissionPolicyBinding."""
    spec = part(new, "spec")
    if old is not None and spec == part(old, "spec"):
        return
    name = spec.get("policyName") or ""
    if not name:
        causes.required("spec.policyName")
    elif problem := subdomain_problem(name):
        causes.invalid("spec.policyName", name, problem)
    if spec.get("paramRef") is not None:
        _check_param_ref(causes, part(spec, "paramRef"), "spec.paramRef")
    if spec.get("matchResources") is not None:
        check_match_resources(causes, part(spec, "matchResources"), "spec.matchResources")


def _check_param_ref(causes: Causes, reference: Object, where: str) -> None:
    name, selector = reference.get("name") or "", reference.get("selector")
    both = "name and selector are mutually exclusive"
    if name:
        if problem := path_segment_problem(name):
            causes.invalid(f"{where}.name", name, problem)
        if selector is not None:
            causes.forbidden(f"{where}.name", both)
    if selector is not None:
        check_selector(causes, part(reference, "selector"), f"{where}.selector")
        if name:
            causes.forbidden(f"{where}.selector", both)
    if not name and selector is None:
        causes.required(where, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if not action:
        causes.required(f"{where}.parameterNotFoundAction")
    elif action not in _NOT_FOUND_ACTIONS:
        field = f"{where}.parameterNotFoundAction"
        causes.not_supported(field, action, _NOT_FOUND_ACTIONS)


def _check_actions(causes: Causes, actions: list[str], where: str) -> None:
    seen: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            causes.not_supported(f"{where}[{index}]", action, _ACTIONS)
        causes.once(f"{where}[{index}]", action, seen)
    if {"Deny", "Warn"} <= seen:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information"
            " in the API response and headers serves no purpose)"
        )
        causes.invalid(where, actions, why)
    if not seen:
        causes.required(where, "at least one validation action is required")
