"""Probes the store periodically by reading its revision, for the health checks."""

from __future__ import annotations

import logging
from typing import Final

from restow.aio import Clock
from restow.storage.errors import StorageError
from restow.storage.interface import Storage

INTERVAL_SECONDS: Final = 2.0
TIMEOUT_SECONDS: Final = 5.0


logger = logging.getLogger(__name__)


class StorageProbe:
    """The result of the last probe."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._failure: str | None = None

    def check(self) -> str | None:
        """The reason why the store is unavailable, or None."""
        return self._failure

    async def run(self) -> None:
        """Probe forever."""
        while True:
            await self.step()
            await self._clock.sleep(INTERVAL_SECONDS)

    async def step(self) -> None:
        """Probe once."""
        try:
            async with self._clock.timeout(TIMEOUT_SECONDS):
                await self._storage.revision()
            failure = None
        except TimeoutError:
            failure = f"no response within {TIMEOUT_SECONDS} s"
        except StorageError as error:
            failure = str(error)
        if failure != self._failure:
            self._log(failure)
        self._failure = failure

    def _log(self, failure: str | None) -> None:
        """Log a change of the state; clients do not get the details."""
        if failure is None:
            logger.info("the store is available again")
        else:
            logger.error("the store is unavailable: %s", failure)
