"""What has become of the owners that an object names. Asked of the store itself, never of a cache.

An owner is looked for where its reference says: its kind, its name, and the namespace of the
dependent. It is gone when nothing is there, or something with another uid; so an owner in another
namespace counts as gone, as with Kubernetes. Where we cannot know (a namespaced owner of an object
outside all namespaces, bytes that cannot be read), nothing may be concluded. Nor of a kind that is
not hosted here, which may only not be hosted yet, unless this very owner was seen to go.

Not here: what is done about it.
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
    """The uids of an object's owners, by what has become of them."""

    alive: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Owners that are being deleted in the foreground, and wait for their dependents."""
    unknown: list[OwnerReference] = field(default_factory=list)
    """Owners of kinds that are not hosted here: there is no verdict yet."""


class Owners:
    """Looks for owners."""

    def __init__(
        self, storage: Storage, catalog: Catalog, *, was_removed: Callable[[str, GroupKind], bool]
    ) -> None:
        """`was_removed` says whether an object of this uid and kind was seen to go."""
        self._storage = storage
        self._catalog = catalog
        self._was_removed = was_removed

    async def judge(self, place: ObjectLocation, metadata: Metadata) -> OwnersByState | None:
        """What has become of all owners of an object; None when that cannot be known of one."""
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
        """Whether owners of this kind can be looked for."""
        return self._resource_of(api_version, kind) is not None

    def resource_of(self, reference: OwnerReference) -> Resource | None:
        """Where an owner is looked for, if that can be done."""
        return self._resource_of(reference.api_version, reference.kind)

    def _is_surely_gone(self, reference: OwnerReference) -> bool:
        """Whether an owner has gone before its kind did."""
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
