"""The few ways in which defaults are put into an object.

Nothing here fails on an object of a wrong shape: what is wrong is left for the check of types.

Not here: any default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]


def put(obj: Object, name: str, value: Any) -> None:
    """Sets a field that is absent or an empty text."""
    if obj.get(name) in (None, ""):
        obj[name] = value


def put_all(obj: Object, values: Mapping[str, Any]) -> None:
    """Sets each of the fields that is absent or an empty text."""
    for name, value in values.items():
        if obj.get(name) in (None, ""):
            obj[name] = value


def put_numbers(obj: Object, values: Mapping[str, int]) -> None:
    """Sets each of the fields that is absent or zero: for numbers of which zero means unset."""
    for name, value in values.items():
        if not obj.get(name):
            obj[name] = value


def child(obj: Object, name: str) -> Object:
    """A part of an object, made if it is absent."""
    found = obj.get(name)
    if found is None:
        found = obj[name] = {}
    return found if isinstance(found, dict) else {}


def own(obj: Object, name: str) -> Object:
    """The same, of an object whose parts others hold too: a copy takes its place."""
    found = child(obj, name)
    if obj[name] is found:
        found = obj[name] = dict(found)
    return found


def given(obj: Object, name: str) -> Object | None:
    """A part of an object, if it is there."""
    found = obj.get(name)
    return found if isinstance(found, dict) else None


def items(obj: Object, name: str) -> Iterator[Object]:
    """The objects in a list, none if there is no list."""
    found = obj.get(name)
    if isinstance(found, list):
        for each in found:
            if isinstance(each, dict):
                yield each
