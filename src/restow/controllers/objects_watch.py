"""One watch of all objects for all housekeeping: observers first look, then see each change.

Without this every controller would need a cache of each resource it cares for. An observer must be
quick and must not wait when it sees changes; it puts keys into a queue. When changes may have been
missed, everything is looked at again. Not here: what observers do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from restow.aio import Runtime
from restow.registry.reconcile_loops import repeat
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.errors import Compacted
from restow.storage.interface import Batch, Revision, Span, Storage, Watch

RESTART_SECONDS: Final = 0.2

logger = logging.getLogger(__name__)


class ChangeObserver(Protocol):
    """Someone who wants to know of all changes."""

    async def look(self, revision: Revision) -> None:
        """Look at all there is; changes after this revision will be seen."""

    def see(self, batch: Batch) -> None:
        """See some changes, in order. A change that `look` knows already may come again."""


class ObjectsWatch:
    """Follows the store for some observers."""

    def __init__(
        self, storage: Storage, runtime: Runtime, observers: Sequence[ChangeObserver]
    ) -> None:
        self._storage = storage
        self._runtime = runtime
        self._observers = observers

    async def run(self) -> None:
        """Follow for ever."""
        await repeat("watch of all objects", self._follow, self._runtime)

    async def _follow(self) -> float:
        watch = await self.begin()
        try:
            async for batch in watch:
                self.pass_on(batch)
        except Compacted:
            logger.warning("changes were compacted before they were seen: looking at all again")
        finally:
            await watch.close()
        return RESTART_SECONDS

    async def begin(self) -> Watch:
        """Let all observers look; the watch of what happens from there on."""
        revision = await self._storage.revision()
        watch = self._storage.watch(Span.of_prefix(OBJECTS_PREFIX), after=revision)
        try:
            for observer in self._observers:
                await observer.look(revision)
        except BaseException:
            await watch.close()
            raise
        return watch

    def pass_on(self, batch: Batch) -> None:
        """Show changes to all observers."""
        for observer in self._observers:
            observer.see(batch)
