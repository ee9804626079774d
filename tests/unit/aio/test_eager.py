"""Coroutines that run until they first suspend, and are then taken over by a task."""

from __future__ import annotations

import asyncio

import pytest

from restow.aio import SimulatedClock, Suspended, SystemClock, in_task, run_eagerly


async def test_a_coroutine_that_does_not_wait_is_done_at_once() -> None:
    """Its result is available when the call returns, without a task."""
    before = asyncio.all_tasks()

    async def inner() -> int:
        return 2

    async def outer() -> int:
        return await inner() + 1

    assert run_eagerly(outer()) == 3
    assert asyncio.all_tasks() == before


async def test_an_error_before_the_first_wait_is_raised_by_the_call() -> None:
    """The caller gets it as if the coroutine were a function."""

    async def fail() -> None:
        raise LookupError("none")

    with pytest.raises(LookupError):
        run_eagerly(fail())


async def test_a_task_takes_over_a_suspended_coroutine() -> None:
    """Each part runs once, in order, and the task gets the result."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    ran: list[str] = []

    async def work() -> int:
        ran.append("first")
        found = await future
        ran.append("second")
        await asyncio.sleep(0)
        return found + 1

    suspended = run_eagerly(work())
    assert isinstance(suspended, Suspended)
    assert ran == ["first"]
    future.set_result(1)
    assert await suspended == 2
    assert ran == ["first", "second"]


async def test_an_error_of_an_awaited_future_reaches_the_coroutine() -> None:
    """It is raised where the coroutine is suspended, which may continue after it."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await future
        except OSError as error:
            await asyncio.sleep(0)
            return str(error)
        return ""

    suspended = run_eagerly(work())
    future.set_exception(OSError("broken"))
    assert isinstance(suspended, Suspended)
    assert await suspended == "broken"


async def test_cancellation_runs_the_clean_up() -> None:
    """A cancelled coroutine cleans up, and may await while it does; a cancellation after the first
    step of the task is an ordinary one."""
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            ended.append("cancelled")
            raise

    suspended = run_eagerly(work())
    assert isinstance(suspended, Suspended)

    async def take_over() -> None:
        await suspended

    task = asyncio.create_task(take_over())
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


async def test_several_wait_for_one_future() -> None:
    """A future that a coroutine without a task awaits may be awaited by others, with a task and
    without one."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        return await future

    first, second = run_eagerly(work()), run_eagerly(work())
    assert isinstance(first, Suspended)
    assert isinstance(second, Suspended)
    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    future.set_result("done")
    assert [await first, await second, await task] == ["done"] * 3


async def test_a_closed_timeout() -> None:
    """A coroutine that is closed while a timeout waits for its task ends without an error."""

    async def work() -> None:
        async with SystemClock().timeout(1):
            raise AssertionError("it has no task")

    suspended = run_eagerly(work())
    assert isinstance(suspended, Suspended)
    suspended.close()


async def test_an_abandoned_coroutine_is_closed() -> None:
    """Its clean-up runs at once."""
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("closed")

    suspended = run_eagerly(work())
    assert isinstance(suspended, Suspended)
    suspended.close()
    assert ended == ["closed"]


@pytest.mark.parametrize("clock", [SystemClock(), SimulatedClock()])
async def test_a_timeout_waits_for_the_task(clock: SystemClock | SimulatedClock) -> None:
    """A timeout that is entered before there is a task cancels the task that takes over, and not
    the task that ran the first part."""
    tasks: list[asyncio.Task[object] | None] = []

    async def work() -> str:
        try:
            async with clock.timeout(0):
                tasks.append(asyncio.current_task())
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return ""

    suspended = run_eagerly(work())
    assert isinstance(suspended, Suspended)
    assert tasks == []

    async def take_over() -> str:
        return await suspended

    task = asyncio.create_task(take_over())
    assert await task == "late"
    assert tasks == [task]


async def test_code_in_a_task_is_in_a_task() -> None:
    """in_task returns at once there."""
    work = in_task()
    with pytest.raises(StopIteration):
        work.send(None)
