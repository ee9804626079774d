"""A single watch of all objects, shared by all controllers of a server.

Without it every controller would need a cache of each resource that it observes. An observer must
handle events quickly and synchronously; it adds keys to a queue. If events may have been missed,
all objects are read again. Not here: the observers.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Protocol

from restow.aio import Runtime, WorkQueue
from restow.registry.reconcile_loops import repeat
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.errors import Compacted
from restow.storage.interface import Batch, Revision, Span, Storage, Watch

RESTART_SECONDS: Final = 0.2
RESYNC_SECONDS: Final = 300.0

logger = logging.getLogger(__name__)


class ChangeObserver(Protocol):
    """A controller that receives the changes of all objects."""

    async def list_objects(self, revision: Revision) -> None:
        """Read the existing objects; changes after this revision are passed to `on_batch`."""

    def on_batch(self, batch: Batch) -> None:
        """Handle changes, in order. A change that `list_objects` has read may be repeated."""


class Relisting(ABC):
    """An observer that queues its objects again periodically."""

    @abstractmethod
    async def list_objects(self, revision: Revision) -> None:
        """Queue the existing objects."""

    async def resync(self) -> float:
        """Queue the existing objects again; return the seconds until the next time."""
        await self.list_objects(Revision(0))
        return RESYNC_SECONDS


def queue_changes(queue: WorkQueue[str], root: str, batch: Batch) -> None:
    """Queue the changed objects of a resource, by the part of their key below its root."""
    for event in batch.events:
        if event.key.startswith(root):
            queue.add(event.key[len(root) :])


class ObjectsWatch:
    """Watches all objects in the store, for several observers."""

    def __init__(
        self, storage: Storage, runtime: Runtime, observers: Sequence[ChangeObserver]
    ) -> None:
        self._storage = storage
        self._runtime = runtime
        self._observers = observers

    async def run(self) -> None:
        """Follow the store until cancelled."""
        await repeat("watch of all objects", self._follow, self._runtime)

    async def _follow(self) -> float:
        watch = await self.begin()
        try:
            async for batch in watch:
                self.dispatch(batch)
        except Compacted:
            logger.warning("the watch of all objects was compacted; reading all objects again")
        finally:
            await watch.close()
        return RESTART_SECONDS

    async def begin(self) -> Watch:
        """Let all observers read the existing objects; return the watch from that revision on."""
        revision = await self._storage.revision()
        watch = self._storage.watch(Span.of_prefix(OBJECTS_PREFIX), after=revision)
        try:
            for observer in self._observers:
                await observer.list_objects(revision)
        except BaseException:
            await watch.close()
            raise
        return watch

    def dispatch(self, batch: Batch) -> None:
        """Pass changes to all observers."""
        for observer in self._observers:
            observer.on_batch(batch)
