"""The protobuf wire format without structs: varints, lengths, special messages.

All readers work on one buffer between two positions. They raise ValueError with the reason, or
IndexError if the message is truncated.

Not here: structs and their fields, and error responses.
"""

import struct
from collections.abc import Callable
from math import isfinite
from typing import Any, Final

import orjson

from restow.apimachinery.codec import decode_value, exceeds_depth
from restow.apimachinery.quantity import WRONG_FORMAT, canonical, is_canonical, is_quantity
from restow.apimachinery.type_values import (
    ABSENT,
    time_from_unix,
    write_duration,
    write_micro_time,
    write_time,
)
from restow.apimachinery.types import Scalar, Special

MAGIC: Final = b"k8s\x00"

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2

# A 64-bit number, seven bits per byte.
VARINT_BYTES_MAX: Final = 10
# Nested messages; only schemas can nest without limit. A message level is at most two JSON levels,
# so this limit and the next one stay below that of the codec.
DEPTH_MAX: Final = 60
# Nesting of JSON inside a message.
JSON_DEPTH_MAX: Final = 100
# Messages in one body. An empty one takes two bytes there and hundreds in memory.
MESSAGES_MAX: Final = 200_000

_SIGN_64: Final = 1 << 63
_SIGN_32: Final = 1 << 31
_BITS_32: Final = (1 << 32) - 1

_unpack_double: Final = struct.Struct("<d").unpack_from


class ReadBudget:
    """The remaining limits of one decoding."""

    __slots__ = ("_depth_left", "_messages_left")

    def __init__(self) -> None:
        self._depth_left = DEPTH_MAX
        self._messages_left = MESSAGES_MAX

    def enter(self) -> None:
        self._depth_left -= 1
        self._messages_left -= 1
        if self._depth_left < 0:
            raise ValueError(f"messages are nested deeper than {DEPTH_MAX} levels")
        if self._messages_left < 0:
            raise ValueError(f"there are more than {MESSAGES_MAX} messages")

    def leave(self) -> None:
        self._depth_left += 1


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode a number; return it and the position after it."""
    number = data[position]
    position += 1
    if number < 0x80:
        return number, position
    number &= 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * VARINT_BYTES_MAX:
            raise ValueError("integer overflow")
    if number >> 64:
        raise ValueError("integer overflow")
    return number, position


def read_length(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Decode a length; return the start and the end of the value."""
    size = data[position]
    position += 1
    if size >= 0x80:
        size, position = read_varint(data, position - 1)
    stop = position + size
    if stop > end:
        raise IndexError
    return position, stop


def read_double(data: bytes, position: int, end: int) -> float | int:
    """Decode a finite number; an integral one as int, so that JSON has no fraction."""
    if position + 8 > end:
        raise IndexError
    value: float = _unpack_double(data, position)[0]
    if not isfinite(value):
        raise ValueError("a number is not finite")
    return int(value) if value.is_integer() and abs(value) < _SIGN_64 else value


def skip(data: bytes, position: int, tag: int) -> int:
    """Return the position after an unknown field; the caller checks it against the end."""
    if tag >> 3 == 0:
        raise ValueError(f"illegal tag {tag}")
    match tag & 7:
        case 0:
            return read_varint(data, position)[1]
        case 1:
            return position + 8
        case 2:
            size, position = read_varint(data, position)
            return position + size
        case 5:
            return position + 4
        case wire:
            raise ValueError(f"wireType = {wire} is not supported")


def read_small(data: bytes, position: int, end: int) -> dict[int, Any]:
    """Decode a message without nested messages: numbers as int, everything with a length as
    bytes.
    """
    found: dict[int, Any] = {}
    while position < end:
        tag, position = read_varint(data, position)
        if tag & 7 == LENGTH:
            position, stop = read_length(data, position, end)
            found[tag >> 3] = data[position:stop]
            position = stop
        elif tag & 7 == VARINT and tag >> 3:
            found[tag >> 3], position = read_varint(data, position)
        else:
            position = skip(data, position, tag)
    if position > end:
        raise IndexError
    return found


