"""The probe of the store: asks it for its revision now and then, for the health checks."""

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
    """What the last question to the store came to."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._failure: str | None = None

    def check(self) -> str | None:
        """Why the store cannot be used, or None."""
        return self._failure

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await self.step()
            await self._clock.sleep(INTERVAL_SECONDS)

    async def step(self) -> None:
        """Ask once."""
        try:
            async with self._clock.timeout(TIMEOUT_SECONDS):
                await self._storage.revision()
            failure = None
        except TimeoutError:
            failure = f"no answer within {TIMEOUT_SECONDS} s"
        except StorageError as error:
            failure = str(error)
        if failure != self._failure:
            self._say(failure)
        self._failure = failure

    def _say(self, failure: str | None) -> None:
        """Tell in the log what clients are not told."""
        if failure is None:
            logger.info("the store can be used again")
        else:
            logger.error("the store cannot be used: %s", failure)
