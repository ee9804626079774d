"""Queues of writes: of conflicting writes to one object, and of objects that take long to plan.

Most writes do not conflict and do not wait. A write whose guard on the object failed waits here for
the writes that failed before it. Without a queue, only one of many concurrent writes to
an object succeeds in each round, and some writes fail in all retries.

New writes never wait here, and the wait is short: a webhook that is called for a write may write
the same object before it responds, and conflict with that write.

Not here: the number of retries (`store`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from restow.aio import Clock

WAIT_SECONDS_MAX: Final = 2.0
"""After this time a write proceeds without the lock: its holder may depend on this write."""


HEAVY_ITERATIONS: Final = 3
"""Iterations of the event loop for each heavy object."""


class QueueSlot(NamedTuple):
    """Permission to write an object; `leave` must be called after the write."""

    leave: Callable[[], None]


class WriteQueues:
    """Conflicting writes that wait, by the key of the object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}

    async def enter(self, key: str) -> QueueSlot:
        """Wait for the earlier conflicting writes, up to `WAIT_SECONDS_MAX`."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._waiting[key] = self._waiting.get(key, 0) + 1
        is_mine = False
        try:
            with suppress(TimeoutError):
                async with self._clock.timeout(WAIT_SECONDS_MAX):
                    is_mine = await lock.acquire()
        except BaseException:
            self._leave(key, lock, is_mine=is_mine)
            raise
        return QueueSlot(partial(self._leave, key, lock, is_mine=is_mine))

    def _leave(self, key: str, lock: asyncio.Lock, *, is_mine: bool) -> None:
        if is_mine:
            lock.release()
        self._waiting[key] -= 1
        if not self._waiting[key]:
            del self._waiting[key], self._locks[key]

    def __len__(self) -> int:
        """The number of keys with a waiting or running write."""
        return len(self._locks)


class HeavyObjects:
    """Reads and plans objects of heavy kinds one at a time, and not in every iteration of the event
    loop, so that other requests are processed in between."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()

    async def enter(self) -> None:
        """Wait before an object of a heavy kind is read or planned."""
        async with self._lock:
            for _ in range(HEAVY_ITERATIONS):
                await self._clock.sleep(0)
