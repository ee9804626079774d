"""CEL for admission: the variables of policies and webhook match conditions, and their types.

    object, oldObject      the object after and before the request; null where there is none
    request                the AdmissionRequest
    namespaceObject        the namespace of the object; null if it is cluster-scoped
    params                 the parameter object of a binding, if the policy has paramKind
    authorizer             authorization checks
    variables              variables that the policy has defined before

Objects are untyped when an expression is compiled: missing fields are found at runtime. Everything
else is typed, so misspelt fields are found at compilation. Callers that know the object's kind can
also check an expression against its type.

Not here: the use of the outcome, and the source of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.budget import CALL_COST_MAX
from restow.apimachinery.structural.cel.checker import Variable
from restow.apimachinery.structural.cel.declarations import parse_moment
from restow.apimachinery.structural.cel.environment import RULES
from restow.apimachinery.structural.cel.evaluate import compile_node
from restow.apimachinery.structural.cel.library_authorizer import (
    AUTHORIZATION,
    AUTHORIZER,
    RESOURCE_CHECK,
)
from restow.apimachinery.structural.cel.program import (
    CompileError,
    EvaluationOutcome,
    Program,
    check_expression,
)
from restow.apimachinery.structural.cel.run import Trial
from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.structural.cel.values import CelError, Timestamp

OBJECT: Final = "object"
OLD_OBJECT: Final = "oldObject"
REQUEST: Final = "request"
NAMESPACE: Final = "namespaceObject"
PARAMS: Final = "params"
AUTHORIZER_VARIABLE: Final = "authorizer"
REQUEST_RESOURCE_VARIABLE: Final = "authorizer.requestResource"
VARIABLES: Final = "variables"

ENVIRONMENT: Final = RULES.extended(AUTHORIZATION)
"""The functions that admission expressions may call."""


def _object(fields: Mapping[str, Declared], names: Mapping[str, str] | None = None) -> Declared:
    declared = Declared(fields=dict(fields), names=dict(names or {}))
    declared.type = types.Type("object", (), declared)
    return declared


def _texts(*names: str) -> dict[str, Declared]:
    return {name: Declared(types.STRING) for name in names}


def _parse_timestamp(text: Any) -> Timestamp:
    try:
        return Timestamp(parse_moment(text))
    except (ValueError, TypeError) as error:
        raise CelError(str(error)) from None


_TEXT_LIST: Final = Declared(types.list_of(types.STRING))
_TEXT_MAP: Final = Declared(types.map_of(types.STRING, types.STRING))
_TIMESTAMP_FIELD: Final = Declared(types.TIMESTAMP, convert=_parse_timestamp)

_KIND: Final = _object(_texts("group", "version", "kind"))
_RESOURCE: Final = _object(_texts("group", "version", "resource"))
_USER: Final = _object(
    {
        **_texts("username", "uid"),
        "groups": _TEXT_LIST,
        "extra": Declared(types.map_of(types.STRING, _TEXT_LIST.type)),
    }
)
_REQUEST: Final = _object(
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        **_texts("subResource", "requestSubResource", "name", "namespace", "operation"),
        "userInfo": _USER,
        "dryRun": Declared(types.BOOL),
        "options": Declared(),
    }
)
_CONDITION: Final = _object(
    {**_texts("status", "type", "message", "reason"), "lastTransitionTime": _TIMESTAMP_FIELD}
)
_NAMESPACE: Final = _object(
    {
        "metadata": _object(
            {
                **_texts("name", "generateName", "namespace", "UID", "resourceVersion"),
                "labels": _TEXT_MAP,
                "annotations": _TEXT_MAP,
                "creationTimestamp": _TIMESTAMP_FIELD,
                "deletionTimestamp": _TIMESTAMP_FIELD,
                "deletionGracePeriodSeconds": Declared(types.INT),
                "generation": Declared(types.INT),
                "finalizers": _TEXT_LIST,
            },
            {"UID": "uid"},
        ),
        "spec": _object({"finalizers": _TEXT_LIST}),
        "status": _object(
            {
                **_texts("phase"),
                "conditions": Declared(types.list_of(_CONDITION.type), item=_CONDITION),
            }
        ),
    }
)
_ALWAYS: Final = {
    OBJECT: Variable(types.DYN),
    OLD_OBJECT: Variable(types.DYN),
    REQUEST: Variable(_REQUEST.type, _REQUEST),
    NAMESPACE: Variable(_NAMESPACE.type, _NAMESPACE),
}
_OF_AUTHORIZER: Final = {
    AUTHORIZER_VARIABLE: Variable(AUTHORIZER),
    REQUEST_RESOURCE_VARIABLE: Variable(RESOURCE_CHECK),
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled admission expression."""

    source: str
    type: types.Type
    used: frozenset[str]
    """The variables that it reads."""
    program: Program

    def run(
        self, values: dict[str, Any], *, cost_max: int = CALL_COST_MAX, trial: Trial | None = None
    ) -> EvaluationOutcome:
        """Return the value or the error, and the cost. Raises TrialOver if it exceeds the trial
        budget.
        """
        return self.program.run(values, cost_max=cost_max, trial=trial)


