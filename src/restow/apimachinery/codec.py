"""Decodes request bodies to JSON values, and encodes JSON values.

Decoded values can be encoded again, are not too deep for recursive functions, and contain no number
that lost precision. So no other code has to check these properties.

The checks run on every write, so they use calls that cost about as much as the parser:

- Depth: a body with no more brackets than the maximum depth is not too deep. Otherwise the value is
  encoded inside so many lists that the encoder reaches its own limit.
- Duplicate keys: the parser keeps the last one. If the decoded value has as many quotation marks as
  the body, no key was lost. Only otherwise a slow parser finds the duplicates.
- Number of values: a body with no more commas and brackets than the maximum has no more values.
  Otherwise those outside of strings are counted.
- Integers: the parser converts large ones to floats. Only if the body has nineteen consecutive
  digits, the slow parser checks whether they are one.

Not here: the meaning of objects, YAML (`yaml_codec`), and protobuf.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

import orjson

from restow.apimachinery.status import (
    BadRequest,
    bad_request,
    body_too_large,
    internal,
    too_large,
)

BODY_SIZE_MAX: Final = 3 * 1024 * 1024
# Real objects stay below a tenth of it. The encoder's remaining depth is for lists, table rows and
# reviews, which contain objects.
DEPTH_MAX: Final = 240
ENCODER_DEPTH_MAX: Final = 254
DUPLICATES_MAX: Final = 100
# Longer bodies and objects are processed outside the event loop. Checking and planning a write
# takes up to 0.3 ms per KiB (`benchmarks.steps`), so that this is less than 10 ms.
LONG_BODY_SIZE: Final = 32 * 1024

JSON: Final = "application/json"
YAML: Final = "application/yaml"
MEDIA_TYPES: Final = (JSON, YAML)

# The parser holds the interpreter's lock: this many values take some 10 ms.
VALUES_MAX: Final = 100_000
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_INT64_DIGITS: Final = 19
_LONG_NUMBER: Final = b"0" * _INT64_DIGITS
_DIGITS_AS_ZERO: Final = bytes(ord("0") if chr(each).isdecimal() else 0 for each in range(256))
_QUOTE: Final = b'"'
_ESCAPED_QUOTE: Final = rb"\u0022"
_MARGIN: Final = ENCODER_DEPTH_MAX - DEPTH_MAX


class Decoded(NamedTuple):
    """An object, and the paths of its duplicate keys, such as `data.a`."""

    value: dict[str, Any]
    duplicates: tuple[str, ...] = ()


def decode(body: bytes, *, size_max: int = BODY_SIZE_MAX, find_duplicates: bool = True) -> Decoded:
    """Decode the object in a JSON body; raises a 4xx if there is none.

    Call this outside the event loop if `takes_long` returns True.
    """
    value, duplicates = decode_value(body, size_max=size_max, find_duplicates=find_duplicates)
    if type(value) is not dict:
        raise not_an_object()
    return Decoded(value, duplicates)


def decode_value(
    body: bytes, *, size_max: int = BODY_SIZE_MAX, find_duplicates: bool = True
) -> tuple[Any, tuple[str, ...]]:
    """Decode any JSON value, since a patch may be a list; also return the paths of duplicate
    keys.
    """
    if len(body) > size_max:
        raise body_too_large(size_max)
    if len(body) > VALUES_MAX:
        _check_values(body)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _not_json(body, error) from None
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX:
        _check_depth(value)
    has_long_number = _LONG_NUMBER in body.translate(_DIGITS_AS_ZERO)
    may_have_duplicates = find_duplicates and _may_have_duplicates(body, orjson.dumps(value))
    if not has_long_number and not may_have_duplicates:
        return value, ()
    duplicates = _examine(body)
    return value, duplicates if find_duplicates else ()


def encode(value: Any) -> bytes:
    """Encode a value as compact JSON."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise internal(f"the response cannot be encoded: {error}") from error


def media_type_name(media_type: str) -> str:
    """Return the media type without parameters, in lower case; the default is JSON."""
    return media_type.partition(";")[0].strip().lower() or JSON


def is_yaml(media_type: str) -> bool:
    """Report whether a body of this type is decoded as YAML."""
    return media_type != JSON and media_type_name(media_type) == YAML


def takes_long(body: bytes, media_type: str = JSON) -> bool:
    """Report whether decoding this body could block the event loop for too long.

    JSON sent with the YAML media type, as clients do for server-side apply, is decoded as JSON.
    """
    if len(body) > LONG_BODY_SIZE:
        return True
    return media_type != JSON and is_yaml(media_type) and not body.startswith(b"{")


