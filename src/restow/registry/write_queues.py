"""Who writes the same object at the same time: one after another, once they met.

Most writes meet nobody, and then nobody waits. Whose plan was overtaken waits here for those who
were overtaken before: each has the object to itself, but for those who have just come. Without it,
of many who write one object at once all but one are overtaken each time, and some in every try.

Who comes anew never waits here, and nobody waits for long: whoever is asked about a write, as a
webhook is, may write the same object before it answers, and be overtaken.

Not here: how often somebody tries (`store`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from restow.aio import Clock

TURN_SECONDS_MAX: Final = 2.0
"""Then one tries without a turn: those who wait may be waited for."""


class WriteQueues:
    """Those who wait for their turn, by the key of what they write."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Wait for those who have come here before, but not for long."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._waiting[key] = self._waiting.get(key, 0) + 1
        is_mine = False
        try:
            with suppress(TimeoutError):
                async with self._clock.timeout(TURN_SECONDS_MAX):
                    is_mine = await lock.acquire()
            yield
        finally:
            if is_mine:
                lock.release()
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._locks[key]

    def __len__(self) -> int:
        """The number of keys that somebody waits for or writes."""
        return len(self._locks)
