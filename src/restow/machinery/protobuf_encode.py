"""Writing protobuf: objects in the JSON form by their struct, and the envelope around them.

The bytes are those that Go writes: fields in the order of their numbers, every field that is not
a pointer even if it is zero, maps in the order of their keys.

The value must be one that `typed_json.check` has passed; what has no place in the struct is left
out. Not here: reading.
"""

import struct as packing
from collections.abc import Callable
from typing import Any, Final

import orjson

from restow.machinery.protobuf_values import FIXED64, LENGTH, MAGIC, VARINT
from restow.machinery.type_values import (
    decode_base64,
    parse_duration,
    parse_time,
    time_to_unix,
    zero_of_type,
)
from restow.machinery.types import (
    SCHEMA_NAME,
    Embedded,
    Field,
    ListOf,
    MapOf,
    Ref,
    Scalar,
    Special,
    Struct,
    Type,
)

_COMPILED: Final = "protobuf.writers"
_BITS_64: Final = (1 << 64) - 1

# Puts a field of an object into the output.
Writer = Callable[[dict[str, Any], bytearray], None]
# The bytes of one value, without tag and length.
Payload = Callable[[Any], bytes | bytearray]


def write_envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """A body: the magic, the type, and the message. The last two fields are always written."""
    type_meta = bytearray()
    _put(type_meta, b"\x0a", api_version.encode())
    _put(type_meta, b"\x12", kind.encode())
    out = bytearray(MAGIC)
    _put(out, b"\x0a", type_meta)
    _put(out, b"\x12", raw)
    return bytes(out + b"\x1a\x00\x22\x00")


def encode(struct: Struct, value: dict[str, Any]) -> bytes:
    """The message of a canonical object; `kind` and `apiVersion` belong to the envelope."""
    return bytes(_write_struct(struct, value))


def _write_struct(struct: Struct, value: dict[str, Any]) -> bytearray:
    writers: list[Writer] | None = struct.compiled.get(_COMPILED)
    if writers is None:
        writers = [
            _embedded_writer(struct, member)
            if isinstance(member, Embedded)
            else _field_writer(struct, member)
            for _, member in sorted(struct.by_number.items())
        ]
        struct.compiled[_COMPILED] = writers
    out = bytearray()
    for write in writers:
        write(value, out)
    return out


def _embedded_writer(struct: Struct, embedded: Embedded) -> Writer:
    inner = struct.table.struct(embedded.name)
    tag = _tag(embedded.number, LENGTH)
    return lambda value, out: _put(out, tag, _write_struct(inner, value))


def _field_writer(struct: Struct, field: Field) -> Writer:
    name, type_, number = field.json, field.type, field.number
    if isinstance(type_, ListOf) and not type_.wrapped:
        return _list_writer(struct, name, type_.item, number)
    if isinstance(type_, MapOf):
        return _map_writer(struct, name, type_.value, number)
    wire, payload = _payload(struct, type_)
    tag = _tag(number, wire)
    # A pointer or a slice that is nil is not written at all, so it needs no zero: a schema's, which
    # may hold schemas, would have no end.
    is_optional = field.pointer or type_ is Scalar.BYTES
    zero = b"" if is_optional else _zero_payload(struct, type_)

    def write(value: dict[str, Any], out: bytearray) -> None:
        item = value.get(name)
        if item is not None:
            data = payload(item)
        elif is_optional:
            return
        else:
            data = zero
        if wire == LENGTH:
            _put(out, tag, data)
        else:
            out += tag
            out += data

    return write


def _zero_payload(struct: Struct, type_: Type) -> bytes:
    """What Go writes for a field that has no value and is no pointer."""
    match type_:
        case Special.QUANTITY | Special.INT_OR_STRING | Special.DURATION | Ref() | Scalar():
            return bytes(_payload(struct, type_)[1](zero_of_type(struct, type_)))
        case Special.SCHEMA_OR_BOOL:
            return b"\x08\x00"
        case _:
            return b""


def _list_writer(struct: Struct, name: str, item_type: Type, number: int) -> Writer:
    wire, payload = _payload(struct, item_type)
    tag = _tag(number, wire)

    def write(value: dict[str, Any], out: bytearray) -> None:
        for item in value.get(name) or ():
            if wire == LENGTH:
                _put(out, tag, payload(item))
            else:
                out += tag
                out += payload(item)

    return write


