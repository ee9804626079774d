"""CEL expressions over the claims of a token, and over the resulting user.

    claims.sub                                claims: the claims of the token
    user.username.startsWith('system:')       user: a UserInfo of authentication.k8s.io/v1

The language is that of CRD validation rules. Claims are dynamically typed, so most errors appear
only at evaluation.

Not here: the use of the values (`oidc_claims`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.budget import CALL_COST_MAX
from restow.apimachinery.structural.cel.checker import Variable
from restow.apimachinery.structural.cel.environment import RULES
from restow.apimachinery.structural.cel.evaluate import compile_node
from restow.apimachinery.structural.cel.program import CompileError, Program, check_expression
from restow.apimachinery.structural.cel.types import Declared

EXPRESSION_LENGTH_MAX: Final = 16_384
CACHED_MAX: Final = 1_024

_STRINGS: Final = types.list_of(types.STRING)


def _user_type() -> Variable:
    fields = {
        "username": Declared(types.STRING),
        "uid": Declared(types.STRING),
        "groups": Declared(_STRINGS, item=Declared(types.STRING)),
        "extra": Declared(
            types.map_of(types.STRING, _STRINGS),
            item=Declared(_STRINGS, item=Declared(types.STRING)),
            key=Declared(types.STRING),
        ),
    }
    declared = Declared(fields=fields, names={name: name for name in fields})
    declared.type = types.Type("object", (), declared)
    return Variable(declared.type, declared)


_CLAIMS: Final = {"claims": Variable(types.map_of(types.STRING, types.DYN))}
_USER: Final = {"user": _user_type()}


class ExpressionFailed(Exception):
    """An expression failed for a token. The message does not contain claims."""


def check_claims_rule(source: str, at: str, *, is_bool: bool = False) -> Iterator[str]:
    """Return the problems of an expression over claims, with the field path."""
    yield from _check(source, at, _CLAIMS, is_bool=is_bool)


def check_user_rule(source: str, at: str) -> Iterator[str]:
    """Return the problems of an expression over a user."""
    yield from _check(source, at, _USER, is_bool=True)


def evaluate_claims(source: str, claims: dict[str, Any]) -> Any:
    """Evaluate an expression over claims. Raises ExpressionFailed."""
    return _run(_compiled(source, is_user=False)[0], {"claims": claims})


def evaluate_user(source: str, user: dict[str, Any]) -> Any:
    """Evaluate an expression over a user. Raises ExpressionFailed."""
    return _run(_compiled(source, is_user=True)[0], {"user": user})


def _check(
    source: str, at: str, variables: Mapping[str, Variable], *, is_bool: bool
) -> Iterator[str]:
    if len(source) > EXPRESSION_LENGTH_MAX:
        yield f"{at}: Too long: may not be more than {EXPRESSION_LENGTH_MAX} bytes"
        return
    try:
        _, found = _compiled(source, is_user="user" in variables)
    except CompileError as error:
        yield f"{at}: Invalid value: compilation failed: {error}"
        return
    strings = (types.STRING, _STRINGS, types.list_of(types.DYN), types.NULL)
    wanted = (types.BOOL,) if is_bool else strings
    if not found.is_dyn and found not in wanted:
        yield f"{at}: Invalid value: must evaluate to {' or '.join(map(str, wanted[:2]))}"


@lru_cache(CACHED_MAX)
def _compiled(source: str, *, is_user: bool) -> tuple[Program, types.Type]:
    checked = check_expression(source, _USER if is_user else _CLAIMS, RULES)
    program = Program(compile_node(checked.node), uses_old=False, cost_max=CALL_COST_MAX)
    return program, checked.type


def _run(program: Program, variables: dict[str, Any]) -> Any:
    outcome = program.run(variables)
    if outcome.error:
        raise ExpressionFailed("the evaluation of the expression failed")
    return outcome.value
