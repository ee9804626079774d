"""Conversions between CEL types: `int('1')`, `string(2.5)`, `timestamp('…')`.

Not here: times and durations in schemas (`declarations`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.declarations import parse_moment
from restow.apimachinery.structural.cel.functions import (
    Overload,
    checked_int,
    checked_uint,
    shown,
    to_text,
    traversal,
)
from restow.apimachinery.structural.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Type,
)
from restow.apimachinery.structural.cel.values import (
    NANOSECOND,
    UINT64_MAX,
    CelError,
    Duration,
    Timestamp,
    Uint,
    duration,
    timestamp,
    type_of,
)
from restow.apimachinery.type_values import INT64_MAX, INT64_MIN, parse_duration


def _text_to_int(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 40:
        raise CelError("type conversion error from 'string' to 'int'")
    number = int(text)
    if not INT64_MIN <= number <= INT64_MAX:
        raise CelError("range error converting string to int")
    return number


def _text_to_uint(text: str) -> Uint:
    if not (text.isascii() and text.isdecimal()) or len(text) > 40 or int(text) > UINT64_MAX:
        raise CelError("type conversion error from 'string' to 'uint'")
    return Uint(int(text))


def _text_to_double(text: str) -> float:
    try:
        if "_" in text or text != text.strip():
            raise ValueError
        return float(text)
    except ValueError:
        raise CelError("type conversion error from 'string' to 'double'") from None


def _double_to_int(number: float) -> int:
    if math.isnan(number) or not INT64_MIN < number < INT64_MAX:
        raise CelError("integer overflow")
    return int(number)


def _double_to_uint(number: float) -> Uint:
    if math.isnan(number) or not 0 <= number < UINT64_MAX:
        raise CelError("unsigned integer overflow")
    return Uint(int(number))


_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def _text_to_bool(text: str) -> bool:
    if text not in _BOOLS:
        raise CelError("type conversion error from 'string' to 'bool'")
    return _BOOLS[text]


def _bytes_to_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def text_to_duration(text: str) -> Duration:
    """Parse a duration such as `1h30m`; the checker uses it for constants as well."""
    try:
        return duration(parse_duration(text))
    except ValueError:
        why = "type conversion error from 'string' to 'google.protobuf.Duration'"
        raise CelError(why) from None


def text_to_timestamp(text: str) -> Timestamp:
    """Parse a timestamp such as `2026-01-02T03:04:05Z`; the zone is required."""
    try:
        if text[-1:] not in "zZ" and text[-6:-5] not in ("+", "-"):
            raise ValueError
        return timestamp(parse_moment(text))
    except (ValueError, OverflowError):
        why = "type conversion error from 'string' to 'google.protobuf.Timestamp'"
        raise CelError(why) from None


def _conversions() -> list[Overload]:
    def same(value: Any) -> Any:
        return value

    table: list[tuple[str, str, Type, Type, Callable[[Any], Any]]] = [
        ("type", "type", A, types.type_of_type(A), type_of),
        ("dyn", "to_dyn", A, DYN, same),
        ("bool", "bool_to_bool", BOOL, BOOL, same),
        ("bool", "string_to_bool", STRING, BOOL, _text_to_bool),
        ("bytes", "bytes_to_bytes", BYTES, BYTES, same),
        ("double", "double_to_double", DOUBLE, DOUBLE, same),
        ("double", "int64_to_double", INT, DOUBLE, float),
        ("double", "uint64_to_double", UINT, DOUBLE, float),
        ("double", "string_to_double", STRING, DOUBLE, _text_to_double),
        ("duration", "duration_to_duration", DURATION, DURATION, same),
        ("duration", "string_to_duration", STRING, DURATION, text_to_duration),
        ("int", "int64_to_int64", INT, INT, same),
        ("int", "double_to_int64", DOUBLE, INT, _double_to_int),
        ("int", "duration_to_int64", DURATION, INT, lambda value: value.nanoseconds),
        ("int", "string_to_int64", STRING, INT, _text_to_int),
        (
            "int",
            "timestamp_to_int64",
            TIMESTAMP,
            INT,
            lambda value: value.nanoseconds // NANOSECOND,
        ),
        ("int", "uint64_to_int64", UINT, INT, lambda value: checked_int(int(value))),
        ("string", "string_to_string", STRING, STRING, same),
        ("string", "bool_to_string", BOOL, STRING, shown),
        ("string", "double_to_string", DOUBLE, STRING, to_text),
        ("string", "duration_to_string", DURATION, STRING, str),
        ("string", "int64_to_string", INT, STRING, str),
        ("string", "uint64_to_string", UINT, STRING, lambda value: str(int(value))),
        ("string", "timestamp_to_string", TIMESTAMP, STRING, str),
        ("timestamp", "timestamp_to_timestamp", TIMESTAMP, TIMESTAMP, same),
        (
            "timestamp",
            "int64_to_timestamp",
            INT,
            TIMESTAMP,
            lambda value: timestamp(value * NANOSECOND),
        ),
        ("timestamp", "string_to_timestamp", STRING, TIMESTAMP, text_to_timestamp),
        ("uint", "uint64_to_uint64", UINT, UINT, same),
        ("uint", "double_to_uint64", DOUBLE, UINT, _double_to_uint),
        ("uint", "int64_to_uint64", INT, UINT, checked_uint),
        ("uint", "string_to_uint64", STRING, UINT, _text_to_uint),
    ]
    found = [Overload(name, id_, (given,), made, run) for name, id_, given, made, run in table]
    found.append(
        Overload(
            "bytes",
            "string_to_bytes",
            (STRING,),
            BYTES,
            lambda text: text.encode(),
            cost=traversal(),
        )
    )
    found.append(
        Overload("string", "bytes_to_string", (BYTES,), STRING, _bytes_to_text, cost=traversal())
    )
    return found


CONVERSIONS: Final[list[Overload]] = _conversions()
