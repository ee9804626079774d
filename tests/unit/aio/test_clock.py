"""The simulated clock advances only on request; the system clock is real."""

import asyncio
import inspect
from datetime import UTC, timedelta

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import Clock, SimulatedClock, SystemClock
from restow.aio.clock import CANCELLED_TIMERS_MAX, SIMULATED_START

SECONDS = st.integers(0, 2_000).map(lambda thousandths: thousandths / 1_000)


async def note_after(clock: Clock, seconds: float, log: list[object], entry: object) -> None:
    await clock.sleep(seconds)
    log.append(entry)


@given(st.lists(SECONDS.filter(bool), max_size=20), st.lists(SECONDS, max_size=6))
def test_sleepers_wake_in_deadline_order(sleeps: list[float], advances: list[float]) -> None:
    """For any steps of time, sleepers wake in deadline order, ties by arrival, none late."""

    async def scenario() -> None:
        clock = SimulatedClock()
        woken: list[object] = []
        async with asyncio.TaskGroup() as group:
            for index, seconds in enumerate(sleeps):
                group.create_task(note_after(clock, seconds, woken, (seconds, index)))
            passed_thousandths = 0
            for seconds in advances:
                await clock.advance(seconds)
                passed_thousandths += round(seconds * 1_000)
                due = [(s, i) for i, s in enumerate(sleeps) if s * 1_000 <= passed_thousandths]
                assert woken == sorted(due)
            await clock.run_until_idle()
        assert woken == sorted((seconds, index) for index, seconds in enumerate(sleeps))

    asyncio.run(scenario())


async def test_each_wake_up_sees_its_own_moment() -> None:
    """A sleeper that wakes during an advance reads its deadline, not the end of the advance."""
    clock = SimulatedClock()
    moments: list[float] = []

    async def tick() -> None:
        for _ in range(3):
            await clock.sleep(0.1)
            moments.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await clock.advance(1)
    assert moments == [0.1, 0.2, 0.3]
    assert clock.monotonic() == 1
    await task


async def test_advance_lets_chains_of_tasks_finish() -> None:
    """Tasks that need many iterations of the loop are done before advance returns."""
    clock = SimulatedClock()

    async def chain() -> str:
        await clock.sleep(1)
        for _ in range(1_000):
            await clock.sleep(0)
        return "done"

    task = asyncio.create_task(chain())
    await clock.advance(1)
    assert task.done()
    assert task.result() == "done"


