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
class Node:
    """A part of an expression; `at` is where it stands, `type` is filled in by the checker."""

    at: int
    depth: int = 1
    type: Type | None = None
    declared: Declared | None = None
    """The schema behind the value, if it is a part of the object; also by the checker."""


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A name."""

    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """`a.b`, `has(a.b)` if it only tests, `a.?b` if it is optional."""

    operand: Node
    name: str
    is_test: bool = False
    is_optional: bool = False
    variable: str = ""
    """The name of a variable that has dots in it, if it is one; also by the checker."""


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function or operator. The checker finds the overloads that fit."""

    function: str
    target: Node | None
    args: list[Node]
    overloads: list[Overload] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Logic(Node):
    """A chain of `&&` or of `||`."""

    is_and: bool
    terms: list[Node]


@dataclass(slots=True, eq=False)
class Conditional(Node):
    """`a ? b : c`."""

    condition: Node
    yes: Node
    no: Node


@dataclass(slots=True, eq=False)
class ListOf(Node):
    """`[a, ?b]`."""

    items: list[Node]
    optional: frozenset[int]


@dataclass(slots=True, eq=False)
class MapOf(Node):
    """`{a: b, ?c: d}`; the last of each entry says whether it is optional."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class Message(Node):
    """`Name{field: value}`; schemas name no types, so there is never one to make."""

    name: str


@dataclass(slots=True, eq=False)
class Macro(Node):
    """A loop over a list or map, or a mapping of an optional value."""

    kind: str
    target: Node
    variables: tuple[str, ...]
    args: list[Node]
