"""Answers in protobuf: the JSON of objects, lists and events, written as messages.

Objects are kept and sent as JSON bytes, so a message is made anew for each answer. That costs some
thirty nanoseconds per byte of JSON, while JSON is sent as it is: who takes both gets messages only
where they are small (`negotiation` decides).

Not here: the wire format (`restow.apimachinery.protobuf`), and which client gets a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from restow.apimachinery import protobuf, status
from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.protobuf_encode import write_field
from restow.apimachinery.protobuf_values import read_small
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.typed_json import check
from restow.apimachinery.types import Struct
from restow.kinds.derived_types import all_types
from restow.registry.resource import Resource
from restow.registry.shapes import BuiltinShape

STRUCTS_KEPT_MAX: Final = 1024
FRAME_LENGTH_BYTES: Final = 4
"""Before each event of a watch stands its length, the largest byte first."""

STATUS_BEGIN: Final = b"k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Status"
"""How a message begins that says how it went."""

_LIST_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_NOT_CANONICAL: Final = (
    *(TypeError, ValueError, AttributeError, LookupError, ArithmeticError),
    RecursionError,  # schemas may hold schemas
)


@lru_cache(maxsize=STRUCTS_KEPT_MAX)
def struct_of(api_version: str, kind: str) -> Struct | None:
    """The struct of a kind; None if it has no form in protobuf."""
    try:
        group_version = GroupVersion.parse(api_version)
    except InvalidName:
        return None
    struct = all_types().of_kind(*group_version, kind)
    return struct if struct is not None and struct.by_number else None


def has_messages(resource: Resource, version: str) -> bool:
    """Whether objects can be written as messages. Those of custom kinds cannot: they have no
    numbers for their fields."""
    if not isinstance(resource.shape, BuiltinShape):
        return False
    return struct_of(resource.api_version(version), resource.kind.kind) is not None


def message_of(body: bytes) -> bytes | None:
    """An object's JSON as a message in its envelope; None if there is no such form of it."""
    obj = orjson.loads(body)
    if not isinstance(obj, dict):
        return None
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    if not (isinstance(api_version, str) and isinstance(kind, str)):
        return None
    struct = struct_of(api_version, kind)
    if struct is None:
        return None
    try:
        raw = _written(struct, obj)
    except StatusError:
        return None
    return protobuf.write_envelope(api_version, kind, raw)


def _written(struct: Struct, obj: dict[str, Any]) -> bytes:
    """Raises a StatusError for what somebody else has stored and no struct can hold."""
    try:
        return protobuf.encode(struct, obj)
    except _NOT_CANONICAL:
        checked = check(struct, obj).value  # written by somebody who is less strict
        try:
            return protobuf.encode(struct, checked)
        except _NOT_CANONICAL as error:
            name = struct.short_name
            raise status.internal(f"this {name} cannot be written as protobuf: {error}") from error


def items_of(api_version: str, kind: str, bodies: Iterable[bytes]) -> bytes:
    """Objects as they stand in the message of a list. Raises a StatusError."""
    struct = struct_of(api_version, kind)
    assert struct is not None
    return b"".join([write_field(2, _written(struct, orjson.loads(body))) for body in bodies])


def list_message(
    api_version: str, kind: str, metadata: Mapping[str, Any], items: Iterable[bytes]
) -> bytes:
    """A list in its envelope, of what `items_of` has made."""
    head = protobuf.encode(all_types().struct(_LIST_META), dict(metadata))
    raw = b"".join((write_field(1, head), *items))
    return protobuf.write_envelope(api_version, kind, raw)


def event_frame(what: bytes, body: bytes) -> bytes:
    """An event of a watch, with its length before it. Only its object has an envelope."""
    # What has no form in protobuf stays JSON; then it is the client who says so.
    obj = message_of(body) or body
    event = write_field(1, what) + write_field(2, write_field(1, obj))
    return len(event).to_bytes(FRAME_LENGTH_BYTES, "big") + event


def read_message(body: bytes) -> dict[str, Any]:
    """What an answer in protobuf says, as JSON would. Raises a StatusError."""
    envelope = protobuf.read_envelope(body, size_max=len(body))
    struct = struct_of(envelope.api_version, envelope.kind)
    if struct is None:
        raise status.bad_request(f"{envelope.kind} has no form in protobuf")
    obj = protobuf.decode(struct, envelope.raw, size_max=len(body))
    return {"kind": envelope.kind, "apiVersion": envelope.api_version, **obj}


def name_in(body: bytes) -> str:
    """The name of the object in an answer, without reading the rest of it."""
    envelope = protobuf.read_envelope(body, size_max=len(body))
    metadata = _first(envelope.raw)
    return str(_first(metadata), "utf-8")


def _first(message: bytes) -> bytes:
    """The field with number 1: of objects their metadata, of metadata the name."""
    found = read_small(message, 0, len(message)).get(1, b"")
    return found if isinstance(found, bytes) else b""
