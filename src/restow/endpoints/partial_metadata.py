"""PartialObjectMetadata and its list: an object reduced to its metadata.

The bytes forms cut the metadata out of an encoded object without decoding the rest, so that a
garbage collector that watches everything costs little.

Not here: the choice of this form by a client's Accept header.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

META_V1: Final = "meta.k8s.io/v1"
PARTIAL_OBJECT: Final = "PartialObjectMetadata"
PARTIAL_LIST: Final = "PartialObjectMetadataList"


class _Encoded(msgspec.Struct):
    """An encoded object of which only the metadata is decoded."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_DECODER: Final = msgspec.json.Decoder(_Encoded)


def partial_object(obj: Mapping[str, Any], *, api_version: str = META_V1) -> dict[str, Any]:
    """The metadata-only form of a decoded object. It shares the metadata with the object."""
    metadata = obj.get("metadata")
    return {
        "kind": PARTIAL_OBJECT,
        "apiVersion": api_version,
        "metadata": metadata if isinstance(metadata, dict) else {},
    }


def partial_object_bytes(encoded: bytes, *, api_version: str = META_V1) -> bytes:
    """The metadata-only form of an encoded object, without a trailing newline."""
    return b"".join((_head(api_version), metadata_bytes(encoded), b"}"))


def partial_list_bytes(
    encoded: Iterable[bytes], *, metadata: bytes, api_version: str = META_V1
) -> bytes:
    """The metadata-only form of a list of encoded objects; `metadata` is the list's, encoded."""
    head = _head(api_version)
    items = b",".join([head + metadata_bytes(each) + b"}" for each in encoded])
    start = f'{{"kind":"PartialObjectMetadataList","apiVersion":"{api_version}","metadata":'
    return b"".join((start.encode(), metadata, b',"items":[', items, b"]}"))


def metadata_bytes(encoded: bytes) -> bytes:
    """The metadata of an encoded object, unchanged."""
    found = bytes(_DECODER.decode(encoded).metadata)
    return found if found.startswith(b"{") else b"{}"


def _head(api_version: str) -> bytes:
    start = f'{{"kind":"PartialObjectMetadata","apiVersion":"{api_version}","metadata":'
    return start.encode()
