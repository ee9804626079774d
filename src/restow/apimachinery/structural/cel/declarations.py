"""The CEL types of a schema: escaped field names, and bounds on sizes.

Values with a number, time, duration or byte format are converted when a rule reads them; objects
are converted field by field, on access. Fields without a type are invisible.

Not here: parsing expressions, and their cost.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from binascii import Error as BadBase64
from datetime import UTC, datetime
from typing import Any, Final

from restow.apimachinery.structural.cel import types
from restow.apimachinery.structural.cel.keywords import KEYWORDS
from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.structural.cel.values import (
    NANOSECOND,
    CelError,
    Duration,
    Timestamp,
)
from restow.apimachinery.structural.formats import parse_long_duration
from restow.apimachinery.structural.schema import Schema

REQUEST_SIZE_MAX: Final = 3 * 1024 * 1024
_NAME_LENGTH_MAX: Final = 253
# Minimum and maximum sizes of JSON strings, including quotes.
_TEXT_SIZE_MIN: Final = 2
_DURATION_SIZES: Final = (3, 32)
_DATE_SIZES: Final = (12, 12)
_TIME_SIZES: Final = (21, 32)
_BYTES_OF_CHARACTER: Final = 4


def declare(schema: Schema, *, is_root: bool = False) -> Declared | None:
    """Return the CEL type of a schema; None if CEL cannot see such values."""
    if schema.int_or_string:
        size = _characters(schema.max_length) if schema.max_length is not None else _ANY_TEXT
        return Declared(schema=schema, size_max=size, json_size_min=1)
    match schema.type:
        case "array":
            return _declare_list(schema)
        case "object":
            return _declare_object(schema, is_root=is_root)
        case "string":
            return _declare_text(schema)
        case "boolean":
            return Declared(types.BOOL, schema, json_size_min=4)
        case "number":
            return Declared(types.DOUBLE, schema, json_size_min=1, convert=_to_double)
        case "integer":
            return Declared(types.INT, schema, json_size_min=1, convert=_to_int)
    return None


_ANY_TEXT: Final = REQUEST_SIZE_MAX - 2


def _characters(limit: int) -> int:
    return max(0, limit) * _BYTES_OF_CHARACTER


def _declare_list(schema: Schema) -> Declared | None:
    items = schema.items
    item = declare(items, is_root=items.embedded) if items is not None else None
    if item is None:
        return None
    size = (
        max(0, schema.max_items)
        if schema.max_items is not None
        else (REQUEST_SIZE_MAX - 2) // (item.json_size_min + 1)
    )
    declared = Declared(types.list_of(item.type), schema, item=item, size_max=size, json_size_min=2)
    declared.is_ordered = schema.list_type not in ("set", "map")
    if (convert := item.convert) is not None:
        declared.convert = lambda value: [each if each is None else convert(each) for each in value]
    return declared


def _declare_object(schema: Schema, *, is_root: bool) -> Declared | None:
    values = schema.additional_schema
    if values is not None:
        value = declare(values, is_root=values.embedded)
        if value is None:
            return None
        # Six more bytes per entry: quotes, colon and comma, and two for the key.
        size = (
            max(0, schema.max_properties)
            if schema.max_properties is not None
            else (REQUEST_SIZE_MAX - 2) // (value.json_size_min + 6)
        )
        declared = Declared(
            types.map_of(types.STRING, value.type),
            schema,
            item=value,
            key=_ANY_KEY,
            size_max=size,
            json_size_min=2,
        )
        if (convert := value.convert) is not None:
            declared.convert = lambda found: {
                name: each if each is None else convert(each) for name, each in found.items()
            }
        return declared
    declared = Declared(schema=schema, json_size_min=2)
    declared.type = types.Type("object", (), declared)
    for name, each in schema.properties.items():
        below = declare(each, is_root=each.embedded)
        if below is None:
            continue
        if (escaped := escape(name)) is not None:
            declared.fields[escaped] = below
            declared.names[escaped] = name
        if name in schema.required and each.default is None:
            declared.json_size_min += len(name.encode()) + below.json_size_min + 4
    if is_root:
        _add_meta(declared, schema)
    return declared


_ANY_KEY: Final = Declared(types.STRING, size_max=0, json_size_min=_TEXT_SIZE_MIN)


def _add_meta(declared: Declared, schema: Schema) -> None:
    """Declare apiVersion, kind and the names of an object, which rules may always read."""
    given = schema.properties.get("metadata")
    names = given.properties if given is not None else {}
    known = {name: schema.properties.get(name) for name in ("kind", "apiVersion")}
    if (
        all(each is not None and each.type == "string" for each in known.values())
        and given is not None
        and given.type == "object"
        and all(name in names and names[name].type == "string" for name in _NAME_LIMITS)
    ):
        return
    text = Declared(types.STRING, size_max=_ANY_TEXT, json_size_min=_TEXT_SIZE_MIN)
    metadata = Declared(schema=given or Schema(type="object"), json_size_min=2)
    metadata.type = types.Type("object", (), metadata)
    for name, limit in _NAME_LIMITS.items():
        declared_length = names[name].max_length if name in names else None
        length = limit if declared_length is None else min(declared_length, limit)
        metadata.fields[name] = Declared(
            types.STRING, size_max=_characters(length), json_size_min=_TEXT_SIZE_MIN
        )
        metadata.names[name] = name
    for name, below in (("kind", text), ("apiVersion", text), ("metadata", metadata)):
        declared.fields[name] = below
        declared.names[name] = name


_NAME_LIMITS: Final = {"name": _NAME_LENGTH_MAX, "generateName": _NAME_LENGTH_MAX - 1}


def _declare_text(schema: Schema) -> Declared:
    match schema.format:
        case "byte":
            size = max(0, schema.max_length) if schema.max_length is not None else _ANY_TEXT
            return Declared(types.BYTES, schema, size_max=size, json_size_min=2, convert=_to_bytes)
        case "duration":
            low, high = _DURATION_SIZES
            return Declared(
                types.DURATION, schema, size_max=high, json_size_min=low, convert=_to_duration
            )
        case "date":
            low, high = _DATE_SIZES
            return Declared(
                types.TIMESTAMP, schema, size_max=high, json_size_min=low, convert=_to_date
            )
        case "date-time":
            low, high = _TIME_SIZES
            return Declared(
                types.TIMESTAMP, schema, size_max=high, json_size_min=low, convert=_to_time
            )
    if schema.max_length is not None:
        size = _characters(schema.max_length)
    elif schema.enum:
        size = max((len(each.encode()) for each in schema.enum if isinstance(each, str)), default=0)
    else:
        size = _ANY_TEXT
    return Declared(types.STRING, schema, size_max=size, json_size_min=_TEXT_SIZE_MIN)


def _to_double(value: Any) -> float:
    return float(value)


def _to_int(value: Any) -> int:
    return value if type(value) is int else int(value)


def _to_bytes(value: Any) -> bytes:
    try:
        return urlsafe_b64decode(value)
    except (BadBase64, ValueError, TypeError) as error:
        raise CelError(f"Invalid byte formatted string {value}: {error}") from error


def _to_duration(value: Any) -> Duration:
    try:
        return Duration(parse_long_duration(value))
    except (ValueError, TypeError) as error:
        raise CelError(f"Invalid duration {value}: {error}") from error


def _to_date(value: Any) -> Timestamp:
    return _moment(value, f"{value}T00:00:00Z", "date")


def _to_time(value: Any) -> Timestamp:
    return _moment(value, value, "date-time")


_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,30}))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(given: Any, text: Any, kind: str) -> Timestamp:
    try:
        return Timestamp(parse_moment(text))
    except (ValueError, TypeError) as error:
        raise CelError(f"Invalid {kind} formatted string {given}: {error}") from error


def parse_moment(text: str) -> int:
    """Parse an RFC 3339 time into nanoseconds since 1970; ValueError if it is invalid."""
    match = _TIME.fullmatch(text) if len(text) <= 80 else None
    if match is None:
        raise ValueError(f'cannot parse "{text[:40]}" as a time')
    day, clock, fraction, zone = match.groups()
    offset = "+00:00" if zone in (None, "Z", "z") else zone
    moment = datetime.fromisoformat(f"{day}T{clock}{offset}")
    seconds = round((moment - _EPOCH).total_seconds())
    return seconds * NANOSECOND + int(f"{(fraction or '')[:9]:0<9}")


_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_NEEDS_ESCAPE: Final = re.compile(r"__|[-./]")
_ESCAPABLE: Final = re.compile(r"[a-zA-Z0-9_./-]+", re.ASCII)


def escape(name: str) -> str | None:
    """Return the CEL spelling of a field name; None if it has none."""
    if not name or name[0].isdigit() or _ESCAPABLE.fullmatch(name) is None:
        return None
    if name in KEYWORDS:
        return f"__{name}__"
    return _NEEDS_ESCAPE.sub(lambda match: _ESCAPES[match.group()], name)
