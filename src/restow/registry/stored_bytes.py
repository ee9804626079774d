"""Stored bytes and served bytes: adds the resource version to an object without parsing it.

A stored value is the object as JSON, `kind` and `apiVersion` first, without a resource version,
and a newline at the end, as Kubernetes stores it. A served object is the same bytes with the
resource version as the first field of its metadata. Both begin with a text that is fixed for a kind
and version, so the position of the insertion is known.

kube-apiserver stores built-in kinds in protobuf by default. Such values are decoded when they are
read, and served like any other; the next write stores JSON.

Not here: the meaning of the bytes, and conversion between versions.
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
    """Whether a value can be spliced: it is JSON and has no resource version yet.

    The decoder does not validate strings that it skips; they may not be UTF-8.
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
        """Return the revision, the version it is stored in, and the body.

        Raises `StoreDamaged` if the value is not an object of this kind.
        """
        for head, version in self._heads:
            if value.startswith(head) and _is_whole(value):
                return revision, version, splice(head, value, revision)
        return self._serve_foreign(value, revision)

    def _serve_foreign(self, value: bytes, revision: int) -> tuple[int, str, bytes]:
        """Serve a value in another form: with another order of fields, or in protobuf."""
        check_opened(value)
        if is_protobuf(value):
            envelope = _envelope(value)
            self.check_type(envelope.kind, envelope.api_version)
        fields = load(value)
        try:
            kind, version = fields["kind"], fields["apiVersion"]
            canonical = encode(fields, version, kind)
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreDamaged(
                f"the value is not an object of kind {self._kind}: {error!r}"
            ) from error
        self.check_type(kind, version)
        return revision, version, splice(head_of(kind, version), canonical, revision)

    def check_type(self, kind: object, version: object) -> None:
        """Raises `StoreDamaged` unless objects of this type may be stored under this root."""
        if kind != self._kind:
            raise StoreDamaged(f"the value is an object of kind {kind!r} instead of {self._kind}")
        if not isinstance(version, str) or version not in self._versions:
            why = f"it is stored in version {version!r}, which is not decodable here"
            raise VersionUnknown(why)


def is_protobuf(value: bytes) -> bool:
    """Whether a value is in Kubernetes' protobuf envelope."""
    return value.startswith(protobuf.MAGIC)


def load(value: bytes) -> Any:
    """Decode a stored object, in JSON or protobuf. Raises `StoreDamaged`.

    Only built-in types have a protobuf form.
    """
    if not is_protobuf(value):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise StoreDamaged(f"the value is not JSON: {error}") from error
    api_version, kind, raw = _envelope(value)
    group, version = GroupVersion.parse(api_version)
    struct = all_types().of_kind(group, version, kind)
    if struct is None:
        raise StoreDamaged(
            f"the value is a protobuf message of the unknown type {api_version} {kind}"
        )
    try:
        fields = protobuf.decode(struct, raw, size_max=len(raw))
    except StatusError as error:
        raise StoreDamaged(f"its protobuf message cannot be read: {error}") from error
    return {"kind": kind, "apiVersion": api_version, **fields}


def as_json(value: bytes) -> bytes:
    """Convert a stored value from protobuf to JSON; return other values unchanged. Raises
    `StoreDamaged`."""
    return orjson.dumps(load(value)) if is_protobuf(value) else value


def _envelope(value: bytes) -> protobuf.ProtobufEnvelope:
    try:
        found = protobuf.read_envelope(value, size_max=len(value))
    except StatusError as error:
        raise StoreDamaged(f"its protobuf envelope cannot be read: {error}") from error
    if not found.raw:
        raise StoreDamaged("its protobuf envelope is truncated: it contains no message")
    return found


def check_opened(value: bytes) -> None:
    """Raises `CannotOpen` for a value that is still encrypted, `PluginSilent` if its KMS plugin did
    not respond and a retry may succeed."""
    if value.startswith(SEALED_PREFIX):
        raise error_of_sealed(value)


@cache
def head_of(kind: str, api_version: str) -> bytes:
    """Return the text with which every stored object of this kind and version begins."""
    return b'{"kind":%b,"apiVersion":%b,"metadata":{' % (
        orjson.dumps(kind),
        orjson.dumps(api_version),
    )


def splice(head: bytes, value: bytes, revision: int) -> bytes:
    """The served form of a stored value that begins with `head`."""
    cut = len(head)
    end = len(value) - value.endswith(b"\n")
    if value.startswith(b"}", cut):  # empty metadata: no comma after the resource version
        return b"".join((head, (_FIELD % revision)[:-1], value[cut:end]))
    return b"".join((head, _FIELD % revision, value[cut:end]))


def served_length(value: bytes, revision: int) -> int:
    """Return the length of the served form of a stored value with non-empty metadata."""
    return len(value) - value.endswith(b"\n") + len(_FIELD % revision)


def encode(fields: dict[str, Any], api_version: str, kind: str) -> bytes:
    """Return the stored form of an object: canonical order of the first fields, no resource
    version."""
    metadata = fields["metadata"]
    if "resourceVersion" in metadata:
        metadata = metadata.copy()
        del metadata["resourceVersion"]
    # Regardless of the order of `fields`, these come first, each once.
    ordered = {"kind": None, "apiVersion": None, "metadata": None, **fields}
    ordered["kind"], ordered["apiVersion"], ordered["metadata"] = kind, api_version, metadata
    return to_keep(ordered)


def to_keep(value: Any) -> bytes:
    """Encode a value as JSON for the store or for a long-lived cache.

    The copy is as short as possible. The bytes that orjson returns keep the buffer they were
    written in, some kilobytes for each value, as long as they are in memory.
    """
    return orjson.dumps(value) + b"\n"
