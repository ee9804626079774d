"""Types of CEL, and whether a value of one may stand where another is asked for.

Not here: how a schema is declared (`declarations`), and functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from restow.apimachinery.structural.cel.values import Convert
from restow.apimachinery.structural.schema import Schema


@dataclass(slots=True, frozen=True)
class Type:
    """A type by its name, with parameters; objects of schemas carry their declaration."""

    name: str
    params: tuple[Type, ...] = ()
    declared: Declared | None = None

    def __str__(self) -> str:
        if self.name == "object":
            return "object"
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"

    @property
    def is_dyn(self) -> bool:
        """Whether the type is only known when the expression runs."""
        return self.name == "dyn" or self.name.startswith("$")

    @property
    def has_dyn(self) -> bool:
        """The same of the type or any of its parameters."""
        return self.is_dyn or any(each.has_dyn for each in self.params)


BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null")
DYN: Final = Type("dyn")
DURATION: Final = Type("google.protobuf.Duration")
TIMESTAMP: Final = Type("google.protobuf.Timestamp")
URL: Final = Type("kubernetes.URL")
IP: Final = Type("net.IP")
CIDR: Final = Type("net.CIDR")
QUANTITY: Final = Type("kubernetes.Quantity")
SEMVER: Final = Type("kubernetes.Semver")
FORMAT: Final = Type("kubernetes.NamedFormat")

# Parameters of functions: any type, but the same one everywhere.
A: Final = Type("$A")
B: Final = Type("$B")

SCALARS: Final = frozenset({BOOL, INT, UINT, DOUBLE, DURATION, TIMESTAMP})


@dataclass(slots=True, eq=False)
class Declared:
    """The type of one node of a schema."""

    type: Type = DYN
    schema: Schema | None = None
    fields: dict[str, Declared] = field(default_factory=dict)
    """By the name that CEL has for them."""
    names: dict[str, str] = field(default_factory=dict)
    """From CEL's name of a field to its own."""
    item: Declared | None = None
    """Of a list, or the values of a map."""
    key: Declared | None = None
    size_max: int = 0
    """Items, entries, or bytes of a text; zero if there is no such thing."""
    json_size_min: int = 0
    convert: Convert | None = None
    """Makes the value that CEL sees; None if it is the JSON value itself."""
    is_ordered: bool = True
    """Whether the order of items counts when lists are compared."""


def list_of(item: Type) -> Type:
    """A list."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """A map."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """A value that may be missing."""
    return Type("optional_type", (value,))


def type_of_type(value: Type) -> Type:
    """A type as a value."""
    return Type("type", (value,))


def cut(type_: Type, depth: int) -> Type:
    """The same down to some depth; what is below may be anything. A type that is made of others
    over and over would grow beyond all bounds."""
    if not type_.params:
        return type_
    if depth <= 0:
        return DYN
    params = tuple(cut(each, depth - 1) for each in type_.params)
    return Type(type_.name, params, type_.declared)


Bindings = dict[str, Type]


def bind(formal: Type, actual: Type, bindings: Bindings) -> bool:
    """Whether an argument fits a parameter; remembers what parameters of types stand for."""
    if formal.name.startswith("$"):
        bound = bindings.get(formal.name)
        if bound is None:
            bindings[formal.name] = actual
            return True
        joined = join(bound, actual)
        if joined is None:
            return False
        bindings[formal.name] = joined
        return True
    if formal.is_dyn or actual.is_dyn:
        return True
    if formal.name != actual.name or len(formal.params) != len(actual.params):
        return False
    return all(
        bind(wanted, given, bindings)
        for wanted, given in zip(formal.params, actual.params, strict=True)
    )


def join(one: Type, other: Type) -> Type | None:
    """The type of a place where either may stand; None if they do not go together."""
    if one.is_dyn or other.is_dyn:
        return DYN if one.name == "dyn" or other.name == "dyn" else one
    # Null may stand for what has no value of its own kind; scalars and texts are never null.
    for null, value in ((one, other), (other, one)):
        if null is NULL and value.name in _NULLABLE:
            return value
    if one.name == "object" or other.name == "object":
        return one if one.declared is other.declared and one.name == other.name else None
    if one.name == other.name and len(one.params) == len(other.params):
        params = []
        for mine, theirs in zip(one.params, other.params, strict=True):
            joined = join(mine, theirs)
            if joined is None:
                return None
            params.append(joined)
        return Type(one.name, tuple(params)) if params else one
    return None


_NULLABLE: Final = frozenset(
    {"object", "google.protobuf.Duration", "google.protobuf.Timestamp", "optional_type"}
)


def resolve(type_: Type, bindings: Bindings) -> Type:
    """A result type with its parameters filled in; what is still open is dynamic."""
    if type_.name.startswith("$"):
        return bindings.get(type_.name, DYN)
    if not type_.params:
        return type_
    return Type(type_.name, tuple(resolve(each, bindings) for each in type_.params))
