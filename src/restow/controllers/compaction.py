"""Automatic compaction: history older than one interval is forgotten, so the store stays small.

Each step compacts up to the revision that the step before has seen. So a client that comes back
within one interval finds all that it has missed. Not here: how a driver forgets.
"""

from __future__ import annotations

import logging
from typing import Final

from restow.storage.errors import Compacted, FutureRevision
from restow.storage.interface import Revision, Storage

INTERVAL_SECONDS: Final = 300.0

logger = logging.getLogger(__name__)


class Compactor:
    """Remembers the revision of one interval ago. Made anew for each turn."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._seen: Revision | None = None
        self._tried: Revision | None = None

    async def step(self) -> Revision | None:
        """One step; the revision up to which was compacted, if anything was.

        When the store cannot be reached the error passes and nothing is remembered, so the next
        step keeps more history than it must, never less.
        """
        revision = await self._storage.revision()
        compacted = None
        if self._seen is not None and self._seen != self._tried:
            compacted = await self._compact(self._seen)
            self._tried = self._seen
        self._seen = revision
        return compacted

    async def _compact(self, upto: Revision) -> Revision | None:
        try:
            await self._storage.compact(upto)
        except Compacted:
            return None  # someone else was faster
        except FutureRevision as error:
            # Only a store that was set back to an older state does this.
            logger.warning("the store has gone back: %s", error)
            return None
        logger.debug("compacted up to revision %d", upto)
        return upto
