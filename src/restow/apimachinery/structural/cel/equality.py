"""Equality and addition of lists that are sets or maps.

The order of such lists is ignored. Adding sets appends missing items; adding map lists replaces
items with the same keys. Not here: other values (`values.cel_equal`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.structural.cel.values import cel_equal, contains
from restow.apimachinery.structural.ratchet import by_list_key, list_key

Equal = Callable[[Any, Any], bool]


def declared_equal(declared: Declared | None) -> Equal:
    """Return the comparison for values of a schema."""
    if declared is None or not _has_unordered(declared):
        return cel_equal
    schema = declared.schema
    if declared.key is not None:
        return _maps_equal(declared_equal(declared.item))
    if declared.item is None:
        return _objects_equal(
            {declared.names[name]: declared_equal(below) for name, below in declared.fields.items()}
        )
    items_equal = declared_equal(declared.item)
    list_type = schema.list_type if schema is not None else None
    if list_type == "set":
        return lambda one, other: (
            _is_list_of(one, other)
            and all(any(items_equal(each, theirs) for theirs in other) for each in one)
        )
    if list_type == "map" and schema is not None:
        return _keyed_equal(schema.list_keys, items_equal)
    return lambda one, other: _is_list_of(one, other) and all(map(items_equal, one, other))


def _has_unordered(declared: Declared) -> bool:
    if not declared.is_ordered:
        return True
    if declared.item is not None:
        return _has_unordered(declared.item)
    return any(map(_has_unordered, declared.fields.values()))


def _is_list_of(one: Any, other: Any) -> bool:
    return type(one) is list and type(other) is list and len(one) == len(other)


def _maps_equal(values_equal: Equal) -> Equal:
    def equal(one: Any, other: Any) -> bool:
        if type(one) is not dict or type(other) is not dict:
            return cel_equal(one, other)
        return len(one) == len(other) and all(
            key in other and values_equal(value, other[key]) for key, value in one.items()
        )

    return equal


def _objects_equal(fields: dict[str, Equal]) -> Equal:
    def equal(one: Any, other: Any) -> bool:
        if type(one) is not dict or type(other) is not dict:
            return cel_equal(one, other)
        return len(one) == len(other) and all(
            key in other and fields.get(key, cel_equal)(value, other[key])
            for key, value in one.items()
        )

    return equal


def _keyed_equal(keys: tuple[str, ...], items_equal: Equal) -> Equal:
    def equal(one: Any, other: Any) -> bool:
        if not _is_list_of(one, other):
            return False
        theirs = by_list_key(other, keys)
        for item in one:
            identity = list_key(item, keys)
            if identity not in theirs or not items_equal(item, theirs[identity]):
                return False
        return True

    return equal


def merged(declared: Declared | None) -> Callable[[list[Any], list[Any]], list[Any]] | None:
    """Return the addition for such lists; None for lists that are concatenated."""
    schema = declared.schema if declared is not None else None
    if declared is None or schema is None or declared.is_ordered or declared.item is None:
        return None
    if schema.list_type == "set":
        return lambda one, other: one + [each for each in other if not contains(one, each)]
    keys = schema.list_keys

    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        theirs = by_list_key(other, keys)
        mine = by_list_key(one, keys)
        kept = [theirs.get(list_key(each, keys), each) for each in one]
        return kept + [each for each in other if list_key(each, keys) not in mine]

    return merge
