"""Objects that service account tokens depend on: read from the watch cache, with bounded staleness.

If the store can confirm without a round trip that the cache is up to date, this is checked for each
request. Otherwise (etcd) it is checked at most every half second, once for all requests; a request
that finds the cache too old is retried after the check. If the store does not respond, the request
gets a 503, because a token must not be accepted based on stale objects.

Not here: the checks of these objects (`service_accounts`).
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
    """The cache may be too old."""

    def __init__(self, objects: AccountObjects, resource: Resource) -> None:
        super().__init__()
        self._objects = objects
        self._resource = resource

    async def settle(self) -> None:
        await self._objects.freshen(self._resource)


class AccountObjects:
    """Service accounts, and the Secrets, Pods and Nodes that tokens are bound to."""

    def __init__(self, store: ResourceStore, catalog: Catalog, clock: Clock) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._fresh_until: dict[str, float] = {}
        """By key root."""

    def resource(self, kind: str) -> Resource | None:
        """Return the resource of a kind, or None if it is not hosted."""
        return self._catalog.of_kind("", kind)

    def find(self, kind: str, namespace: str, name: str) -> Entry | None:
        """Return an object from the cache, or None if it does not exist.

        Raises `DoAgain` when the cache must be refreshed, and a 503 when it cannot be read.
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
        """Wait until the cache has everything that was acknowledged before. Raises a
        StatusError."""
        await self._store.read(resource)
        self._fresh_until[resource.root] = self._clock.monotonic() + FRESH_SECONDS

    def _cache(self, resource: Resource) -> WatchCache:
        try:
            cache = self._store.fresh(resource)
        except StorageError as error:
            raise translate(error) from error
        now = self._clock.monotonic()
        if cache is not None:
            # The cache counts as fresh for a moment, even while other servers write.
            self._fresh_until[resource.root] = now + FRESH_SECONDS
            return cache
        if now < self._fresh_until.get(resource.root, 0.0):
            cache = self._store.ready(resource)
            if cache is not None:
                return cache
        raise _Stale(self, resource)
