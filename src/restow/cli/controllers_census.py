"""Periodic censuses for the trigger of a cluster whose servers vote with `--guarantee loose`.

There only the raw store can show which persisted hashes can be removed. The controllers use only
the API, so this module reads the store periodically and the trigger gets the last result.

Not here: counting (`restow.census`), and when a census is used (the trigger's rules).
"""

from __future__ import annotations

import logging
from typing import Final

from restow.aio import Runtime
from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.census import Row, open_source, take_census
from restow.migration.trigger.values import UNKNOWN, CensusReading
from restow.storage.errors import StorageError

INTERVAL_SECONDS_DEFAULT: Final = 60.0

logger = logging.getLogger(__name__)


class CensusTaker:
    """Takes censuses of a store: `run` it, and call it for the last result of a resource."""

    def __init__(
        self,
        address: str,
        runtime: Runtime,
        *,
        interval_seconds: float = INTERVAL_SECONDS_DEFAULT,
    ) -> None:
        self._address = address
        self._runtime = runtime
        self._interval_seconds = interval_seconds
        self._begun_seconds: float | None = None
        self._found: dict[str, frozenset[str]] = {}

    def __call__(self, resource: GroupResource) -> CensusReading | None:
        """What the last census found of a resource; None before the first census."""
        if self._begun_seconds is None:
            return None
        # A resource without objects has no stale ones.
        found = self._found.get(str(resource), frozenset())
        return CensusReading(found=found, begun_seconds=self._begun_seconds)

    async def run(self) -> None:
        """Take censuses periodically, until cancelled."""
        clock = self._runtime.clock
        while True:
            try:
                await self.take()
            except (StorageError, OSError) as error:
                logger.warning("census of %s failed: %s", self._address, error)
            await clock.sleep(self._interval_seconds)

    async def take(self) -> None:
        """Take one census. Raises a StorageError when the store cannot be read."""
        begun_seconds = self._runtime.clock.monotonic()
        source = await open_source(self._address, self._runtime)
        try:
            census = await take_census(source)
        finally:
            await source.close()
        self._found = {
            each.resource: frozenset(hash_of(row) for row in each.rows) for each in census.resources
        }
        self._begun_seconds = begun_seconds


def hash_of(row: Row) -> str:
    """Return the storage version hash of a row's objects; UNKNOWN if they cannot be read."""
    stored = row.stored
    if not stored.api_version or not stored.kind:
        return UNKNOWN
    try:
        return storage_version_hash(GroupVersionKind.of(stored.api_version, stored.kind))
    except InvalidName:
        return UNKNOWN
