"""Validates lists of type set or map: no duplicate items, no duplicate keys.

Not here: merging such lists, and which schemas may declare them (`schema_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from restow.apimachinery import field_errors
from restow.apimachinery.field_errors import Causes
from restow.apimachinery.json_values import scalar_identity
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural import paths
from restow.apimachinery.structural.schema import Schema

Check = Callable[[Any], bool]


def list_type_problems(value: Any, schema: Schema | None, path: str = "") -> list[StatusCause]:
    """Return all duplicates in the sets and maps below a value; each is reported once."""
    if schema is None:
        return []
    causes = Causes()
    if type(value) is dict:
        additional = schema.additional_schema
        for name, member in value.items():
            if additional is not None:
                causes += list_type_problems(member, additional, paths.key(path, name))
            if (known := schema.properties.get(name)) is not None:
                causes += list_type_problems(member, known, paths.child(path, name))
    elif type(value) is list:
        if schema.list_type == "set":
            for index in _repeated(value):
                causes.duplicate(paths.index(path, index), value[index])
        elif schema.list_type == "map":
            causes += _map_problems(value, schema.list_keys, path)
        if schema.items is not None:
            for index, item in enumerate(value):
                causes += list_type_problems(item, schema.items, paths.index(path, index))
    return causes


def compile_list_types(schema: Schema) -> Check | None:
    """Compile a fast check of all sets and maps; None if the schema has none."""
    tests: list[tuple[str, Check]] = []
    for name, each in schema.properties.items():
        if (test := compile_list_types(each)) is not None:
            tests.append((name, test))
    additional = schema.additional_schema
    of_values = compile_list_types(additional) if additional is not None else None
    of_items = compile_list_types(schema.items) if schema.items is not None else None
    keys = schema.list_keys if schema.list_type == "map" else ()
    is_set = schema.list_type == "set"
    if not (tests or of_values or of_items or keys or is_set):
        return None

    def test_list(value: list[Any]) -> bool:
        if len(value) > 1:
            if is_set and _repeated(value):
                return False
            if keys and not _keys_differ(value, keys):
                return False
        return of_items is None or all(map(of_items, value))

    def test_value(value: Any) -> bool:
        if type(value) is list:
            return test_list(value)
        if type(value) is not dict:
            return True
        for name, test in tests:
            if (member := value.get(name)) is not None and not test(member):
                return False
        return of_values is None or all(map(of_values, value.values()))

    return test_value


def _keys_differ(items: list[Any], keys: Sequence[str]) -> bool:
    """Report whether all items are objects with different keys, or None for unusual items."""
    try:
        if len(keys) == 1:
            key = keys[0]
            found = {item[key] for item in items}
        else:
            found = {tuple([item[key] for key in keys]) for item in items}
    except (KeyError, TypeError):
        # A list or object as a key, a missing key, or an item that is not an object.
        return not _map_problems(items, keys, "")
    return len(found) == len(items)


def _map_problems(items: list[Any], keys: Sequence[str], path: str) -> list[StatusCause]:
    for index, item in enumerate(items):
        if item is not None and type(item) is not dict:
            why = "must be an object for an array of list-type map"
            return [field_errors.invalid(paths.index(path, index), item, why)]
    found = [
        {key: item[key] for key in keys if key in item} if item is not None else {}
        for item in items
    ]
    return [
        field_errors.duplicate(paths.index(path, index), found[index]) for index in _repeated(found)
    ]


def _repeated(items: list[Any]) -> list[int]:
    """Return the indexes of second occurrences; further ones are not reported."""
    seen: dict[Any, int] = {}
    repeated = []
    for index, item in enumerate(items):
        identity: Any = scalar_identity(item)
        if identity is None:
            identity = orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
        times = seen[identity] = seen.get(identity, 0) + 1
        if times == 2:
            repeated.append(index)
    return repeated
