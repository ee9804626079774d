"""Clocks: the interface through which all code reads the time, sleeps and sets deadlines.

Nothing else in the project may import `time` or call `asyncio.sleep`. Not here: how long to wait
and how often (see backoff.py).
"""

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Protocol, TypeVar

from restow.aio.eager import in_task, is_eager

T = TypeVar("T")

SIMULATED_START = datetime(2024, 1, 1, tzinfo=UTC)
SIMULATED_SECONDS_MAX = 86_400.0
# Rounds of ready tasks after which `settle` reports a busy loop.
SETTLE_ROUNDS_MAX = 100_000
# Rounds on an event loop that does not expose its ready queue (uvloop).
SETTLE_ROUNDS_BLIND = 200
# Cancelled timers kept in the heap before it is rebuilt without them.
CANCELLED_TIMERS_MAX = 1_000

_NANOSECONDS = 1_000_000_000


class Timer(Protocol):
    """A callback that will run once, unless cancelled first."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Reads the time, sleeps and sets deadlines."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never decreases. For durations and deadlines."""
        ...

    def wall(self) -> datetime:
        """Return the time of day in UTC (aware); may jump. For people and other machines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the task; zero or less only yields to other tasks."""
        ...

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Cancel the body after this time and raise TimeoutError; None: no deadline."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Run a callback once on the loop, later. It must be short and must not raise."""
        ...


class SystemClock:
    """The clocks of the machine and the running event loop."""

    # Not wrapped in a method: it is read several times for each request.
    monotonic = staticmethod(time.monotonic)

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0))

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return _TimeoutInTask(seconds) if is_eager() else asyncio.timeout(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(seconds, 0), callback)


