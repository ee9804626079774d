"""Encodes objects in JSON form as protobuf, by their struct, and writes the envelope.

The bytes equal Go's: fields in the order of their numbers, every field that is not a pointer even
if it is zero, maps sorted by key.

The value must have passed `typed_json.check`; fields that are not in the struct are omitted. Not
here: decoding, and which responses are encoded as protobuf.
"""

import struct as packing
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

import orjson

from restow.apimachinery.protobuf_values import FIXED64, LENGTH, MAGIC, VARINT
from restow.apimachinery.type_values import (
    decode_base64,
    parse_duration,
    parse_time,
    time_to_unix,
    zero_of_type,
)
from restow.apimachinery.types import (
    SCHEMA_NAME,
    Embedded,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Special,
    Struct,
    StructRef,
    Type,
)

TIMES_KEPT_MAX: Final = 1024
"""Many times within an object, and in its neighbours, are equal."""

_COMPILED: Final = "protobuf.writer"
_BITS_64: Final = (1 << 64) - 1
_SHORT: Final = 0x80
"""Shorter lengths take one byte."""

# Encodes one value, without tag and length.
Payload = Callable[[Any], bytes | bytearray]
# Appends a present value to the output, with its tag.
Writer = Callable[[bytearray, Any], None]
# For each field of a struct: its name, the bytes written if it is missing, and its writer.
Members = list[tuple[str, bytes, Writer]]


