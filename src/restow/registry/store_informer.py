"""Informer: keeps all objects of one resource in memory, for code that needs them on each request
(roles, webhooks, policies).

It follows the watch cache, so its objects are as new as the ones that this server serves. They are
kept when the watch cache is dropped because its values must be decoded differently. The next cache
is then loaded and followed; until then the old objects are used.

Not here: the meaning of the objects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from restow.aio import Backoff, Runtime, retry
from restow.apimachinery.status_error import StatusError
from restow.registry.errors import DoAgain
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.watch_cache import Entry, WatchCache
from restow.storage.errors import StorageError

RELOAD_ATTEMPTS_MAX: Final = 1_000_000
BACKOFF: Final = Backoff(initial_seconds=0.05, factor=2, max_seconds=5, jitter=0.3)

OnObject = Callable[[str, Object | None], None]
"""Called with a path (`name`, or `namespace/name`) and the object; None: it was deleted. Objects
are in the version that they are stored in; the listener owns them."""

logger = logging.getLogger(__name__)


class StoreInformer:
    """The objects of one resource. Call `start` and `close`."""

    def __init__(
        self,
        store: ResourceStore,
        resource: Resource,
        runtime: Runtime,
        *,
        on_object: OnObject,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_changed` is called once after each batch in which `on_object` was called."""
        self._store = store
        self._resource = resource
        self._runtime = runtime
        self._on_object = on_object
        self._on_changed = on_changed
        self._tasks = runtime.tasks(
            f"following-{resource.plural}", tasks_max=2, on_failure=lambda _: None
        )
        self._cache: WatchCache | None = None
        self._cursor = 0
        self._known: dict[str, int] = {}
        """By path: the revision that the listener was last called with."""

    async def start(self) -> None:
        """Report all existing objects and follow changes. Raises if they cannot be read."""
        self._begin(await self._store.loaded(self._resource))

    async def close(self) -> None:
        if self._cache is not None:
            self._cache.unlisten(self._follow)
            self._cache = None
        await self._tasks.close()

    async def freshen(self) -> None:
        """Wait for all writes acknowledged before this call. Raises a StatusError."""
        await self._store.read(self._resource)

    def _begin(self, cache: WatchCache) -> None:
        self._cache = cache
        cache.listen(self._follow)
        self._read_all(cache)

    def _follow(self) -> None:
        cache = self._cache
        if cache is None:
            return
        if cache.is_closed:
            cache.unlisten(self._follow)
            self._tasks.spawn_loop("reload", self._reload())
            return
        changes = cache.changes_from(self._cursor)
        if changes is None:
            self._read_all(cache)
            return
        self._cursor = cache.cursor_end
        notified = [self._notify(each.key, each.now) for each in changes if each.damage is None]
        if any(notified):
            self._on_changed()

    def _read_all(self, cache: WatchCache) -> None:
        self._cursor = cache.cursor_end
        page = cache.select()
        # Unreadable objects exist; the listener keeps their last known state.
        deleted = self._known.keys() - set(page.keys) - cache.damaged.keys()
        notified = [self._notify(path, None) for path in deleted]
        notified += [self._notify(*each) for each in zip(page.keys, page.entries, strict=True)]
        if any(notified):
            self._on_changed()

    def _notify(self, path: str, entry: Entry | None) -> bool:
        """Call the listener if the object is new or has changed; return whether it was called."""
        if entry is None:
            if self._known.pop(path, None) is None:
                return False
            self._on_object(path, None)
            return True
        if self._known.get(path) == entry[0]:
            return False
        self._known[path] = entry[0]
        self._on_object(path, orjson.loads(entry[2]))
        return True

    async def _reload(self) -> None:
        cache = await retry(
            lambda: self._store.loaded(self._resource),
            retry_on=(StatusError, StorageError, DoAgain),
            attempts_max=RELOAD_ATTEMPTS_MAX,
            backoff=BACKOFF,
            clock=self._runtime.clock,
            randomness=self._runtime.randomness,
        )
        if self._cache is not None:
            self._begin(cache)


class InformedCache:
    """Base of a cache of objects that informers fill. Call `start` before use."""

    _informers: Sequence[StoreInformer]

    async def start(self) -> None:
        """Read all objects. Raises a StatusError when they cannot be read."""
        for each in self._informers:
            await each.start()

    async def close(self) -> None:
        for each in self._informers:
            await each.close()

    async def freshen(self) -> None:
        """Wait for all writes acknowledged before this call. Raises a StatusError."""
        for each in self._informers:
            await each.freshen()
