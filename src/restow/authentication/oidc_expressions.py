"""Expressions about the claims of a token, and about the user that it stands for.

    claims.sub                                claims: what the token says
    user.username.startsWith('system:')       user: a UserInfo of authentication.k8s.io/v1

The language is that of rules in schemas. Claims have whatever type they have, so most is only
looked at when a token comes. Not here: what follows from a value (`oidc_claims`).
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
KEPT_MAX: Final = 1_024

_TEXTS: Final = types.list_of(types.STRING)


def _user_type() -> Variable:
    fields = {
        "username": Declared(types.STRING),
        "uid": Declared(types.STRING),
        "groups": Declared(_TEXTS, item=Declared(types.STRING)),
        "extra": Declared(
            types.map_of(types.STRING, _TEXTS),
            item=Declared(_TEXTS, item=Declared(types.STRING)),
            key=Declared(types.STRING),
        ),
    }
    declared = Declared(fields=fields, names={name: name for name in fields})
    declared.type = types.Type("object", (), declared)
    return Variable(declared.type, declared)


_CLAIMS: Final = {"claims": Variable(types.map_of(types.STRING, types.DYN))}
_USER: Final = {"user": _user_type()}


class ExpressionFailed(Exception):
    """An expression that gave no value for this token; says nothing of the token."""


def check_claims_rule(source: str, at: str, *, is_bool: bool = False) -> Iterator[str]:
    """What is wrong with an expression about claims, after its place."""
    yield from _check(source, at, _CLAIMS, is_bool=is_bool)


def check_user_rule(source: str, at: str) -> Iterator[str]:
    """What is wrong with an expression about a user."""
    yield from _check(source, at, _USER, is_bool=True)


def of_claims(source: str, claims: dict[str, Any]) -> Any:
    """The value of an expression about claims. Raises ExpressionFailed."""
    return _run(_compiled(source, is_user=False)[0], {"claims": claims})


def of_user(source: str, user: dict[str, Any]) -> Any:
    """The value of an expression about a user. Raises ExpressionFailed."""
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
    texts = (types.STRING, _TEXTS, types.list_of(types.DYN), types.NULL)
    wanted = (types.BOOL,) if is_bool else texts
    if not found.is_dyn and found not in wanted:
        yield f"{at}: Invalid value: must evaluate to {' or '.join(map(str, wanted[:2]))}"


@lru_cache(KEPT_MAX)
def _compiled(source: str, *, is_user: bool) -> tuple[Program, types.Type]:
    checked = check_expression(source, _USER if is_user else _CLAIMS, RULES)
    program = Program(compile_node(checked.node), uses_old=False, cost_max=CALL_COST_MAX)
    return program, checked.type


def _run(program: Program, variables: dict[str, Any]) -> Any:
    outcome = program.run(variables)
    if outcome.error:
        raise ExpressionFailed("it gave no value")
    return outcome.value
