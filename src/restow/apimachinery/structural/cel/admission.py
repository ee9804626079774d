"""Expressions about requests: the variables that policies and webhooks know, and their types.

    object, oldObject      the object as it would be and as it is; null where there is none
    request                what is asked, and by whom
    namespaceObject        the namespace of the object; null for what is in none
    params                 what a binding brings along, if its policy takes it
    authorizer             asks what somebody may do
    variables              what the policy has named before

Objects have no types when an expression is compiled: what they lack is found when it runs. All else
has its type, so that what is misspelt is found when it is written. Whoever knows of which kind the
objects are can have an expression checked with their types, too.

Not here: what is done with the outcome, and where the values come from.
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
ASKED: Final = "authorizer"
ASKED_RESOURCE: Final = "authorizer.requestResource"
VARIABLES: Final = "variables"

ENVIRONMENT: Final = RULES.extended(AUTHORIZATION)
"""What expressions about requests may call."""


def _object(fields: Mapping[str, Declared], names: Mapping[str, str] | None = None) -> Declared:
    declared = Declared(fields=dict(fields), names=dict(names or {}))
    declared.type = types.Type("object", (), declared)
    return declared


def _texts(*names: str) -> dict[str, Declared]:
    return {name: Declared(types.STRING) for name in names}


def _moment(text: Any) -> Timestamp:
    try:
        return Timestamp(parse_moment(text))
    except (ValueError, TypeError) as error:
        raise CelError(str(error)) from None


_TEXT_LIST: Final = Declared(types.list_of(types.STRING))
_TEXT_MAP: Final = Declared(types.map_of(types.STRING, types.STRING))
_MOMENT: Final = Declared(types.TIMESTAMP, convert=_moment)

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
    {**_texts("status", "type", "message", "reason"), "lastTransitionTime": _MOMENT}
)
_NAMESPACE: Final = _object(
    {
        "metadata": _object(
            {
                **_texts("name", "generateName", "namespace", "UID", "resourceVersion"),
                "labels": _TEXT_MAP,
                "annotations": _TEXT_MAP,
                "creationTimestamp": _MOMENT,
                "deletionTimestamp": _MOMENT,
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
_OF_AUTHORIZER: Final = {ASKED: Variable(AUTHORIZER), ASKED_RESOURCE: Variable(RESOURCE_CHECK)}


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression about requests."""

    source: str
    type: types.Type
    used: frozenset[str]
    """The variables that it reads."""
    program: Program

    def run(
        self, values: dict[str, Any], *, cost_max: int = CALL_COST_MAX, trial: Trial | None = None
    ) -> EvaluationOutcome:
        """The value or the error, and what it cost. Raises TrialOver if it is only tried."""
        return self.program.run(values, cost_max=cost_max, trial=trial)


class Scope:
    """What the expressions of one policy or webhook may name."""

    def __init__(
        self,
        *,
        has_params: bool = False,
        has_variables: bool = False,
        object_type: Declared | None = None,
        params_type: Declared | None = None,
    ) -> None:
        """With types, expressions can be checked as if all objects were of these."""
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
        """An expression whose value is of one of the types. Raises CompileError."""
        variables = self._known | _OF_AUTHORIZER if has_authorizer else self._known
        try:
            node, found, used = check_expression(source, variables, ENVIRONMENT)
        except CompileError as error:
            raise CompileError(f"compilation failed: {error}") from None
        if wanted and found not in wanted:
            told = " ".join(map(_named, wanted))
            what = told if len(wanted) == 1 else f"one of [{told}]"
            raise CompileError(f"must evaluate to {what} but got {_named(found)}")
        program = Program(compile_node(node), uses_old=OLD_OBJECT in used, cost_max=0)
        return Expression(source, found, used, program)

    def name(self, name: str, source: str) -> Expression:
        """A variable that whatever comes after may read. Raises CompileError."""
        try:
            made = self.compile(source, wanted=())
        except (CompileError, RecursionError):
            self._fields[name] = Declared()  # or all that reads it would be told wrong as well
            raise
        known = types.cut(made.type, TYPE_DEPTH_MAX)
        self._fields[name] = Declared(known if self._is_typed else _plain(known))
        return made

    def issues(self, source: str) -> str:
        """What is wrong with an expression, as its author is told; empty if nothing is."""
        try:
            check_expression(source, self._known | _OF_AUTHORIZER, ENVIRONMENT)
        except CompileError as error:
            return str(error)
        except RecursionError:
            return ""  # nobody can tell
        return ""


def _named(type_: types.Type) -> str:
    return "null_type" if type_ == types.NULL else str(type_)


TYPE_DEPTH_MAX: Final = 8
"""How deep the type of a variable is known."""
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
    """The type of a variable: of objects and the like nothing is remembered."""
    if type_ in _KEPT:
        return type_
    if type_.name in ("list", "map"):
        return types.Type(type_.name, tuple(map(_plain, type_.params)))
    return types.DYN


class PolicyVariables(dict[str, Any]):
    """The variables of a policy, each made when it is first read, and then kept."""

    def __init__(
        self,
        expressions: Mapping[str, Expression],
        values: Callable[[], dict[str, Any]],
        failed: Mapping[str, str] | None = None,
    ) -> None:
        """`values` are those that the expressions read, for each of them anew; `failed` are
        variables that can have none, with the reason."""
        super().__init__()
        self._expressions = expressions
        self._values = values
        self._failed = dict(failed or {})
        self.cost = 0
        """What has been spent on them and was not asked for yet."""
        self.trial: Trial | None = None
        """If whatever reads them is only tried. What has been made then is kept all the same."""

    def take_cost(self) -> int:
        """What has been spent since this was asked last."""
        cost, self.cost = self.cost, 0
        return cost

    def __contains__(self, name: object) -> bool:
        return name in self._expressions or name in self._failed

    def __missing__(self, name: str) -> Any:
        if name not in self._failed:
            expression = self._expressions[name]
            self._failed[name] = f'variable "{name}" is made from itself'
            try:
                outcome = expression.run(self._values(), trial=self.trial)
            except BaseException:
                del self._failed[name]  # it is not known yet
                raise
            self.cost += outcome.cost
            if not outcome.error:
                del self._failed[name]
                self[name] = outcome.value
                return outcome.value
            self._failed[name] = f'composited variable "{name}" fails to evaluate: {outcome.error}'
        raise CelError(self._failed[name])
