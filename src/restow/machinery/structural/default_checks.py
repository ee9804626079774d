"""Whether the defaults of a schema are what the schema itself would accept.

Not here: filling them in (`defaults`).
"""

from __future__ import annotations

from restow.machinery import field_errors
from restow.machinery.json_values import json_equal
from restow.machinery.status_error import Cause
from restow.machinery.structural import paths
from restow.machinery.structural.cel.rules import compile_rules, run_rules
from restow.machinery.structural.defaults import copy_json
from restow.machinery.structural.embedded import coerce_embedded, embedded_problems
from restow.machinery.structural.listtypes import list_type_problems
from restow.machinery.structural.prune import META_FIELDS, prune
from restow.machinery.structural.schema import Schema
from restow.machinery.structural.validate import schema_problems


def default_problems(
    schema: Schema, path: str, *, must_be_pruned: bool = True, inside_meta: bool = False
) -> list[Cause]:
    """All defaults of a structural schema that it would not accept itself."""
    causes: list[Cause] = []
    if schema.default is not None:
        where = paths.child(path, "default")
        causes += _one_default(schema, where, must_be_pruned=must_be_pruned and not inside_meta)
    # Defaults of map values are refused elsewhere, where they could make a difference.
    if schema.items is not None:
        below = paths.child(path, "items")
        causes += default_problems(
            schema.items, below, must_be_pruned=must_be_pruned, inside_meta=inside_meta
        )
    for name, each in schema.properties.items():
        is_meta = inside_meta or (schema.embedded and name in META_FIELDS)
        below = paths.key(paths.child(path, "properties"), name)
        causes += default_problems(
            each,
            below,
            must_be_pruned=must_be_pruned,
            inside_meta=is_meta and not each.embedded,
        )
    return causes


def _one_default(schema: Schema, path: str, *, must_be_pruned: bool) -> list[Cause]:
    causes: list[Cause] = []
    default = copy_json(schema.default)
    if must_be_pruned:
        pruned = copy_json(default)
        prune(pruned, schema, is_root=schema.embedded)
        if not json_equal(pruned, default):
            causes.append(field_errors.invalid(path, default, "must not have unknown fields"))
    coerce_embedded(default, schema)
    found = embedded_problems(default, schema, path)
    found = found or schema_problems(default, schema, path=path)
    found = found or list_type_problems(default, schema, path)
    if not found and (rules := compile_rules(schema)) is not None:
        found = run_rules(rules, default, default, path=path).causes
        # As a new value as well, for rules that take the old one as optional.
        found = found or run_rules(rules, default, None, path=path).causes
    return causes + found
