"""Correlates an updated object with its old version, for ratcheting validation.

Tightening a schema must not make stored objects unwritable, so errors in parts that equal their old
value are ignored. Parts are matched by field name, and items of map lists by their keys; items of
other lists have no old value.

Not here: which errors are ignored (`validate`, `cel.rules`).
"""

from __future__ import annotations

from typing import Any

from restow.apimachinery.json_values import json_equal
from restow.apimachinery.structural.schema import Schema

_UNKNOWN: Any = object()


class Correlated:
    """A value, the value it replaces, and their schema."""

    __slots__ = ("_by_key", "_equal", "old", "schema", "value")

    def __init__(self, value: Any, old: Any, schema: Schema) -> None:
        self.value = value
        self.old = old
        self.schema = schema
        self._equal: bool | None = None
        self._by_key: dict[Any, Any] | None = None

    def member(self, name: str) -> Correlated | None:
        """Correlate a field or map value; None if there is no old value."""
        if type(self.old) is not dict or type(self.value) is not dict:
            return None
        if name not in self.old or name not in self.value:
            return None
        schema = self.schema.field_schema(name)
        if schema is None:
            return None
        return Correlated(self.value[name], self.old[name], schema)

    def item(self, index: int) -> Correlated | None:
        """Correlate an item of a map list; None if there is no old item."""
        items = self.schema.items
        if type(self.old) is not list or type(self.value) is not list or items is None:
            return None
        if self.schema.list_type != "map" or not self.schema.list_keys:
            return None
        if self._by_key is None:
            self._by_key = by_list_key(self.old, self.schema.list_keys)
        item = self.value[index]
        old = self._by_key.get(list_key(item, self.schema.list_keys), None)
        return None if old is None else Correlated(item, old, items)

    def is_unchanged(self) -> bool:
        """Report whether the value is unchanged; the order of map lists is ignored."""
        if self._equal is None:
            self._equal = self._compare()
        return self._equal

    def _compare(self) -> bool:
        value, old = self.value, self.old
        if type(value) is dict and type(old) is dict:
            if len(value) != len(old):
                return False
            for name in value:
                below = self.member(name)
                if below is None or not below.is_unchanged():
                    return False
            return True
        if type(value) is list and type(old) is list:
            if len(value) != len(old):
                return False
            if self.schema.list_type != "map" or not self.schema.list_keys:
                return json_equal(value, old)
            for index in range(len(value)):
                below = self.item(index)
                if below is None or not below.is_unchanged():
                    return False
            return True
        return json_equal(value, old)


def by_list_key(items: Any, keys: tuple[str, ...]) -> dict[Any, Any]:
    """Index the items of a map list by their keys; of duplicates the first wins."""
    found: dict[Any, Any] = {}
    if type(items) is list:
        for item in items:
            identity = list_key(item, keys)
            if identity is not None:
                found.setdefault(identity, item)
    return found


def list_key(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return the key of a map list's item; None if a key is missing or not a scalar."""
    if type(item) is not dict:
        return None
    found = []
    for key in keys:
        value = item.get(key, _UNKNOWN)
        if value is _UNKNOWN or type(value) not in (bool, int, float, str):
            return None
        found.append((type(value) is bool, value))
    return tuple(found)
