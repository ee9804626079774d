"""The probe of the store: asks it for its revision now and then, for the health checks."""

from __future__ import annotations

from typing import Final

from restow.runtime import Clock
from restow.storage.errors import StorageError
from restow.storage.interface import Storage

INTERVAL_SECONDS: Final = 2.0
TIMEOUT_SECONDS: Final = 5.0


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
            self._failure = None
        except TimeoutError:
            self._failure = f"no answer within {TIMEOUT_SECONDS} s"
        except StorageError as error:
            self._failure = str(error)
