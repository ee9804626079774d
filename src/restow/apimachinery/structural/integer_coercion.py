"""Converts floats without a fraction to integers where the schema requires integers: `1.0`, `1e2`.

They are valid, but clients that decode integers could not read them back, so they are stored as
integers. Only fields that lead to integers are visited. Not here: validation of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from restow.apimachinery.structural.schema import Schema

_EXACT_MAX: Final = 2.0**63

IntegerCoercion = Callable[[Any], Any]
"""Returns a value with such numbers converted; objects and lists are changed in place."""


def compile_integer_coercion(schema: Schema) -> IntegerCoercion | None:
    """Compile the conversion of a schema; None if it has no integers."""
    if schema.type == "integer" or schema.int_or_string:
        return _to_integer
    if schema.items is not None:
        return _of_list(schema.items)
    fields = {name: compile_integer_coercion(each) for name, each in schema.properties.items()}
    found = {name: each for name, each in fields.items() if each is not None}
    others = schema.additional_schema
    below = None if others is None else compile_integer_coercion(others)
    if below is not None:
        return _of_map(below)
    return _of_object(found) if found else None


def _to_integer(value: Any) -> Any:
    if type(value) is float and value.is_integer() and -_EXACT_MAX <= value < _EXACT_MAX:
        return int(value)
    return value


def _of_list(items: Schema) -> IntegerCoercion | None:
    below = compile_integer_coercion(items)
    if below is None:
        return None

    def run(value: Any) -> Any:
        if type(value) is list:
            value[:] = [below(each) for each in value]
        return value

    return run


def _of_map(below: IntegerCoercion) -> IntegerCoercion:
    def run(value: Any) -> Any:
        if type(value) is dict:
            for name, each in value.items():
                value[name] = below(each)
        return value

    return run


def _of_object(fields: dict[str, IntegerCoercion]) -> IntegerCoercion:
    def run(value: Any) -> Any:
        if type(value) is dict:
            for name, below in fields.items():
                if name in value:
                    value[name] = below(value[name])
        return value

    return run
