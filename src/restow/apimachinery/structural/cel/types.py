"""CEL types, and their assignability.

Not here: types of schemas (`declarations`), and functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from restow.apimachinery.structural.cel.values import Convert
from restow.apimachinery.structural.schema import Schema


@dataclass(slots=True, frozen=True)
class Type:
    """A type with its name and parameters; object types refer to their declaration."""

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
        """Report whether the type is only known at runtime."""
        return self.name == "dyn" or self.name.startswith("$")

    @property
    def has_dyn(self) -> bool:
        """Report whether the type or any of its parameters is dynamic."""
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

# Type parameters of functions: any type, but the same one everywhere.
A: Final = Type("$A")
B: Final = Type("$B")

SCALARS: Final = frozenset({BOOL, INT, UINT, DOUBLE, DURATION, TIMESTAMP})


@dataclass(slots=True, eq=False)
class Declared:
    """The type of one node of a schema."""

    type: Type = DYN
    schema: Schema | None = None
    fields: dict[str, Declared] = field(default_factory=dict)
    """Fields by their CEL names."""
    names: dict[str, str] = field(default_factory=dict)
    """JSON names of fields by their CEL names."""
    item: Declared | None = None
    """The items of a list, or the values of a map."""
    key: Declared | None = None
    size_max: int = 0
    """Maximum items, entries, or bytes of a string; zero if the type has no size."""
    json_size_min: int = 0
    convert: Convert | None = None
    """Converts a JSON value for CEL; None if it is used directly."""
    is_ordered: bool = True
    """Whether the order of items counts when lists are compared."""


def list_of(item: Type) -> Type:
    """Return a list type."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """Return a map type."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """Return an optional type."""
    return Type("optional_type", (value,))


def type_of_type(value: Type) -> Type:
    """Return the type of a type value."""
    return Type("type", (value,))


def cut(type_: Type, depth: int) -> Type:
    """Return the type truncated to a depth; anything below becomes dynamic.

    Without a limit, a type that is built from other types repeatedly could grow exponentially.
    """
    if not type_.params:
        return type_
    if depth <= 0:
        return DYN
    params = tuple(cut(each, depth - 1) for each in type_.params)
    return Type(type_.name, params, type_.declared)


Bindings = dict[str, Type]


def bind(formal: Type, actual: Type, bindings: Bindings) -> bool:
    """Match an argument type with a parameter type, and record its type parameters."""
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
    """Return the common type of two types; None if there is none."""
    if one.is_dyn or other.is_dyn:
        return DYN if one.name == "dyn" or other.name == "dyn" else one
    # Null is assignable to types without scalar values; numbers and strings are never null.
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
    """Substitute type parameters in a result type; unbound ones become dynamic."""
    if type_.name.startswith("$"):
        return bindings.get(type_.name, DYN)
    if not type_.params:
        return type_
    return Type(type_.name, tuple(resolve(each, bindings) for each in type_.params))
