"""A second protobuf implementation, built from the same structs with the official library.

It shares only the type tables with the tested code. Not here: tests.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
from tests.typed_values import reachable

_Proto = descriptor_pb2.FieldDescriptorProto

_SCALARS = {
    Scalar.STRING: _Proto.TYPE_STRING,
    Scalar.BOOL: _Proto.TYPE_BOOL,
    Scalar.INT32: _Proto.TYPE_INT32,
    Scalar.INT64: _Proto.TYPE_INT64,
    Scalar.FLOAT64: _Proto.TYPE_DOUBLE,
    Scalar.BYTES: _Proto.TYPE_BYTES,
}
_STRINGS = "Strings"
# The messages of the special types: (number, type, is repeated).
_SPECIALS: dict[Special, list[tuple[int, Type, bool]]] = {
    Special.TIME: [(1, Scalar.INT64, False), (2, Scalar.INT32, False)],
    Special.MICRO_TIME: [(1, Scalar.INT64, False), (2, Scalar.INT32, False)],
    Special.DURATION: [(1, Scalar.INT64, False)],
    Special.QUANTITY: [(1, Scalar.STRING, False)],
    Special.INT_OR_STRING: [
        (1, Scalar.INT64, False),
        (2, Scalar.INT32, False),
        (3, Scalar.STRING, False),
    ],
    Special.RAW_EXTENSION: [(1, Scalar.BYTES, False)],
    Special.FIELDS_V1: [(1, Scalar.BYTES, False)],
    Special.JSON: [(1, Scalar.BYTES, False)],
    Special.SCHEMA_OR_ARRAY: [
        (1, StructRef(SCHEMA_NAME), False),
        (2, StructRef(SCHEMA_NAME), True),
    ],
    Special.SCHEMA_OR_BOOL: [(1, Scalar.BOOL, False), (2, StructRef(SCHEMA_NAME), False)],
    Special.SCHEMA_OR_STRINGS: [(1, StructRef(SCHEMA_NAME), False), (2, Scalar.STRING, True)],
}


def message_class(struct: Struct) -> Any:
    """Return the library's class for the message of a struct."""
    file = descriptor_pb2.FileDescriptorProto(name="twin.proto", package="twin", syntax="proto2")
    structs = {each.name: each for root in _roots(struct) for each in reachable(root)}
    has_schemas = SCHEMA_NAME in structs
    for each in structs.values():
        message = file.message_type.add(name=_flat(each.name))
        for number, member in each.by_number.items():
            if isinstance(member, Embedded):
                _add(message, number, StructRef(member.name), is_repeated=False)
            else:
                _add_field(message, member)
    for special, fields in _SPECIALS.items():
        if special.name.startswith("SCHEMA") and not has_schemas:
            continue
        message = file.message_type.add(name=_flat(special.value))
        for number, type_, is_repeated in fields:
            _add(message, number, type_, is_repeated=is_repeated)
    _add(file.message_type.add(name=_STRINGS), 1, Scalar.STRING, is_repeated=True)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call,unused-ignore]
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"twin.{_flat(struct.name)}")  # type: ignore[no-untyped-call,unused-ignore]
    )


def _roots(struct: Struct) -> list[Struct]:
    """Return the embedded structs as well: their fields are flat, so no field refers to them."""
    roots, waiting = [], [struct]
    seen: set[str] = set()
    while waiting:
        root = waiting.pop()
        if root.name in seen:
            continue
        seen.add(root.name)
        roots.append(root)
        for each in reachable(root):
            waiting += [each.table.struct(embedded.name) for embedded in each.embedded]
    return roots


def _add_field(message: descriptor_pb2.DescriptorProto, field: Field) -> None:
    type_ = field.type
    if isinstance(type_, ListOf) and not type_.wrapped:
        _add(message, field.number, type_.item, is_repeated=True)
    elif isinstance(type_, MapOf):
        entry = message.nested_type.add(name=f"F{field.number}Entry")
        entry.options.map_entry = True
        _add(entry, 1, Scalar.STRING, is_repeated=False, name="key")
        _add(entry, 2, type_.value, is_repeated=False, name="value")
        added = message.field.add(name=f"f{field.number}", number=field.number)
        added.label = _Proto.LABEL_REPEATED
        added.type = _Proto.TYPE_MESSAGE
        added.type_name = f".twin.{message.name}.{entry.name}"
    else:
        _add(message, field.number, type_, is_repeated=False)


def _add(
    message: descriptor_pb2.DescriptorProto,
    number: int,
    type_: Type,
    *,
    is_repeated: bool,
    name: str = "",
) -> None:
    added = message.field.add(name=name or f"f{number}", number=number)
    added.label = _Proto.LABEL_REPEATED if is_repeated else _Proto.LABEL_OPTIONAL
    if isinstance(type_, Scalar):
        added.type = _SCALARS[type_]
        return
    added.type = _Proto.TYPE_MESSAGE
    if isinstance(type_, StructRef):
        added.type_name = f".twin.{_flat(type_.name)}"
    elif isinstance(type_, Special):
        added.type_name = f".twin.{_flat(type_.value)}"
    else:
        added.type_name = f".twin.{_STRINGS}"


def _flat(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")
