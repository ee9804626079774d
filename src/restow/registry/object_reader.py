"""What is stored, as the caches know it: objects in a version, and why one is not there.

A custom resource comes with a definition, and another may be in its place by now: whoever comes
with the old one is sent back (`ResourceReplaced`). Where somebody else converts objects, that is
awaited, or `ConversionNeeded` says that it must be.

Not here: writing (`store`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from restow.aio.clock import Clock
from restow.apimachinery import status
from restow.registry import write_plans
from restow.registry.caches import Caches
from restow.registry.committer import check_current
from restow.registry.custom.conversion import Conversions
from restow.registry.custom.shape import splicer_of
from restow.registry.encoding import EncodingPolicy
from restow.registry.errors import translate
from restow.registry.resource import Object, Resource
from restow.registry.stored_bytes import Splicer
from restow.registry.watch_cache import Entry, Foreign, ForNow, WatchCache
from restow.storage.errors import StorageError
from restow.storage.interface import Item, Storage

DAMAGED_SHOWN_MAX: Final = 10


class ObjectReader:
    """Reads all objects of one server."""

    def __init__(
        self, storage: Storage, caches: Caches, policy: EncodingPolicy, clock: Clock
    ) -> None:
        self._storage = storage
        self._caches = caches
        self._policy = policy
        self._splicers: dict[str, tuple[Resource, Splicer]] = {}
        """By root of keys."""
        self._conversions = Conversions(clock)

    def fresh(self, resource: Resource) -> WatchCache | None:
        """The resource's cache, if it can be read at once and misses nothing acknowledged."""
        if resource.origin is not None:
            self.splicer(resource)
        return self._caches.fresh(resource.root)

    async def read(self, resource: Resource) -> WatchCache:
        """The same, waiting for it."""
        fresh = self.fresh(resource)
        if fresh is not None:
            return fresh
        cache = await self.loaded(resource)
        if self._caches.fresh(resource.root) is None:
            try:
                await self._caches.freshen()
            except StorageError as error:
                raise translate(error) from error
            check_current(resource)
        return cache

    def ready(self, resource: Resource) -> WatchCache | None:
        """The cache as it is, if it is loaded."""
        if resource.origin is not None:
            self.splicer(resource)
        return self._caches.ready(resource.root)

    async def loaded(self, resource: Resource) -> WatchCache:
        """The cache as it is, however old."""
        try:
            cache = await self._caches.load(resource.root, self.splicer(resource))
        except StorageError as error:
            raise translate(error) from error
        check_current(resource)
        return cache

    @property
    def position(self) -> int:
        """How far the caches have come."""
        return self._caches.position

    @property
    def caches(self) -> Caches:
        return self._caches

    @property
    def storage(self) -> Storage:
        return self._storage

    def splicer(self, resource: Resource) -> Splicer:
        """How stored values of a resource become entries of its cache."""
        check_current(resource)
        kept = self._splicers.get(resource.root)
        if kept is not None and (kept[0] is resource or resource.origin is None):
            return kept[1]
        splicer = splicer_of(resource)
        self._splicers[resource.root] = (resource, splicer)
        if resource.origin is not None:
            # Whoever came with another may have begun to load the objects as they were to that.
            self._caches.forget(resource.root, splicer)
        return splicer

    def forget(self, resource: Resource) -> None:
        """A custom resource is hosted no more, or another in its place. Its watches end."""
        assert resource.origin is not None, resource.kind.group_resource
        resource.origin.is_replaced = True
        self._splicers.pop(resource.root, None)
        self._caches.forget(resource.root)
        self._conversions.forget(resource)

    def reload(self, root: str) -> None:
        """What is stored under a root can be read otherwise than before: its watches end, and who
        asks next has it loaded anew."""
        found = self._splicers.get(root)
        self._caches.forget(root, None if found is None else found[1])

    def seen(self, resource: Resource, entry: Entry, api_version: str) -> Entry:
        """An object as it is in a version, if somebody else converts it; otherwise as it is.

        Raises `ConversionNeeded` when that must be waited for.
        """
        if resource.remote is None or entry[1] == api_version:
            return entry
        return self._conversions.seen(resource, entry, api_version)

    def known(self, resource: Resource, entry: Entry, api_version: str) -> Entry | None:
        """The same; None when it must be waited for."""
        return self._conversions.known(resource, entry, api_version)

    async def in_version(
        self,
        resource: Resource,
        entries: Sequence[Entry],
        api_version: str,
        *,
        is_for_writing: bool = False,
    ) -> list[Entry]:
        """The same for many objects, waiting for it. Raises a 500 when they are not converted."""
        if resource.remote is None:
            return list(entries)
        return await self._conversions.in_version(
            resource, entries, api_version, is_for_writing=is_for_writing
        )

    def body_of(self, resource: Resource, entry: Entry, api_version: str) -> bytes:
        """An object as served in a version. Raises `ConversionNeeded`."""
        return write_plans.body_of(resource, self.seen(resource, entry, api_version), api_version)

    def object_of(self, resource: Resource, entry: Entry, api_version: str) -> Object:
        """A fresh object in a version, with its resource version. Raises `ConversionNeeded`."""
        return write_plans.object_of(resource, self.seen(resource, entry, api_version), api_version)

    def exists(self, resource: Resource, name: str, current: Entry | None) -> status.AlreadyExists:
        """The refusal of a create whose name is taken, by what is there."""
        deleting = current is not None and b'"deletionTimestamp":' in current[2]
        return status.already_exists(resource.kind.group_resource, name, is_being_deleted=deleting)

    def missing(self, resource: Resource, path: str, cache: WatchCache) -> status.StatusError:
        """Why an object is not in the cache."""
        if path in cache.damaged:
            return self.damaged(resource, {path: cache.damaged[path]})
        return status.not_found(resource.kind.group_resource, path.rpartition("/")[2])

    def damaged(self, resource: Resource, found: dict[str, str]) -> status.StatusError:
        """The 500 for objects that are there and cannot be read: they are never left out. A 503 if
        all that is in the way is a plug-in that does not answer, or that this server has to wait
        until others have migrated what it does not know."""
        shown = [f"{path}: {why}" for path, why in list(found.items())[:DAMAGED_SHOWN_MAX]]
        if len(found) > len(shown):
            shown.append(f"and {len(found) - len(shown)} more")
        text = f"{resource.kind.group_resource} cannot be read from the store: {'; '.join(shown)}"
        foreign = [why.revision for why in found.values() if isinstance(why, Foreign)]
        if len(foreign) + sum(isinstance(why, ForNow) for why in found.values()) < len(found):
            return status.internal(text)
        if foreign:
            waits_for = self._waits_for(resource, max(foreign))
            if not waits_for:
                return status.internal(text)
            text = f"{text}; {waits_for}"
        return status.unavailable(text, retry_after_seconds=status.RETRY_AFTER_SECONDS)

    def _waits_for(self, resource: Resource, stored_at: int) -> str:
        """What may come yet, so that this server can read what was stored at a revision by others;
        empty: it is damage, since nobody may store such a thing beside this server."""
        try:
            first, last = self._policy.readable(resource)
        except status.StatusError as error:
            return error.message
        if self._caches.position < first:
            return "this server has just registered, and has not heard yet of all that was migrated"
        if stored_at > last:
            return "this server is about to find out whether it is registered still"
        return ""

    def _entry(self, resource: Resource, item: Item | None) -> Entry | None:
        if item is None:
            return None
        try:
            return self.splicer(resource).serve(item.value, item.revision)
        except StorageError as error:
            raise translate(error) from error
