"""Removes nulls, applies defaults and detects unknown fields in one fast pass, compiled per schema.

Most objects need no change, which the JSON schema library decides fastest. Of the others, nearly
none has anything to prune. So the fast pass removes nulls, applies defaults, and only reports
whether there are unknown fields; then `prune` walks the object again, slowly and with paths. Values
of a wrong type may be skipped: validation rejects such an object in any case.

Not here: the reference implementation of the rules in `defaults` and `prune`. Tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from restow.apimachinery.structural.defaults import apply_defaults, copy_json, drop_nulls
from restow.apimachinery.structural.fast_validator import compile_settled
from restow.apimachinery.structural.prune import META_FIELDS, prune
from restow.apimachinery.structural.schema import Schema

# Changes a value in place, and returns whether it contains unknown fields.
Pass = Callable[[Any], bool]


class Coercion:
    """Coerces an object after decoding and before validation, and after reading it from storage."""

    __slots__ = ("_pass", "_schema", "is_settled")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.is_settled = compile_settled(schema)
        """Whether nothing has to change; False means unknown."""
        self._pass = _compile(schema, keeps_meta=True) or _unchanged

    def __call__(self, obj: dict[str, Any]) -> list[str]:
        """Drop nulls, apply defaults and prune, in place; return the pruned paths."""
        if self.is_settled(obj):
            return []
        return prune(obj, self._schema) if self._pass(obj) else []


def _unchanged(_: Any) -> bool:
    return False


def _compile(schema: Schema, *, keeps_meta: bool) -> Pass | None:
    """Compile the pass of a node; None if there is never anything to do."""
    if schema.type == "array":
        return _list_pass(schema)
    if schema.type == "object" or schema.properties or schema.additional is not None:
        return (
            _map_pass(schema)
            if schema.additional is not None
            else _object_pass(schema, keeps_meta=keeps_meta or schema.embedded)
        )
    return None


def _list_pass(schema: Schema) -> Pass | None:
    items = schema.items
    if items is None:
        return None
    below = _compile(items, keeps_meta=items.embedded)
    default = items.default
    replaces_nulls = default is not None and not items.nullable
    if below is None and not replaces_nulls:
        return None

    def run(value: Any) -> bool:
        if type(value) is not list:
            return type(value) is dict
        has_unknown = False
        if replaces_nulls and None in value:
            value[:] = [copy_json(default) if item is None else item for item in value]
        if below is not None:
            for item in value:
                if below(item):
                    has_unknown = True
        return has_unknown

    return run


def _map_pass(schema: Schema) -> Pass | None:
    """Compile the pass of a map, or of an object with properties that accepts any other field."""
    additional = schema.additional_schema
    if schema.properties:
        return _any_pass(schema)
    if additional is None:
        return None if schema.preserves else _has_fields
    below = _compile(additional, keeps_meta=additional.embedded)
    drops_nulls = not additional.nullable
    default = additional.default

    def run(value: Any) -> bool:
        if type(value) is not dict:
            return type(value) is list
        if drops_nulls and None in value.values():
            for name in [name for name, member in value.items() if member is None]:
                if default is None:
                    del value[name]
                else:
                    value[name] = copy_json(default)
        has_unknown = False
        if below is not None:
            for member in value.values():
                if below(member):
                    has_unknown = True
        return has_unknown

    return run


def _has_fields(value: Any) -> bool:
    """Report whether values of a map without a schema have fields, all of which are unknown."""
    if type(value) is not dict:
        return type(value) is list
    return any(map(_has_fields_below, value.values()))


def _has_fields_below(value: Any) -> bool:
    if type(value) is dict:
        return bool(value)
    return type(value) is list and any(map(_has_fields_below, value))


def _any_pass(schema: Schema) -> Pass:
    """For rare schemas: apply the slow rules, and always check for unknown fields."""

    def run(value: Any) -> bool:
        drop_nulls(value, schema)
        apply_defaults(value, schema)
        return True

    return run


def _object_pass(schema: Schema, *, keeps_meta: bool) -> Pass:
    known = frozenset(schema.properties) | (META_FIELDS if keeps_meta else frozenset())
    preserves = schema.preserves
    properties = schema.properties
    children: list[tuple[str, Pass]] = []
    for name, each in properties.items():
        # Unknown fields in metadata are handled by the decoder, but defaults by the schema.
        below = _compile(each, keeps_meta=each.embedded or (keeps_meta and name in META_FIELDS))
        if below is not None:
            children.append((name, below))
    defaults = tuple(
        (name, each.default, type(each.default) in (dict, list))
        for name, each in properties.items()
        if each.default is not None
    )
    default_names = frozenset(name for name, _, _ in defaults)
    below_meta = frozenset(META_FIELDS & set(properties)) if keeps_meta else frozenset()

    def run(value: Any) -> bool:
        if type(value) is not dict:
            return type(value) is list
        if None in value.values():
            _drop_nulls_here(value, properties)
        names = value.keys()
        if not default_names <= names:
            for name, default, is_container in defaults:
                if name not in value:
                    value[name] = copy_json(default) if is_container else default
        has_unknown = not preserves and not names <= known
        for name, below in children:
            member = value.get(name)
            # Unknown fields of metadata are not reported here.
            if member is not None and below(member) and name not in below_meta:
                has_unknown = True
        return has_unknown

    return run


def _drop_nulls_here(value: dict[str, Any], properties: dict[str, Schema]) -> None:
    """Remove nulls, including those that a default then replaces."""
    for name in [name for name, member in value.items() if member is None]:
        known = properties.get(name)
        if known is not None and not known.nullable:
            del value[name]
