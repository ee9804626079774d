"""Stored bytes and served bytes: how a resource version gets into an object without parsing it.

A stored value is the object as JSON, `kind` and `apiVersion` first, without a resource version,
and a newline at the end, as Kubernetes stores it. A served object is the same bytes with the
resource version as the first field of its metadata. Both begin with a text that is known per kind
and version, so the place to cut is known too.

kube-apiserver stores built-in kinds in protobuf by default. Such values are decoded when they are
read, and served like any other; whoever writes the object stores JSON.

Not here: what the bytes mean, and conversion between versions.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec
import orjson

from restow.apimachinery import protobuf
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.status_error import StatusError
from restow.encryption.decryption import error_of_sealed
from restow.kinds.derived_types import all_types
from restow.registry.errors import VersionUnknown
from restow.storage.errors import StoreDamaged
from restow.storage.interface import SEALED_PREFIX

_FIELD: Final = b'"resourceVersion":"%d",'


class _Metadata(msgspec.Struct, gc=False):
    version: str | None = msgspec.field(name="resourceVersion", default=None)


class _Value(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode: Final = msgspec.json.Decoder(_Value).decode


def _is_whole(value: bytes) -> bool:
    """Whether a value can be cut and joined: it is JSON, and has no resource version yet.

    The decoder does not look into the texts that it skips, which may not be UTF-8.
    """
    try:
        return _decode(value).metadata.version is None and (value.isascii() or bool(value.decode()))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


class Splicer:
    """Turns stored values of one kind into served bodies."""

    def __init__(self, kind: str, api_versions: tuple[str, ...]) -> None:
        self._kind = kind
        self._versions = frozenset(api_versions)
        self._heads = [(head_of(kind, version), version) for version in dict.fromkeys(api_versions)]

    def serve(self, value: bytes, revision: int) -> tuple[int, str, bytes]:
        """The revision, the version it is stored in, and the body.

        Raises `StoreDamaged` for what is no such object.
        """
        for head, version in self._heads:
            if value.startswith(head) and _is_whole(value):
                return revision, version, splice(head, value, revision)
        return self._serve_foreign(value, revision)

    def _serve_foreign(self, value: bytes, revision: int) -> tuple[int, str, bytes]:
        """A value that someone else wrote: with its fields in another order, or in protobuf."""
        check_opened(value)
        if is_protobuf(value):
            envelope = _envelope(value)
            self.check_type(envelope.kind, envelope.api_version)
        fields = load(value)
        try:
            kind, version = fields["kind"], fields["apiVersion"]
            canonical = encode(fields, version, kind)
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreDamaged(f"it holds no object of kind {self._kind}: {error!r}") from error
        self.check_type(kind, version)
        return revision, version, splice(head_of(kind, version), canonical, revision)

    def check_type(self, kind: object, version: object) -> None:
        """Raises `StoreDamaged` unless objects of this type may be stored here."""
        if kind != self._kind:
            raise StoreDamaged(f"it holds an object of kind {kind!r} instead of {self._kind}")
        if not isinstance(version, str) or version not in self._versions:
            why = f"it is stored in version {version!r}, which is not decodable here"
            raise VersionUnknown(why)


def is_protobuf(value: bytes) -> bool:
    """Whether a value is in Kubernetes' protobuf envelope."""
    return value.startswith(protobuf.MAGIC)


def load(value: bytes) -> Any:
    """The fields of a stored object, be it JSON or protobuf. Raises `StoreDamaged`.

    Only built-in types have a protobuf form.
    """
    if not is_protobuf(value):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise StoreDamaged(f"it is no JSON: {error}") from error
    api_version, kind, raw = _envelope(value)
    group, version = GroupVersion.parse(api_version)
    struct = all_types().of_kind(group, version, kind)
    if struct is None:
        raise StoreDamaged(f"it holds a protobuf message of {api_version} {kind}, which is unknown")
    try:
        fields = protobuf.decode(struct, raw, size_max=len(raw))
    except StatusError as error:
        raise StoreDamaged(f"its protobuf message cannot be read: {error}") from error
    return {"kind": kind, "apiVersion": api_version, **fields}


def as_json(value: bytes) -> bytes:
    """A stored value as JSON; values that are no protobuf stay as they are. Raises
    `StoreDamaged`."""
    return orjson.dumps(load(value)) if is_protobuf(value) else value


def _envelope(value: bytes) -> protobuf.ProtobufEnvelope:
    try:
        found = protobuf.read_envelope(value, size_max=len(value))
    except StatusError as error:
        raise StoreDamaged(f"its protobuf envelope cannot be read: {error}") from error
    if not found.raw:
        raise StoreDamaged("its protobuf envelope is cut off: it holds no message")
    return found


def check_opened(value: bytes) -> None:
    """Raises `CannotOpen` for a value that is still encrypted, `PluginSilent` if that may change
    when a plug-in answers."""
    if value.startswith(SEALED_PREFIX):
        raise error_of_sealed(value)


@cache
def head_of(kind: str, api_version: str) -> bytes:
    """How every stored object of this kind and version begins."""
    return b'{"kind":%b,"apiVersion":%b,"metadata":{' % (
        orjson.dumps(kind),
        orjson.dumps(api_version),
    )


def splice(head: bytes, value: bytes, revision: int) -> bytes:
    """The served form of a stored value that begins with `head`."""
    cut = len(head)
    end = len(value) - value.endswith(b"\n")
    if value.startswith(b"}", cut):  # metadata without any field, before which no comma may stand
        return b"".join((head, (_FIELD % revision)[:-1], value[cut:end]))
    return b"".join((head, _FIELD % revision, value[cut:end]))


def served_length(value: bytes, revision: int) -> int:
    """How long the served form of a stored value with some metadata is."""
    return len(value) - value.endswith(b"\n") + len(_FIELD % revision)


def encode(fields: dict[str, Any], api_version: str, kind: str) -> bytes:
    """The stored form of an object: canonical order of the first fields, no resource version."""
    metadata = fields["metadata"]
    if "resourceVersion" in metadata:
        metadata = metadata.copy()
        del metadata["resourceVersion"]
    # Whatever order they are in, these come first, and each name comes once.
    ordered = {"kind": None, "apiVersion": None, "metadata": None, **fields}
    ordered["kind"], ordered["apiVersion"], ordered["metadata"] = kind, api_version, metadata
    return to_keep(ordered)


def to_keep(value: Any) -> bytes:
    """A value as JSON for the store, and for those who keep what is stored.

    The copy is as long as it must be. What orjson returns keeps the room it was written in, some
    kilobytes for each value, for as long as the bytes are in memory.
    """
    return orjson.dumps(value) + b"\n"
