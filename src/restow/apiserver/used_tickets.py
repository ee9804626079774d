"""Records used tickets for all servers of a cluster: one key in the store for each.

Any server accepts a ticket, so its use is recorded for all of them. The key is created
on the condition that it is absent, and deleted some time after the ticket has expired.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from restow.aio import Runtime
from restow.storage.errors import Unavailable
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Item,
    Key,
    Put,
    Refused,
    Span,
    Storage,
    Transaction,
)

PREFIX: Final = "/restow/tickets/"
FORGOTTEN_MAX: Final = 50
"""Expired keys to delete when a ticket is used."""
KEPT: Final = timedelta(hours=1)
"""Time after a ticket's expiry, since the clocks of servers differ."""
NONCE_BYTES: Final = 8


class UsedTickets:
    """Records tickets by their nonces."""

    def __init__(self, storage: Storage, runtime: Runtime) -> None:
        self._storage = storage
        self._clock = runtime.clock
        self._ids = runtime.ids

    async def use(self, nonce: str, expires: datetime) -> bool:
        """Whether this is the first use. Raises `Unavailable` when the store does not respond."""
        key = Key(PREFIX + nonce)
        # With its own nonce, so that after a lost reply the use by another server is detected.
        value = f"{expires.timestamp()} {self._ids.nonce(NONCE_BYTES)}".encode()
        deletes = tuple(Delete(each) for each in await self._expired_keys())
        outcome = await self._storage.commit(
            Transaction((Absent(key),), (Put(key, value), *deletes))
        )
        match outcome:
            case Done():
                return True
            case Refused():
                return False
            case _:
                raise Unavailable(
                    "cannot determine from the store whether the ticket was used: log in again"
                )

    async def _expired_keys(self) -> list[Key]:
        page = await self._storage.range(Span.of_prefix(PREFIX), limit=FORGOTTEN_MAX)
        before = (self._clock.wall() - KEPT).timestamp()
        return [item.key for item in page.items if _end_of(item) < before]


def _end_of(item: Item) -> float:
    try:
        return float(item.value.split(b" ", 1)[0])
    except ValueError:
        return 0.0
