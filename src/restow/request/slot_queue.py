"""A fair queue for the slots of a pool: a request without a slot waits until one is free.

It serves limits of this server that are no fault of the client, where an immediate 429 would be
wrong. Slots are shared between users like those of requests (`restow.request.limits`). Users in
`system:masters` come first, then the users who hold the fewest slots; users with equally many are
served in rotation. A request that waits too long, or finds the queue full, gets a 429.

Not here: the work for which the slots are taken.
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
"""Maximum number of requests in one queue."""
TOO_LATE: Final = "request did not complete within requested timeout"

_Waiter = asyncio.Future[None]


class SlotQueue:
    """Requests that wait for a slot of a pool. All slots of the pool are taken through it."""

    __slots__ = (
        "_clock",
        "_count",
        "_masters",
        "_pool",
        "_refusal_message",
        "_waiting",
        "_waiting_max",
    )

    def __init__(
        self, pool: SlotPool, runtime: Runtime, *, refusal: str, waiting_max: int = WAITING_MAX
    ) -> None:
        """`refusal` is the message of the 429."""
        self._pool = pool
        self._clock = runtime.clock
        self._refusal_message = refusal
        self._waiting_max = waiting_max
        self._waiting: dict[str, deque[_Waiter]] = {}
        """By user; the user who was served last is at the end."""
        self._masters: set[str] = set()
        """Waiting users in `system:masters`; they come first."""
        self._count = 0

    async def enter(self, user: User, *, seconds_max: float, by_seconds: float) -> QueuedSlot:
        """Return a slot; the caller must call its `leave`. Raises a 429 after `seconds_max`, a 504
        at the deadline `by_seconds`."""
        name, pool = user.name, self._pool
        if not self._waiting and pool.has_slot_for(name):
            return QueuedSlot(self, pool.take(name))
        if self._count >= self._waiting_max:
            raise self._refusal()
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._add(user, waiter)
        seconds_left = by_seconds - self._clock.monotonic()
        try:
            # The users in the queue may be waiting only because they have used up their share.
            self._serve_next()
            async with self._clock.timeout(max(min(seconds_max, seconds_left), 0)):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                QueuedSlot(self, Slot(pool, name)).leave()
            else:
                self._remove(name, waiter)
            if isinstance(error, TimeoutError):
                raise (
                    status.timeout(TOO_LATE) if seconds_left <= seconds_max else self._refusal()
                ) from None
            raise
        return QueuedSlot(self, Slot(pool, name))

    def on_slot_left(self) -> None:
        """Admit the next request in the queue, after a slot was released."""
        if self._waiting:
            self._serve_next()

    def _serve_next(self) -> None:
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
            # otherwise it was just cancelled, and is already subtracted from the count
            if not waiter.done():
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
        return status.too_many_requests(self._refusal_message)


class QueuedSlot:
    """A slot of a pool with a queue. `leave` is idempotent."""

    __slots__ = ("_queue", "_slot")

    def __init__(self, queue: SlotQueue, slot: Slot) -> None:
        self._queue = queue
        self._slot: Slot | None = slot

    def leave(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.leave()
            self._queue.on_slot_left()
