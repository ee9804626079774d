"""Encodes OpenAPI v2 as protobuf, in the message layout of gnostic.

Only the messages and fields that `v2` uses are implemented. Input is the JSON form of a piece,
output its message. Values of a wrong type are omitted: a declared schema may contain anything, and
one bad field must not break the document for all clients.

Not here: the content of the document.
"""

import json
import re
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

Item = dict[str, Any]

# Field numbers of each message, by JSON name.
_DOCUMENT: Final = {"swagger": 1, "info": 2, "paths": 8, "definitions": 9, "parameters": 10}
_INFO: Final = {"title": 1, "version": 2}
_PATHS_PATH: Final = 2
_PATH_ITEM: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
_PATH_ITEM_PARAMETERS: Final = 9
_OPERATION_TEXTS: Final = {"description": 3, "operationId": 5}
_OPERATION_LISTS: Final = {"tags": 1, "produces": 6, "consumes": 7, "schemes": 10}
_OPERATION: Final = {"parameters": 8, "responses": 9, "extension": 13}
_BODY_PARAMETER: Final = {"name": 2, "in": 3, "required": 4, "schema": 5}
_QUERY_PARAMETER: Final = {"in": 2, "description": 3, "name": 4, "type": 6, "uniqueItems": 20}
_PATH_PARAMETER: Final = {
    "required": 1,
    "in": 2,
    "description": 3,
    "name": 4,
    "type": 5,
    "uniqueItems": 19,
}
_SCHEMA_EXTENSION: Final = 31

_COUNT_MAX: Final = 2**63 - 1
_DOUBLE: Final = struct.Struct("<d")
_WIRE_VARINT: Final = 0
_WIRE_DOUBLE: Final = 1
_WIRE_BYTES: Final = 2


def head(swagger: str, *, title: str, version: str) -> bytes:
    """Encode the fields of the document before its paths."""
    info = _text(_INFO["title"], title) + _text(_INFO["version"], version)
    return _text(_DOCUMENT["swagger"], swagger) + _message(_DOCUMENT["info"], info)


def path_member(name: str, item: Item) -> bytes:
    """Encode one path."""
    return _message(_PATHS_PATH, _named(name, _path_item(item)))


def definition_member(name: str, item: Item) -> bytes:
    """Encode one definition."""
    return _message(1, _named(name, schema(item)))


def parameter_member(name: str, item: Item) -> bytes:
    """Encode one shared parameter."""
    return _message(1, _named(name, _parameter(item)))


def field_start(name: str, size: int) -> bytes:
    """Encode tag and length of a document field whose members have that total size."""
    return _key(_DOCUMENT[name], _WIRE_BYTES) + _varint(size)


def schema(item: Item) -> bytes:
    """Encode one schema, with its nested schemas."""
    parts = []
    for key, value in item.items():
        write = _SCHEMA.get(key)
        if write is not None:
            number, encode = write
            parts.append(encode(number, value))
        elif key.startswith("x-"):
            parts.append(_extension(_SCHEMA_EXTENSION, key, value))
    return b"".join(parts)


def _additional_properties(number: int, value: object) -> bytes:
    if isinstance(value, dict):
        return _message(number, _message(1, schema(value)))
    if isinstance(value, bool):
        # It is part of a oneof, so false is encoded as well.
        return _message(number, _key(2, _WIRE_VARINT) + bytes([value]))
    return b""


def _type(number: int, value: object) -> bytes:
    return _message(number, _text(1, value)) if isinstance(value, str) else b""


def _items(number: int, value: object) -> bytes:
    return _message(number, _message(1, schema(value))) if isinstance(value, dict) else b""


def _values(number: int, value: object) -> bytes:
    if not isinstance(value, list):
        return b""
    return b"".join(_message(number, _text(2, yaml_of(json.dumps(each)))) for each in value)


def _properties(number: int, value: object) -> bytes:
    if not isinstance(value, dict):
        return b""
    members = [
        _message(1, _named(name, schema(each)))
        for name, each in value.items()
        if isinstance(each, dict)
    ]
    return _message(number, b"".join(members))


def _path_item(item: Item) -> bytes:
    parts = [
        _message(number, _operation(item[method]))
        for method, number in _PATH_ITEM.items()
        if method in item
    ]
    for each in item.get("parameters", ()):
        parts.append(_message(_PATH_ITEM_PARAMETERS, _parameter_or_reference(each)))
    return b"".join(parts)


