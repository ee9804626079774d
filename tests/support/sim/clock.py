"""The clocks of a simulated process: durations are global, the time of day is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

from restow.aio import InvariantViolation, LoopSteps, RandomIds, Runtime, SeededRandomness
from restow.aio.clock import SIMULATED_START, Timer


class ProcessClock:
    """Satisfies `restow.aio.Clock` on the loop that runs the world."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, skew_seconds: float = 0.0) -> None:
        self._loop = loop
        self.skew_seconds = skew_seconds
        """Offset of its time of day. It may jump."""
        self.monotonic = loop.time

    def wall(self) -> datetime:
        return SIMULATED_START + timedelta(seconds=self._loop.time() + self.skew_seconds)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0))

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(max(seconds, 0), callback)


def runtime_of(
    clock: ProcessClock, seed: str, fatal: Callable[[InvariantViolation], None]
) -> Runtime:
    """The runtime of one process."""
    randomness = SeededRandomness(seed)
    ids = RandomIds(randomness.child("ids"))
    steps = LoopSteps(clock.monotonic)
    return Runtime(clock=clock, randomness=randomness, ids=ids, steps=steps, fatal=fatal)
