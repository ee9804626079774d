"""Helpers that set defaults in an object.

They never fail on an object of the wrong shape: type checks report it later.

Not here: any default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]


def put(obj: Object, name: str, value: Any) -> None:
    """Set a field that is absent or empty."""
    if obj.get(name) in (None, ""):
        obj[name] = value


def put_all(obj: Object, values: Mapping[str, Any]) -> None:
    """Set each of the fields that is absent or empty."""
    for name, value in values.items():
        if obj.get(name) in (None, ""):
            obj[name] = value


def put_numbers(obj: Object, values: Mapping[str, int]) -> None:
    """Set each of the fields that is absent or zero: for numbers whose zero means unset."""
    for name, value in values.items():
        if not obj.get(name):
            obj[name] = value


def child(obj: Object, name: str) -> Object:
    """Return a part of an object; create it if it is absent."""
    found = obj.get(name)
    if found is None:
        found = obj[name] = {}
    return found if isinstance(found, dict) else {}


def own(obj: Object, name: str) -> Object:
    """Like `child`, for an object that shares its parts: replaces the part with a copy."""
    found = child(obj, name)
    if obj[name] is found:
        found = obj[name] = dict(found)
    return found


def given(obj: Object, name: str) -> Object | None:
    """Return a part of an object; None if it is absent."""
    found = obj.get(name)
    return found if isinstance(found, dict) else None


def items(obj: Object, name: str) -> Iterator[Object]:
    """Yield the objects in a list; none if there is no list."""
    found = obj.get(name)
    if isinstance(found, list):
        for each in found:
            if isinstance(each, dict):
                yield each
