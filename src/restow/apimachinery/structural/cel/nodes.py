"""The syntax tree of an expression.

Macros are nodes of their own, not expanded to loops. A chain of `&&` or `||` is one node, so only
nesting makes an expression deep.

Not here: parsing (`syntax`), names and types (`checker`), and evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from restow.apimachinery.structural.cel.functions import Overload
from restow.apimachinery.structural.cel.types import Declared, Type


@dataclass(slots=True, eq=False, kw_only=True)
class CelNode:
    """A node; `at` is its position in the source. The checker sets `type` and `declared`."""

    at: int
    depth: int = 1
    type: Type | None = None
    declared: Declared | None = None
    """The schema of the value, if it is part of the object."""


@dataclass(slots=True, eq=False)
class Literal(CelNode):
    """A constant."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(CelNode):
    """An identifier."""

    name: str


@dataclass(slots=True, eq=False)
class Select(CelNode):
    """`a.b`, `has(a.b)` if `is_test`, `a.?b` if `is_optional`."""

    operand: CelNode
    name: str
    is_test: bool = False
    is_optional: bool = False
    variable: str = ""
    """The qualified name, if this is a variable with dots in its name; set by the checker."""


@dataclass(slots=True, eq=False)
class Call(CelNode):
    """A function or operator. The checker sets the matching overloads."""

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
    """`{a: b, ?c: d}`; the third element of each entry is whether it is optional."""

    entries: list[tuple[CelNode, CelNode, bool]]


@dataclass(slots=True, eq=False)
class Message(CelNode):
    """`Name{field: value}`; always an error, since schemas declare no named types."""

    name: str


@dataclass(slots=True, eq=False)
class Macro(CelNode):
    """A loop over a list or map, or a mapping of an optional value."""

    kind: str
    target: CelNode
    variables: tuple[str, ...]
    args: list[CelNode]
