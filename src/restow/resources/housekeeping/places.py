"""Raw keys and values of the store, as what housekeeping must know of them.

Housekeeping looks at all resources, so it reads single keys from the store and does not make the
server load a cache for each of them. Here is which resource a key belongs to, and how much of an
object is decoded: its metadata, the rest is skipped. Not here: writing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from restow.machinery.names import GroupVersion
from restow.resources.catalog import Catalog
from restow.resources.definition import Resource
from restow.storage.checks import OBJECTS_PREFIX, resource_of
from restow.storage.interface import Key

# How a field begins in stored bytes. Inside a text the quotes would be escaped, so a match means
# that some object in the value has this field, and no match that none has.
DELETING: Final = b'"deletionTimestamp":'
OWNED: Final = b'"ownerReferences":'


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """What a dependent says of one owner."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    block_owner_deletion: bool | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an object's metadata on which its life depends."""

    uid: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def owners(self) -> list[OwnerReference]:
        return self.owner_references or []

    def has_finalizer(self, name: str) -> bool:
        return name in (self.finalizers or ())


class _Stored(msgspec.Struct, frozen=True):
    metadata: Metadata


_DECODER: Final = msgspec.json.Decoder(_Stored)


def read_metadata(value: bytes) -> Metadata | None:
    """The metadata of a stored object; None for what is no such thing."""
    try:
        return _DECODER.decode(value).metadata
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


class Place(NamedTuple):
    """An object's key, taken apart."""

    resource: Resource
    path: str

    @property
    def namespace(self) -> str:
        """Empty for an object outside all namespaces."""
        return self.path.partition("/")[0] if self.resource.kind.namespaced else ""

    @property
    def key(self) -> Key:
        return self.resource.key_of(self.path)


class Places:
    """Finds the place of a key."""

    def __init__(self, catalog: Catalog) -> None:
        self._by_segment = {
            resource.root[len(OBJECTS_PREFIX) : -1]: resource for resource in catalog.persisted()
        }

    def find(self, key: str) -> Place | None:
        """The place of an object's key; None when nothing of that kind is hosted here."""
        segment = resource_of(key)
        resource = self._by_segment.get(segment) if segment is not None else None
        return None if resource is None else Place(resource, key[len(resource.root) :])


def working_version(resource: Resource) -> str:
    """The version in which housekeeping handles objects: the stored one, to convert nothing."""
    return GroupVersion.parse(resource.storage_api_version).version
