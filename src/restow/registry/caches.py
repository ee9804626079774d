"""All watch caches of a process, and the one watch of the store that keeps them fresh.

A cache is loaded when it is first wanted: a range of its keys at some revision, then the changes
after it. One watch over all objects serves every cache, so that it costs the same for one resource
as for five hundred, and `position` says how far all of them have come.

Consistent reads ask the store for its revision (one question for all who wait) and then wait for
`position` to reach it. When the schema of a resource changes, its cache is forgotten, and the next
one who asks begins another. Not here: what is done with the objects.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final

from restow.aio import Runtime
from restow.registry.stored_bytes import Splicer, is_protobuf
from restow.registry.watch_cache import WatchCache
from restow.storage.checks import OBJECTS_PREFIX, resource_of
from restow.storage.errors import (
    Compacted,
    PluginSilent,
    StorageClosed,
    StorageError,
    StoreReplaced,
)
from restow.storage.interface import Event, Item, Revision, Span, Storage, Watch

LOAD_SLICE_ITEMS: Final = 500
PROTOBUF_SLICE_ITEMS: Final = 20
"""Values in protobuf are decoded, which takes much longer."""
RELOAD_SECONDS: Final = 0.2
FUTURE_POLL_SECONDS: Final = 0.1
BACKFILL_SECONDS_MAX: Final = 5.0

WOKEN_AT_ONCE: Final = 100
"""Reads that are answered in one turn of the loop."""

logger = logging.getLogger(__name__)


class Caches:
    """One `WatchCache` for each root of keys, loaded when first asked for."""

    def __init__(self, storage: Storage, runtime: Runtime) -> None:
        self._storage = storage
        self._revision_now = storage.revision_now  # asked by each read
        self._clock = runtime.clock
        self._tasks = runtime.tasks("watch-caches")
        self._caches: dict[str, WatchCache] = {}
        self._ready: set[str] = set()
        self._loading: dict[str, asyncio.Future[None]] = {}
        self._held: dict[str, deque[Event]] = {}
        self._splicers: dict[str, Splicer] = {}
        """Of roots that were forgotten: the one to use from then on, whoever asks."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiting_count = 0
        self._readers: deque[asyncio.Future[None]] = deque()
        """Reads that wait until the caches are fresh."""
        self._freshening = False
        self._reloads = 0
        self._backfilling = asyncio.Lock()  # one at a time: each holds some history in memory
        self._blocked: StoreReplaced | None = None
        """Why the caches may not be read: they hold what another store had."""
        self._abandoned = 0
        """Up to this revision, clients may know changes of a store that was replaced."""
        self.position = 0
        """All changes up to this revision have reached the caches."""

    async def start(self) -> None:
        revision = await self._storage.revision()
        self.position = revision
        self._watch = self._storage.watch(Span.of_prefix(OBJECTS_PREFIX), after=revision)
        self._tasks.spawn_loop("follow", self._follow())

    async def close(self) -> None:
        await self._tasks.close()
        # The task that would have woken them may have been cancelled before it ever ran.
        _wake(self._readers, StorageClosed("the server is shutting down"), len(self._readers))
        await self._watch.close()
        for _, _, waiter in self._waiting:
            waiter.cancel()

    def ready(self, root: str) -> WatchCache | None:
        """The cache, if it is loaded already."""
        return self._caches[root] if root in self._ready and self._blocked is None else None

    async def load(self, root: str, splicer: Splicer) -> WatchCache:
        """The cache, loaded if need be; many who ask at once share one load.

        Raises `StoreReplaced` while the caches hold what another store had.
        """
        self._check_backed()
        while root not in self._ready:  # again, if it was forgotten while it was loaded
            loading = self._loading.get(root)
            if loading is None:
                loading = self._loading[root] = asyncio.get_running_loop().create_future()
                # Who began with what a resource was before must not bring it back.
                splicer = self._splicers.get(root, splicer)
                held = self._held[resource_key(root)] = deque()
                load = self._load(root, splicer, loading, held)
                self._tasks.spawn(f"load {root}", load)
            await asyncio.shield(loading)
            self._check_backed()
        return self._caches[root]

    def _check_backed(self) -> None:
        if self._blocked is not None:
            raise StoreReplaced(str(self._blocked))

    def forget(self, root: str, splicer: Splicer | None = None) -> None:
        """Drop a cache: its objects are to be read in another way from now on, by this splicer.

        Its watches end, and a load that is under way is not kept. Without a splicer the resource
        is gone, or nobody has asked for it yet.
        """
        if splicer is None:
            self._splicers.pop(root, None)
        else:
            self._splicers[root] = splicer
        loading = self._loading.pop(root, None)
        if loading is not None:
            del self._held[resource_key(root)]
            loading.set_result(None)
        if root in self._ready:
            self._ready.discard(root)
            self._caches.pop(root).close()

    def fresh(self, root: str) -> WatchCache | None:
        """The cache, if it is known at once that it misses nothing that was acknowledged."""
        cache = self._caches.get(root)
        if cache is None or self._blocked is not None:
            return None
        revision = self._revision_now()
        return cache if revision is not None and revision <= self.position else None

    async def freshen(self) -> None:
        """Wait until the caches have all that was acknowledged before this call."""
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        if not self._freshening:
            self._freshening = True
            self._tasks.spawn("freshen", self._freshen())
        await reader

    async def _freshen(self) -> None:
        """Ask the store once for all waiting readers; and again for those that came meanwhile."""
        asked: deque[asyncio.Future[None]] = deque()
        try:
            while self._readers:
                # A reader that comes from here on needs another question.
                asked, self._readers = self._readers, deque()
                error = None
                try:
                    await self.reach(await self._storage.revision())
                except StorageError as failed:
                    error = failed
                while asked:
                    _wake(asked, error, WOKEN_AT_ONCE)
                    # This also admits readers that have just sent their next request: a question
                    # costs as much as several of its answers.
                    await self._clock.sleep(0)
        finally:
            self._freshening = False
            asked += self._readers
            self._readers = deque()
            _wake(asked, StorageClosed("the server is shutting down"), len(asked))

    async def reach_future(self, revision: int) -> None:
        """Wait until the store, and the caches too, have come to what may be no revision yet.

        Raises `Compacted` for one that a store had which this one took the place of.
        """
        if self.position < revision <= self._abandoned:
            raise Compacted(Revision(self.position))
        while await self._storage.revision() < revision:
            await self._clock.sleep(FUTURE_POLL_SECONDS)
        await self.reach(revision)

    async def backfill(self, root: str, *, after: int) -> bool:
        """Fetch changes that a loaded cache no longer has, or never had; whether it has them now.

        They stay in its ring, so that many who resume at once (this server has just started) cost
        one look at the history. What the ring cannot hold, the store has forgotten, or is encrypted
        with a key that is gone, is not had.
        """
        async with self._backfilling:
            cache = self._caches.get(root)
            if cache is None:
                return False  # forgotten meanwhile
            floor = cache.floor
            if after >= floor:
                return True
            try:
                async with self._clock.timeout(BACKFILL_SECONDS_MAX):
                    events = await self._history(cache, after=after, upto=floor)
            except (StorageError, TimeoutError) as error:
                logger.info("no history of %s after %d: %s", root, after, error)
                return False
            if events is None or cache.floor != floor:
                return False
            cache.prepend(events, after=after)
            return cache.floor <= after

    async def _history(self, cache: WatchCache, *, after: int, upto: int) -> list[Event] | None:
        """The changes between two revisions; None when they are too many."""
        events: list[Event] = []
        nbytes = 0
        watch = self._storage.watch(Span.of_prefix(cache.root), after=Revision(after))
        watch.expect(Revision(upto))
        try:
            async for batch in watch:
                events += batch.events
                for event in batch.events:
                    before = event.previous.value if event.previous is not None else b""
                    nbytes += len(event.value or b"") + len(before)
                if not cache.has_room(len(events), nbytes):
                    return None
                if batch.revision >= upto:
                    break
        finally:
            await watch.close()
        return events

    def reach(self, revision: int) -> Awaitable[None]:
        """Wait until the caches have come to a revision, which must be one of the store's."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._blocked is not None:
            waiter.set_exception(StoreReplaced(str(self._blocked)))
            return waiter
        if revision <= self.position:
            waiter.set_result(None)
            return waiter
        self._waiting_count += 1
        heapq.heappush(self._waiting, (revision, self._waiting_count, waiter))
        self._watch.expect(Revision(revision))
        return waiter

    async def _load(
        self, root: str, splicer: Splicer, loading: asyncio.Future[None], held: deque[Event]
    ) -> None:
        failure: StorageError | None = None
        try:
            cache = await self._loaded(root, splicer)
            if self._loading.get(root) is loading:
                cache.apply(held)
                self._caches[root] = cache
                self._ready.add(root)
        except StorageError as error:
            failure = error
        finally:
            # If it is another's, the root was forgotten and somebody has begun again.
            if self._loading.get(root) is loading:
                del self._held[resource_key(root)]
                del self._loading[root]
        if loading.done():
            return
        if failure is None:
            loading.set_result(None)
        else:
            loading.set_exception(failure)
            loading.exception()  # whoever waits has it; nobody may be waiting

    async def _loaded(self, root: str, splicer: Splicer) -> WatchCache:
        """A new cache with what the store holds, filled in slices that hold up nobody."""
        while True:
            reloads = self._reloads
            page = await self._storage.range(Span.of_prefix(root))
            cache = WatchCache(root, splicer)
            for some in _slices(page.items):
                cache.add(some)
                await self._clock.sleep(0)
            cache.end_load(page.revision)
            # If changes were missed meanwhile, some after this page may be among them.
            if reloads == self._reloads:
                return cache

    async def _follow(self) -> None:
        while True:
            try:
                async for batch in self._watch:
                    self._apply(batch.events)
                    self._advance(batch.revision)
            except StorageClosed:
                return
            except Compacted:
                logger.warning("the store was compacted past this server's watch: reloading")
            except StoreReplaced as error:
                self._block(error)
            except StorageError as error:
                logger.warning("the watch of the store has failed: %s", error)
            await self._watch.close()
            while True:
                await self._clock.sleep(RELOAD_SECONDS)
                if await self._reload():
                    break

    def _block(self, error: StoreReplaced) -> None:
        """The store no longer has what the caches hold: serve nothing until they are reloaded."""
        logger.warning("the watch caches are not used until they are reloaded: %s", error)
        self._blocked = error
        self._abandoned = max(self._abandoned, self.position)
        waiting, self._waiting = self._waiting, []
        for _, _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(StoreReplaced(str(error)))

    def _apply(self, events: tuple[Event, ...]) -> None:
        by_resource: dict[str, list[Event]] = {}
        for event in events:
            resource = resource_of(event.key)
            if resource is not None:
                by_resource.setdefault(resource, []).append(event)
        for resource, some in by_resource.items():
            held = self._held.get(resource)
            if held is not None:
                held.extend(some)
            root = f"{OBJECTS_PREFIX}{resource}/"
            if root in self._ready:
                self._caches[root].apply(some)

    def _advance(self, revision: int) -> None:
        self.position = revision
        waiting = self._waiting
        while waiting and waiting[0][0] <= revision:
            waiter = heapq.heappop(waiting)[2]
            if not waiter.done():
                waiter.set_result(None)

    async def _reload_one(self, root: str, cache: WatchCache) -> None:
        try:
            page = await self._storage.range(Span.of_prefix(root))
        except PluginSilent as error:
            # Whoever asks for this root next tries again; the others must not wait for that.
            logger.warning("%s cannot be read: %s", root, error)
            if self._caches.get(root) is cache:
                self.forget(root, cache.splicer)
            return
        if not cache.is_closed:
            cache.load(page.items, page.revision)
            cache.notify()

    async def _reload(self) -> bool:
        """Changes were missed: begin again from what the store holds now. Whether it worked."""
        watch: Watch | None = None
        try:
            revision = await self._storage.revision()
            watch = self._storage.watch(Span.of_prefix(OBJECTS_PREFIX), after=revision)
            self._reloads += 1
            for root, cache in list(self._caches.items()):
                await self._reload_one(root, cache)
        except StorageError as error:
            if watch is not None:
                await watch.close()
            if isinstance(error, StorageClosed):
                return True  # following will notice
            if isinstance(error, StoreReplaced):
                return False  # the log has the reason already
            logger.warning("reloading failed: %s", error)
            return False
        self._watch = watch
        self._blocked = None
        self._advance(revision)
        for expected, _, _ in self._waiting:
            watch.expect(Revision(expected))
        return True


def _slices(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Parts of a page, each short enough to be taken in without a pause."""
    first = 0
    while first < len(items):
        some = items[first : first + LOAD_SLICE_ITEMS]
        if any(is_protobuf(item.value) for item in some):
            some = some[:PROTOBUF_SLICE_ITEMS]
        yield some
        first += len(some)


def resource_key(root: str) -> str:
    """What `storage.checks.resource_of` gives for the keys under a root."""
    return root[len(OBJECTS_PREFIX) : -1]


def _wake(readers: deque[asyncio.Future[None]], error: StorageError | None, count_max: int) -> None:
    for _ in range(min(count_max, len(readers))):
        reader = readers.popleft()
        if reader.done():
            continue  # it was cancelled
        if error is None:
            reader.set_result(None)
        else:
            reader.set_exception(error)
