"""The messages of KMS v2 and the stored message, as a table.

The table is converted to message classes when this module is imported. Two simplifications that the
wire format permits: a map is a repeated message of key and value, and an enum is int32. Stored
messages are validated here as in kube-apiserver.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from restow.apimachinery.message_tables import message_classes
from restow.apimachinery.name_formats import subdomain_problem

KEY_ID_BYTES_MAX: Final = 1024
SOURCE_BYTES_MAX: Final = 1024
ANNOTATIONS_BYTES_MAX: Final = 32 * 1024

AES_GCM_KEY: Final = 0
"""The source is the AES-GCM key itself, as before Kubernetes 1.29."""
HKDF_SEED: Final = 1
"""The source is a seed, from which each value's key is derived."""

_TABLE: Final = {
    "v2.Annotation": "1 key string, 2 value bytes",
    "v2.StatusRequest": "",
    "v2.StatusResponse": "1 version string, 2 healthz string, 3 key_id string",
    "v2.EncryptRequest": "1 plaintext bytes, 2 uid string",
    "v2.EncryptResponse": "1 ciphertext bytes, 2 key_id string, 3 annotations v2.Annotation*",
    "v2.DecryptRequest": """
        1 ciphertext bytes, 2 uid string, 3 key_id string, 4 annotations v2.Annotation*
    """,
    "v2.DecryptResponse": "1 plaintext bytes",
    "v2.EncryptedObject": """
        1 data bytes, 2 key_id string, 3 source bytes, 4 annotations v2.Annotation*,
        5 source_type int32
    """,
}
"""Message -> its fields: number, name, type; an asterisk marks a repeated field."""

_CLASSES: Final = message_classes(_TABLE)


class KmsMethod(NamedTuple):
    """One method of the service."""

    path: str
    request: Any
    response: Any


SERVICE: Final = "v2.KeyManagementService"


def _method(name: str) -> KmsMethod:
    return KmsMethod(
        f"/{SERVICE}/{name}", _CLASSES[f"v2.{name}Request"], _CLASSES[f"v2.{name}Response"]
    )


STATUS: Final = _method("Status")
ENCRYPT: Final = _method("Encrypt")
DECRYPT: Final = _method("Decrypt")


class KmsEnvelope(NamedTuple):
    """The key information of a stored value."""

    key_id: str
    source: bytes
    source_type: int
    annotations: tuple[tuple[str, bytes], ...] = ()

    def to_bytes(self) -> bytes:
        """All fields after the data, in the order in which kube-apiserver writes them."""
        message = _CLASSES["v2.EncryptedObject"](
            key_id=self.key_id, source=self.source, source_type=self.source_type
        )
        for key, value in self.annotations:
            message.annotations.add(key=key, value=value)
        return bytes(message.SerializeToString(deterministic=True))

    def problem(self) -> str:
        """The problem of the envelope; empty: none."""
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
    """Parse a stored value after its prefix into envelope and data. Raises `ValueError`."""
    try:
        message = _CLASSES["v2.EncryptedObject"].FromString(data[begin:])
    except DecodeError:
        raise ValueError("it is not a message of KMS v2") from None
    envelope = KmsEnvelope(
        message.key_id, message.source, message.source_type, annotations_of(message)
    )
    problem = envelope.problem() or ("" if message.data else "encrypted data is empty")
    if problem:
        raise ValueError(problem)
    return envelope, message.data


def annotations_of(message: Any) -> tuple[tuple[str, bytes], ...]:
    """The annotations as a map: the last of equal keys counts, sorted by key."""
    return tuple(sorted({each.key: each.value for each in message.annotations}.items()))


def problem_of_key_id(key_id: str) -> str:
    """The problem of a key's ID; empty: none."""
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
        # Fully qualified: a final dot is permitted, and at least one dot is required.
        name = key.removesuffix(".")
        if subdomain_problem(name) or "." not in name:
            return f"annotations: {key[:80]!r} should be a domain with at least one dot"
    if size > ANNOTATIONS_BYTES_MAX:
        return (
            f"total size of annotations is {size}, which exceeds the max size of"
            f" {ANNOTATIONS_BYTES_MAX}"
        )
    return ""
