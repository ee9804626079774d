"""A decoder of the protobuf form of OpenAPI v2, written from its layout, not from our encoder.

It converts the message back to the JSON form, so that tests can compare both.
"""

import struct
from collections.abc import Callable
from typing import Any

import yaml

Decode = Callable[[bytes], Any]


def fields(data: bytes) -> list[tuple[int, Any]]:
    """Return the fields of one message, in order: number and raw value."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
            found.append((number, value))
        elif wire == 1:
            found.append((number, struct.unpack_from("<d", data, at)[0]))
            at += 8
        elif wire == 2:
            size, at = varint(data, at)
            assert at + size <= len(data), "a field is cut off"
            found.append((number, data[at : at + size]))
            at += size
        else:
            raise AssertionError(f"wire type {wire} is not used in this layout")
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def one(data: bytes, number: int) -> Any:
    """Return the value of a field that occurs once."""
    (value,) = [value for found, value in fields(data) if found == number]
    return value


def pairs(data: bytes, number: int, decode: Decode) -> dict[str, Any]:
    """Decode a map: repeated messages of a name and a value."""
    found = {}
    for key, entry in fields(data):
        if key == number:
            parts = dict(fields(entry))
            found[parts[1].decode()] = decode(parts.get(2, b""))
    return found


def message(layout: dict[int, tuple[str, str, Decode]]) -> Decode:
    """Return a decoder of a message: for each number the JSON name, whether it repeats, and its
    decoder.
    """

    def decode(data: bytes) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for number, raw in fields(data):
            name, shape, inner = layout[number]
            if shape == "one":
                assert name not in result
                result[name] = inner(raw)
            elif shape == "list":
                result.setdefault(name, []).append(inner(raw))
            elif shape == "extension":
                parts = dict(fields(raw))
                result[parts[1].decode()] = yaml.safe_load(one(parts[2], 2).decode())
        return result

    return decode


def text(raw: bytes) -> str:
    return raw.decode()


def same(raw: Any) -> Any:
    return raw


def schema(data: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = _SCHEMA(data)
    return decoded


def _additional(data: bytes) -> Any:
    ((number, raw),) = fields(data)
    return schema(raw) if number == 1 else bool(raw)


def _items(data: bytes) -> Any:
    return schema(one(data, 1))


def _properties(data: bytes) -> Any:
    return pairs(data, 1, schema)


_SCHEMA = message(
    {
        1: ("$ref", "one", text),
        2: ("format", "one", text),
        3: ("title", "one", text),
        4: ("description", "one", text),
        6: ("multipleOf", "one", same),
        7: ("maximum", "one", same),
        8: ("exclusiveMaximum", "one", bool),
        9: ("minimum", "one", same),
        10: ("exclusiveMinimum", "one", bool),
        11: ("maxLength", "one", same),
        12: ("minLength", "one", same),
        13: ("pattern", "one", text),
        14: ("maxItems", "one", same),
        15: ("minItems", "one", same),
        16: ("uniqueItems", "one", bool),
        17: ("maxProperties", "one", same),
        18: ("minProperties", "one", same),
        19: ("required", "list", text),
        20: ("enum", "list", lambda data: yaml.safe_load(one(data, 2).decode())),
        21: ("additionalProperties", "one", _additional),
        22: ("type", "one", lambda data: text(one(data, 1))),
        23: ("items", "one", _items),
        25: ("properties", "one", _properties),
        31: ("", "extension", same),
    }
)
_BODY = message(
    {
        2: ("name", "one", text),
        3: ("in", "one", text),
        4: ("required", "one", bool),
        5: ("schema", "one", schema),
    }
)
_QUERY = message(
    {
        1: ("required", "one", bool),
        2: ("in", "one", text),
        3: ("description", "one", text),
        4: ("name", "one", text),
        6: ("type", "one", text),
        20: ("uniqueItems", "one", bool),
    }
)
_PATH = message(
    {
        1: ("required", "one", bool),
        2: ("in", "one", text),
        3: ("description", "one", text),
        4: ("name", "one", text),
        5: ("type", "one", text),
        19: ("uniqueItems", "one", bool),
    }
)


def parameter(data: bytes) -> dict[str, Any]:
    ((number, raw),) = fields(data)
    if number == 1:
        # False is not encoded in protobuf, but the JSON form has it.
        return {"required": False, **_BODY(raw)}
    ((place, inner),) = fields(raw)
    found: dict[str, Any] = {3: _QUERY, 4: _PATH}[place](inner)
    return found


def parameter_or_reference(data: bytes) -> dict[str, Any]:
    ((number, raw),) = fields(data)
    return {"$ref": text(one(raw, 1))} if number == 2 else parameter(raw)


def _response(data: bytes) -> dict[str, Any]:
    decode = message(
        {
            1: ("description", "one", text),
            2: ("schema", "one", lambda raw: schema(one(raw, 1))),
        }
    )
    found: dict[str, Any] = decode(one(data, 1))
    return found


_OPERATION = message(
    {
        1: ("tags", "list", text),
        3: ("description", "one", text),
        5: ("operationId", "one", text),
        6: ("produces", "list", text),
        7: ("consumes", "list", text),
        8: ("parameters", "list", parameter_or_reference),
        9: ("responses", "one", lambda raw: pairs(raw, 1, _response)),
        10: ("schemes", "list", text),
        13: ("", "extension", same),
    }
)


def _operation(data: bytes) -> dict[str, Any]:
    return {"parameters": [], **_OPERATION(data)}


_PATH_ITEM = message(
    {
        2: ("get", "one", _operation),
        3: ("put", "one", _operation),
        4: ("post", "one", _operation),
        5: ("delete", "one", _operation),
        8: ("patch", "one", _operation),
        9: ("parameters", "list", parameter_or_reference),
    }
)


def document(data: bytes) -> dict[str, Any]:
    """Decode the whole document."""
    decode = message(
        {
            1: ("swagger", "one", text),
            2: ("info", "one", message({1: ("title", "one", text), 2: ("version", "one", text)})),
            8: ("paths", "one", lambda raw: pairs(raw, 2, _PATH_ITEM)),
            9: ("definitions", "one", lambda raw: pairs(raw, 1, schema)),
            10: ("parameters", "one", lambda raw: pairs(raw, 1, parameter)),
        }
    )
    found: dict[str, Any] = decode(data)
    return found
