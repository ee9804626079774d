"""The network of a world: what a process sends, and what becomes of it on the way (`wires`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from restow.storage.interface import Outcome, Page, Revision, Span, Transaction
from restow.testing import wires
from restow.testing.sim.loop import SimulatedLoop
from restow.testing.sim.store import WatchedStorage
from restow.testing.wires import at_once

__all__ = ("Link", "StoreWire", "at_once")

QUICK_SECONDS: Final = 0.002


class Link(wires.Link):
    """The way between two places of a world."""

    def __init__(self, loop: SimulatedLoop, seed: str, hits: Counter[str]) -> None:
        super().__init__(seed, hits, quick_seconds=QUICK_SECONDS)
        self.loop = loop

    def later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Have something happen outside of all processes."""
        self.loop.call_later(seconds, callback, *args, context=self.loop.outside.context.copy())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class StoreWire(wires.StoreWire):
    """One process's way to the store, which knows whose commit it is."""

    link: Link

    def __init__(
        self, storage: WatchedStorage, link: Link, sender: str, *, takes_at_once: bool
    ) -> None:
        super().__init__(storage, link, takes_at_once=takes_at_once)
        self._watched = storage
        self._sender = sender

    def _commit(self, transaction: Transaction) -> Coroutine[Any, Any, Outcome]:
        return self._watched.commit_by(self._sender, transaction)

    def _range(
        self, span: Span, *, limit: int, revision: Revision | None, with_total: bool
    ) -> Coroutine[Any, Any, Page]:
        self._watched.is_listed(self._sender, span)
        return super()._range(span, limit=limit, revision=revision, with_total=with_total)
