"""Removes disallowed nulls and applies defaults, for objects from clients and from storage.

A null is removed if the schema has neither `nullable` nor a default, and replaced if it has a
default. Nulls in lists stay, and validation rejects them.

Not here: unknown fields (`prune`), the fast path (`coerce`), and whether defaults are valid
(`default_checks`).
"""

from __future__ import annotations

from typing import Any

from restow.apimachinery.structural.schema import Schema


def drop_nulls(value: Any, schema: Schema | None) -> None:
    """Remove nulls that are neither allowed nor replaced by a default, in place."""
    if type(value) is dict:
        for name in [name for name, member in value.items() if member is None]:
            known = schema.field_schema(name) if schema is not None else None
            if known is not None and not known.nullable and known.default is None:
                del value[name]
        if schema is not None:
            for name, member in value.items():
                drop_nulls(member, schema.field_schema(name))
    elif type(value) is list and schema is not None and schema.items is not None:
        for item in value:
            drop_nulls(item, schema.items)


def apply_defaults(value: Any, schema: Schema | None) -> None:
    """Apply the defaults of a schema, in place; each is a separate copy."""
    if schema is None:
        return
    if type(value) is dict:
        for name, known in schema.properties.items():
            if known.default is not None and (
                name not in value or (value[name] is None and not known.nullable)
            ):
                value[name] = copy_json(known.default)
        additional = schema.additional_schema
        for name in value:
            known_here = schema.properties.get(name)
            if known_here is not None:
                apply_defaults(value[name], known_here)
            elif additional is not None:
                if value[name] is None and not additional.nullable:
                    value[name] = copy_json(additional.default)
                apply_defaults(value[name], additional)
    elif type(value) is list and (items := schema.items) is not None:
        for index in range(len(value)):
            if value[index] is None and not items.nullable:
                value[index] = copy_json(items.default)
            apply_defaults(value[index], items)


def copy_json(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if type(value) is dict:
        return {name: copy_json(member) for name, member in value.items()}
    if type(value) is list:
        return [copy_json(item) for item in value]
    return value
