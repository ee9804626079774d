"""A server's connection to the store in a scenario: on simulated time, and able to kill the server.

It lies between the server's `Line` and the audited store. Besides the faults of other connections
the server can be killed right before or right after its n-th commit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from restow.aio import SimulatedClock
from restow.storage.interface import Outcome, Storage, Transaction
from tests.support import wires

Moment = Literal["before", "after"]


class Link(wires.Link):
    """Calls without a delay run at once."""

    def __init__(self, clock: SimulatedClock, seed: str) -> None:
        super().__init__(seed, Counter())
        self._clock = clock

    def later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        if seconds:
            self._clock.call_later(seconds, partial(_call, callback, args))
        else:
            callback(*args)

    async def sleep(self, seconds: float) -> None:
        if seconds:
            await self._clock.sleep(seconds)


class Wire(wires.StoreWire):
    """The faulty connection of one server to the store."""

    def __init__(self, storage: Storage, clock: SimulatedClock, seed: str) -> None:
        super().__init__(storage, Link(clock, seed))
        self.crash_at: tuple[int, Moment] | None = None
        self.crashed = asyncio.Event()
        self._last: Transaction | None = None
        """The commit after which it is killed."""

    def _sent(self, transaction: Transaction) -> asyncio.Future[Outcome]:
        number = self.commits + 1
        never: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if self.crashed.is_set() or self.crash_at == (number, "before"):
            self.crashed.set()
            return never
        if self.crash_at == (number, "after"):
            self._last = transaction
            _ignored = super()._sent(transaction)
            return never
        return super()._sent(transaction)

    async def _commit(self, transaction: Transaction) -> Outcome:
        outcome = await super()._commit(transaction)
        if transaction is self._last:
            self.crashed.set()
        return outcome


def _call(callback: Callable[..., object], args: tuple[Any, ...]) -> None:
    callback(*args)
