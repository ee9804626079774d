"""The parts of an expression.

Macros are nodes of their own rather than the loops that they stand for. Chains of `&&` and `||`
are one node each, so that only nesting makes an expression deep.

Not here: reading an expression (`syntax`), names and types (`checker`), and evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from restow.apimachinery.structural.cel.functions import Overload
from restow.apimachinery.structural.cel.types import Declared, Type


@dataclass(slots=True, eq=False, kw_only=True)
class CelNode:
    """A part of an expression; `at` is where it stands, `type` is filled in by the checker."""

    at: int
    depth: int = 1
    type: Type | None = None
    declared: Declared | None = None
    """The schema behind the value, if it is a part of the object; also by the checker."""


@dataclass(slots=True, eq=False)
class Literal(CelNode):
    """A constant."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(CelNode):
    """A name."""

    name: str


@dataclass(slots=True, eq=False)
class Select(CelNode):
    """`a.b`, `has(a.b)` if it only tests, `a.?b` if it is optional."""

    operand: CelNode
    name: str
    is_test: bool = False
    is_optional: bool = False
    variable: str = ""
    """The name of a variable that has dots in it, if it is one; also by the checker."""


@dataclass(slots=True, eq=False)
class Call(CelNode):
    """A function or operator. The checker finds the overloads that fit."""

    function: str
    target: CelNode | None
    args: list[CelNode]
    overloads: list[Overload] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Logic(CelNode):
    """A chain of `&&` or of `||`."""

    is_and: bool
    terms: list[CelNode]


@dataclass(slots=True, eq=False)
class Conditional(CelNode):
    """`a ? b : c`."""

    condition: CelNode
    yes: CelNode
    no: CelNode


@dataclass(slots=True, eq=False)
class ListLiteral(CelNode):
    """`[a, ?b]`."""

    items: list[CelNode]
    optional: frozenset[int]


@dataclass(slots=True, eq=False)
class MapLiteral(CelNode):
    """`{a: b, ?c: d}`; the last of each entry says whether it is optional."""

    entries: list[tuple[CelNode, CelNode, bool]]


@dataclass(slots=True, eq=False)
class Message(CelNode):
    """`Name{field: value}`; schemas name no types, so there is never one to make."""

    name: str


@dataclass(slots=True, eq=False)
class Macro(CelNode):
    """A loop over a list or map, or a mapping of an optional value."""

    kind: str
    target: CelNode
    variables: tuple[str, ...]
    args: list[CelNode]
