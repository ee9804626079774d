"""The event loop of the simulator: processes, time, and a seeded order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.sim.loop import SimulatedLoop, Stuck

pytestmark = pytest.mark.area("simulation")


def run(seed: int, work: Callable[[SimulatedLoop], Awaitable[object]]) -> SimulatedLoop:
    loop = SimulatedLoop(seed)  # type: ignore[abstract]

    async def direct() -> None:
        await work(loop)

    try:
        loop.run_until_complete(direct())
    finally:
        loop.end()
    return loop


def test_time_advances_when_no_process_runs() -> None:
    """An hour passes at once, and timers fire in order."""
    seen: list[tuple[float, str]] = []

    async def work(loop: SimulatedLoop) -> None:
        async def sleep(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            seen.append((loop.time(), name))

        await asyncio.gather(sleep(3600, "late"), sleep(1, "soon"), sleep(0, "now"))

    run(1, work)
    assert seen == [(0.0, "now"), (1.0, "soon"), (3600.0, "late")]


def test_a_paused_process_makes_no_step_and_a_killed_one_never_again() -> None:
    """Ready callbacks of a paused process wait; external operations continue."""
    steps: list[str] = []

    async def count(name: str) -> None:
        while True:
            steps.append(name)
            await asyncio.sleep(1)

    async def work(loop: SimulatedLoop) -> None:
        one, other = loop.process("one"), loop.process("other")
        one.start(count("one"), "count")
        other.start(count("other"), "count")
        await asyncio.sleep(2.5)
        one.pause()
        other.kill()
        before = len(steps)
        await asyncio.sleep(10)
        assert len(steps) == before
        one.wake()
        await asyncio.sleep(0.1)
        assert steps[before:] == ["one"]

    run(1, work)


def test_tasks_belong_to_the_process_that_creates_them() -> None:
    """Its tasks, timers and thread calls stop with it."""
    seen: list[str] = []

    async def begin() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1, seen.append, "timer")
        task = asyncio.create_task(asyncio.to_thread(seen.append, "thread"))
        await asyncio.sleep(2)
        await task
        seen.append("task")

    async def work(loop: SimulatedLoop) -> None:
        process = loop.process("one")
        process.start(begin(), "begin")
        process.pause()
        await asyncio.sleep(5)
        assert seen == []
        process.wake()
        await asyncio.sleep(5)

    run(1, work)
    assert sorted(seen) == ["task", "thread", "timer"]


def test_a_process_is_killed_between_two_of_its_steps() -> None:
    """After the given number of steps, whatever the next one is."""
    done: list[int] = []

    async def count() -> None:
        for number in range(100):
            done.append(number)
            await asyncio.sleep(0)

    async def work(loop: SimulatedLoop) -> None:
        process = loop.process("one")
        process.start(count(), "count")
        await asyncio.sleep(0)
        process.crashes_after(5, process.kill)
        await asyncio.sleep(1)

    run(1, work)
    assert 0 < len(done) <= 6


def order(seed: int) -> list[str]:
    seen: list[str] = []

    async def steps(name: str) -> None:
        for number in range(5):
            seen.append(f"{name}{number}")
            await asyncio.sleep(0)

    async def work(loop: SimulatedLoop) -> None:
        for name in "abc":
            loop.process(name).start(steps(name), name)
        await asyncio.sleep(1)

    run(seed, work)
    return seen


def test_the_seed_determines_the_order() -> None:
    """The same seed gives the same order; each process keeps its own order."""
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1
    for name in "abc":
        own = [each for each in order(3) if each.startswith(name)]
        assert own == [f"{name}{number}" for number in range(5)]


def test_an_endless_loop_is_detected() -> None:
    """Neither a busy loop nor a deadlock blocks a campaign."""

    async def spin(_loop: SimulatedLoop) -> None:
        while True:  # noqa: ASYNC110 - an endless loop is intended
            await asyncio.sleep(0)

    async def wait(_loop: SimulatedLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="without time"):
        run(1, spin)
    with pytest.raises(Stuck, match="no timer"):
        run(1, wait)


def test_unhandled_errors_are_recorded() -> None:
    """An error in a callback does not end the simulation, and is recorded."""

    async def work(loop: SimulatedLoop) -> None:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    assert "division" in str(run(1, work).failures[0]["exception"])
