"""All watch caches of a process, and the single watch of the store that updates them.

A cache is loaded when it is first used: a range read of its keys at some revision, then the changes
after it. One watch over all objects feeds every cache, so that its cost does not depend on the
number of resources. `position` is the revision that all caches have reached.

Consistent reads ask the store for its current revision (one request for all waiting readers) and
then wait until `position` reaches it. When the schema of a resource changes, its cache is dropped
and the next reader loads a new one. Not here: how the objects are used.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter, deque
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
"""Smaller slices for values in protobuf, which take much longer to decode."""
RELOAD_SECONDS: Final = 0.2
FUTURE_POLL_SECONDS: Final = 0.1
BACKFILL_SECONDS_MAX: Final = 5.0

WOKEN_AT_ONCE_MAX: Final = 100
"""Limit of the readers that are resumed in one iteration of the event loop."""
WOKEN_SECONDS: Final = 0.001
"""When these took longer in one iteration, fewer are resumed in the next."""

WOKEN_BEFORE_NEXT: Final = 25
"""Readers that are resumed before the store is asked for those that came meanwhile."""

_Reader = tuple[str, asyncio.Future[None]]
"""Whose turn it is, and what it awaits."""
_Ready = tuple[str, asyncio.Future[None], StorageError | None]
"""The same with the outcome."""

logger = logging.getLogger(__name__)


class Caches:
    """One `WatchCache` for each root of keys, loaded on first use."""

    def __init__(self, storage: Storage, runtime: Runtime) -> None:
        self._storage = storage
        self._revision_now = storage.revision_now  # called by each read
        self._clock = runtime.clock
        self._tasks = runtime.tasks("watch-caches")
        self._caches: dict[str, WatchCache] = {}
        self._ready: set[str] = set()
        self._loading: dict[str, asyncio.Future[None]] = {}
        self._held: dict[str, deque[Event]] = {}
        self._splicers: dict[str, Splicer] = {}
        """By root, after `forget`: the splicer for the next load, whichever caller starts it."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiting_count = 0
        self._readers: list[_Reader] = []
        """Reads that wait until the caches are up to date."""
        self._freshening = False
        self._woken_at_once = WOKEN_AT_ONCE_MAX
        self._reloads = 0
        self._backfilling = asyncio.Lock()  # one at a time: a backfill holds events in memory
        self._blocked: StoreReplaced | None = None
        """Why the caches must not be read: they contain data of a store that was replaced."""
        self._abandoned = 0
        """Up to this revision, clients may have seen changes of a store that was replaced."""
        self.position = 0
        """The caches contain all changes up to this revision."""

    async def start(self) -> None:
        revision = await self._storage.revision()
        self.position = revision
        self._watch = self._storage.watch(Span.of_prefix(OBJECTS_PREFIX), after=revision)
        self._tasks.spawn_loop("follow", self._follow())

    async def close(self) -> None:
        await self._tasks.close()
        # The task that would resume the readers may have been cancelled before it started.
        readers, self._readers = self._readers, []
        _wake(_in_turn([], readers, StorageClosed("the server is shutting down")), len(readers))
        await self._watch.close()
        for _, _, waiter in self._waiting:
            waiter.cancel()

    def ready(self, root: str) -> WatchCache | None:
        """Return the cache if it is loaded, otherwise None."""
        return self._caches[root] if root in self._ready and self._blocked is None else None

    async def load(self, root: str, splicer: Splicer) -> WatchCache:
        """Return the cache; load it first if necessary. Concurrent callers share one load.

        Raises `StoreReplaced` while the caches contain data of a store that was replaced.
        """
        self._check_backed()
        while root not in self._ready:  # again, if `forget` was called during the load
            loading = self._loading.get(root)
            if loading is None:
                loading = self._loading[root] = asyncio.get_running_loop().create_future()
                # A caller that started with an older splicer must not load objects with it.
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
        """Drop a cache, because its objects must be decoded differently, with this splicer.

        Its watches end, and the result of a load in progress is discarded. Without a splicer the
        resource has been removed, or nothing has used it yet.
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
        """Return the cache if it certainly contains every acknowledged write, otherwise None."""
        cache = self._caches.get(root)
        if cache is None or self._blocked is not None:
            return None
        revision = self._revision_now()
        return cache if revision is not None and revision <= self.position else None

    async def freshen(self, turn: str = "") -> None:
        """Wait until the caches contain every write acknowledged before this call.

        Readers take turns by `turn`, the name of a user; those without one are first.
        """
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.append((turn, reader))
        if not self._freshening:
            self._freshening = True
            self._tasks.spawn("freshen", self._freshen())
        await reader

    async def _freshen(self) -> None:
        """Ask the store once for all waiting readers, and again for readers that came meanwhile."""
        ready: list[_Ready] = []
        asking: list[_Reader] = []
        woken = 0
        try:
            while self._readers or ready:
                if self._readers and (not ready or woken >= WOKEN_BEFORE_NEXT):
                    # Readers that arrive from here on need a new request to the store.
                    asking, self._readers = self._readers, []
                    outcome = await self._reach_newest()
                    ready = _in_turn(ready, asking, outcome)
                    asking, woken = [], 0
                begin = self._clock.monotonic()
                _wake(ready, self._woken_at_once)
                woken += self._woken_at_once
                # Readers that have just sent their next request join the next batch: one request to
                # the store costs as much as several replies.
                await self._clock.sleep(0)
                self._pace(self._clock.monotonic() - begin)
        finally:
            self._freshening = False
            left, self._readers = asking + self._readers, []
            ready = _in_turn(ready, left, StorageClosed("the server is shutting down"))
            _wake(ready, len(ready))

    async def _reach_newest(self) -> StorageError | None:
        try:
            await self.reach(await self._storage.revision())
        except StorageError as failed:
            return failed
        return None

    def _pace(self, taken_seconds: float) -> None:
        """Resume fewer readers at once if their next steps, such as long lists, take long."""
        if taken_seconds > WOKEN_SECONDS:
            self._woken_at_once = max(1, self._woken_at_once // 2)
        else:
            self._woken_at_once = min(WOKEN_AT_ONCE_MAX, self._woken_at_once * 2)

    async def reach_future(self, revision: int) -> None:
        """Wait until the store and the caches reach a revision that may not exist yet.

        Raises `Compacted` for a revision of a store that was replaced by this one.
        """
        if self.position < revision <= self._abandoned:
            raise Compacted(Revision(self.position))
        while await self._storage.revision() < revision:
            await self._clock.sleep(FUTURE_POLL_SECONDS)
        await self.reach(revision)

    async def backfill(self, root: str, *, after: int) -> bool:
        """Fetch older changes that a loaded cache does not contain; return whether it has them now.

        They stay in its ring buffer, so that many clients that resume their watches at once (after
        a restart of this server) cost one read of the history. It fails for changes that do not fit
        into the ring buffer, were compacted, or are encrypted with a key that is not available.
        """
        async with self._backfilling:
            cache = self._caches.get(root)
            if cache is None:
                return False  # dropped meanwhile
            floor = cache.floor
            if after >= floor:
                return True
            try:
                async with self._clock.timeout(BACKFILL_SECONDS_MAX):
                    events = await self._history(cache, after=after, upto=floor)
            except (StorageError, TimeoutError) as error:
                logger.info("cannot read history of %s after revision %d: %s", root, after, error)
                return False
            if events is None or cache.floor != floor:
                return False
            cache.prepend(events, after=after)
            return cache.floor <= after

    async def _history(self, cache: WatchCache, *, after: int, upto: int) -> list[Event] | None:
        """Return the changes between two revisions; None if they do not fit into the ring."""
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
        """Wait until the caches reach a revision, which must exist in the store."""
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
            # Otherwise `forget` was called, and another load may have started.
            if self._loading.get(root) is loading:
                del self._held[resource_key(root)]
                del self._loading[root]
        if loading.done():
            return
        if failure is None:
            loading.set_result(None)
        else:
            loading.set_exception(failure)
            loading.exception()  # mark it as retrieved: there may be no waiting reader

    async def _loaded(self, root: str, splicer: Splicer) -> WatchCache:
        """Fill a new cache from the store, in slices, so that the event loop is not blocked."""
        while True:
            reloads = self._reloads
            page = await self._storage.range(Span.of_prefix(root))
            cache = WatchCache(root, splicer)
            for some in _slices(page.items):
                cache.add(some)
                await self._clock.sleep(0)
            cache.end_load(page.revision)
            # If a reload happened meanwhile, changes after this page may have been missed.
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
                logger.warning("the watch of the store was compacted; reloading all caches")
            except StoreReplaced as error:
                self._block(error)
            except StorageError as error:
                logger.warning("the watch of the store failed; reloading all caches: %s", error)
            await self._watch.close()
            while True:
                await self._clock.sleep(RELOAD_SECONDS)
                if await self._reload():
                    break

    def _block(self, error: StoreReplaced) -> None:
        """Stop serving from the caches until they are reloaded: the store was replaced."""
        logger.warning("watch caches are disabled until they are reloaded: %s", error)
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
            # The next reader of this root retries. The other roots must not wait for the plug-in.
            logger.warning("cannot reload the watch cache of %s: %s", root, error)
            if self._caches.get(root) is cache:
                self.forget(root, cache.splicer)
            return
        if not cache.is_closed:
            cache.load(page.items, page.revision)
            cache.notify()

    async def _reload(self) -> bool:
        """Reload all caches after changes were missed; return False if that failed."""
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
                return True  # the new watch raises it again
            if isinstance(error, StoreReplaced):
                return False  # logged by `_block`
            logger.warning("reloading the watch caches failed; trying again: %s", error)
            return False
        self._watch = watch
        self._blocked = None
        self._advance(revision)
        for expected, _, _ in self._waiting:
            watch.expect(Revision(expected))
        return True


def _slices(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Split a page into slices, each short enough to be decoded without a pause."""
    first = 0
    while first < len(items):
        some = items[first : first + LOAD_SLICE_ITEMS]
        if any(is_protobuf(item.value) for item in some):
            some = some[:PROTOBUF_SLICE_ITEMS]
        yield some
        first += len(some)


def resource_key(root: str) -> str:
    """Return the value that `storage.checks.resource_of` has for the keys under a root."""
    return root[len(OBJECTS_PREFIX) : -1]


def _in_turn(
    ready: list[_Ready], readers: list[_Reader], error: StorageError | None
) -> list[_Ready]:
    """All readers in the reverse order in which they are resumed: first those without a turn, then
    one of each user, and so on."""
    seen: Counter[str] = Counter()
    placed: list[tuple[tuple[bool, int], _Ready]] = []
    for turn, reader, outcome in (
        *reversed(ready),
        *((turn, reader, error) for turn, reader in readers),
    ):
        placed.append(((turn != "", seen[turn]), (turn, reader, outcome)))
        seen[turn] += 1
    placed.sort(key=lambda each: each[0])
    return [each for _, each in reversed(placed)]


def _wake(ready: list[_Ready], count_max: int) -> None:
    for _ in range(min(count_max, len(ready))):
        _, reader, error = ready.pop()
        if reader.done():
            continue  # cancelled
        if error is None:
            reader.set_result(None)
        else:
            reader.set_exception(error)