def _operation(item: Item) -> bytes:
    parts = [_text(number, item[key]) for key, number in _OPERATION_TEXTS.items()]
    parts += [_texts(number, item[key]) for key, number in _OPERATION_LISTS.items()]
    for each in item["parameters"]:
        parts.append(_message(_OPERATION["parameters"], _parameter_or_reference(each)))
    responses = [
        _message(1, _named(code, _message(1, _response(each))))
        for code, each in item["responses"].items()
    ]
    parts.append(_message(_OPERATION["responses"], b"".join(responses)))
    for key, value in item.items():
        if key.startswith("x-"):
            parts.append(_extension(_OPERATION["extension"], key, value))
    return b"".join(parts)


def _response(item: Item) -> bytes:
    body = _text(1, item["description"])
    if "schema" in item:
        body += _message(2, _message(1, schema(item["schema"])))
    return body


def _parameter_or_reference(item: Item) -> bytes:
    if "$ref" in item:
        return _message(2, _text(1, item["$ref"]))
    return _message(1, _parameter(item))


def _parameter(item: Item) -> bytes:
    if item["in"] == "body":
        layout = _BODY_PARAMETER
        body = _text(layout["name"], item["name"]) + _text(layout["in"], item["in"])
        body += _flag(layout["required"], item["required"])
        return _message(1, body + _message(layout["schema"], schema(item["schema"])))
    in_query = item["in"] == "query"
    layout = _QUERY_PARAMETER if in_query else _PATH_PARAMETER
    parts = []
    for key, number in layout.items():
        value = item.get(key)
        parts.append(_flag(number, value) if isinstance(value, bool) else _text(number, value))
    return _message(2, _message(3 if in_query else 4, b"".join(parts)))


def _extension(number: int, key: str, value: object) -> bytes:
    return _message(number, _named(key, _text(2, yaml_of(json.dumps(value)))))


_SURROGATES: Final = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")


def yaml_of(text: str) -> str:
    """Convert ASCII JSON to YAML; they differ in escapes of characters beyond 16 bits."""
    return _SURROGATES.sub(_wide_escape, text) + "\n"


def _wide_escape(found: re.Match[str]) -> str:
    high, low = int(found[1], 16), int(found[2], 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


def _named(name: str, body: bytes) -> bytes:
    """Encode a map entry as a pair of name and value."""
    return _text(1, name) + _message(2, body)


def _text(number: int, value: object) -> bytes:
    return _message(number, value.encode()) if isinstance(value, str) and value else b""


def _texts(number: int, values: object) -> bytes:
    if not isinstance(values, Iterable) or isinstance(values, str):
        return b""
    return b"".join(_message(number, each.encode()) for each in values if isinstance(each, str))


def _flag(number: int, value: object) -> bytes:
    return _key(number, _WIRE_VARINT) + b"\x01" if value is True else b""


def _count(number: int, value: object) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _COUNT_MAX:
        return b""
    return _key(number, _WIRE_VARINT) + _varint(value)


def _double(number: int, value: object) -> bytes:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return b""
    try:
        return _key(number, _WIRE_DOUBLE) + _DOUBLE.pack(value)
    except OverflowError:  # an integer that exceeds the range of doubles
        return b""


def _message(number: int, body: bytes) -> bytes:
    size = len(body)
    if size < 0x80 and number < 0x10:  # both fit into one byte, as nearly always
        return bytes((number << 3 | _WIRE_BYTES, size)) + body
    return _key(number, _WIRE_BYTES) + _varint(size) + body


@lru_cache(maxsize=256)
def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


# For each schema keyword its field number and encoder.
_SCHEMA: Final[dict[str, tuple[int, Callable[[int, object], bytes]]]] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _flag),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _flag),
    "maxLength": (11, _count),
    "minLength": (12, _count),
    "pattern": (13, _text),
    "maxItems": (14, _count),
    "minItems": (15, _count),
    "uniqueItems": (16, _flag),
    "maxProperties": (17, _count),
    "minProperties": (18, _count),
    "required": (19, _texts),
    "enum": (20, _values),
    "additionalProperties": (21, _additional_properties),
    "type": (22, _type),
    "items": (23, _items),
    "properties": (25, _properties),
}