class Scope:
    """The variables that the expressions of one policy or webhook may use."""

    def __init__(
        self,
        *,
        has_params: bool = False,
        has_variables: bool = False,
        object_type: Declared | None = None,
        params_type: Declared | None = None,
    ) -> None:
        """With types, expressions are checked as if all objects had these types."""
        self._known = dict(_ALWAYS)
        self._is_typed = object_type is not None
        if object_type is not None:
            typed = Variable(object_type.type, object_type)
            self._known |= {OBJECT: typed, OLD_OBJECT: typed}
        if has_params:
            params = params_type or Declared()
            self._known[PARAMS] = Variable(params.type, params_type)
        self._fields: dict[str, Declared] = {}
        if has_variables:
            named = _object({})
            self._fields = named.fields
            self._known[VARIABLES] = Variable(named.type, named)

    def compile(
        self,
        source: str,
        *,
        wanted: tuple[types.Type, ...] = (types.BOOL,),
        has_authorizer: bool = True,
    ) -> Expression:
        """Compile an expression with one of the wanted types. Raises CompileError."""
        variables = self._known | _OF_AUTHORIZER if has_authorizer else self._known
        try:
            node, found, used = check_expression(source, variables, ENVIRONMENT)
        except CompileError as error:
            raise CompileError(f"compilation failed: {error}") from None
        if wanted and found not in wanted:
            listed = " ".join(map(_named, wanted))
            what = listed if len(wanted) == 1 else f"one of [{listed}]"
            raise CompileError(f"must evaluate to {what} but got {_named(found)}")
        program = Program(compile_node(node), uses_old=OLD_OBJECT in used, cost_max=0)
        return Expression(source, found, used, program)

    def name(self, name: str, source: str) -> Expression:
        """Compile a variable that later expressions may read. Raises CompileError."""
        try:
            made = self.compile(source, wanted=())
        except (CompileError, RecursionError):
            # else every expression that reads it would fail as well
            self._fields[name] = Declared()
            raise
        known = types.cut(made.type, TYPE_DEPTH_MAX)
        self._fields[name] = Declared(known if self._is_typed else _plain(known))
        return made

    def issues(self, source: str) -> str:
        """Return the compile errors of an expression as shown to its author; empty if there are
        none.
        """
        try:
            check_expression(source, self._known | _OF_AUTHORIZER, ENVIRONMENT)
        except CompileError as error:
            return str(error)
        except RecursionError:
            return ""  # too deep to check
        return ""


def _named(type_: types.Type) -> str:
    return "null_type" if type_ == types.NULL else str(type_)


TYPE_DEPTH_MAX: Final = 8
"""The depth to which the type of a variable is recorded."""
_KEPT: Final = frozenset(
    {
        types.BOOL,
        types.BYTES,
        types.DOUBLE,
        types.DURATION,
        types.INT,
        types.NULL,
        types.STRING,
        types.TIMESTAMP,
        types.UINT,
    }
)


def _plain(type_: types.Type) -> types.Type:
    """Return the recorded type of a variable: objects and the like become dynamic."""
    if type_ in _KEPT:
        return type_
    if type_.name in ("list", "map"):
        return types.Type(type_.name, tuple(map(_plain, type_.params)))
    return types.DYN


class PolicyVariables(dict[str, Any]):
    """The variables of a policy, evaluated on first read and then cached."""

    def __init__(
        self,
        expressions: Mapping[str, Expression],
        values: Callable[[], dict[str, Any]],
        failed: Mapping[str, str] | None = None,
    ) -> None:
        """`values` returns the inputs of an expression; it is called for each of them.

        `failed` are variables without a value, with the reason.
        """
        super().__init__()
        self._expressions = expressions
        self._values = values
        self._failed = dict(failed or {})
        self.cost = 0
        """The cost since the last `take_cost`."""
        self._trial: Trial | None = None

    def begin(self, trial: Trial | None) -> None:
        """An expression that reads the variables begins, as a trial or not. Variables that are
        evaluated during a trial are kept."""
        self._trial = trial

    def take_cost(self) -> int:
        """Return and reset the cost since the last call."""
        cost, self.cost = self.cost, 0
        return cost

    def __contains__(self, name: object) -> bool:
        return name in self._expressions or name in self._failed

    def __missing__(self, name: str) -> Any:
        if name not in self._failed:
            expression = self._expressions[name]
            self._failed[name] = f'variable "{name}" refers to itself'
            try:
                outcome = expression.run(self._values(), trial=self._trial)
            except BaseException:
                del self._failed[name]  # its value is still unknown
                raise
            self.cost += outcome.cost
            if not outcome.error:
                del self._failed[name]
                self[name] = outcome.value
                return outcome.value
            self._failed[name] = f'composited variable "{name}" fails to evaluate: {outcome.error}'
        raise CelError(self._failed[name])
