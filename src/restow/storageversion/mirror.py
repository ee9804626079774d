"""An in-memory copy of the coordination keys in the store, kept current by watches.

The copy may lag behind the store, but it never holds a value that was not stored. Every decision
made from it is guarded by the revisions in it, so that lag costs only a retry. Not here: decisions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from restow.aio import Backoff, Runtime, Tasks
from restow.aio.events import EventChannel
from restow.storage.errors import Compacted, StorageError, StoreReplaced
from restow.storage.interface import Batch, Item, Key, Revision, Span, Storage, Watch

BACKOFF: Final = Backoff(initial_seconds=0.1, factor=2, max_seconds=5, jitter=0.3)

logger = logging.getLogger(__name__)

Listener = Callable[[Key, Item | None], None]
"""Called for each change with the current item of the key; None: the key was deleted."""


class Mirror:
    """The items under some prefixes."""

    def __init__(self, storage: Storage, runtime: Runtime, prefixes: Iterable[str]) -> None:
        self._storage = storage
        self._runtime = runtime
        self._parts = [_Part(prefix, self) for prefix in prefixes]
        self.changed: EventChannel[[Key, Item | None]] = EventChannel()

    async def start(self, tasks: Tasks) -> None:
        """Read all prefixes once, then follow them with watches."""
        for part in self._parts:
            await part.load(self._storage)
        for part in self._parts:
            tasks.spawn_loop(f"mirror {part.prefix}", part.follow(self._storage, self._runtime))

    def get(self, key: Key) -> Item | None:
        return self._part(key).items.get(key)

    def under(self, prefix: str) -> list[Item]:
        """Return all items with the prefix, in no order."""
        items = self._part(prefix).items
        return [item for item in items.values() if item.key.startswith(prefix)]

    def changes_under(self, prefix: str) -> int:
        """Return a number that grows with every change under the prefix."""
        return self._part(prefix).changes

    @property
    def position(self) -> Revision:
        """The revision up to which every change is mirrored."""
        return min(part.position for part in self._parts)

    async def reach(self, revision: Revision, *, seconds: float) -> bool:
        """Wait until the mirror has reached a revision; False after the time limit."""
        behind = [part.expect(revision) for part in self._parts if part.position < revision]
        if not behind:
            return True
        try:
            async with self._runtime.clock.timeout(seconds):
                await asyncio.gather(*behind)
        except TimeoutError:
            return False
        return True

    def notify(self, key: Key, item: Item | None) -> None:
        for listener in self.changed:
            try:
                listener(key, item)
            except Exception:
                # A listener may fail on an unreadable value. The watch must continue.
                logger.exception("cannot process the change of %s", key)

    def _part(self, key: str) -> _Part:
        for part in self._parts:
            if key.startswith(part.prefix):
                return part
        raise KeyError(f"no mirrored prefix contains {key}")


class _Part:
    """The items under one prefix."""

    def __init__(self, prefix: str, mirror: Mirror) -> None:
        self.prefix = prefix
        self.items: dict[Key, Item] = {}
        self.position = Revision(0)
        self.changes = 0
        self._mirror = mirror
        self._span = Span.of_prefix(prefix)
        self._watch: Watch | None = None
        self._waiting: list[tuple[Revision, asyncio.Future[None]]] = []

    async def load(self, storage: Storage) -> None:
        page = await storage.range(self._span)
        found = {item.key: item for item in page.items}
        gone = self.items.keys() - found.keys()
        changed = [item for item in page.items if self.items.get(item.key) != item]
        self.items = found
        self.changes += 1
        for key in gone:
            self._mirror.notify(key, None)
        for item in changed:
            self._mirror.notify(item.key, item)
        self._arrive(page.revision)

    async def follow(self, storage: Storage, runtime: Runtime) -> None:
        failures = 0
        while True:
            self._watch = watch = storage.watch(self._span, after=self.position)
            for revision, _ in self._waiting:
                watch.expect(revision)
            try:
                async for batch in watch:
                    self._apply(batch)
                    failures = 0
            except (Compacted, StoreReplaced):
                # The position may belong to another store: no revision is reached until the reload.
                self.position = Revision(0)
                while not await self._reload(storage):
                    await runtime.clock.sleep(BACKOFF.delay_seconds(failures, runtime.randomness))
                    failures += 1
            # KEP-2339 3.67: without the store nothing changes, so no agreement flips back
            except StorageError as error:
                logger.warning("the watch of %s ended and is restarted: %s", self.prefix, error)
            finally:
                self._watch = None
                await watch.close()
            await runtime.clock.sleep(BACKOFF.delay_seconds(failures, runtime.randomness))
            failures += 1

    async def _reload(self, storage: Storage) -> bool:
        """Read the prefix again; return whether that succeeded."""
        try:
            await self.load(storage)
        except StoreReplaced:
            return False  # The driver has logged the reason already.
        except StorageError as error:
            logger.warning("cannot read %s: %s", self.prefix, error)
            return False
        return True

    def expect(self, revision: Revision) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, future))
        if self._watch is not None:
            self._watch.expect(revision)
        return future

    def _apply(self, batch: Batch) -> None:
        for event in batch.events:
            self.changes += 1
            if event.value is None:
                self.items.pop(event.key, None)
                self._mirror.notify(event.key, None)
            else:
                item = Item(event.key, event.value, event.revision, event.created)
                self.items[event.key] = item
                self._mirror.notify(event.key, item)
        self._arrive(batch.revision)

    def _arrive(self, revision: Revision) -> None:
        self.position = revision
        if self._waiting:
            for wanted, future in self._waiting:
                if wanted <= revision and not future.done():
                    future.set_result(None)
            self._waiting = [(r, future) for r, future in self._waiting if not future.done()]
