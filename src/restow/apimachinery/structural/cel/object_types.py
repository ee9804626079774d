"""CEL types of object kinds for admission expressions.

    declare_struct      a built-in kind, from the type tables
    declare_custom      a custom kind, from the schema in its CRD

Admission expressions see objects as plain JSON. Fields that are strings in JSON but another type in
the schema (times, quantities, bytes), and fields without a schema, are dynamic here: every reported
error is a real one.

Not here: schema rules, which see typed values (`declarations`).
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.declarations import escape
from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.structural.schema import Schema
from restow.apimachinery.types import Field, ListOf, MapOf, Scalar, Struct, StructRef, UnknownType
from restow.apimachinery.types import Type as FieldType

_SCALARS: Final = {
    Scalar.STRING: types.STRING,
    Scalar.BOOL: types.BOOL,
    Scalar.INT32: types.INT,
    Scalar.INT64: types.INT,
    Scalar.FLOAT64: types.DOUBLE,
}
_SCHEMA_SCALARS: Final = {"boolean": types.BOOL, "integer": types.INT, "number": types.DOUBLE}
_OF_KINDS: Final = ("apiVersion", "kind")
# Rules read strings of these formats as other types.
_FORMATS: Final = frozenset({"byte", "date", "date-time", "duration"})


def declare_struct(struct: Struct) -> Declared:
    """Return the type of a built-in kind. Kinds can be recursive, and so can types."""
    return _declare_struct(struct, {})


def declare_custom(schema: Schema, metadata: Declared) -> Declared:
    """Return the type of a custom kind, with the metadata that all objects have."""
    declared = _declare_schema(schema)
    if declared.type.is_dyn:
        return declared
    for name in _OF_KINDS:
        _add(declared, name, Declared(types.STRING))
    _add(declared, "metadata", metadata)
    return declared


def _declare_struct(struct: Struct, known: dict[str, Declared]) -> Declared:
    if struct.name in known:
        return known[struct.name]
    declared = known[struct.name] = _object()
    if struct.is_kind:
        for name in _OF_KINDS:
            _add(declared, name, Declared(types.STRING))
    each: Field
    for each in struct.fields:
        _add(declared, each.json, _declare_field(struct, each.type, known))
    return declared


def _declare_field(struct: Struct, type_: FieldType, known: dict[str, Declared]) -> Declared:
    match type_:
        case StructRef(name):
            try:
                return _declare_struct(struct.table.struct(name), known)
            except UnknownType:
                return Declared()
        case ListOf(item):
            return _list(_declare_field(struct, item, known))
        case MapOf(value):
            return _map(_declare_field(struct, value, known))
        case Scalar():
            return Declared(_SCALARS.get(type_, types.DYN))
    return Declared()


def _declare_schema(schema: Schema) -> Declared:
    if schema.int_or_string or schema.preserves or schema.embedded or schema.nullable:
        return Declared()
    match schema.type:
        case "array" if schema.items is not None:
            return _list(_declare_schema(schema.items))
        case "object" if schema.additional_schema is not None:
            return _map(_declare_schema(schema.additional_schema))
        case "object" if schema.properties:
            declared = _object()
            for name, each in schema.properties.items():
                _add(declared, name, _declare_schema(each))
            return declared
        case "string" if schema.format not in _FORMATS:
            return Declared(types.STRING)
    return Declared(_SCHEMA_SCALARS.get(schema.type, types.DYN))


def _object() -> Declared:
    declared = Declared()
    declared.type = types.Type("object", (), declared)
    return declared


def _list(item: Declared) -> Declared:
    return Declared(types.list_of(item.type), item=item)


def _map(value: Declared) -> Declared:
    return Declared(types.map_of(types.STRING, value.type), item=value)


def _add(declared: Declared, name: str, below: Declared) -> None:
    # Untyped access uses the original names.
    for spelling in {name, escape(name) or name}:
        declared.fields[spelling] = below
        declared.names[spelling] = name
