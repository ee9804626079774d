"""Whole numbers that were sent with a point: `1.0` and `1e2` where a schema wants integers.

They are valid, and clients that read integers could not read them back: they are stored without
the point. Only fields that lead to integers are looked at. Not here: whether a number is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from restow.apimachinery.structural.schema import Schema

_EXACT_MAX: Final = 2.0**63

Whole = Callable[[Any], Any]
"""A value in which such numbers are integers; objects and lists are changed in place."""


def compile_whole(schema: Schema) -> Whole | None:
    """None if there are no integers below."""
    if schema.type == "integer" or schema.int_or_string:
        return _whole
    if schema.items is not None:
        return _of_list(schema.items)
    fields = {name: compile_whole(each) for name, each in schema.properties.items()}
    found = {name: each for name, each in fields.items() if each is not None}
    others = schema.additional_schema
    below = None if others is None else compile_whole(others)
    if below is not None:
        return _of_map(below)
    return _of_object(found) if found else None


def _whole(value: Any) -> Any:
    if type(value) is float and value.is_integer() and -_EXACT_MAX <= value < _EXACT_MAX:
        return int(value)
    return value


def _of_list(items: Schema) -> Whole | None:
    below = compile_whole(items)
    if below is None:
        return None

    def run(value: Any) -> Any:
        if type(value) is list:
            value[:] = [below(each) for each in value]
        return value

    return run


def _of_map(below: Whole) -> Whole:
    def run(value: Any) -> Any:
        if type(value) is dict:
            for name, each in value.items():
                value[name] = below(each)
        return value

    return run


def _of_object(fields: dict[str, Whole]) -> Whole:
    def run(value: Any) -> Any:
        if type(value) is dict:
            for name, below in fields.items():
                if name in value:
                    value[name] = below(value[name])
        return value

    return run
