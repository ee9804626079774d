"""Readings that are shared: fresh for everybody, and whose failure is everybody's."""

from __future__ import annotations

import asyncio

import pytest

from restow.aio import Runtime
from restow.migration.trigger.shared_reading import SharedReading


class Source:
    """Something to read that can be held up, and counts."""

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


async def test_those_who_ask_meanwhile_share_the_next_reading() -> None:
    """Nobody gets a reading that began before they asked, and ten who wait cost one."""
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


async def test_a_failure_is_told_to_those_who_asked() -> None:
    """The next reading is a new one."""
    source = Source()
    source.gate.set()
    source.error = ValueError("no")
    async with Runtime.system().tasks("test") as tasks:
        shared = SharedReading("numbers", source.read, tasks=tasks)
        found = await asyncio.gather(*(shared.get() for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in found] == [ValueError] * 3
        source.error = None
        assert await shared.get() == 2


async def test_one_who_goes_away_does_not_take_the_reading_along() -> None:
    """The tasks own it, so the others still get theirs."""
    source = Source()
    async with Runtime.system().tasks("test") as tasks, asyncio.TaskGroup() as group:
        shared = SharedReading("numbers", source.read, tasks=tasks)
        leaving, staying = (group.create_task(shared.get()) for _ in range(2))
        await source.has_begun.wait()
        leaving.cancel()
        await asyncio.sleep(0)
        source.gate.set()
        assert await staying == 1


async def test_a_reading_that_is_ended_ends_the_waiting() -> None:
    """Nobody waits for what will never come."""
    source = Source()
    tasks = Runtime.system().tasks("test")
    shared = SharedReading("numbers", source.read, tasks=tasks)
    waiting = asyncio.ensure_future(shared.get())
    await source.has_begun.wait()
    await tasks.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
