"""Protobuf bodies: the envelope, and objects decoded by their struct into the JSON form.

`decode` returns what `typed_json.check` would return for the same object sent as JSON. On the wire
Go writes every field that is not a pointer, even if it is zero, and pointers only if they are set.
So only the struct tells whether a zero is an intended value.

The wire format (varints, lengths) is decoded in place from one buffer. Inner functions raise
ValueError or run past the end (IndexError); `decode` converts both to BadRequest. Unknown field
numbers are skipped. Groups are rejected: no Kubernetes type uses them.

Not here: which struct belongs to a kind, and encoding (`protobuf_encode`, re-exported here).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from restow.apimachinery.codec import BODY_SIZE_MAX, MEDIA_TYPES
from restow.apimachinery.protobuf_encode import encode, write_envelope
from restow.apimachinery.protobuf_values import (
    FIXED64,
    LENGTH,
    MAGIC,
    SPECIAL_READERS,
    VARINT,
    VARINT_READERS,
    ReadBudget,
    read_double,
    read_length,
    read_small,
    read_varint,
    skip,
)
from restow.apimachinery.status import bad_request, body_too_large, unsupported_media_type
from restow.apimachinery.type_values import (
    ABSENT,
    encode_base64,
    fresh,
    zero_of_field,
    zero_of_struct,
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

__all__ = [
    "MAGIC",
    "ProtobufEnvelope",
    "decode",
    "encode",
    "read_envelope",
    "write_envelope",
]

_COMPILED: Final = "protobuf.reader"

# Decodes one field, whose tag was decoded, into the object; returns the position after it. If the
# field has a length, that was decoded as well, and the value is between the two positions.
Reader = Callable[[dict[str, Any], bytes, int, int, ReadBudget], int]
# Decodes the bytes between two positions.
Payload = Callable[[bytes, int, int, ReadBudget], Any]


class ProtobufEnvelope(NamedTuple):
    """The envelope of every object: its type, and its message."""

    api_version: str
    kind: str
    raw: bytes


def read_envelope(data: bytes, *, size_max: int = BODY_SIZE_MAX) -> ProtobufEnvelope:
    """Decode the type and the message of a body; BadRequest if it is not an envelope."""
    if len(data) > size_max:
        raise body_too_large(size_max)
    if not data.startswith(MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message")
    if len(data) == len(MAGIC):
        raise bad_request("the protobuf envelope is malformed: empty body")
    try:
        envelope = read_small(data, len(MAGIC), len(data))
        head, raw = envelope.get(1, b""), envelope.get(2, b"")
        names = read_small(head, 0, len(head))
        api_version, kind = str(names.get(1, b""), "utf-8"), str(names.get(2, b""), "utf-8")
    except (ValueError, IndexError, TypeError) as error:
        raise bad_request(f"the protobuf envelope is malformed: {_reason(error)}") from error
    if not isinstance(raw, bytes):
        raise bad_request("the protobuf envelope is malformed: it holds no object")
    return ProtobufEnvelope(api_version, kind, raw)


def decode(struct: Struct, raw: bytes, *, size_max: int = BODY_SIZE_MAX) -> dict[str, Any]:
    """Decode a message to canonical JSON form, without `kind` and `apiVersion`.

    Kinds without field numbers have no protobuf form: UnsupportedMediaType, as for custom
    resources.
    """
    if len(raw) > size_max:
        raise body_too_large(size_max)
    if not struct.by_number:
        raise unsupported_media_type(MEDIA_TYPES)
    value: dict[str, Any] = {}
    try:
        _struct_reader(struct)(value, raw, 0, len(raw), ReadBudget())
    except (ValueError, IndexError) as error:
        kind = struct.short_name
        raise bad_request(
            f'{kind} in version "{struct.version}" cannot be handled as a {kind}: '
            f"proto: {_reason(error)}"
        ) from error
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, IndexError):
        return "unexpected end of the message"
    if isinstance(error, UnicodeDecodeError):
        return "a string is not valid UTF-8"
    return "a field has the wrong wire type" if isinstance(error, TypeError) else str(error)


def _readers(struct: Struct) -> dict[int, Reader]:
    """Return one reader per tag, which is a field number with its wire type."""
    readers: dict[int, Reader] = {}
    for number, field in struct.by_number.items():
        if isinstance(field, Embedded):
            readers[number << 3 | LENGTH] = _fields_reader(struct.table.struct(field.name))
        else:
            for wire, reader in _field_readers(struct, field).items():
                readers[number << 3 | wire] = reader
    return readers


def _fields_reader(struct: Struct) -> Reader:
    """Return a reader of all fields of a message."""
    readers = _readers(struct)
    of_length = {tag: reader for tag, reader in readers.items() if tag & 7 == LENGTH}
    of_number = {tag: reader for tag, reader in readers.items() if tag & 7 != LENGTH}
    numbers = struct.by_number

    def read_fields(
        out: dict[str, Any], data: bytes, position: int, end: int, run: ReadBudget
    ) -> int:
        while position < end:
            tag = data[position]
            position += 1
            if tag >= 0x80:
                tag, position = read_varint(data, position - 1)
            if (reader := of_length.get(tag)) is not None:
                # An inlined `read_length`: a call would take as long as most of the readers.
                size = data[position]
                position += 1
                if size >= 0x80:
                    size, position = read_varint(data, position - 1)
                stop = position + size
                if stop > end:
                    raise IndexError
                reader(out, data, position, stop, run)
                position = stop
            elif (reader := of_number.get(tag)) is not None:
                position = reader(out, data, position, end, run)
            elif tag >> 3 in numbers:
                raise ValueError(f"wrong wireType = {tag & 7} for field {tag >> 3}")
            else:
                position = skip(data, position, tag)
        if position > end:
            raise IndexError
        return position

    return read_fields


def _struct_reader(struct: Struct) -> Reader:
    """Return a reader of a message that also adds the zero values that JSON requires."""
    compiled: Reader | None = struct.compiled.get(_COMPILED)
    if compiled is not None:
        return compiled
    read_fields = _fields_reader(struct)
    zeros = zero_of_struct(struct)

    def read_struct(
        out: dict[str, Any], data: bytes, position: int, end: int, run: ReadBudget
    ) -> int:
        run.enter()
        read_fields(out, data, position, end, run)
        run.leave()
        for key, zero in zeros.items():
            if key not in out:
                out[key] = fresh(zero)
        return end

    struct.compiled[_COMPILED] = read_struct
    return read_struct


def _field_readers(struct: Struct, field: Field) -> dict[int, Reader]:
    """Return the readers of one field by wire type; a list of numbers has two."""
    name, type_ = field.json, field.type
    is_kept = field.pointer or zero_of_field(struct, field) is not ABSENT
    match type_:
        case Scalar.BOOL | Scalar.INT32 | Scalar.INT64:
            return {VARINT: _number_reader(name, VARINT_READERS[type_], is_kept=is_kept)}
        case Scalar.FLOAT64:
            return {FIXED64: _double_reader(name, is_kept=is_kept)}
        case Scalar.STRING:
            return {LENGTH: _string_reader(name, is_kept=is_kept)}
        case StructRef(target):
            return {LENGTH: _ref_reader(name, struct.table.struct(target), is_kept=is_kept)}
        case ListOf(item, wrapped) if not wrapped:
            return _list_readers(struct, name, item)
        case MapOf(item):
            return {LENGTH: _map_reader(struct, name, item)}
        case _:
            # An empty special value has a meaning of its own; only the number of a union is zero.
            payload = _payload(struct, type_)
            is_kept = is_kept or isinstance(type_, Special)
            reader = _payload_reader(name, payload, is_kept=is_kept)
            if type_ is Special.INT_OR_STRING and not field.pointer and field.omitempty:
                reader = _payload_reader(name, payload, is_kept=False)
            return {LENGTH: reader}


def _number_reader(name: str, convert: Callable[[int], Any], *, is_kept: bool) -> Reader:
    def read(out: dict[str, Any], data: bytes, position: int, _end: int, _run: ReadBudget) -> int:
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = read_varint(data, position - 1)
        value = convert(number)
        # The last occurrence wins, so a zero also removes an earlier value.
        if value or is_kept:
            out[name] = value
        else:
            out.pop(name, None)
        return position

    return read


def _double_reader(name: str, *, is_kept: bool) -> Reader:
    def read(out: dict[str, Any], data: bytes, position: int, end: int, _run: ReadBudget) -> int:
        value = read_double(data, position, end)
        if value or is_kept:
            out[name] = value
        else:
            out.pop(name, None)
        return position + 8

    return read


def _string_reader(name: str, *, is_kept: bool) -> Reader:
    def read(out: dict[str, Any], data: bytes, position: int, end: int, _run: ReadBudget) -> int:
        if position < end or is_kept:
            out[name] = str(data[position:end], "utf-8")
        else:
            out.pop(name, None)
        return end

    return read


def _payload_reader(name: str, payload: Payload, *, is_kept: bool) -> Reader:
    def read(out: dict[str, Any], data: bytes, position: int, end: int, run: ReadBudget) -> int:
        value = payload(data, position, end, run)
        if value is not ABSENT and (is_kept or value):
            out[name] = value
        else:
            out.pop(name, None)
        return end

    return read


def _ref_reader(name: str, struct: Struct, *, is_kept: bool) -> Reader:
    read_struct: Reader | None = None

    def read(out: dict[str, Any], data: bytes, position: int, end: int, run: ReadBudget) -> int:
        nonlocal read_struct
        if read_struct is None:
            # Created on first use: most fields of a pod never occur.
            read_struct = _struct_reader(struct)
        # A repeated message is merged, as protobuf requires.
        value = out.get(name)
        if value is None:
            value = {}
        read_struct(value, data, position, end, run)
        if value or is_kept:
            out[name] = value
        return end

    return read


def _list_readers(struct: Struct, name: str, item: Type) -> dict[int, Reader]:
    if item in VARINT_READERS:
        assert isinstance(item, Scalar)
        return _number_list_readers(name, VARINT_READERS[item])
    payload = _payload(struct, item)

    def read(out: dict[str, Any], data: bytes, position: int, end: int, run: ReadBudget) -> int:
        value = payload(data, position, end, run)
        if value is ABSENT:
            value = None
        if name in out:
            out[name].append(value)
        else:
            out[name] = [value]
        return end

    return {LENGTH: read}


def _number_list_readers(name: str, convert: Callable[[int], Any]) -> dict[int, Reader]:
    """Numbers may be encoded one by one or packed; a reader must support both."""

    def read_one(
        out: dict[str, Any], data: bytes, position: int, _end: int, _run: ReadBudget
    ) -> int:
        number, position = read_varint(data, position)
        out.setdefault(name, []).append(convert(number))
        return position

    def read_packed(
        out: dict[str, Any], data: bytes, position: int, end: int, run: ReadBudget
    ) -> int:
        while position < end:
            position = read_one(out, data, position, end, run)
        if position > end:
            raise IndexError
        return end

    return {VARINT: read_one, LENGTH: read_packed}


def _map_reader(struct: Struct, name: str, item: Type) -> Reader:
    """Return the reader of one map entry: a message with a key and a value."""
    zero = zero_of_type(struct, item)
    convert = VARINT_READERS.get(item)
    payload = _payload(struct, item) if convert is None else None

    def read(out: dict[str, Any], data: bytes, position: int, end: int, run: ReadBudget) -> int:
        entries = out.get(name)
        if entries is None:
            entries = out[name] = {}
        # The form that all known encoders write: a short key, then the value, which ends the entry.
        if end - position > 3 and payload is not None and data[position] == 0x0A:
            size = data[position + 1]
            position += 2
            key_end = position + size
            if size < 0x80 and key_end + 2 <= end and data[key_end] == 0x12:
                size = data[key_end + 1]
                begin = key_end + 2
                if size >= 0x80:
                    size, begin = read_varint(data, key_end + 1)
                if begin + size == end:
                    value = payload(data, begin, end, run)
                    key = str(data[position:key_end], "utf-8")
                    entries[key] = fresh(zero) if value is ABSENT else value
                    return end
            position -= 2
        key, value = _read_entry(data, position, end, run=run, payload=payload, convert=convert)
        entries[key] = fresh(zero) if value is ABSENT else value
        return end

    return read


def _read_entry(
    data: bytes,
    position: int,
    stop: int,
    *,
    run: ReadBudget,
    payload: Payload | None,
    convert: Callable[[int], Any] | None,
) -> tuple[str, Any]:
    """Decode a map entry in any form that protobuf allows; ABSENT if it has no value."""
    key, value = "", ABSENT
    while position < stop:
        tag, position = read_varint(data, position)
        if tag == 0x0A:
            position, key_end = read_length(data, position, stop)
            key = str(data[position:key_end], "utf-8")
            position = key_end
        elif tag == 0x12 and payload is not None:
            position, key_end = read_length(data, position, stop)
            value = payload(data, position, key_end, run)
            position = key_end
        elif tag == 0x10 and convert is not None:
            number, position = read_varint(data, position)
            value = convert(number)
        elif tag >> 3 in (1, 2):
            raise ValueError(f"wrong wireType = {tag & 7} for field {tag >> 3}")
        else:
            position = skip(data, position, tag)
    if position > stop:
        raise IndexError
    return key, value


def _payload(struct: Struct, type_: Type) -> Payload:
    match type_:
        case Scalar.STRING:
            return lambda data, position, end, _: str(data[position:end], "utf-8")
        case Scalar.BYTES:
            return lambda data, position, end, _: encode_base64(data[position:end])
        case Special.SCHEMA_OR_ARRAY | Special.SCHEMA_OR_BOOL | Special.SCHEMA_OR_STRINGS:
            return _union_payload(struct, type_)
        case Special():
            return SPECIAL_READERS[type_]
        case StructRef(name):
            return _struct_payload(struct.table.struct(name))
        case ListOf(item, wrapped) if wrapped:
            read_items = _list_readers(struct, "", item)[LENGTH]
            return lambda data, position, end, run: _read_wrapped(
                data, position, end, run, read_items
            )
        case _:
            raise NotImplementedError(f"protobuf cannot hold {type_} here")


def _read_wrapped(data: bytes, position: int, end: int, run: ReadBudget, read_items: Reader) -> Any:
    out: dict[str, Any] = {}
    while position < end:
        tag, position = read_varint(data, position)
        if tag == 0x0A:
            position, stop = read_length(data, position, end)
            position = read_items(out, data, position, stop, run)
        else:
            position = skip(data, position, tag)
    if position > end:
        raise IndexError
    return out.get("", [])


def _struct_payload(struct: Struct) -> Payload:
    read_struct: Reader | None = None

    def read(data: bytes, position: int, end: int, run: ReadBudget) -> Any:
        nonlocal read_struct
        if read_struct is None:
            read_struct = _struct_reader(struct)
        value: dict[str, Any] = {}
        read_struct(value, data, position, end, run)
        return value

    return read


def _union_payload(struct: Struct, type_: Special) -> Payload:
    """Return a reader of a schema, or of the union's alternative: schemas, a boolean, or
    strings.
    """
    read_schema = _struct_payload(struct.table.struct(SCHEMA_NAME))
    schema_number = 2 if type_ is Special.SCHEMA_OR_BOOL else 1

    def read(data: bytes, position: int, end: int, run: ReadBudget) -> Any:
        schema, others, allows = ABSENT, [], False
        while position < end:
            tag, position = read_varint(data, position)
            if tag == schema_number << 3 | LENGTH:
                position, stop = read_length(data, position, end)
                schema = read_schema(data, position, stop, run)
                position = stop
            elif tag == 2 << 3 | LENGTH:
                position, stop = read_length(data, position, end)
                is_text = type_ is Special.SCHEMA_OR_STRINGS
                others.append(
                    str(data[position:stop], "utf-8")
                    if is_text
                    else read_schema(data, position, stop, run)
                )
                position = stop
            elif tag == 1 << 3 | VARINT and type_ is Special.SCHEMA_OR_BOOL:
                number, position = read_varint(data, position)
                allows = number != 0
            else:
                position = skip(data, position, tag)
        if position > end:
            raise IndexError
        if others:
            return others
        if schema is ABSENT and type_ is Special.SCHEMA_OR_BOOL:
            return allows
        return schema

    return read
