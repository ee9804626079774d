"""Which tickets were used, as all servers of a cluster know it: a key in the store for each.

A ticket can be used at any server, so that it was used must be known to all. The key is made on
condition that it is absent, and goes away some time after the ticket is too old anyway.
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
"""How many old ones are removed when one is used."""
KEPT: Final = timedelta(hours=1)
"""Beyond a ticket's end, since the clocks of servers differ."""
NONCE_BYTES: Final = 8


class UsedTickets:
    """Remembers tickets by their nonces."""

    def __init__(self, storage: Storage, runtime: Runtime) -> None:
        self._storage = storage
        self._clock = runtime.clock
        self._ids = runtime.ids

    async def use(self, nonce: str, expires: datetime) -> bool:
        """Whether this is the first use. Raises `Unavailable` when the store does not say."""
        key = Key(PREFIX + nonce)
        # With a nonce of its own, so that after a lost reply a rival's use is not taken for ours.
        value = f"{expires.timestamp()} {self._ids.nonce(NONCE_BYTES)}".encode()
        deletes = tuple(Delete(each) for each in await self._forgettable())
        outcome = await self._storage.commit(
            Transaction((Absent(key),), (Put(key, value), *deletes))
        )
        match outcome:
            case Done():
                return True
            case Refused():
                return False
            case _:
                raise Unavailable("the store does not say whether the ticket was used")

    async def _forgettable(self) -> list[Key]:
        page = await self._storage.range(Span.of_prefix(PREFIX), limit=FORGOTTEN_MAX)
        before = (self._clock.wall() - KEPT).timestamp()
        return [item.key for item in page.items if _end_of(item) < before]


def _end_of(item: Item) -> float:
    try:
        return float(item.value.split(b" ", 1)[0])
    except ValueError:
        return 0.0
