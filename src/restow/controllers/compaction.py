"""Automatic compaction: removes history older than one interval, so that the store stays small.

Each step compacts up to the revision of the step before. A client that resumes a watch within one
interval therefore misses nothing. Not here: how a driver compacts.
"""

from __future__ import annotations

import logging
from typing import Final

from restow.storage.errors import Compacted, FutureRevision
from restow.storage.interface import Revision, Storage

INTERVAL_SECONDS: Final = 300.0

logger = logging.getLogger(__name__)


class Compactor:
    """Keeps the revision of one interval ago. A new instance is created for each leader term."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._last_revision: Revision | None = None
        self._tried: Revision | None = None

    async def step(self) -> Revision | None:
        """Run one step; return the revision up to which the store was compacted, if it was.

        If the store cannot be reached, the error is raised and no revision is recorded, so that the
        next step keeps more history than necessary, never less.
        """
        revision = await self._storage.revision()
        compacted = None
        if self._last_revision is not None and self._last_revision != self._tried:
            compacted = await self._compact(self._last_revision)
            self._tried = self._last_revision
        self._last_revision = revision
        return compacted

    async def _compact(self, upto: Revision) -> Revision | None:
        try:
            await self._storage.compact(upto)
        except Compacted:
            return None  # another server has compacted already
        except FutureRevision as error:
            # Only after the store was restored to an older state.
            logger.warning("cannot compact: the store was restored to an older state: %s", error)
            return None
        logger.debug("compacted up to revision %d", upto)
        return upto
