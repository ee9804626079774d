"""A line before a room: who finds no seat waits for one, and the next is whose turn it is.

For what only so many may do at once, and where to be sent away would be wrong: a limit of this
server is no fault of whoever is asked. The seats are shared between users as those of requests are
(`restow.request.limits`). Masters are first; then whoever holds the fewest, then who waits longest.
Who waits too long, or finds the line too long, is told to come again: a 429.

Not here: what the seats are for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.request.context import User
from restow.request.slots import Slot, SlotPool

WAITING_MAX: Final = 1_000
"""Who may wait in one line."""
TOO_LATE: Final = "request did not complete within requested timeout"

_Waiter = asyncio.Future[None]


class SlotQueue:
    """Those who wait for a seat of a room. All seats of the room are taken through it."""

    __slots__ = ("_clock", "_count", "_masters", "_pool", "_told", "_waiting", "_waiting_max")

    def __init__(
        self, pool: SlotPool, runtime: Runtime, *, refusal: str, waiting_max: int = WAITING_MAX
    ) -> None:
        """`refusal`: what whoever is sent away is told."""
        self._pool = pool
        self._clock = runtime.clock
        self._told = refusal
        self._waiting_max = waiting_max
        self._waiting: dict[str, deque[_Waiter]] = {}
        """By user; who was served last is last."""
        self._masters: set[str] = set()
        """Those of them who are first."""
        self._count = 0

    async def enter(self, user: User, *, seconds_max: float, by_seconds: float) -> QueuedSlot:
        """A seat, to be left. Raises a 429 after so many seconds, a 504 once it is too late."""
        name, pool = user.name, self._pool
        if not self._waiting and pool.has_slot_for(name):
            return QueuedSlot(self, pool.take(name))
        if self._count >= self._waiting_max:
            raise self._refusal()
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._add(user, waiter)
        left = by_seconds - self._clock.monotonic()
        try:
            # Somebody else may be waiting only because he has had his share.
            self._call_next()
            async with self._clock.timeout(max(min(seconds_max, left), 0)):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                QueuedSlot(self, Slot(pool, name)).leave()
            else:
                self._remove(name, waiter)
            if isinstance(error, TimeoutError):
                raise status.timeout(TOO_LATE) if left <= seconds_max else self._refusal() from None
            raise
        return QueuedSlot(self, Slot(pool, name))

    def left(self) -> None:
        """A seat is free: whose turn is it?"""
        if self._waiting:
            self._call_next()

    def _call_next(self) -> None:
        held = self._pool.held
        while self._waiting:
            order = sorted(
                self._waiting, key=lambda name: (name not in self._masters, held.get(name, 0))
            )
            name = next((each for each in order if self._pool.has_slot_for(each)), None)
            if name is None:
                return
            waiters = self._waiting.pop(name)
            waiter = waiters.popleft()
            self._count -= 1
            if waiters:
                self._waiting[name] = waiters
            else:
                self._masters.discard(name)
            if not waiter.done():  # or it is just being given up, and is counted no more
                self._pool.take_for(name)
                waiter.set_result(None)

    def _add(self, user: User, waiter: _Waiter) -> None:
        self._count += 1
        self._waiting.setdefault(user.name, deque()).append(waiter)
        if user.is_master:
            self._masters.add(user.name)

    def _remove(self, name: str, waiter: _Waiter) -> None:
        waiters = self._waiting.get(name)
        if waiters is None or waiter not in waiters:
            return
        waiters.remove(waiter)
        self._count -= 1
        if not waiters:
            del self._waiting[name]
            self._masters.discard(name)

    def _refusal(self) -> StatusError:
        return status.too_many_requests(self._told)


class QueuedSlot:
    """A seat for which others may wait. To leave twice is to leave once."""

    __slots__ = ("_line", "_slot")

    def __init__(self, line: SlotQueue, slot: Slot) -> None:
        self._line = line
        self._slot: Slot | None = slot

    def leave(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.leave()
            self._line.left()
