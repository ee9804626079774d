"""Removes the fields that a schema does not specify, and lists them.

The walk follows the type of the value, not that of the schema: a list in place of an object is
walked as a list. `apiVersion`, `kind` and `metadata` of the object and of embedded objects are
skipped; decoding handles them.

Not here: nulls and defaults (`defaults`), and the fast path for objects with nothing to remove
(`coerce`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.structural.schema import Schema

# More are removed, but not listed, to bound the number of warnings.
UNKNOWN_FIELDS_MAX: Final = 100

META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, schema: Schema | None, *, is_root: bool = True) -> list[str]:
    """Remove unknown fields from a value, in place; return their paths, sorted."""
    walk = _Pruning()
    walk.node(value, schema, "", keeps_meta=is_root)
    return sorted(walk.unknown)


class _Pruning:
    def __init__(self) -> None:
        self.unknown: list[str] = []

    def node(self, value: Any, schema: Schema | None, path: str, *, keeps_meta: bool) -> None:
        if type(value) is dict:
            self._object(value, schema, path, keeps_meta=keeps_meta)
        elif type(value) is list:
            # A list that preserves unknown fields also preserves those of its items, unless typed.
            items = schema.items if schema is not None else None
            preserves = schema is not None and schema.preserves
            for index, item in enumerate(value):
                below = f"{path}[{index}]"
                if preserves:
                    self._preserved(item, items, below)
                else:
                    self.node(item, items, below, keeps_meta=_keeps_meta(items))

    def _object(
        self, value: dict[str, Any], schema: Schema | None, path: str, *, keeps_meta: bool
    ) -> None:
        if schema is not None and schema.preserves:
            self._preserved(value, schema, path, keeps_meta=keeps_meta)
            return
        unknown = []
        for name, member in value.items():
            if keeps_meta and name in META_FIELDS:
                continue
            if schema is None:
                unknown.append(name)
            elif (known := schema.properties.get(name)) is not None:
                self.node(member, known, _below(path, name), keeps_meta=known.embedded)
            elif schema.additional is not None:
                additional = schema.additional_schema
                keeps = _keeps_meta(additional)
                self.node(member, additional, _below(path, name), keeps_meta=keeps)
            else:
                unknown.append(name)
        for name in unknown:
            del value[name]
            if (path or name not in META_FIELDS) and len(self.unknown) < UNKNOWN_FIELDS_MAX:
                self.unknown.append(_below(path, name))

    def _preserved(
        self, value: Any, schema: Schema | None, path: str, *, keeps_meta: bool = False
    ) -> None:
        """Below a node that preserves unknown fields, prune only parts that have a schema."""
        if schema is None:
            return
        keeps_meta = keeps_meta or schema.embedded
        if type(value) is dict:
            for name, member in value.items():
                if keeps_meta and name in META_FIELDS:
                    continue
                known = schema.properties.get(name)
                if known is not None:
                    self.node(member, known, _below(path, name), keeps_meta=known.embedded)
                elif schema.additional is not None:
                    additional = schema.additional_schema
                    keeps = _keeps_meta(additional)
                    self.node(member, additional, _below(path, name), keeps_meta=keeps)
        elif type(value) is list:
            for index, item in enumerate(value):
                self._preserved(item, schema.items, f"{path}[{index}]")


def _keeps_meta(schema: Schema | None) -> bool:
    return schema is not None and schema.embedded


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