class _TimeoutInTask:
    """A timeout that first waits until the code runs in a task: a timeout cancels its task."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    async def __aenter__(self) -> None:
        await in_task()
        self._timeout = asyncio.timeout(self._seconds)
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._timeout.__aexit__(exc_type, error, traceback)


class SimulatedClock:
    """A clock that advances only on request: sleepers wake in deadline order, ties by arrival.

    A test calls `advance`, `run_until_idle` or `run_until_done`. A seeded event loop uses the
    synchronous methods instead: `fire_next` when nothing is ready. Several clocks made by `skewed`
    share one timeline and differ only in wall time. The clock does not see threads and real I/O.
    """

    def __init__(self, start: datetime = SIMULATED_START, *, skew_seconds: float = 0.0) -> None:
        self.skew_seconds = skew_seconds
        self._start = start
        self._timeline = _Timeline()

    def skewed(self, skew_seconds: float) -> "SimulatedClock":
        """Return another clock on the same timeline whose wall time is off by `skew_seconds`."""
        clock = SimulatedClock(self._start, skew_seconds=skew_seconds)
        clock._timeline = self._timeline
        return clock

    def monotonic(self) -> float:
        return self._timeline.now / _NANOSECONDS

    def wall(self) -> datetime:
        elapsed = timedelta(microseconds=self._timeline.now // 1_000)
        return self._start + elapsed + timedelta(seconds=self.skew_seconds)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[None]:
        # asyncio's own timeout distinguishes its cancellation from others; only the moment at which
        # it expires comes from here.
        loop = asyncio.get_running_loop()
        await in_task()
        async with asyncio.timeout(None) as deadline:
            if seconds is None:
                yield
                return
            if seconds <= 0:
                deadline.reschedule(loop.time())
                yield
                return
            timer = self.call_later(seconds, lambda: deadline.reschedule(loop.time()))
            try:
                yield
            finally:
                timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._timeline.add(_to_nanoseconds(seconds), callback)

    def next_deadline(self) -> float | None:
        """Return the monotonic time of the earliest timer, or None if there is none."""
        deadline = self._timeline.next_deadline()
        return None if deadline is None else deadline / _NANOSECONDS

    def fire_next(self) -> bool:
        """Advance to the earliest timer and run its callback; False if there is none."""
        return self._timeline.fire_next(until=None)

    async def advance(self, seconds: float) -> None:
        """Advance the time, running ready tasks before, between and after the timers."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): the time cannot decrease")
        target = self._timeline.now + _to_nanoseconds(seconds)
        await self.settle()
        while self._timeline.fire_next(until=target):
            await self.settle()
        self._timeline.now = max(self._timeline.now, target)

    def stall(self, seconds: float) -> None:
        """Advance the time without running timers or tasks: the loop was blocked, or the process
        paused. The timers that are due fire with the next `advance`."""
        self._timeline.now += _to_nanoseconds(seconds)

    async def run_until_idle(self, *, seconds_max: float = SIMULATED_SECONDS_MAX) -> None:
        """Advance until no timer is left; TimeoutError if timers remain after the limit."""
        limit = self._timeline.now + _to_nanoseconds(seconds_max)
        await self.settle()
        while self._timeline.fire_next(until=limit):
            await self.settle()
        if self._timeline.next_deadline() is not None:
            raise TimeoutError(f"timers remain after {seconds_max} simulated seconds")

    async def run_until_done(
        self, awaitable: Awaitable[T], *, seconds_max: float = SIMULATED_SECONDS_MAX
    ) -> T:
        """Advance until the awaitable is done; return its result or raise its error."""
        limit = self._timeline.now + _to_nanoseconds(seconds_max)
        task = asyncio.ensure_future(awaitable)
        try:
            await self.settle()
            while not task.done():
                if not self._timeline.fire_next(until=limit):
                    raise TimeoutError(f"not done within {seconds_max} simulated seconds")
                await self.settle()
        finally:
            if not task.done():
                task.cancel()
                await self.settle()
        return task.result()

    async def settle(self) -> None:
        """Run tasks until none is ready, without advancing the time."""
        # Only the private queue of the loop shows that; where it is hidden, run a fixed number of
        # rounds.
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        if ready is None:
            for _ in range(SETTLE_ROUNDS_BLIND):
                await asyncio.sleep(0)
            return
        for _ in range(SETTLE_ROUNDS_MAX):
            await asyncio.sleep(0)
            if not ready:
                return
        raise RuntimeError(f"tasks are still ready after {SETTLE_ROUNDS_MAX} rounds")


@dataclass(order=True, slots=True)
class _SimulatedTimer:
    deadline: int
    arrival: int
    timeline: "_Timeline" = field(compare=False)
    callback: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.timeline.note_cancelled()


class _Timeline:
    """The time and the timers: whole nanoseconds, so that 0.1 + 0.2 is 0.3 for every sleeper."""

    def __init__(self) -> None:
        self.now = 0
        self._arrivals = 0
        self._heap: list[_SimulatedTimer] = []
        self._cancelled = 0

    def add(self, nanoseconds: int, callback: Callable[[], None]) -> _SimulatedTimer:
        self._arrivals += 1
        timer = _SimulatedTimer(self.now + max(nanoseconds, 0), self._arrivals, self, callback)
        heapq.heappush(self._heap, timer)
        return timer

    def next_deadline(self) -> int | None:
        while self._heap and self._heap[0].callback is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0].deadline if self._heap else None

    def fire_next(self, *, until: int | None) -> bool:
        deadline = self.next_deadline()
        if deadline is None or (until is not None and deadline > until):
            return False
        timer = heapq.heappop(self._heap)
        callback, timer.callback = timer.callback, None
        self.now = max(self.now, deadline)
        if callback is not None:
            callback()
        return True

    def note_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > max(CANCELLED_TIMERS_MAX, len(self._heap) // 2):
            self._heap = [timer for timer in self._heap if timer.callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0


def _to_nanoseconds(seconds: float) -> int:
    # At least 1 for a positive duration, so that `sleep(deadline - now)` in a loop ends.
    return max(round(seconds * _NANOSECONDS), 1) if seconds > 0 else 0
