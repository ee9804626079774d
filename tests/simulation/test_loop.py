"""The loop of the simulator: processes, time, and an order that the seed decides."""

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


def test_time_passes_when_nobody_runs() -> None:
    """An hour is over in no time, and deadlines come in their order."""
    seen: list[tuple[float, str]] = []

    async def work(loop: SimulatedLoop) -> None:
        async def sleep(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            seen.append((loop.time(), name))

        await asyncio.gather(sleep(3600, "late"), sleep(1, "soon"), sleep(0, "now"))

    run(1, work)
    assert seen == [(0.0, "now"), (1.0, "soon"), (3600.0, "late")]


def test_a_paused_process_makes_no_step_and_a_dead_one_never_again() -> None:
    """What becomes ready meanwhile waits; what was asked for outside goes on."""
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


def test_what_a_task_begins_belongs_to_its_process() -> None:
    """Tasks, timers and what is handed to a thread stand still with it."""
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


def test_a_process_dies_between_two_of_its_steps() -> None:
    """After as many as was said, whatever it was about to do."""
    done: list[int] = []

    async def count() -> None:
        for number in range(100):
            done.append(number)
            await asyncio.sleep(0)

    async def work(loop: SimulatedLoop) -> None:
        process = loop.process("one")
        process.start(count(), "count")
        await asyncio.sleep(0)
        process.dies_after(5, process.kill)
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


def test_the_seed_decides_who_goes_first() -> None:
    """The same seed, the same order; within a process always that of its own."""
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1
    for name in "abc":
        own = [each for each in order(3) if each.startswith(name)]
        assert own == [f"{name}{number}" for number in range(5)]


def test_a_world_that_goes_round_in_circles_is_stuck() -> None:
    """Neither an endless loop nor a wait for nothing holds up a campaign."""

    async def spin(_loop: SimulatedLoop) -> None:
        while True:  # noqa: ASYNC110 - that is what it is about
            await asyncio.sleep(0)

    async def wait(_loop: SimulatedLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="without time"):
        run(1, spin)
    with pytest.raises(Stuck, match="no timer"):
        run(1, wait)


def test_what_nobody_catches_is_kept() -> None:
    """An error in a callback does not end the world, and is not lost."""

    async def work(loop: SimulatedLoop) -> None:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    assert "division" in str(run(1, work).failures[0]["exception"])
