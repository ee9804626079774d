"""The objects that tokens are good as long as: read from memory, and never older than a moment.

Where the store can say at once that memory misses nothing, that is asked each time. Where it must
be waited for (etcd), it is asked at most every half second, by one for all; a request that comes
upon it is done again when the answer is there. A store that does not answer is a 503: nobody is let
in by what may have been true once.

Not here: what of an object is looked at.
"""

from __future__ import annotations

from typing import Final

from restow.aio import Clock
from restow.registry.catalog import Catalog
from restow.registry.errors import DoAgain, translate
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore
from restow.registry.watch_cache import Entry, WatchCache
from restow.storage.errors import StorageError

FRESH_SECONDS: Final = 0.5


class _Stale(DoAgain):
    """Memory may be older than it may."""

    def __init__(self, objects: AccountObjects, resource: Resource) -> None:
        super().__init__()
        self._objects = objects
        self._resource = resource

    async def settle(self) -> None:
        await self._objects.freshen(self._resource)


class AccountObjects:
    """Accounts, and the Secrets, Pods and Nodes that tokens are bound to."""

    def __init__(self, store: ResourceStore, catalog: Catalog, clock: Clock) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._fresh_until: dict[str, float] = {}
        """By root of keys."""

    def resource(self, kind: str) -> Resource | None:
        """How a kind is hosted here, if it is."""
        return self._catalog.of_kind("", kind)

    def find(self, kind: str, namespace: str, name: str) -> Entry | None:
        """An object as it is stored; None: there is none.

        Raises `DoAgain` when it must be waited for, and a 503 when it cannot be known.
        """
        resource = self.resource(kind)
        if resource is None:
            return None
        cache = self._cache(resource)
        path = resource.path_of(namespace, name)
        entry = cache.get(path)
        if entry is None and path in cache.damaged:
            raise self._store.damaged(resource, {path: cache.damaged[path]})
        return entry

    async def freshen(self, resource: Resource) -> None:
        """Wait until memory has all that was acknowledged before. Raises a StatusError."""
        await self._store.read(resource)
        self._fresh_until[resource.root] = self._clock.monotonic() + FRESH_SECONDS

    def _cache(self, resource: Resource) -> WatchCache:
        try:
            cache = self._store.fresh(resource)
        except StorageError as error:
            raise translate(error) from error
        now = self._clock.monotonic()
        if cache is not None:
            # It is so for a moment, even while others write.
            self._fresh_until[resource.root] = now + FRESH_SECONDS
            return cache
        if now < self._fresh_until.get(resource.root, 0.0):
            cache = self._store.ready(resource)
            if cache is not None:
                return cache
        raise _Stale(self, resource)
