"""Resolves the owner references of an object: reads the owners from the store, never from a cache.

An owner is read where its reference points: its kind, its name, and the namespace of the dependent.
It is gone if no object exists there, or one with another UID; so an owner in another namespace
counts as gone, as in Kubernetes. If that cannot be determined (a namespaced owner of a
cluster-scoped object, unreadable bytes), nothing is concluded. The same applies to a kind that is
not hosted here (yet), unless the removal of this owner was observed.

Not here: the actions that follow from the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupKind, GroupVersion
from restow.controllers.object_keys import Metadata, ObjectLocation, OwnerReference, read_metadata
from restow.registry.catalog import Catalog
from restow.registry.resource import Resource
from restow.registry.strategy import FOREGROUND
from restow.storage.interface import Storage


@dataclass(slots=True)
class OwnersByState:
    """The UIDs of an object's owners, by their state."""

    alive: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Owners in foreground deletion, which wait for their dependents."""
    unknown: list[OwnerReference] = field(default_factory=list)
    """Owners of kinds that are not hosted here: undetermined."""


class Owners:
    """Reads owners from the store."""

    def __init__(
        self, storage: Storage, catalog: Catalog, *, was_removed: Callable[[str, GroupKind], bool]
    ) -> None:
        """`was_removed`: whether the removal of an object with this UID and kind was observed."""
        self._storage = storage
        self._catalog = catalog
        self._was_removed = was_removed

    async def judge(self, place: ObjectLocation, metadata: Metadata) -> OwnersByState | None:
        """Determine the state of all owners of an object; None if one cannot be determined."""
        verdict = OwnersByState()
        for reference in metadata.owners:
            if self.resource_of(reference) is None:
                if self._is_surely_gone(reference):
                    verdict.gone.append(reference.uid)
                else:
                    verdict.unknown.append(reference)
                continue
            owner = self._place_of(reference, place)
            if owner is None:
                return None
            item = await self._storage.get(owner.key)
            found = None if item is None else read_metadata(item.value)
            if item is not None and found is None:
                return None
            if found is None or found.uid != reference.uid:
                verdict.gone.append(reference.uid)
            elif found.deletion_timestamp and found.has_finalizer(FOREGROUND):
                verdict.waiting.append(reference.uid)
            else:
                verdict.alive.append(reference.uid)
        return verdict

    def _place_of(
        self, reference: OwnerReference, dependent: ObjectLocation
    ) -> ObjectLocation | None:
        resource = self.resource_of(reference)
        if resource is None or not (reference.name and reference.uid):
            return None
        if not resource.kind.namespaced:
            return ObjectLocation(resource, reference.name)
        if not dependent.namespace:
            return None
        return ObjectLocation(resource, f"{dependent.namespace}/{reference.name}")

    def is_hosted(self, api_version: str, kind: str) -> bool:
        """Whether owners of this kind can be read."""
        return self._resource_of(api_version, kind) is not None

    def resource_of(self, reference: OwnerReference) -> Resource | None:
        """Return the resource of an owner, if it is hosted here."""
        return self._resource_of(reference.api_version, reference.kind)

    def _is_surely_gone(self, reference: OwnerReference) -> bool:
        """Whether an owner of a kind that is no longer hosted was observed to be removed."""
        try:
            group = GroupVersion.parse(reference.api_version).group
        except InvalidName:
            return False
        kind = GroupKind(group, reference.kind)
        return self._catalog.of_kind(*kind) is None and self._was_removed(reference.uid, kind)

    def _resource_of(self, api_version: str, kind: str) -> Resource | None:
        try:
            group, version = GroupVersion.parse(api_version)
        except InvalidName:
            return None
        resource = self._catalog.of_kind(group, kind)
        if resource is None or not resource.kind.persisted:
            return None
        is_known = version in resource.served or api_version in resource.decodable
        return resource if is_known else None
