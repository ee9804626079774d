"""Validates the defaults of a schema against the schema itself.

Not here: applying them (`defaults`).
"""

from __future__ import annotations

from typing import Any

from restow.apimachinery.field_errors import Causes
from restow.apimachinery.json_values import json_equal
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural import paths
from restow.apimachinery.structural.cel.rules import RuleNode, compile_rules, run_rules
from restow.apimachinery.structural.defaults import copy_json
from restow.apimachinery.structural.embedded_objects import coerce_embedded, embedded_problems
from restow.apimachinery.structural.limits import DEFAULTS_COST_MAX
from restow.apimachinery.structural.listtypes import list_type_problems
from restow.apimachinery.structural.prune import META_FIELDS, prune
from restow.apimachinery.structural.schema import Schema
from restow.apimachinery.structural.validate import schema_problems


def default_problems(
    schema: Schema, path: str, *, must_be_pruned: bool = True
) -> list[StatusCause]:
    """Return the errors of all defaults of a structural schema."""
    return _Checks(must_be_pruned=must_be_pruned).node(schema, path, inside_meta=False)


class _Checks:
    """Walks all defaults; their rules share one cost budget."""

    def __init__(self, *, must_be_pruned: bool) -> None:
        self.must_be_pruned = must_be_pruned
        self.cost_left = DEFAULTS_COST_MAX

    def node(self, schema: Schema, path: str, *, inside_meta: bool) -> list[StatusCause]:
        causes = Causes()
        if schema.default is not None:
            causes += self._default(schema, paths.child(path, "default"), inside_meta=inside_meta)
        # Defaults of map values are rejected elsewhere, where they would have an effect.
        if schema.items is not None:
            causes += self.node(schema.items, paths.child(path, "items"), inside_meta=inside_meta)
        for name, each in schema.properties.items():
            if each.is_plain:
                continue
            is_meta = inside_meta or (schema.embedded and name in META_FIELDS)
            below = paths.key(paths.child(path, "properties"), name)
            causes += self.node(each, below, inside_meta=is_meta and not each.embedded)
        return causes

    def _default(self, schema: Schema, path: str, *, inside_meta: bool) -> list[StatusCause]:
        causes = Causes()
        default = copy_json(schema.default)
        if self.must_be_pruned and not inside_meta:
            pruned = copy_json(default)
            prune(pruned, schema, is_root=schema.embedded)
            if not json_equal(pruned, default):
                causes.invalid(path, default, "must not have unknown fields")
        coerce_embedded(default, schema)
        found = embedded_problems(default, schema, path)
        found = found or schema_problems(default, schema, path=path)
        found = found or list_type_problems(default, schema, path)
        if not found and (rules := compile_rules(schema)) is not None:
            found = self._run(rules, default, default, path)
            # Also validate it as a new value, for rules with optionalOldSelf.
            found = found or self._run(rules, default, None, path)
        return causes + found

    def _run(self, rules: RuleNode, value: Any, old: Any, path: str) -> list[StatusCause]:
        result = run_rules(rules, value, old, path=path, cost_max=self.cost_left)
        self.cost_left = max(result.cost_left, 0)
        return result.causes