def write_envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return a body: the magic, the type, and the message. The last two fields are always
    written.
    """
    type_meta = bytearray()
    _put(type_meta, b"\x0a", api_version.encode())
    _put(type_meta, b"\x12", kind.encode())
    out = bytearray(MAGIC)
    _put(out, b"\x0a", type_meta)
    _put(out, b"\x12", raw)
    return bytes(out + b"\x1a\x00\x22\x00")


def encode(struct: Struct, value: dict[str, Any]) -> bytes:
    """Return the message of a canonical object; `kind` and `apiVersion` are in the envelope."""
    return bytes(_message_writer(struct)(value))


def write_field(number: int, data: bytes) -> bytes:
    """Return a single field with a length, for messages that are assembled from parts."""
    out = bytearray()
    _put(out, _tag(number, LENGTH), data)
    return bytes(out)


def _message_writer(struct: Struct) -> Payload:
    """Return the encoder of a struct. Compiled on first call, because schemas contain schemas."""
    compiled: Payload | None = struct.compiled.get(_COMPILED)
    if compiled is not None:
        return compiled
    members: Members = []

    def write(value: dict[str, Any]) -> bytearray:
        if not members:
            members.extend(_members(struct))
        out = bytearray()
        get = value.get
        for name, zero, put in members:
            if not name:
                put(out, value)
            elif (item := get(name)) is not None:
                put(out, item)
            elif zero:
                out += zero
        return out

    struct.compiled[_COMPILED] = write
    return write


def _members(struct: Struct) -> Members:
    members: Members = []
    for number, member in sorted(struct.by_number.items()):
        if isinstance(member, Embedded):
            # Its fields are flat in JSON, so it is encoded from the same object.
            inner = _message_writer(struct.table.struct(member.name))
            members.append(("", b"", _writer(number, LENGTH, inner)))
        else:
            members.append((member.json, _zero(struct, member), _field_writer(struct, member)))
    return members


def _field_writer(struct: Struct, field: Field) -> Writer:
    match field.type:
        case ListOf(item, wrapped) if not wrapped:
            return _list_writer(struct, item, field.number)
        case MapOf(item):
            return _map_writer(struct, item, field.number)
        case _:
            wire, payload = _payload(struct, field.type)
            return _writer(field.number, wire, payload)


def _zero(struct: Struct, field: Field) -> bytes:
    """Return the bytes that Go writes for a field without a value.

    Nil pointers, lists and maps are not written: the zero of a schema, which contains schemas,
    would be infinite.
    """
    type_ = field.type
    is_list = isinstance(type_, MapOf) or (isinstance(type_, ListOf) and not type_.wrapped)
    if field.pointer or is_list or type_ is Scalar.BYTES:
        return b""
    out = bytearray()
    match type_:
        case Special.QUANTITY | Special.INT_OR_STRING | Special.DURATION | StructRef() | Scalar():
            _field_writer(struct, field)(out, zero_of_type(struct, type_))
        case Special.SCHEMA_OR_BOOL:
            _put(out, _tag(field.number, LENGTH), b"\x08\x00")
        case _:
            _put(out, _tag(field.number, LENGTH), b"")
    return bytes(out)


def _writer(number: int, wire: int, payload: Payload) -> Writer:
    tag = _tag(number, wire)
    if wire != LENGTH:

        def write_plain(out: bytearray, item: Any) -> None:
            out += tag + payload(item)

        return write_plain
    heads = _heads(number)

    def write(out: bytearray, item: Any) -> None:
        data = payload(item)
        size = len(data)
        out += heads[size] if size < _SHORT else tag + _varint(size)
        out += data

    return write


def _list_writer(struct: Struct, item_type: Type, number: int) -> Writer:
    wire, payload = _payload(struct, item_type)
    put, zero = _writer(number, wire, payload), _zero_item(struct, item_type)

    def write(out: bytearray, items: Any) -> None:
        for item in items:
            put(out, zero if item is None else item)

    return write


def _map_writer(struct: Struct, item_type: Type, number: int) -> Writer:
    wire, payload = _payload(struct, item_type)
    put_key, put_item = _writer(1, *_SCALARS[Scalar.STRING]), _writer(2, wire, payload)
    zero = _zero_item(struct, item_type)
    tag, heads = _tag(number, LENGTH), _heads(number)

    def write(out: bytearray, items: Any) -> None:
        for key in sorted(items):
            item = items[key]
            entry = bytearray()
            put_key(entry, key)
            put_item(entry, zero if item is None else item)
            size = len(entry)
            out += heads[size] if size < _SHORT else tag + _varint(size)
            out += entry

    return write


def _zero_item(struct: Struct, type_: Type) -> Any:
    """Return the replacement of null in a list or a map; None if the writer handles it."""
    is_open = isinstance(type_, StructRef) and type_.name == SCHEMA_NAME
    return {} if is_open else zero_of_type(struct, type_)


def _payload(struct: Struct, type_: Type) -> tuple[int, Payload]:
    match type_:
        case Scalar():
            return _SCALARS[type_]
        case Special.SCHEMA_OR_ARRAY | Special.SCHEMA_OR_BOOL | Special.SCHEMA_OR_STRINGS:
            schema = struct.table.struct(SCHEMA_NAME)
            return LENGTH, lambda value: _write_union(schema, type_, value)
        case Special():
            return LENGTH, _SPECIALS[type_]
        case StructRef(name):
            return LENGTH, _message_writer(struct.table.struct(name))
        case ListOf(Scalar.STRING, wrapped) if wrapped:
            return LENGTH, _write_strings
        case _:
            raise NotImplementedError(f"protobuf cannot hold {type_} here")


def _write_union(schema: Struct, type_: Special, value: Any) -> bytearray:
    out = bytearray()
    write_schema = _message_writer(schema)
    if isinstance(value, dict):
        if type_ is Special.SCHEMA_OR_BOOL:
            out += b"\x08\x01"
            _put(out, b"\x12", write_schema(value))
        else:
            _put(out, b"\x0a", write_schema(value))
    elif isinstance(value, bool):
        out += b"\x08\x01" if value else b"\x08\x00"
    else:
        for item in value or ():
            is_text = isinstance(item, str)
            _put(out, b"\x12", item.encode() if is_text else write_schema(item))
    return out


def _write_strings(value: Any) -> bytearray:
    out = bytearray()
    for item in value:
        _put(out, b"\x0a", item.encode())
    return out


@lru_cache(maxsize=TIMES_KEPT_MAX)
def _write_time(value: str | None) -> bytes:
    if value is None:
        return b""
    seconds, _ = time_to_unix(parse_time(value))
    return b"\x08" + _varint(seconds) + b"\x10\x00"


@lru_cache(maxsize=TIMES_KEPT_MAX)
def _write_micro_time(value: str | None) -> bytes:
    if value is None:
        return b""
    seconds, nanoseconds = time_to_unix(parse_time(value))
    return b"\x08" + _varint(seconds) + b"\x10" + _varint(nanoseconds)


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
    if size < _SHORT:
        out.append(size)
    else:
        out += _varint(size)
    out += data


@cache
def _heads(number: int) -> tuple[bytes, ...]:
    """Return tag and length of a field for each short length; they are cached per field number."""
    tag = _tag(number, LENGTH)
    return tuple(tag + bytes((size,)) for size in range(_SHORT))


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(number: int) -> bytes:
    number &= _BITS_64
    if number < _SHORT:
        return _BYTES[number]
    out = bytearray()
    while number >= _SHORT:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_BYTES: Final = tuple(bytes((number,)) for number in range(_SHORT))
_pack_double: Final = packing.Struct("<d").pack

_SCALARS: Final[dict[Scalar, tuple[int, Payload]]] = {
    Scalar.STRING: (LENGTH, str.encode),
    Scalar.BOOL: (VARINT, lambda value: b"\x01" if value else b"\x00"),
    Scalar.INT32: (VARINT, _varint),
    Scalar.INT64: (VARINT, _varint),
    Scalar.FLOAT64: (FIXED64, _pack_double),
    Scalar.BYTES: (LENGTH, decode_base64),
}
_SPECIALS: Final[dict[Special, Payload]] = {
    Special.TIME: _write_time,
    Special.MICRO_TIME: _write_micro_time,
    Special.DURATION: lambda value: b"\x08" + _varint(parse_duration(value)),
    Special.QUANTITY: _write_quantity,
    Special.INT_OR_STRING: _write_int_or_string,
    Special.RAW_EXTENSION: _write_json,
    Special.FIELDS_V1: _write_json,
    Special.JSON: _write_json,
}
