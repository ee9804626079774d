"""Builds the apply schema of a custom kind from its structural schema.

Defaults are those of Kubernetes: lists are atomic and maps are granular. Where unknown fields are
preserved, they are not checked, and neither is anything nested in them.

Not here: the use of the structural schema in validation and pruning (`apimachinery.structural`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from restow.apimachinery.apply.schema import (
    ANY,
    ANY_ATOMIC,
    ANY_OBJECT,
    ANY_SCALAR,
    FLAG,
    NUMBER,
    OBJECT_FIELDS,
    TEXT,
    UNTYPED,
    Elements,
    Members,
    SchemaNode,
)
from restow.apimachinery.structural.schema import Schema

_SCALARS: Final = {"integer": NUMBER, "number": NUMBER, "boolean": FLAG}
# Formats that leave a string a plain string; values of other formats are compared without a type.
_TEXT_FORMATS: Final = frozenset(("", "byte"))


def from_structural(schema: Schema) -> SchemaNode:
    """Return the node of a custom kind's objects; nodes below it are created on first access."""
    return SchemaNode(members=_members(schema, keeps_unknown=schema.preserves, own=OBJECT_FIELDS))


def _node(schema: Schema, *, keeps_unknown: bool) -> SchemaNode:
    keeps_unknown = keeps_unknown or schema.preserves
    if schema.type == "string":
        return TEXT if schema.format in _TEXT_FORMATS else ANY_SCALAR
    if scalar := _SCALARS.get(schema.type):
        return scalar
    if schema.type == "array":
        return SchemaNode(elements=_elements(schema, keeps_unknown=keeps_unknown))
    own = OBJECT_FIELDS if schema.embedded else {}
    is_atomic = schema.map_type == "atomic"
    is_unspecified = not schema.properties and schema.additional is None and schema.items is None
    if is_unspecified and not own and not is_atomic:
        return ANY_OBJECT if schema.type == "object" else ANY
    members = _members(schema, keeps_unknown=keeps_unknown, own=own)
    if schema.type == "object":
        return SchemaNode(members=members, is_atomic_map=is_atomic)
    # A schema without a type allows all types.
    return SchemaNode(
        scalar=UNTYPED,
        members=members,
        is_atomic_map=is_atomic,
        elements=_elements(schema, keeps_unknown=keeps_unknown),
    )


def _members(schema: Schema, *, keeps_unknown: bool, own: Mapping[str, SchemaNode]) -> Members:
    properties = schema.properties

    def declare(name: str) -> SchemaNode | None:
        if (found := own.get(name)) is not None:
            return found
        inner = properties.get(name)
        return None if inner is None else _node(inner, keeps_unknown=keeps_unknown)

    element: SchemaNode | None = None
    if isinstance(schema.additional, Schema):
        element = _node(schema.additional, keeps_unknown=keeps_unknown)
    elif schema.additional is None:
        if keeps_unknown or not (properties or own):
            element = ANY
    elif schema.additional:
        element = ANY
    return Members(declare if properties or own else None, element=element)


def _elements(schema: Schema, *, keeps_unknown: bool) -> Elements:
    items = schema.items
    item = ANY_ATOMIC if items is None else _node(items, keeps_unknown=keeps_unknown)
    keys = schema.list_keys if schema.list_type == "map" else ()
    defaults: dict[str, Any] = {}
    if keys and items is not None:
        inner = items.properties
        defaults = {name: inner[name].default for name in keys if name in inner}
    return Elements(
        item,
        is_associative=schema.list_type in ("set", "map"),
        keys=keys,
        defaults=defaults,
    )
