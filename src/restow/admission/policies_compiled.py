"""Compiled ValidatingAdmissionPolicies and bindings: rules, selectors and CEL expressions.

Stored objects were validated when they were written, but perhaps by another release. A part
that cannot be compiled is kept as an error, and the policy's `failurePolicy` decides its effect.

Not here: evaluation (`policies_evaluation`), and reviews of writes (`policies`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from restow.admission.matchers import Matcher
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.selectors import LabelSelector, label_selector_of
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.admission import VARIABLES, Expression, Scope
from restow.apimachinery.structural.cel.program import CompileError
from restow.registry.resource import Object

_TEXT_OR_NULL: Final = (types.STRING, types.NULL)


class ConfigurationError(Exception):
    """A policy or binding that cannot be used as configured."""


class Compiled(NamedTuple):
    """A compiled expression, or the error of its compilation."""

    source: str
    expression: Expression | None
    error: str = ""


class PolicyMatchCondition(NamedTuple):
    """A match condition: all of them must be true for the policy to apply."""

    name: str
    compiled: Compiled


class Validation(NamedTuple):
    """A validation: an expression that must be true, and the message if it is not."""

    compiled: Compiled
    message: str
    message_compiled: Compiled | None
    reason: str


class Annotation(NamedTuple):
    """An audit annotation."""

    key: str
    compiled: Compiled


class ParamKind(NamedTuple):
    """The kind of a policy's parameters."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


