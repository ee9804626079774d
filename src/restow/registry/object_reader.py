"""Reads objects from the watch caches, and explains why an object cannot be read.

The `Resource` of a custom resource is replaced when its CRD changes: callers that still use the old
one get `ResourceReplaced`. Conversions by a webhook are awaited by asynchronous methods; the others
raise `ConversionNeeded`.

Not here: writes (`store`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from restow.aio.clock import Clock
from restow.apimachinery import status
from restow.registry import write_plans
from restow.registry.caches import Caches
from restow.registry.committer import StateMoved, check_current
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
        """By key prefix of the resource."""
        self._conversions = Conversions(clock)

    def fresh(self, resource: Resource) -> WatchCache | None:
        """Return the cache if it can be read at once and has every acknowledged write."""
        if resource.origin is not None:
            self.splicer(resource)
        return self._caches.fresh(resource.root)

    async def read(self, resource: Resource, *, turn: str = "") -> WatchCache:
        """Return the cache; wait until it has every write acknowledged before this call. Readers
        take turns by `turn`, the name of a user."""
        fresh = self.fresh(resource)
        if fresh is not None:
            return fresh
        cache = await self.loaded(resource)
        if self._caches.fresh(resource.root) is None:
            try:
                await self._caches.freshen(turn)
            except StorageError as error:
                raise translate(error) from error
            check_current(resource)
        return cache

    def ready(self, resource: Resource) -> WatchCache | None:
        """Return the cache if it is loaded, however stale."""
        if resource.origin is not None:
            self.splicer(resource)
        return self._caches.ready(resource.root)

    async def loaded(self, resource: Resource) -> WatchCache:
        """Return the cache, however stale; load it first if necessary."""
        try:
            cache = await self._caches.load(resource.root, self.splicer(resource))
        except StorageError as error:
            raise translate(error) from error
        check_current(resource)
        return cache

    @property
    def position(self) -> int:
        """The revision that all caches have reached."""
        return self._caches.position

    @property
    def caches(self) -> Caches:
        return self._caches

    @property
    def storage(self) -> Storage:
        return self._storage

    def splicer(self, resource: Resource) -> Splicer:
        """Return the splicer that turns stored values of a resource into entries of its cache."""
        check_current(resource)
        kept = self._splicers.get(resource.root)
        if kept is not None and (kept[0] is resource or resource.origin is None):
            return kept[1]
        splicer = splicer_of(resource)
        self._splicers[resource.root] = (resource, splicer)
        if resource.origin is not None:
            # A caller with another `Resource` may have started a load with its splicer.
            self._caches.forget(resource.root, splicer)
        return splicer

    def forget(self, resource: Resource) -> None:
        """Drop the state of a custom resource that was removed or replaced. Its watches end."""
        assert resource.origin is not None, resource.kind.group_resource
        resource.origin.mark_replaced()
        self._splicers.pop(resource.root, None)
        self._caches.forget(resource.root)
        self._conversions.forget(resource)

    def reload(self, root: str) -> None:
        """Drop the cache of a root whose values must be decoded differently from now on. Its
        watches end, and the next reader loads it again."""
        found = self._splicers.get(root)
        self._caches.forget(root, None if found is None else found[1])

    def seen(self, resource: Resource, entry: Entry, api_version: str) -> Entry:
        """Return an entry as converted by the webhook to a version; unchanged without a webhook.

        Raises `ConversionNeeded` if the webhook must be called first.
        """
        if resource.remote is None or entry[1] == api_version:
            return entry
        return self._conversions.seen(resource, entry, api_version)

    def known(self, resource: Resource, entry: Entry, api_version: str) -> Entry | None:
        """Like `seen`, but return None if the webhook must be called first."""
        return self._conversions.known(resource, entry, api_version)

    async def in_version(
        self,
        resource: Resource,
        entries: Sequence[Entry],
        api_version: str,
        *,
        is_for_writing: bool = False,
    ) -> list[Entry]:
        """Like `seen` for many objects; calls the webhook. Raises a 500 if it does not convert
        them."""
        if resource.remote is None:
            return list(entries)
        return await self._conversions.in_version(
            resource, entries, api_version, is_for_writing=is_for_writing
        )

    def body_of(self, resource: Resource, entry: Entry, api_version: str) -> bytes:
        """Return the body of an object as served in a version. Raises `ConversionNeeded`."""
        return write_plans.body_of(resource, self.seen(resource, entry, api_version), api_version)

    def object_of(self, resource: Resource, entry: Entry, api_version: str) -> Object:
        """Return a new object in a version, with its resource version. Raises
        `ConversionNeeded`."""
        return write_plans.object_of(resource, self.seen(resource, entry, api_version), api_version)

    def exists(self, resource: Resource, name: str, current: Entry | None) -> status.AlreadyExists:
        """Return the 409 for a create whose name is taken by the current object."""
        deleting = current is not None and b'"deletionTimestamp":' in current[2]
        return status.already_exists(resource.kind.group_resource, name, is_being_deleted=deleting)

    def missing(self, resource: Resource, path: str, cache: WatchCache) -> status.StatusError:
        """Return the error for an object that is not in the cache: 404, or unreadable."""
        if path in cache.damaged:
            return self.damaged(resource, {path: cache.damaged[path]})
        return status.not_found(resource.kind.group_resource, path.rpartition("/")[2])

    def damaged(self, resource: Resource, found: dict[str, str]) -> status.StatusError:
        """Return the error for objects that exist and cannot be read; they are never omitted. It is
        a 500, or a 503 if the only causes are a KMS plugin that does not respond, or versions that
        this server cannot decode until other servers have migrated the objects."""
        shown = [f"{path}: {why}" for path, why in list(found.items())[:DAMAGED_SHOWN_MAX]]
        if len(found) > len(shown):
            shown.append(f"and {len(found) - len(shown)} more")
        text = f"{resource.kind.group_resource} cannot be read from the store: {'; '.join(shown)}"
        foreign = [why.revision for why in found.values() if isinstance(why, Foreign)]
        if len(foreign) + sum(isinstance(why, ForNow) for why in found.values()) < len(found):
            return status.internal(text)
        # KEP-2339 3.27: a read of what this server cannot decode yet is a 503
        if foreign:
            reason = self._reason_to_wait(resource, max(foreign))
            if not reason:
                return status.internal(text)
            text = f"{text}; {reason}"
        return status.unavailable(text, retry_after_seconds=status.RETRY_AFTER_SECONDS)

    def _reason_to_wait(self, resource: Resource, stored_at: int) -> str:
        """Explain why this server cannot decode yet a value that another server stored at a
        revision; empty if the value is damaged, as no other server may store such a value now."""
        try:
            first, last = self._policy.readable(resource)
        except status.StatusError as error:
            return error.message
        if self._caches.position < first:
            return (
                "this server has just registered; its caches do not have all migrated objects yet"
            )
        if stored_at > last:
            return "this server is verifying its registration"
        return ""

    def _entry(self, resource: Resource, item: Item | None) -> Entry | None:
        if item is None:
            return None
        try:
            return self.splicer(resource).serve(item.value, item.revision)
        except StorageError as error:
            raise translate(error) from error

    def newest(self, resource: Resource, path: str, moved: StateMoved) -> Entry | None:
        """Return the newest state of an object that changed while a write was planned."""
        newest = self.fresh(resource)
        return self._entry(resource, moved.current) if newest is None else newest.get(path)

    async def converted(
        self, resource: Resource, entry: Entry, api_version: str, *, is_for_writing: bool = True
    ) -> Entry:
        """Return the entry in the version of the request, if a webhook converts the resource."""
        if resource.remote is None:
            return entry
        [seen] = await self.in_version(
            resource, [entry], api_version, is_for_writing=is_for_writing
        )
        return seen
