"""Protobuf message classes made from a table of their fields, instead of generated code.

A pool of its own keeps each table apart from all other users of protobuf. The classes are `Any` for
the type checker, because their fields are created at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SCALARS: Final = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
}


def message_classes(table: Mapping[str, str]) -> dict[str, Any]:
    """Message classes by full name, from full name -> fields: number, name, type, separated by
    commas; an asterisk marks a repeated field. A package may use those that begin before it."""
    pool = descriptor_pool.DescriptorPool()
    known: list[str] = []
    for package in dict.fromkeys(name.partition(".")[0] for name in table):
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{package}.proto", package=package, syntax="proto3", dependency=known
        )
        for full_name, fields in table.items():
            if full_name.startswith(package + "."):
                message = file.message_type.add(name=full_name.partition(".")[2])
                for field in filter(None, map(str.strip, fields.split(","))):
                    _add_field(message, field)
        pool.Add(file)
        known.append(file.name)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in table
    }


def _add_field(message: descriptor_pb2.DescriptorProto, text: str) -> None:
    number, name, kind = text.split()
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
    kind = kind.removesuffix("*")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{kind}"