def not_an_object() -> BadRequest:
    """Return the error for a body that is not an object."""
    return bad_request("the body must hold a JSON object")


def too_deep() -> BadRequest:
    """Return the error for a body that is nested too deep."""
    return bad_request(f"exceeded max depth: nested more than {DEPTH_MAX} levels deep")


def exceeds_depth(value: Any, depth_max: int = DEPTH_MAX) -> bool:
    """Report whether lists and objects are nested deeper than the limit, without recursion."""
    level = [value] if type(value) is dict or type(value) is list else []
    depth = 0
    while level:
        depth += 1
        if depth > depth_max:
            return True
        level = [
            member
            for each in level
            for member in (each.values() if type(each) is dict else each)
            if type(member) is dict or type(member) is list
        ]
    return False


def check_integer(text: str) -> int:
    """Parse an integer; a 400 if it does not fit into 64 bits."""
    if len(text) <= _INT64_DIGITS + 1:
        number = int(text)
        if _INT64_MIN <= number <= _INT64_MAX:
            return number
    raise bad_request(f"the number {text[:40]} does not fit into 64 bits")


def _check_values(body: bytes) -> None:
    """Raise a 413 for more than `VALUES_MAX` values: one before each comma and in each bracket."""
    if _separators(body) <= VALUES_MAX:
        return
    count = last = 0
    for text in _STRING.finditer(body):  # commas and brackets in strings do not count
        count += _separators(body[last : text.start()])
        last = text.end()
        if count > VALUES_MAX:
            break
    if count + _separators(body[last:]) > VALUES_MAX:
        raise too_large(f"the body has more than {VALUES_MAX} values")


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _may_have_duplicates(body: bytes, encoded: bytes) -> bool:
    return encoded != body and (
        encoded.count(_QUOTE) != body.count(_QUOTE) or _ESCAPED_QUOTE in body
    )


def _check_depth(value: Any) -> None:
    nested = value
    for _ in range(_MARGIN):
        nested = [nested]
    try:
        orjson.dumps(nested)
    except orjson.JSONEncodeError:
        raise too_deep() from None


def _not_json(body: bytes, error: orjson.JSONDecodeError) -> BadRequest:
    if not body:
        return bad_request("the body is empty")
    if "depth limit" in error.msg:
        return too_deep()
    return bad_request(f"the body is not JSON: {error}")


class _ObjectWithDuplicates(dict[str, Any]):
    """An object with duplicate keys; a separate type, so that it is found again."""

    __slots__ = ("duplicate_keys",)
    duplicate_keys: set[str]


_CONTAINERS: Final = frozenset({dict, list, _ObjectWithDuplicates})


def _examine(body: bytes) -> tuple[str, ...]:
    """Find duplicate keys with the slow parser; a 400 if an integer does not fit into 64 bits."""
    marked: list[_ObjectWithDuplicates] = []

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        with_duplicates = _ObjectWithDuplicates(found)
        with_duplicates.duplicate_keys = _duplicate_keys(pairs)
        marked.append(with_duplicates)
        return with_duplicates

    try:
        value = json.loads(body.decode(), object_pairs_hook=to_object, parse_int=check_integer)
    except (ValueError, RecursionError):
        # The fast parser accepted the body, so this is not expected; it must not crash the server.
        raise bad_request("the body is not JSON") from None
    return tuple(_duplicate_paths(value, DUPLICATES_MAX)) if marked else ()


def _duplicate_keys(pairs: list[tuple[str, Any]]) -> set[str]:
    seen: set[str] = set()
    repeated: set[str] = set()
    for key, _ in pairs:
        (repeated if key in seen else seen).add(key)
    return repeated


def _duplicate_paths(value: Any, count_max: int) -> list[str]:
    """Return the paths below a value. Recursive, because the depth was checked before."""
    found: list[str] = []
    if type(value) is list:
        for index, item in enumerate(value):
            if type(item) in _CONTAINERS:
                for path in _duplicate_paths(item, count_max - len(found)):
                    found.append(
                        f"[{index}]{path}" if path.startswith("[") else f"[{index}].{path}"
                    )
                if len(found) >= count_max:
                    break
        return found
    if type(value) is _ObjectWithDuplicates:
        found += [key for key in value if key in value.duplicate_keys][:count_max]
    for key, member in value.items():
        if len(found) >= count_max:
            break
        if type(member) in _CONTAINERS:
            for path in _duplicate_paths(member, count_max - len(found)):
                found.append(_joined(key, path))
    return found


def _joined(path: str, rest: str) -> str:
    return f"{path}{rest}" if rest.startswith("[") else f"{path}.{rest}"