def _map_writer(struct: Struct, name: str, item_type: Type, number: int) -> Writer:
    wire, payload = _payload(struct, item_type)
    tag, value_tag = _tag(number, LENGTH), _tag(2, wire)

    def write(value: dict[str, Any], out: bytearray) -> None:
        for key, item in sorted((value.get(name) or {}).items()):
            entry = bytearray()
            _put(entry, b"\x0a", key.encode())
            if wire == LENGTH:
                _put(entry, value_tag, payload(item))
            else:
                entry += value_tag
                entry += payload(item)
            _put(out, tag, entry)

    return write


def _payload(struct: Struct, type_: Type) -> tuple[int, Payload]:
    match type_:
        case Scalar():
            return _SCALARS[type_]
        case Special.SCHEMA_OR_ARRAY | Special.SCHEMA_OR_BOOL | Special.SCHEMA_OR_STRINGS:
            schema = struct.table.struct(SCHEMA_NAME)
            return LENGTH, lambda value: _write_union(schema, type_, value)
        case Special():
            return LENGTH, _SPECIALS[type_]
        case Ref(name):
            inner = struct.table.struct(name)
            return LENGTH, lambda value: _write_struct(inner, value)
        case ListOf(Scalar.STRING, wrapped) if wrapped:
            return LENGTH, _write_strings
        case _:
            raise NotImplementedError(f"protobuf cannot hold {type_} here")


def _write_union(schema: Struct, type_: Special, value: Any) -> bytearray:
    out = bytearray()
    if isinstance(value, dict):
        if type_ is Special.SCHEMA_OR_BOOL:
            out += b"\x08\x01"
            _put(out, b"\x12", _write_struct(schema, value))
        else:
            _put(out, b"\x0a", _write_struct(schema, value))
    elif isinstance(value, bool):
        out += b"\x08\x01" if value else b"\x08\x00"
    else:
        for item in value or ():
            is_text = isinstance(item, str)
            _put(out, b"\x12", item.encode() if is_text else _write_struct(schema, item))
    return out


def _write_strings(value: Any) -> bytearray:
    out = bytearray()
    for item in value:
        _put(out, b"\x0a", item.encode())
    return out


def _write_moment(value: Any, *, has_fraction: bool) -> bytes:
    seconds, nanoseconds = time_to_unix(parse_time(value))
    fraction = nanoseconds if has_fraction else 0
    return b"\x08" + _varint(seconds) + b"\x10" + _varint(fraction)


def _write_int_or_string(value: Any) -> bytearray:
    out = bytearray()
    if isinstance(value, str):
        out += b"\x08\x01\x10\x00"
        _put(out, b"\x1a", value.encode())
    else:
        out += b"\x08\x00\x10" + _varint(value) + b"\x1a\x00"
    return out


def _write_quantity(value: Any) -> bytearray:
    out = bytearray()
    _put(out, b"\x0a", value.encode())
    return out


def _write_json(value: Any) -> bytearray:
    out = bytearray()
    if value is not None:
        _put(out, b"\x0a", orjson.dumps(value))
    return out


def _put(out: bytearray, tag: bytes, data: bytes | bytearray) -> None:
    out += tag
    size = len(data)
    if size < 0x80:
        out.append(size)
    else:
        out += _varint(size)
    out += data


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(number: int) -> bytes:
    number &= _BITS_64
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_pack_double: Final = packing.Struct("<d").pack

_SCALARS: Final[dict[Scalar, tuple[int, Payload]]] = {
    Scalar.STRING: (LENGTH, lambda value: value.encode()),
    Scalar.BOOL: (VARINT, lambda value: b"\x01" if value else b"\x00"),
    Scalar.INT32: (VARINT, _varint),
    Scalar.INT64: (VARINT, _varint),
    Scalar.FLOAT64: (FIXED64, _pack_double),
    Scalar.BYTES: (LENGTH, decode_base64),
}
_SPECIALS: Final[dict[Special, Payload]] = {
    Special.TIME: lambda value: _write_moment(value, has_fraction=False),
    Special.MICRO_TIME: lambda value: _write_moment(value, has_fraction=True),
    Special.DURATION: lambda value: b"\x08" + _varint(parse_duration(value)),
    Special.QUANTITY: _write_quantity,
    Special.INT_OR_STRING: _write_int_or_string,
    Special.RAW_EXTENSION: _write_json,
    Special.FIELDS_V1: _write_json,
    Special.JSON: _write_json,
}
