"""Steps on the event loop are measured, described when they are long, and logged at a limited
rate."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from restow.aio import SimulatedClock, Suspended, run_eagerly
from restow.aio.loop_steps import (
    LOG_INTERVAL_SECONDS,
    LOGGED_SECONDS,
    NAMED_SECONDS,
    OTHER,
    PERIOD_SECONDS,
    SERIES_MAX,
    LoopSteps,
    StepSubject,
)


class Rig:
    """Steps of which the test decides how long they take."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.steps = LoopSteps(self.clock.monotonic)
        self.kind = self.steps.kind(
            "get", lambda subject: StepSubject(f"{subject}", "json", "GET /x")
        )

    def step(self, seconds: float, subject: object = "pods") -> None:
        begin = self.clock.monotonic()
        self.clock.stall(seconds)
        self.steps.note(self.kind, begin, self.clock.monotonic(), subject)

    def counts(self, handler: str = "get") -> list[float]:
        """Returns the number of steps in each bucket."""
        for (name,), buckets, _ in self.steps.histogram():
            if name == handler:
                totals = [0.0, *(count for _, count in buckets)]
                return [b - a for a, b in pairwise(totals)]
        return []

    def longest(self) -> dict[tuple[str, ...], float]:
        return {labels: round(seconds, 6) for labels, seconds in self.steps.longest()}


def test_steps_are_counted_by_duration() -> None:
    """Each long step is in the first bucket whose bound it does not exceed, and the sum is
    theirs."""
    rig = Rig()
    for seconds in (0.0015, 0.0015, 0.03, 7.0):
        rig.step(seconds)
    assert rig.counts() == [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    [(_, _, total)] = [each for each in rig.steps.histogram() if each[0] == ("get",)]
    assert total == pytest.approx(7.033)


def test_an_inner_step_is_not_part_of_the_outer_one() -> None:
    """Time is attributed once, to the innermost measurement, at any depth."""
    rig = Rig()
    outer = rig.steps.kind("connection", lambda _: StepSubject())
    task = rig.steps.kind("stream", lambda _: StepSubject())
    rig.step(0.2)
    first = rig.clock.monotonic()
    rig.clock.stall(0.05)
    second = rig.clock.monotonic()
    rig.clock.stall(0.012)
    rig.step(0.3)
    rig.step(0.4)
    rig.clock.stall(0.012)
    rig.steps.note(outer, second, rig.clock.monotonic())
    rig.steps.note(task, first, rig.clock.monotonic())
    rig.steps.note(task, rig.clock.monotonic(), rig.clock.monotonic())
    found = rig.longest()
    assert found["get", "pods", "json"] == 0.4
    assert found["connection", "", ""] == 0.024
    assert found["stream", "", ""] == 0.05


def test_the_longest_step_is_forgotten_after_two_periods() -> None:
    """The gauge has the maximum of the current and the previous period, per set of labels, and no
    series for short steps."""
    rig = Rig()
    rig.step(NAMED_SECONDS / 2)
    assert rig.longest() == {}
    rig.step(0.2)
    rig.step(0.1)
    rig.step(0.03, "nodes")
    assert rig.longest() == {("get", "pods", "json"): 0.2, ("get", "nodes", "json"): 0.03}
    rig.clock.stall(PERIOD_SECONDS)
    rig.step(0.1)
    assert rig.longest() == {("get", "pods", "json"): 0.2, ("get", "nodes", "json"): 0.03}
    rig.clock.stall(PERIOD_SECONDS)
    assert rig.longest() == {("get", "pods", "json"): 0.1}
    rig.clock.stall(5 * PERIOD_SECONDS)
    assert rig.longest() == {}


def test_the_number_of_series_is_bounded() -> None:
    """More sets of labels than the limit count as one."""
    rig = Rig()
    for number in range(3 * SERIES_MAX):
        rig.step(0.02, f"resource-{number}")
    found = rig.longest()
    assert len(found) == SERIES_MAX + 1
    assert found[OTHER, "", ""] == 0.02


def test_long_steps_are_logged_at_a_limited_rate(caplog: pytest.LogCaptureFixture) -> None:
    """One line in an interval, with the route; the next one has the number of those left out. A
    step below the limit is not logged."""
    rig = Rig()
    with caplog.at_level(logging.WARNING):
        rig.step(LOGGED_SECONDS - 0.001)
        assert caplog.messages == []
        for _ in range(5):
            rig.step(0.06)
        assert caplog.messages == ["the event loop was blocked for 60 ms by get GET /x"]
        rig.clock.stall(LOG_INTERVAL_SECONDS)
        rig.step(0.3)
    assert caplog.messages[1:] == [
        "the event loop was blocked for 300 ms by get GET /x (4 more long steps were not logged)"
    ]


async def test_each_step_of_a_task_is_measured() -> None:
    """Tasks, also those of a task group, are measured from one await to the next, and named by
    their owner; results, errors and cancellation are unchanged."""
    rig = Rig()
    loop = asyncio.get_running_loop()
    rig.steps.measure_tasks(loop)

    async def work(seconds: float) -> float:
        rig.clock.stall(seconds)
        await asyncio.sleep(0)
        rig.clock.stall(2 * seconds)
        return seconds

    async def fail() -> None:
        await work(0.3)
        raise ValueError("as expected")

    async def wait() -> None:
        await asyncio.Event().wait()

    try:
        named = loop.create_task(work(0.02), name="controllers/namespaces")
        assert await named == 0.02
        async with asyncio.TaskGroup() as group:
            found = group.create_task(work(0.1))
        assert found.result() == 0.1
        with pytest.raises(ValueError, match="as expected"):
            await loop.create_task(fail())
        waiting, never_begun = loop.create_task(wait()), loop.create_task(wait())
        never_begun.cancel()
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting, never_begun})
        assert waiting.cancelled()
        assert never_begun.cancelled()
        assert "work" in repr(named)
    finally:
        loop.set_task_factory(None)
    assert rig.longest() == {("task", "controllers", ""): 0.04, ("task", OTHER, ""): 0.6}


async def test_the_steps_of_a_suspended_coroutine_are_measured() -> None:
    """Whether a task takes it over or it is resumed by its future, each long step is measured and
    attributed to its subject, and the task that awaits it is not charged."""
    rig = Rig()
    loop = asyncio.get_running_loop()
    rig.steps.measure_tasks(loop)
    first, second = loop.create_future(), loop.create_future()

    async def work() -> str:
        await first
        rig.clock.stall(0.02)
        await second
        rig.clock.stall(0.04)
        return "done"

    def begin() -> Suspended[str]:
        result = run_eagerly(work())
        assert isinstance(result, Suspended)
        return result.measured_by(rig.steps, rig.kind, "pods")

    try:
        resumed, awaited = begin(), begin()

        async def run() -> str:
            return await awaited

        task = loop.create_task(run(), name="listener/x")
        await asyncio.sleep(0)
        first.set_result(None)
        again = resumed.resume()
        assert isinstance(again, Suspended)
        assert rig.longest() == {("get", "pods", "json"): 0.02}
        second.set_result(None)
        assert again.resume() == "done"
        assert await task == "done"
    finally:
        loop.set_task_factory(None)
    # The awaited one found both futures done, and took one step.
    assert rig.longest() == {("get", "pods", "json"): 0.06}
    assert sum(rig.counts()) == 3
    assert sum(rig.counts("task")) == 0
