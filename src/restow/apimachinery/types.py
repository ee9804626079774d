"""The model of typed objects: structs, their fields, and the types of fields.

A `Struct` describes one Kubernetes type: JSON names, protobuf numbers, pointer fields, merge rules
of lists. JSON validation, protobuf, strategic merge and OpenAPI all use the same struct, so they
cannot disagree.

Not here: particular kinds (the tables are in `restow.kinds`), and walking over values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias


class Scalar(Enum):
    """A plain value; the string is the name in OpenAPI formats and error messages."""

    STRING = "string"
    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    BYTES = "bytes"  # base64 in JSON


class Special(Enum):
    """A type whose JSON form differs from its fields; the string is its OpenAPI definition."""

    TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
    MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
    DURATION = "io.k8s.apimachinery.pkg.apis.meta.v1.Duration"
    QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
    RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"
    FIELDS_V1 = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
    JSON = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON"
    SCHEMA_OR_ARRAY = (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray"
    )
    SCHEMA_OR_BOOL = (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool"
    )
    SCHEMA_OR_STRINGS = (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray"
    )


# The struct that the three schema unions of Special hold besides their other alternative.
SCHEMA_NAME = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


@dataclass(frozen=True, slots=True)
class StructRef:
    """A struct, by its OpenAPI name; resolved by the table of the referring struct."""

    name: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """A JSON array. `wrapped` lists are a message of their own in protobuf."""

    item: "Type"
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class MapOf:
    """A JSON object with arbitrary keys, which are always strings."""

    value: "Type"


Type: TypeAlias = Scalar | Special | StructRef | ListOf | MapOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One JSON field of a struct."""

    json: str
    type: Type
    # Zero and absent differ only for pointers.
    pointer: bool = False
    # Without it the field is written even if it is zero.
    omitempty: bool = False
    # The protobuf field number; 0 for `kind` and `apiVersion`, which are in the envelope.
    number: int = 0
    # For strategic merge: "merge", "replace", "retainKeys".
    patch_strategies: tuple[str, ...] = ()
    merge_key: str | None = None
    # For server-side apply.
    list_type: str | None = None  # "atomic", "set", "map"
    list_keys: tuple[str, ...] = ()
    map_type: str | None = None  # "atomic", "granular"; for maps and structs
    # From an embedded struct: flat in JSON, a message of its own in protobuf.
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Embedded:
    """A struct whose fields are flat in JSON and in message `number` in protobuf."""

    number: int
    name: str


class StructResolver(Protocol):
    """Resolves a StructRef."""

    def struct(self, name: str) -> "Struct":
        """Return the struct of that name; raises UnknownType."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Struct:
    """One type: its fields by JSON name (embedded ones flattened) and by protobuf number."""

    name: str
    fields: tuple[Field, ...]
    table: StructResolver = field(repr=False)
    embedded: tuple[Embedded, ...] = ()
    # A kind has `kind` and `apiVersion`, and may be the top-level object of a request.
    is_kind: bool = False
    by_name: Mapping[str, Field] = field(init=False, repr=False)
    by_number: Mapping[int, Field | Embedded] = field(init=False, repr=False)
    # Values that other modules compile from this struct, by module-specific key.
    compiled: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        numbered: dict[int, Field | Embedded] = {
            each.number: each for each in self.fields if each.number and not each.inline
        }
        numbered.update({each.number: each for each in self.embedded if each.number})
        object.__setattr__(self, "by_name", {each.json: each for each in self.fields})
        object.__setattr__(self, "by_number", numbered)

    @property
    def short_name(self) -> str:
        """The last component of the name: `Deployment`."""
        return self.name.rpartition(".")[2]

    @property
    def version(self) -> str:
        """The component before it: `v1`."""
        return self.name.rpartition(".")[0].rpartition(".")[2]

    def child(self, type_: Type) -> "Struct | None":
        """Return the struct that a field's type leads to, through lists and maps; None if there is
        none.
        """
        while isinstance(type_, ListOf | MapOf):
            type_ = type_.item if isinstance(type_, ListOf) else type_.value
        return self.table.struct(type_.name) if isinstance(type_, StructRef) else None

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)


class UnknownType(LookupError):
    """The table has no struct of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown type {name!r}")
        self.name = name
