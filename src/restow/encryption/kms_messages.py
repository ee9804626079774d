"""The messages of KMS v2, and the one that stands in the store: as a table.

The table is turned into message classes when this module is imported, in a pool of its own. Two
liberties that the wire format allows: a map is a repeated message of key and value, and an enum is
int32. What stands in the store is checked here, as kube-apiserver checks it.

The classes are `Any` for the type checker: it cannot know fields made at run time.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from restow.apimachinery.name_formats import subdomain_problem

KEY_ID_BYTES_MAX: Final = 1024
SOURCE_BYTES_MAX: Final = 1024
ANNOTATIONS_BYTES_MAX: Final = 32 * 1024

AES_GCM_KEY: Final = 0
"""The source is the key of AES-GCM itself, as before Kubernetes 1.29."""
HKDF_SEED: Final = 1
"""The source is a seed, from which every value's own key is derived."""

_PACKAGE: Final = "v2"
_TABLE: Final = {
    "Annotation": "1 key string, 2 value bytes",
    "StatusRequest": "",
    "StatusResponse": "1 version string, 2 healthz string, 3 key_id string",
    "EncryptRequest": "1 plaintext bytes, 2 uid string",
    "EncryptResponse": "1 ciphertext bytes, 2 key_id string, 3 annotations Annotation*",
    "DecryptRequest": """
        1 ciphertext bytes, 2 uid string, 3 key_id string, 4 annotations Annotation*
    """,
    "DecryptResponse": "1 plaintext bytes",
    "EncryptedObject": """
        1 data bytes, 2 key_id string, 3 source bytes, 4 annotations Annotation*,
        5 source_type int32
    """,
}
"""Message -> its fields: number, name, type; a star marks a repeated field."""

_SCALARS: Final = {
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _TABLE.items():
        message = file.message_type.add(name=name)
        for text in filter(None, map(str.strip, fields.split(","))):
            number, field_name, kind = text.split()
            field = message.field.add(name=field_name, number=int(number))
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _TABLE
    }


_CLASSES: Final = _build()


class KmsMethod(NamedTuple):
    """One method of the service."""

    path: str
    request: Any
    response: Any


SERVICE: Final = "v2.KeyManagementService"


def _method(name: str) -> KmsMethod:
    return KmsMethod(f"/{SERVICE}/{name}", _CLASSES[f"{name}Request"], _CLASSES[f"{name}Response"])


STATUS: Final = _method("Status")
ENCRYPT: Final = _method("Encrypt")
DECRYPT: Final = _method("Decrypt")


class KmsEnvelope(NamedTuple):
    """What a stored value says of its key."""

    key_id: str
    source: bytes
    source_type: int
    annotations: tuple[tuple[str, bytes], ...] = ()

    def to_bytes(self) -> bytes:
        """All fields behind the data, in the order in which kube-apiserver writes them."""
        message = _CLASSES["EncryptedObject"](
            key_id=self.key_id, source=self.source, source_type=self.source_type
        )
        for key, value in self.annotations:
            message.annotations.add(key=key, value=value)
        return bytes(message.SerializeToString(deterministic=True))

    def problem(self) -> str:
        """What is wrong with it; empty: nothing."""
        if self.source_type not in (AES_GCM_KEY, HKDF_SEED):
            return f"unknown encryptedDEKSourceType: {self.source_type}"
        if not self.source:
            return "encrypted DEK source is empty"
        if len(self.source) > SOURCE_BYTES_MAX:
            return (
                f"encrypted DEK source is {len(self.source)} bytes, which exceeds the max size of"
                f" {SOURCE_BYTES_MAX}"
            )
        return problem_of_key_id(self.key_id) or _problem_of_annotations(self.annotations)


def read_envelope(data: bytes, begin: int) -> tuple[KmsEnvelope, bytes]:
    """The envelope in a stored value behind its prefix, and the data. Raises `ValueError`."""
    try:
        message = _CLASSES["EncryptedObject"].FromString(data[begin:])
    except DecodeError:
        raise ValueError("it is no message of KMS v2") from None
    envelope = KmsEnvelope(
        message.key_id, message.source, message.source_type, annotations_of(message)
    )
    problem = envelope.problem() or ("" if message.data else "encrypted data is empty")
    if problem:
        raise ValueError(problem)
    return envelope, message.data


def annotations_of(message: Any) -> tuple[tuple[str, bytes], ...]:
    """As a map: the last of equal keys counts, and the order is that of the keys."""
    return tuple(sorted({each.key: each.value for each in message.annotations}.items()))


def problem_of_key_id(key_id: str) -> str:
    """What is wrong with the id of a key; empty: nothing."""
    if not key_id:
        return "keyID is empty"
    size = len(key_id.encode())
    if size > KEY_ID_BYTES_MAX:
        return f"keyID is {size} bytes, which exceeds the max size of {KEY_ID_BYTES_MAX}"
    return ""


def _problem_of_annotations(annotations: tuple[tuple[str, bytes], ...]) -> str:
    size = 0
    for key, value in annotations:
        size += len(key.encode()) + len(value)
        # Fully qualified: a final dot may stand there, and a dot must.
        name = key.removesuffix(".")
        if subdomain_problem(name) or "." not in name:
            return f"annotations: {key[:80]!r} should be a domain with at least one dot"
    if size > ANNOTATIONS_BYTES_MAX:
        return (
            f"total size of annotations is {size}, which exceeds the max size of"
            f" {ANNOTATIONS_BYTES_MAX}"
        )
    return ""
