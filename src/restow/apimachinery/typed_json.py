"""Validates decoded JSON against a struct: types, unknown fields, and the canonical form.

There are two passes with equal results. The fast one only decides whether an object is valid and
canonical; most are, and then the same object is returned. Otherwise the thorough one
(`typed_json_repair`) builds a canonical copy, lists unknown fields, or reports the error.

Keys of objects must be strings, as in JSON. Not here: duplicate keys and the nesting of the body
(checked by the decoder), defaults, and rules about values.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, Final, NamedTuple

from restow.apimachinery.quantity import is_canonical as is_canonical_quantity
from restow.apimachinery.type_values import (
    ABSENT,
    FLOAT_EXACT_MAX,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    is_canonical_base64,
    is_canonical_micro_time,
    is_canonical_time,
    parse_duration,
    write_duration,
    zero_of_field,
)
from restow.apimachinery.typed_json_repair import repair
from restow.apimachinery.types import Field, ListOf, MapOf, Scalar, Special, Struct, StructRef, Type

Test = Callable[[Any], bool]

_COMPILED: Final = "typed_json.test"


class CheckedObject(NamedTuple):
    """A canonical object, and the paths of its unknown fields, which are removed."""

    value: dict[str, Any]
    unknown: list[str]


def check(struct: Struct, value: object) -> CheckedObject:
    """Return the object in canonical form without unknown fields; BadRequest if a type is wrong.

    The value is never modified; it is returned itself if there is nothing to do.
    """
    if is_canonical(struct, value):
        assert isinstance(value, dict)
        return CheckedObject(value, [])
    return CheckedObject(*repair(struct, value))


def is_canonical(struct: Struct, value: object) -> bool:
    """Report whether `check` would return the value unchanged. May be False even then.

    Nested schemas are left to the thorough pass, which limits their depth.
    """
    test: Test | None = struct.compiled.get(_COMPILED)
    if test is None:
        test = _struct_test(struct, ())
    return test(value)


def _struct_test(struct: Struct, outer: tuple[str, ...]) -> Test:
    if struct.name in outer:
        return _never
    compiled: Test | None = struct.compiled.get(_COMPILED)
    if compiled is not None:
        return compiled
    inner = (*outer, struct.name)
    tests = {field.json: _field_test(struct, field, inner) for field in struct}
    # Half of all fields are strings: a set lookup is cheaper than a call.
    strings = frozenset(field.json for field in struct if field.type is Scalar.STRING)
    required = tuple(field.json for field in struct if zero_of_field(struct, field) is not ABSENT)

    def test(value: Any) -> bool:
        if type(value) is not dict:
            return False
        try:
            for key, item in value.items():
                if type(item) is str and item and key in strings:
                    continue
                if not tests[key](item):
                    return False
        except KeyError:
            return False
        for name in required:  # noqa: SIM110 - a generator takes twice the time, here and below
            if name not in value:
                return False
        return True

    struct.compiled[_COMPILED] = test
    return test


def _field_test(struct: Struct, field: Field, outer: tuple[str, ...]) -> Test:
    """A zero value is canonical only if the field must be written."""
    if field.pointer or zero_of_field(struct, field) is not ABSENT:
        return _type_test(struct, field.type, outer)
    match field.type:
        case Scalar.BOOL:
            return _is_true
        case MapOf(Scalar.STRING):
            return _filled_string_map
        case ListOf(Scalar.STRING):
            return _filled_string_list
        case ListOf(item):
            return _list_test(_type_test(struct, item, outer), is_filled=True)
        case Special() if field.type is not Special.INT_OR_STRING:
            return _type_test(struct, field.type, outer)
        case _:
            return _filled(_type_test(struct, field.type, outer))


def _type_test(struct: Struct, type_: Type, outer: tuple[str, ...]) -> Test:
    match type_:
        case Scalar():
            return _SCALAR_TESTS[type_]
        case Special():
            return _SPECIAL_TESTS.get(type_, _never)
        case StructRef(name):
            return _struct_test(struct.table.struct(name), outer)
        case ListOf(Scalar.STRING):
            return _string_list
        case ListOf(item):
            return _list_test(_type_test(struct, item, outer), is_filled=False)
        case MapOf(Scalar.STRING):
            return _string_map
        case MapOf(item):
            return _map_test(_type_test(struct, item, outer))


def _list_test(test: Test, *, is_filled: bool) -> Test:
    def test_list(value: Any) -> bool:
        if type(value) is not list:
            return False
        for item in value:
            if not test(item):
                return False
        return not is_filled or value != []

    return test_list


def _map_test(test: Test) -> Test:
    def test_map(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for item in value.values():  # noqa: SIM110
            if not test(item):
                return False
        return True

    return test_map


def _filled(test: Test) -> Test:
    # All falsy values in Python are zero values in Go: "", 0, {}.
    return lambda value: bool(value) and test(value)


def _is_true(value: Any) -> bool:
    return value is True


def _never(_: Any) -> bool:
    return False


_STRINGS: Final = {str}


def _filled_string_map(value: Any) -> bool:
    # The loop over the types runs in C: most checked values are labels and data.
    return type(value) is dict and set(map(type, value.values())) == _STRINGS


def _string_map(value: Any) -> bool:
    return type(value) is dict and (not value or set(map(type, value.values())) == _STRINGS)


def _filled_string_list(value: Any) -> bool:
    return type(value) is list and set(map(type, value)) == _STRINGS


def _string_list(value: Any) -> bool:
    return type(value) is list and (not value or set(map(type, value)) == _STRINGS)


def _is_canonical_duration(value: Any) -> bool:
    try:
        return type(value) is str and write_duration(parse_duration(value)) == value
    except ValueError:
        return False


def _is_canonical_float(value: Any) -> bool:
    # Go writes 2.0 as 2.
    if type(value) is int:
        return -FLOAT_EXACT_MAX <= value <= FLOAT_EXACT_MAX
    return type(value) is float and isfinite(value) and not value.is_integer()


_SCALAR_TESTS: Final[dict[Scalar, Test]] = {
    Scalar.STRING: lambda value: type(value) is str,
    Scalar.BOOL: lambda value: type(value) is bool,
    Scalar.INT32: lambda value: type(value) is int and INT32_MIN <= value <= INT32_MAX,
    Scalar.INT64: lambda value: type(value) is int and INT64_MIN <= value <= INT64_MAX,
    Scalar.FLOAT64: _is_canonical_float,
    Scalar.BYTES: lambda value: type(value) is str and is_canonical_base64(value),
}

# The schema unions have no fast test.
_SPECIAL_TESTS: Final[dict[Special, Test]] = {
    Special.TIME: lambda value: type(value) is str and is_canonical_time(value),
    Special.MICRO_TIME: lambda value: type(value) is str and is_canonical_micro_time(value),
    Special.DURATION: _is_canonical_duration,
    Special.QUANTITY: lambda value: type(value) is str and is_canonical_quantity(value),
    Special.INT_OR_STRING: lambda value: (
        type(value) is str or (type(value) is int and INT32_MIN <= value <= INT32_MAX)
    ),
    Special.RAW_EXTENSION: lambda value: value is not None,
    Special.FIELDS_V1: lambda value: value is not None,
    Special.JSON: lambda value: value is not None,
}