class ParamRef(NamedTuple):
    """The parameters of a binding: one object by name, or several by label selector."""

    name: str
    namespace: str
    selector: LabelSelector | None
    is_denied_without: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPolicy:
    """A compiled policy."""

    name: str
    fails_open: bool
    """Whether evaluation errors are ignored (`failurePolicy: Ignore`)."""
    matcher: Matcher
    param_kind: ParamKind | None = None
    conditions: tuple[PolicyMatchCondition, ...] = ()
    variables: dict[str, Compiled] = field(default_factory=dict)
    validations: tuple[Validation, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    used: frozenset[str] = frozenset()
    """The request variables that its expressions use."""
    error: str = ""
    """Why the policy cannot be used; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBinding:
    """A compiled binding: where a policy applies, with which parameters and actions."""

    name: str
    policy: str
    matcher: Matcher | None
    param_ref: ParamRef | None
    actions: tuple[str, ...]
    error: str = ""
    """Why the binding cannot be used; empty if it can."""


def read_policy(obj: Object) -> CompiledPolicy:
    """Compile a stored policy."""
    spec = _part(obj, "spec")
    matcher, param_kind, error = _match_resources(spec)
    has_params = bool(spec.get("paramKind"))
    conditions_scope = Scope(has_params=has_params)
    scope = Scope(has_params=has_params, has_variables=True)
    conditions = tuple(
        PolicyMatchCondition(
            str(each.get("name") or ""), _compiled(conditions_scope, each, "expression")
        )
        for each in _listed(spec, "matchConditions")
    )
    variables = {
        str(each.get("name") or ""): _variable(scope, each) for each in _listed(spec, "variables")
    }
    validations = tuple(_validation(scope, each) for each in _listed(spec, "validations"))
    annotations = tuple(
        Annotation(
            str(each.get("key") or ""),
            _compiled(scope, each, "valueExpression", wanted=_TEXT_OR_NULL),
        )
        for each in _listed(spec, "auditAnnotations")
    )
    compiled = [
        *(each.compiled for each in conditions),
        *variables.values(),
        *(each.compiled for each in validations),
        *(each.compiled for each in annotations),
        *(each.message_compiled for each in validations if each.message_compiled),
    ]
    used = [each.expression.used for each in compiled if each.expression is not None]
    return CompiledPolicy(
        name=_part(obj, "metadata").get("name") or "",
        fails_open=spec.get("failurePolicy") == "Ignore",
        matcher=matcher,
        param_kind=param_kind,
        conditions=conditions,
        variables=variables,
        validations=validations,
        annotations=annotations,
        used=frozenset().union(*used) - {VARIABLES},
        error=error,
    )


def unusable_policy(obj: Object, why: str) -> CompiledPolicy:
    """Return a policy that has only resource rules and an error, so that it denies by default."""
    spec = _part(obj, "spec")
    return CompiledPolicy(
        name=_part(obj, "metadata").get("name") or "",
        fails_open=spec.get("failurePolicy") == "Ignore",
        matcher=_rules_only(spec),
        error=why,
    )


def _match_resources(spec: Object) -> tuple[Matcher, ParamKind | None, str]:
    """Return the matcher and parameter kind of a policy, and why they cannot be used."""
    try:
        return read_matcher(_part(spec, "matchConstraints")), _param_kind(spec), ""
    except ConfigurationError as error:
        return _rules_only(spec), None, str(error)


def _rules_only(spec: Object) -> Matcher:
    return Matcher(_listed(_part(spec, "matchConstraints"), "resourceRules") or None)


def read_binding(obj: Object) -> PolicyBinding:
    """Compile a stored binding."""
    spec, error, matcher, reference = _part(obj, "spec"), "", None, None
    try:
        if spec.get("matchResources"):
            matcher = read_matcher(_part(spec, "matchResources"))
        if spec.get("paramRef"):
            reference = _param_ref(_part(spec, "paramRef"))
    except ConfigurationError as problem:
        error = str(problem)
    return PolicyBinding(
        name=_part(obj, "metadata").get("name") or "",
        policy=spec.get("policyName") or "",
        matcher=matcher,
        param_ref=reference,
        actions=tuple(each for each in spec.get("validationActions") or () if type(each) is str),
        error=error,
    )


def read_matcher(match: Object) -> Matcher:
    """Compile the match resources of a policy or binding. Raises a ConfigurationError."""
    rules = _listed(match, "resourceRules")
    try:
        return Matcher(
            rules or None,
            excluded=_listed(match, "excludeResourceRules"),
            match_policy=match.get("matchPolicy") or "Equivalent",
            namespace_selector=_part(match, "namespaceSelector"),
            object_selector=_part(match, "objectSelector"),
        )
    except StatusError as error:
        raise ConfigurationError(error.message) from error


def _variable(scope: Scope, variable: Object) -> Compiled:
    name, source = str(variable.get("name") or ""), str(variable.get("expression") or "")
    try:
        return Compiled(source, scope.name(name, source))
    except CompileError as error:
        return Compiled(source, None, str(error))


def _validation(scope: Scope, validation: Object) -> Validation:
    message = None
    if validation.get("messageExpression"):
        message = _compiled(
            scope,
            validation,
            "messageExpression",
            wanted=(types.STRING,),
            has_authorizer=False,
        )
    return Validation(
        _compiled(scope, validation, "expression"),
        str(validation.get("message") or "").strip(),
        message,
        str(validation.get("reason") or ""),
    )


def _compiled(
    scope: Scope,
    holder: Object,
    name: str,
    *,
    wanted: tuple[types.Type, ...] = (types.BOOL,),
    has_authorizer: bool = True,
) -> Compiled:
    source = str(holder.get(name) or "")
    try:
        made = scope.compile(source, wanted=wanted, has_authorizer=has_authorizer)
    except CompileError as error:
        return Compiled(source, None, f"compilation error: {error}")
    return Compiled(source, made)


def _param_kind(spec: Object) -> ParamKind | None:
    given = _part(spec, "paramKind")
    if not given:
        return None
    try:
        group, version = GroupVersion.parse(str(given.get("apiVersion") or ""))
    except MachineryError as error:
        raise ConfigurationError(f"failed to parse paramKind APIVersion: {error}") from error
    return ParamKind(group, version, str(given.get("kind") or ""))


def _param_ref(given: Object) -> ParamRef:
    selector = given.get("selector")
    try:
        compiled = None if selector is None else label_selector_of(selector)
    except StatusError as error:
        raise ConfigurationError(error.message) from error
    name = given.get("name") or ""
    if name and compiled is not None:
        raise ConfigurationError("paramRef.name and paramRef.selector are mutually exclusive")
    if not name and compiled is None:
        raise ConfigurationError("one of name or selector must be provided")
    return ParamRef(
        name,
        given.get("namespace") or "",
        compiled,
        given.get("parameterNotFoundAction") == "Deny",
    )


def _part(obj: Object, name: str) -> dict[str, Any]:
    found = obj.get(name)
    return found if isinstance(found, dict) else {}


def _listed(obj: Object, name: str) -> list[Object]:
    found = obj.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