def _number(found: dict[int, Any], number: int) -> int:
    value = found.get(number, 0)
    if type(value) is not int:
        raise ValueError(f"wrong wireType = {LENGTH} for field {number}")
    return value


def _text(found: dict[int, Any], number: int) -> bytes:
    value = found.get(number, b"")
    if type(value) is not bytes:
        raise ValueError(f"wrong wireType = {VARINT} for field {number}")
    return value


def to_int64(number: int) -> int:
    return number - (_SIGN_64 << 1) if number >= _SIGN_64 else number


def to_int32(number: int) -> int:
    # Negative numbers are encoded with 64 bits; Go truncates any value to the lower half.
    number &= _BITS_32
    return number - (_SIGN_32 << 1) if number >= _SIGN_32 else number


def _read_time(data: bytes, position: int, end: int, _: ReadBudget) -> Any:
    if position == end:
        return ABSENT
    found = read_small(data, position, end)
    # Nanoseconds are ignored, as in JSON.
    return write_time(time_from_unix(to_int64(_number(found, 1)), 0))


def _read_micro_time(data: bytes, position: int, end: int, _: ReadBudget) -> Any:
    if position == end:
        return ABSENT
    found = read_small(data, position, end)
    seconds, nanoseconds = to_int64(_number(found, 1)), to_int32(_number(found, 2))
    return write_micro_time(time_from_unix(seconds, nanoseconds))


def _read_duration(data: bytes, position: int, end: int, _: ReadBudget) -> Any:
    return write_duration(to_int64(_number(read_small(data, position, end), 1)))


def _read_quantity(data: bytes, position: int, end: int, _: ReadBudget) -> Any:
    text = str(_text(read_small(data, position, end), 1), "utf-8") or "0"
    if is_canonical(text):
        return text
    if not is_quantity(text):
        raise ValueError(WRONG_FORMAT)
    return canonical(text)


def _read_int_or_string(data: bytes, position: int, end: int, _: ReadBudget) -> Any:
    found = read_small(data, position, end)
    if _number(found, 1):
        return str(_text(found, 3), "utf-8")
    return to_int32(_number(found, 2))


def _read_field_set(data: bytes, position: int, end: int, _: ReadBudget) -> Any:
    raw = _text(read_small(data, position, end), 1)
    # Field sets contain no numbers that could overflow, so the plain decoder suffices.
    return _within_depth(raw, orjson.loads(raw)) if raw else ABSENT


def _read_json(data: bytes, position: int, end: int, _: ReadBudget) -> Any:
    """Decode JSON inside a message: raw extensions, and values in schemas."""
    raw = _text(read_small(data, position, end), 1)
    if not raw:
        return ABSENT
    if raw.startswith(MAGIC):
        raise ValueError("an embedded object must be JSON")
    return _within_depth(raw, decode_value(raw, find_duplicates=False)[0])


def _within_depth(raw: bytes, value: Any) -> Any:
    # Few values have enough brackets to need the check.
    brackets = raw.count(b"{") + raw.count(b"[")
    if brackets > JSON_DEPTH_MAX and exceeds_depth(value, JSON_DEPTH_MAX):
        raise ValueError(f"embedded JSON is nested deeper than {JSON_DEPTH_MAX} levels")
    return ABSENT if value is None else value


VARINT_READERS: Final[dict[object, Callable[[int], Any]]] = {
    Scalar.BOOL: bool,
    Scalar.INT32: to_int32,
    Scalar.INT64: to_int64,
}

SPECIAL_READERS: Final[dict[Special, Callable[[bytes, int, int, ReadBudget], Any]]] = {
    Special.TIME: _read_time,
    Special.MICRO_TIME: _read_micro_time,
    Special.DURATION: _read_duration,
    Special.QUANTITY: _read_quantity,
    Special.INT_OR_STRING: _read_int_or_string,
    Special.RAW_EXTENSION: _read_json,
    Special.FIELDS_V1: _read_field_set,
    Special.JSON: _read_json,
}
