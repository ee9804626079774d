"""Shared readings: fresh for each caller, with the error raised to all callers."""

from __future__ import annotations

import asyncio

import pytest

from restow.aio import Runtime
from restow.migration.trigger.shared_reading import SharedReading


class Source:
    """A source that can block, and counts its readings."""

    def __init__(self) -> None:
        self.begun = 0
        self.has_begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def read(self) -> int:
        self.begun += 1
        self.has_begun.set()
        number = self.begun
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return number


async def test_concurrent_callers_share_the_next_reading() -> None:
    """A caller never gets a reading that started before its call; ten waiting callers share one."""
    source = Source()
    async with Runtime.system().tasks("test") as tasks, asyncio.TaskGroup() as group:
        shared = SharedReading("numbers", source.read, tasks=tasks)
        first = group.create_task(shared.get())
        await source.has_begun.wait()
        others = [group.create_task(shared.get()) for _ in range(10)]
        await asyncio.sleep(0)
        source.gate.set()
        assert await first == 1
        assert [await each for each in others] == [2] * 10
        assert await shared.get() == 3


async def test_an_error_is_raised_to_all_callers() -> None:
    """The next call starts a new reading."""
    source = Source()
    source.gate.set()
    source.error = ValueError("no")
    async with Runtime.system().tasks("test") as tasks:
        shared = SharedReading("numbers", source.read, tasks=tasks)
        found = await asyncio.gather(*(shared.get() for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in found] == [ValueError] * 3
        source.error = None
        assert await shared.get() == 2


async def test_a_cancelled_caller_does_not_cancel_the_reading() -> None:
    """The task group owns the reading, so other callers still get it."""
    source = Source()
    async with Runtime.system().tasks("test") as tasks, asyncio.TaskGroup() as group:
        shared = SharedReading("numbers", source.read, tasks=tasks)
        leaving, staying = (group.create_task(shared.get()) for _ in range(2))
        await source.has_begun.wait()
        leaving.cancel()
        await asyncio.sleep(0)
        source.gate.set()
        assert await staying == 1


async def test_a_cancelled_reading_cancels_its_callers() -> None:
    """Callers do not wait for a reading that was cancelled."""
    source = Source()
    tasks = Runtime.system().tasks("test")
    shared = SharedReading("numbers", source.read, tasks=tasks)
    waiting = asyncio.ensure_future(shared.get())
    await source.has_begun.wait()
    await tasks.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
