"""Encodes JSON objects, lists and watch events as protobuf messages.

Objects are stored and cached as JSON bytes, so a message is encoded for each response. That costs
some thirty nanoseconds per byte of JSON, while JSON is sent unchanged: a client that accepts both
gets protobuf only for small responses (`negotiation` decides).

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
"""Each event of a watch is preceded by its length, in big-endian order."""

STATUS_BEGIN: Final = b"k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Status"
"""Prefix of a message that contains a Status."""

_LIST_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_NOT_CANONICAL: Final = (
    *(TypeError, ValueError, AttributeError, LookupError, ArithmeticError),
    RecursionError,  # schemas may be nested
)


@lru_cache(maxsize=STRUCTS_KEPT_MAX)
def struct_of(api_version: str, kind: str) -> Struct | None:
    """The struct of a kind; None if it has no protobuf encoding."""
    try:
        group_version = GroupVersion.parse(api_version)
    except InvalidName:
        return None
    struct = all_types().of_kind(*group_version, kind)
    return struct if struct is not None and struct.by_number else None


def has_messages(resource: Resource, version: str) -> bool:
    """Whether objects can be encoded as protobuf. Custom resources cannot: their fields have no
    numbers."""
    if not isinstance(resource.shape, BuiltinShape):
        return False
    return struct_of(resource.api_version(version), resource.kind.kind) is not None


def message_of(body: bytes) -> bytes | None:
    """Encode an object as a message in its envelope; None if its kind has no protobuf encoding."""
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
    """Encode by struct. Raises a StatusError for a stored object that does not fit into it."""
    try:
        return protobuf.encode(struct, obj)
    except _NOT_CANONICAL:
        checked = check(struct, obj).value  # written by a less strict program
        try:
            return protobuf.encode(struct, checked)
        except _NOT_CANONICAL as error:
            name = struct.short_name
            raise status.internal(f"this {name} cannot be encoded as protobuf: {error}") from error


def items_of(api_version: str, kind: str, bodies: Iterable[bytes]) -> bytes:
    """Encode objects as items of a list message. Raises a StatusError."""
    struct = struct_of(api_version, kind)
    assert struct is not None
    return b"".join([write_field(2, _written(struct, orjson.loads(body))) for body in bodies])


def list_message(
    api_version: str, kind: str, metadata: Mapping[str, Any], items: Iterable[bytes]
) -> bytes:
    """Wrap the result of `items_of` in a list message and its envelope."""
    head = protobuf.encode(all_types().struct(_LIST_META), dict(metadata))
    raw = b"".join((write_field(1, head), *items))
    return protobuf.write_envelope(api_version, kind, raw)


def event_frame(what: bytes, body: bytes) -> bytes:
    """Encode a watch event, prefixed with its length. Only its object has an envelope."""
    # An object without a protobuf encoding stays JSON; the client reports the error then.
    obj = message_of(body) or body
    event = write_field(1, what) + write_field(2, write_field(1, obj))
    return len(event).to_bytes(FRAME_LENGTH_BYTES, "big") + event


def read_message(body: bytes) -> dict[str, Any]:
    """Decode a protobuf response as JSON. Raises a StatusError."""
    envelope = protobuf.read_envelope(body, size_max=len(body))
    struct = struct_of(envelope.api_version, envelope.kind)
    if struct is None:
        raise status.bad_request(f"{envelope.kind} has no protobuf encoding")
    obj = protobuf.decode(struct, envelope.raw, size_max=len(body))
    return {"kind": envelope.kind, "apiVersion": envelope.api_version, **obj}


def name_in(body: bytes) -> str:
    """The name of the object in a response, without decoding the rest."""
    envelope = protobuf.read_envelope(body, size_max=len(body))
    metadata = _first(envelope.raw)
    return str(_first(metadata), "utf-8")


def _first(message: bytes) -> bytes:
    """The field with number 1: the metadata of an object, or the name in metadata."""
    found = read_small(message, 0, len(message)).get(1, b"")
    return found if isinstance(found, bytes) else b""
