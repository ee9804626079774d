"""Decodes keys and values of the store for controllers: resource, metadata and type.

Controllers process all resources, so they read single keys from the store instead of loading a
watch cache for each resource. Only the metadata of an object is decoded. Not here: writes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupKind, GroupVersion
from restow.registry.catalog import Catalog
from restow.registry.resource import Resource
from restow.registry.stored_bytes import as_json
from restow.storage.checks import OBJECTS_PREFIX, resource_of
from restow.storage.errors import StoreDamaged
from restow.storage.interface import Key

# How a field begins in stored bytes. Quotes inside a string are escaped, so a match means that some
# object in the value has this field, and no match that none has.
DELETING: Final = b'"deletionTimestamp":'
OWNED: Final = b'"ownerReferences":'


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """An owner reference of a dependent."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    block_owner_deletion: bool | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata on which the deletion of an object depends."""

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


class _Typed(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str


_DECODER: Final = msgspec.json.Decoder(_Stored)
_TYPE_DECODER: Final = msgspec.json.Decoder(_Typed)


def read_metadata(value: bytes) -> Metadata | None:
    """Decode the metadata of a stored object; None if the value is not an object."""
    try:
        return _DECODER.decode(as_json(value)).metadata
    except (msgspec.DecodeError, StoreDamaged, RecursionError, UnicodeDecodeError):
        return None


def read_api_version(value: bytes) -> str:
    """Decode the `apiVersion` of a stored object; empty if the value is not an object."""
    found = _read_type(value)
    return "" if found is None else found.api_version


def read_kind(value: bytes) -> GroupKind | None:
    """Decode the kind of a stored object; None if the value is not an object."""
    found = _read_type(value)
    if found is None:
        return None
    try:
        return GroupKind(GroupVersion.parse(found.api_version).group, found.kind)
    except InvalidName:
        return None


def _read_type(value: bytes) -> _Typed | None:
    try:
        return _TYPE_DECODER.decode(as_json(value))
    except (msgspec.DecodeError, StoreDamaged, RecursionError, UnicodeDecodeError):
        return None


class ObjectLocation(NamedTuple):
    """Resource and path of an object, from its key."""

    resource: Resource
    path: str

    @property
    def namespace(self) -> str:
        """Empty for a cluster-scoped object."""
        return self.path.partition("/")[0] if self.resource.kind.namespaced else ""

    @property
    def key(self) -> Key:
        return self.resource.key_of(self.path)


class ObjectLocations:
    """Maps keys to the currently hosted resources."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._builtin = {
            resource.root[len(OBJECTS_PREFIX) : -1]: resource
            for resource in catalog.persisted()
            if resource.origin is None
        }

    def find(self, key: str) -> ObjectLocation | None:
        """Return the location of a key; None if its resource is not hosted here."""
        segment = resource_of(key)
        resource = None if segment is None else self.resource_at(segment)
        return None if resource is None else ObjectLocation(resource, key[len(resource.root) :])

    def resource_at(self, segment: str) -> Resource | None:
        """Return the resource whose keys have this segment after the common prefix."""
        found = self._builtin.get(segment)
        if found is not None:
            return found
        # Custom resources may change at any time; their keys contain group and plural.
        group, slash, plural = segment.partition("/")
        resource = self._catalog.named(group, plural) if slash else None
        return None if resource is None or resource.origin is None else resource


def stored_version(resource: Resource, api_version: str) -> str:
    """Return the version in which to delete an object that is stored in `api_version`.

    For a custom resource it is the stored version: the delete then requires no conversion.
    """
    if resource.origin is None or api_version not in resource.decodable:
        return working_version(resource)
    return GroupVersion.parse(api_version).version


def working_version(resource: Resource) -> str:
    """Return the version in which controllers process objects: the storage version."""
    return GroupVersion.parse(resource.storage_api_version).version