async def test_settle_names_a_busy_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that never waits is reported instead of blocking the test."""
    monkeypatch.setattr("restow.aio.clock.SETTLE_ROUNDS_MAX", 50)
    clock = SimulatedClock()

    async def spin() -> None:
        while True:
            await clock.sleep(0)

    task = asyncio.create_task(spin())
    with pytest.raises(RuntimeError, match="still ready"):
        await clock.settle()
    task.cancel()


async def test_time_does_not_go_back() -> None:
    """A negative advance is rejected."""
    with pytest.raises(ValueError, match="cannot decrease"):
        await SimulatedClock().advance(-1)


async def test_skewed_clocks_share_one_timeline() -> None:
    """Clocks of one timeline agree on durations and differ in wall time by their skew."""
    clock = SimulatedClock()
    behind = clock.skewed(-30)
    await behind.advance(10)
    assert clock.monotonic() == behind.monotonic() == 10
    assert clock.wall() == SIMULATED_START + timedelta(seconds=10)
    assert behind.wall() == SIMULATED_START - timedelta(seconds=20)
    behind.skew_seconds = 3_600
    assert behind.wall() - clock.wall() == timedelta(hours=1)


async def test_timeout_raises_at_its_deadline() -> None:
    """A body that takes too long ends with TimeoutError exactly at the deadline."""
    clock = SimulatedClock()

    async def slow() -> float:
        with pytest.raises(TimeoutError):
            async with clock.timeout(2):
                await clock.sleep(5)
        return clock.monotonic()

    assert await clock.run_until_done(slow()) == 2
    assert clock.next_deadline() is None


@pytest.mark.parametrize("seconds", [5, None])
async def test_timeout_leaves_a_quick_body_alone(seconds: float | None) -> None:
    """A body that ends in time is not disturbed, then or later."""
    clock = SimulatedClock()

    async def quick() -> str:
        async with clock.timeout(seconds):
            await clock.sleep(1)
        await clock.sleep(10)
        return "undisturbed"

    assert await clock.run_until_done(quick()) == "undisturbed"


@pytest.mark.parametrize("seconds", [0, -1])
async def test_timeout_already_over(seconds: float) -> None:
    """Without time remaining the first await raises, without any advance."""
    clock = SimulatedClock()
    with pytest.raises(TimeoutError):
        async with clock.timeout(seconds):
            await asyncio.Event().wait()


async def test_timeout_passes_cancellation_on() -> None:
    """A body cancelled from outside ends cancelled, not timed out."""
    clock = SimulatedClock()

    async def body() -> None:
        async with clock.timeout(5):
            await clock.sleep(60)

    task = asyncio.create_task(body())
    await clock.advance(1)
    task.cancel()
    await clock.advance(10)
    assert task.cancelled()
    assert clock.next_deadline() is None


async def test_inner_timeout_is_distinguished_from_outer() -> None:
    """Of two nested deadlines only the one that has expired raises."""
    clock = SimulatedClock()

    async def nested() -> list[str]:
        seen = []
        async with clock.timeout(10):
            try:
                async with clock.timeout(1):
                    await clock.sleep(60)
            except TimeoutError:
                seen.append("inner")
            await clock.sleep(2)
        return seen

    assert await clock.run_until_done(nested()) == ["inner"]


async def test_call_later_and_cancel() -> None:
    """A callback runs once at its deadline, and never after it was cancelled."""
    clock = SimulatedClock()
    ran: list[str] = []
    clock.call_later(1, lambda: ran.append("kept"))
    dropped = clock.call_later(1, lambda: ran.append("dropped"))
    clock.call_later(0, lambda: ran.append("now"))
    dropped.cancel()
    dropped.cancel()
    await clock.advance(0)
    assert ran == ["now"]
    await clock.advance(5)
    assert ran == ["now", "kept"]


def test_fire_next_drives_time_without_a_loop() -> None:
    """fire_next advances to the earliest timer, for an event loop that owns the clock."""
    clock = SimulatedClock()
    ran: list[float] = []
    for seconds in (3, 1):
        clock.call_later(seconds, lambda: ran.append(clock.monotonic()))
    assert clock.next_deadline() == 1
    assert clock.fire_next()
    assert clock.fire_next()
    assert not clock.fire_next()
    assert ran == [1, 3]


def test_cancelled_timers_do_not_pile_up() -> None:
    """Cancelled timers are dropped early, and the others are kept."""
    clock = SimulatedClock()
    ran: list[str] = []
    clock.call_later(5, lambda: ran.append("kept"))
    for _ in range(CANCELLED_TIMERS_MAX * 3):
        clock.call_later(1_000, lambda: None).cancel()
    assert len(clock._timeline._heap) <= CANCELLED_TIMERS_MAX + 1
    assert clock.fire_next()
    assert not clock.fire_next()
    assert ran == ["kept"]


async def test_run_until_done_gives_up() -> None:
    """An awaitable that never ends is cancelled and reported at the limit, or without timers."""
    clock = SimulatedClock()

    async def forever() -> None:
        while True:
            await clock.sleep(1)

    with pytest.raises(TimeoutError, match="within 10 simulated"):
        await clock.run_until_done(forever(), seconds_max=10)
    assert clock.monotonic() == 10
    with pytest.raises(TimeoutError):
        await clock.run_until_done(asyncio.Event().wait())


async def test_run_until_done_raises_the_error_of_the_body() -> None:
    """The error of the awaited coroutine is raised unchanged."""
    clock = SimulatedClock()

    async def fail() -> None:
        await clock.sleep(1)
        raise LookupError

    with pytest.raises(LookupError):
        await clock.run_until_done(fail())


async def test_run_until_idle_gives_up() -> None:
    """A periodic sleeper is never idle, which is reported at the limit."""
    clock = SimulatedClock()

    async def forever() -> None:
        while True:
            await clock.sleep(1)

    task = asyncio.create_task(forever())
    with pytest.raises(TimeoutError):
        await clock.run_until_idle(seconds_max=10)
    task.cancel()


def test_simulated_clock_on_uvloop() -> None:
    """On a loop without a visible ready queue, sleeps and deadlines still work."""

    async def scenario() -> float:
        clock = SimulatedClock()
        with pytest.raises(TimeoutError):
            await clock.run_until_done(deadline_of(clock))
        return clock.monotonic()

    async def deadline_of(clock: Clock) -> None:
        async with clock.timeout(2):
            await clock.sleep(5)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scenario()) == 2


async def test_system_clock_is_real() -> None:
    """The system clock returns aware UTC and never decreases; sleeps of zero return."""
    clock = SystemClock()
    assert clock.wall().tzinfo is UTC
    before = clock.monotonic()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() >= before
    ran = asyncio.Event()
    clock.call_later(-1, ran.set)
    async with clock.timeout(None):
        await ran.wait()
    with pytest.raises(TimeoutError):
        async with clock.timeout(0):
            await asyncio.Event().wait()


def test_both_clocks_are_clocks() -> None:
    """Both implementations satisfy the Protocol, for the type checker."""
    clocks: list[Clock] = [SystemClock(), SimulatedClock()]
    assert all(inspect.iscoroutinefunction(clock.sleep) for clock in clocks)
