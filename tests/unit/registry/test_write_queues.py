"""Queues of conflicting writes to one object."""

from __future__ import annotations

import asyncio

from restow.aio import SimulatedClock, SystemClock
from restow.registry.write_queues import WAIT_SECONDS_MAX, WriteQueues


async def test_one_after_another() -> None:
    """Writers of the same key proceed in order of arrival; writers of other keys do not wait."""
    queues, order = WriteQueues(SystemClock()), []
    first, free = asyncio.Event(), asyncio.Event()

    async def write(name: str, key: str) -> None:
        turn = await queues.enter(key)
        order.append(name)
        if name == "first":
            first.set()
            await free.wait()
        turn.leave()

    async with asyncio.TaskGroup() as group:
        group.create_task(write("first", "a"))
        await first.wait()
        for name in ("second", "third"):
            group.create_task(write(name, "a"))
        await group.create_task(write("elsewhere", "b"))
        assert order == ["first", "elsewhere"]
        free.set()
    assert order == ["first", "elsewhere", "second", "third"]


async def test_nothing_is_kept() -> None:
    """No state of a key remains, also if a write gives up waiting."""
    queues = WriteQueues(SystemClock())
    turn = await queues.enter("a")
    waiting = asyncio.ensure_future(queues.enter("a"))
    await asyncio.wait([waiting], timeout=0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert len(queues) == 1
    turn.leave()
    assert len(queues) == 0


async def test_the_wait_is_bounded() -> None:
    """A holder may depend on a waiting write, which therefore proceeds after a timeout."""
    clock = SimulatedClock()
    queues, inside = WriteQueues(clock), asyncio.Event()

    async def write() -> None:
        turn = await queues.enter("a")
        inside.set()
        turn.leave()

    first = await queues.enter("a")
    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        await clock.advance(WAIT_SECONDS_MAX / 2)
        assert not inside.is_set()
        await clock.advance(WAIT_SECONDS_MAX)
        assert inside.is_set()
    first.leave()
    assert len(queues) == 0
