"""Queues of writes: to the same object, once they have met, and of objects that take long to plan.

Most writes meet no other, and do not wait. A write whose plan was overtaken waits here for those
that were overtaken before it. Without a queue, of many concurrent writes of one object all but one
are overtaken each time, and some in every try.

New writes never wait here, and no write waits for long: a webhook that is asked about a write may
write the same object before it answers, and be overtaken.

Not here: how often a write is tried (`store`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from restow.aio import Clock

TURN_SECONDS_MAX: Final = 2.0
"""Then a write goes on without its turn: those before it may wait for it."""


HEAVY_ITERATIONS: Final = 3
"""Iterations of the event loop for each heavy object."""


class QueueTurn(NamedTuple):
    """A place at the head of a queue."""

    leave: Callable[[], None]


class WriteQueues:
    """Writes that wait for their turn, by the key of the object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}

    async def enter(self, key: str) -> QueueTurn:
        """Wait for the writes that have come here before, but not for long."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._waiting[key] = self._waiting.get(key, 0) + 1
        is_mine = False
        try:
            with suppress(TimeoutError):
                async with self._clock.timeout(TURN_SECONDS_MAX):
                    is_mine = await lock.acquire()
        except BaseException:
            self._leave(key, lock, is_mine=is_mine)
            raise
        return QueueTurn(partial(self._leave, key, lock, is_mine=is_mine))

    def _leave(self, key: str, lock: asyncio.Lock, *, is_mine: bool) -> None:
        if is_mine:
            lock.release()
        self._waiting[key] -= 1
        if not self._waiting[key]:
            del self._waiting[key], self._locks[key]

    def __len__(self) -> int:
        """The number of keys that are waited for or written."""
        return len(self._locks)


class HeavyObjects:
    """Objects of heavy kinds are read and planned one at a time, and not in each iteration of the
    event loop, so that other requests are answered in between."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()

    async def enter(self) -> None:
        """Wait before an object of a heavy kind is read or planned."""
        async with self._lock:
            for _ in range(HEAVY_ITERATIONS):
                await self._clock.sleep(0)
