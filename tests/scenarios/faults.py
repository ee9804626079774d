"""A server's wire to the store, on which things go wrong: by order, or by chance from a seed.

It lies between the server's `Line` and the audited store. A transaction can be lost on its way, its
answer can be lost, it can land late; reads can fail; watches can be slow, each one by itself; and
the server can die right before or right after its n-th commit.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Literal

from restow.runtime import SimulatedClock
from restow.storage.errors import Unavailable
from restow.storage.interface import (
    Batch,
    Item,
    Key,
    Outcome,
    Page,
    Revision,
    Span,
    Storage,
    Transaction,
    Unknown,
    Watch,
)

Moment = Literal["before", "after"]


@dataclass(slots=True)
class Chances:
    """How likely each fault is, per call; delays are at most so many seconds."""

    commit_lost: float = 0.0
    """Nothing happens, and nobody says so."""
    reply_lost: float = 0.0
    """It happens, and nobody says so."""
    commit_late: float = 0.0
    """Nobody says so, and it happens up to ten seconds later, or is refused then."""
    error: float = 0.0
    """An honest error: nothing has happened."""
    delay: float = 0.0
    """Before each read, and before and after each commit."""
    watch_delay: float = 0.0
    """Before each batch of a watch; the watches of one server are independent."""


LATE_SECONDS_MAX = 10.0


class Wire(Storage):
    """One server's faulty way to the store."""

    def __init__(self, storage: Storage, clock: SimulatedClock, seed: str) -> None:
        self._storage = storage
        self._clock = clock
        self._random = Random(seed)
        self._late: set[asyncio.Task[None]] = set()
        self.chances = Chances()
        self.is_cut = False
        """Whether nothing at all gets through."""
        self.flowing = asyncio.Event()
        """Cleared while the server is paused: watches bring nothing then."""
        self.flowing.set()
        self.commits = 0
        self.crash_at: tuple[int, Moment] | None = None
        self.crashed = asyncio.Event()

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        await self._wait(self.chances.delay)
        self._fail()
        return await self._storage.get(key, revision=revision)

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> Page:
        await self._wait(self.chances.delay)
        self._fail()
        return await self._storage.range(
            span, limit=limit, revision=revision, with_total=with_total
        )

    async def count(self, span: Span, *, revision: Revision | None = None) -> int:
        return await self._storage.count(span, revision=revision)

    async def revision(self) -> Revision:
        self._fail()
        return await self._storage.revision()

    def revision_now(self) -> Revision | None:
        return None

    async def commit(self, transaction: Transaction) -> Outcome:
        self.commits += 1
        number = self.commits
        await self._crash(number, "before")
        self._fail()
        chances, draw = self.chances, self._random.random()
        if draw < chances.commit_lost:
            return Unknown("lost on its way")
        if draw < chances.commit_lost + chances.commit_late:
            self._land_later(transaction)
            return Unknown("late")
        await self._wait(chances.delay)
        outcome = await self._storage.commit(transaction)
        await self._crash(number, "after")
        await self._wait(chances.delay)
        if self._random.random() < chances.reply_lost:
            return Unknown("the answer was lost")
        return outcome

    def submit(self, transaction: Transaction) -> None:
        """Whoever has a faulty wire has to wait."""

    def watch(self, span: Span, *, after: Revision) -> Watch:
        return _SlowWatch(self._storage.watch(span, after=after), self)

    async def compact(self, revision: Revision) -> None:
        await self._storage.compact(revision)

    async def close(self) -> None:
        """Nothing lands any more."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    async def before_batch(self) -> None:
        await self._wait(self.chances.watch_delay)
        while self.is_cut or not self.flowing.is_set():
            await self.flowing.wait()
            if self.is_cut:
                await self._clock.sleep(0.1)

    async def _wait(self, seconds_max: float) -> None:
        if seconds_max:
            await self._clock.sleep(self._random.uniform(0, seconds_max))

    def _fail(self) -> None:
        if self.is_cut or (self.chances.error and self._random.random() < self.chances.error):
            raise Unavailable("the store cannot be reached")

    def _land_later(self, transaction: Transaction) -> None:
        seconds = self._random.uniform(0, LATE_SECONDS_MAX)

        async def land() -> None:
            await self._clock.sleep(seconds)
            await self._storage.commit(transaction)

        task = asyncio.create_task(land(), name="late commit")
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _crash(self, number: int, moment: Moment) -> None:
        if self.crashed.is_set() or self.crash_at == (number, moment):
            self.crashed.set()
            await asyncio.Event().wait()


class _SlowWatch:
    """Satisfies `Watch`."""

    def __init__(self, watch: Watch, wire: Wire) -> None:
        self._watch = watch
        self._wire = wire
        self._held: Batch | None = None

    def __aiter__(self) -> _SlowWatch:
        return self

    async def __anext__(self) -> Batch:
        if self._held is None:
            self._held = await self._watch.__anext__()
        await self._wire.before_batch()
        batch, self._held = self._held, None
        return batch

    def expect(self, revision: Revision) -> None:
        self._watch.expect(revision)

    async def close(self) -> None:
        await self._watch.close()
