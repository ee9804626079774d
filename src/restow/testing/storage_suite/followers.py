"""Watch readers that run concurrently with a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from restow.storage.interface import Batch, Revision, Span, Storage
from restow.testing.storage_suite.steps import CLOCK, next_batch
from restow.testing.watch_checks import WatchRecord


class Follower:
    """Reads one watch, batch by batch, and keeps what it saw.

    An impatient one cancels its read again and again, each time after another delay.
    """

    def __init__(self, storage: Storage, span: Span, after: Revision, *, impatient: bool) -> None:
        self.seen = WatchRecord(span, after)
        self._watch = storage.watch(span, after=after)
        self._goal: Revision | None = None
        self._impatient = impatient
        self._attempts = 0

    async def run(self) -> None:
        """Read until the goal is set and reached."""
        try:
            while self._goal is None or self.seen.upto < self._goal:
                self.seen.batches.append(await self._read())
        finally:
            await self._watch.close()

    def finish_at(self, goal: Revision) -> None:
        """End `run` when everything up to `goal` has been seen."""
        self._goal = goal
        self._watch.expect(goal)

    async def reached(self, revision: Revision) -> None:
        """Wait until everything up to a revision has been seen."""
        self._watch.expect(revision)
        while self.seen.upto < revision:
            await CLOCK.sleep(0.001)

    async def _read(self) -> Batch:
        if not self._impatient:
            return await next_batch(self._watch)
        while True:
            self._attempts += 1
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(next_batch(self._watch))
                # With growing delays, for a store that must begin again each time.
                patience = self._attempts % 8 * 2 ** (self._attempts // 8 % 10)
                await CLOCK.sleep(patience / 4000)
                reading.cancel()
            if not reading.cancelled():
                return reading.result()


@asynccontextmanager
async def following(
    storage: Storage, asked: Iterable[tuple[Span, Revision]], *, impatient: bool = False
) -> AsyncIterator[list[Follower]]:
    """Run followers beside the body, which must set the goal of each of them."""
    followers = [Follower(storage, span, after, impatient=impatient) for span, after in asked]
    async with asyncio.TaskGroup() as group:
        for follower in followers:
            group.create_task(follower.run())
        yield followers


def finish_all(followers: Iterable[Follower], goal: Revision) -> None:
    for follower in followers:
        follower.finish_at(goal)
