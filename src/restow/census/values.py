"""Determines the stored form, version and encryption key of one raw value.

    {"kind":…,"apiVersion":…}                       JSON, fields in any order
    k8s\\0 + Unknown{1: {1: apiVersion, 2: kind}}    the protobuf envelope of Kubernetes
    apiVersion: …                                   YAML, which kube-apiserver can write as well
    k8s:enc:<provider>:<version>:<name>:…           encrypted; `inside` reads the decrypted content

Pure and total: every other value is classified as unreadable, without an error.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple

import orjson

from restow.apimachinery.protobuf_values import MAGIC, read_small

Form = Literal["json", "protobuf", "yaml", "encrypted", "unreadable"]

_loads: Final = orjson.loads
_dumps: Final = orjson.dumps

IDENTITY: Final = "identity"
"""The provider that does not encrypt, as Kubernetes names it."""

TEXT_BYTES_MAX: Final = 4096
"""Limit of version and kind together, and of the key ID of a plug-in, above all real ones. Longer
ones are not accepted."""

_ENCRYPTED: Final = b"k8s:enc:"
_ENCRYPTED_HEAD: Final = re.compile(rb"k8s:enc:([^:]{1,64}):(v[0-9]{1,4}):([^:]{0,1024}):")
_YAML_VERSION: Final = re.compile(
    rb"""^apiVersion:[ ]+["']?([^\s"']+)["']?[ ]*\r?$""", re.MULTILINE
)
_YAML_KIND: Final = re.compile(rb"""^kind:[ ]+["']?([^\s"']+)["']?[ ]*\r?$""", re.MULTILINE)

# Fields of Unknown, of its TypeMeta, and of KMS v2 messages.
_TYPE_META, _API_VERSION, _KIND = 1, 1, 2
_KMS_KEY_ID: Final = 2


class Stored(NamedTuple):
    """How a value is stored. Equal for values that are stored in the same way."""

    form: Form
    api_version: str = ""
    """Empty if unknown."""
    kind: str = ""
    provider: str = IDENTITY
    scheme: str = ""
    """Format version of the provider: `v1`, or `v2` of kms."""
    key: str = ""
    """Name of the key, or of the plug-in for kms."""
    key_id: str = ""
    """ID of the plug-in's key, for kms v2."""
    is_object: bool = True
    """False: it has a version, but servers cannot read it as an object: kind or metadata is
    missing, or a protobuf message is damaged."""


UNREADABLE: Final = Stored("unreadable")
UNREADABLE_SEAL: Final = Stored("unreadable", provider="")
"""It has the prefix of an encrypted value, but names no key."""


def read_value(value: bytes) -> Stored:
    """Determine how a value is stored."""
    if value.startswith(MAGIC):
        return _read_envelope(value)
    if value.startswith(_ENCRYPTED):
        return _read_encrypted(value)
    try:
        # Decoded as servers do, so that a value which they cannot read, or cannot write again
        # because it is nested too deep, is never counted as an object. A decoder that reads only
        # the first fields accepts numbers such as 1e999, which this one rejects.
        fields = _loads(value)
        _dumps(fields)
    except orjson.JSONDecodeError:
        return _read_yaml(value)
    except orjson.JSONEncodeError:
        return UNREADABLE
    return _read_fields(fields)


def _read_fields(fields: Any) -> Stored:
    if type(fields) is not dict:
        return UNREADABLE
    get = fields.get
    api_version, kind = get("apiVersion"), get("kind", "")
    if type(api_version) is not str or type(kind) is not str:
        return UNREADABLE
    found = _stored("json", api_version, kind)
    if (kind and type(get("metadata")) is dict) or found is UNREADABLE:
        return found
    return found._replace(is_object=False)


def inside(sealed: Stored, opened: bytes) -> Stored:
    """Determine how an encrypted value is stored, from its decrypted content."""
    found = read_value(opened)
    return sealed._replace(
        api_version=found.api_version, kind=found.kind, is_object=found.is_object
    )


def unwrap(value: bytes) -> bytes | None:
    """The object inside a protobuf envelope; None if there is none."""
    if not value.startswith(MAGIC):
        return None
    try:
        raw = read_small(value, len(MAGIC), len(value)).get(2)
    except (IndexError, ValueError):
        return None
    return raw if isinstance(raw, bytes) else None


def _read_envelope(value: bytes) -> Stored:
    try:
        meta = read_small(value, len(MAGIC), len(value))[_TYPE_META]
        found = read_small(meta, 0, len(meta))
        api_version = found[_API_VERSION].decode()
        kind = found.get(_KIND, b"").decode()
    except (IndexError, KeyError, ValueError, TypeError, AttributeError):
        return UNREADABLE  # truncated, or with other wire types
    return _stored("protobuf", api_version, kind)


def _read_encrypted(value: bytes) -> Stored:
    head = _ENCRYPTED_HEAD.match(value)
    if head is None:
        return UNREADABLE_SEAL
    provider, scheme, name = (part.decode(errors="backslashreplace") for part in head.groups())
    key_id = ""
    if (provider, scheme) == ("kms", "v2"):
        key_id = _read_key_id(value, head.end())
    return Stored("encrypted", provider=provider, scheme=scheme, key=name, key_id=key_id)


def _read_key_id(value: bytes, start: int) -> str:
    try:
        key_id = read_small(value, start, len(value))[_KMS_KEY_ID]
    except (IndexError, KeyError, ValueError):
        return ""
    if not isinstance(key_id, bytes) or len(key_id) > TEXT_BYTES_MAX:
        return ""
    return key_id.decode(errors="backslashreplace")


def _read_yaml(value: bytes) -> Stored:
    version = _YAML_VERSION.search(value)
    if version is None or value.lstrip().startswith((b"{", b"[")):
        return UNREADABLE  # damaged JSON, JSON without a version, or another format
    kind = _YAML_KIND.search(value)
    try:
        return _stored("yaml", version[1].decode(), kind[1].decode() if kind else "")
    except UnicodeDecodeError:
        return UNREADABLE


def _stored(form: Form, api_version: str, kind: str) -> Stored:
    if not api_version or len(api_version) + len(kind) > TEXT_BYTES_MAX:
        return UNREADABLE
    return Stored(form, api_version, kind)
