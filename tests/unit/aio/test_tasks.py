"""Background tasks: named, bounded, with reported failures and an orderly close."""

import asyncio
import gc
import logging

import pytest
import uvloop

from restow.aio import (
    InvariantViolation,
    SimulatedClock,
    TaskFailure,
    Tasks,
    TasksClosed,
    TasksFull,
    UnexpectedCancellation,
    invariant,
)
from restow.aio.invariants import EXIT_CODE_INVARIANT
from restow.aio.tasks import FAILURES_KEPT_MAX


async def settle() -> None:
    await SimulatedClock().settle()


async def forever() -> None:
    await asyncio.Event().wait()


async def fail(message: str = "broken") -> None:
    raise LookupError(message)


async def violate() -> None:
    try:
        invariant(False, "two and two are five")
    except Exception:  # noqa: BLE001  (what a careless task edge does)
        return


async def test_tasks_are_named_after_their_owner() -> None:
    """A task's name begins with its owner, and an ended task is no longer listed."""
    async with Tasks("owner") as tasks:
        task = tasks.spawn("first", forever())
        tasks.spawn("second", asyncio.sleep(0))
        assert tasks.names() == ["owner/first", "owner/second"]
        await settle()
        assert tasks.names() == [task.name] == ["owner/first"]
    assert task.done()
    assert len(tasks) == 0


async def test_the_number_is_bounded() -> None:
    """One task more than the limit is rejected without a never-awaited warning."""
    async with Tasks("owner", tasks_max=1) as tasks:
        first = tasks.spawn("first", forever())
        with pytest.raises(TasksFull, match="owner cannot start second"):
            tasks.spawn("second", forever())
        gc.collect()
        first.cancel()
        await settle()
        tasks.spawn("third", forever())


async def test_work_that_has_begun_is_started_beyond_the_limit() -> None:
    """A write that was passed to the store must be finished, regardless of the number of tasks."""
    async with Tasks("owner", tasks_max=1) as tasks:
        tasks.spawn("first", forever())
        tasks.spawn("second", forever(), has_begun=True)
        assert len(tasks) == 2


async def test_a_closed_owner_starts_nothing() -> None:
    """After close no task is started, and closing again does nothing."""
    tasks = Tasks("owner")
    await tasks.close()
    await tasks.close()
    with pytest.raises(TasksClosed):
        tasks.spawn("late", forever())


async def test_a_failure_is_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The handler and the log get a failure with the task's name, and close does not raise."""
    failures: list[TaskFailure] = []
    async with Tasks("owner", on_failure=failures.append) as tasks:
        tasks.spawn("bad", fail())
        await settle()
    assert [(failure.name, type(failure.error)) for failure in failures] == [
        ("owner/bad", LookupError)
    ]
    assert "task owner/bad failed" in caplog.text


async def test_without_a_handler_close_raises() -> None:
    """Failures without a handler are raised by close, once, up to a limit."""
    tasks = Tasks("owner")
    for _ in range(FAILURES_KEPT_MAX + 5):
        tasks.spawn("bad", fail())
    await settle()
    with pytest.raises(ExceptionGroup, match="owner") as caught:
        await tasks.close()
    assert len(caught.value.exceptions) == FAILURES_KEPT_MAX
    await tasks.close()


async def test_a_failing_handler_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    """An error in the handler itself is logged and raised by close."""

    def handler(failure: TaskFailure) -> None:
        raise OSError(failure.name)

    tasks = Tasks("owner", on_failure=handler)
    tasks.spawn("bad", fail())
    await settle()
    with pytest.raises(ExceptionGroup) as caught:
        await tasks.close()
    assert caught.group_contains(OSError, match="owner/bad")
    assert "failure handler of task owner/bad failed" in caplog.text


async def test_the_body_error_goes_on() -> None:
    """An error in the body is not hidden behind the failure of a background task."""

    async def body() -> None:
        async with Tasks("owner") as tasks:
            tasks.spawn("bad", fail())
            await settle()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()


async def test_a_failure_while_closing_is_raised() -> None:
    """A task whose clean-up fails is reported, not considered cancelled."""

    async def bad_cleanup() -> None:
        try:
            await forever()
        finally:
            await fail("in clean-up")

    tasks = Tasks("owner")
    tasks.spawn("untidy", bad_cleanup())
    await settle()
    with pytest.raises(ExceptionGroup) as caught:
        await tasks.close()
    assert caught.group_contains(LookupError, match="in clean-up")


async def test_an_unexpected_cancellation_is_a_failure() -> None:
    """A task that ends because something it awaited was cancelled is reported."""
    failures: list[TaskFailure] = []
    lost = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await lost

    async with Tasks("owner", on_failure=failures.append) as tasks:
        tasks.spawn("waiter", wait())
        await settle()
        lost.cancel()
        await settle()
    assert [type(failure.error) for failure in failures] == [UnexpectedCancellation]


async def test_a_wanted_cancellation_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Cancelling a task, directly or by close, is its ordinary end."""
    async with Tasks("owner") as tasks:
        tasks.spawn("by hand", forever()).cancel()
        tasks.spawn("by close", forever())
        await settle()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_handle_stops_one_task() -> None:
    """Stopping a handle ends its task, including its clean-up, and no other."""
    clock = SimulatedClock()
    async with Tasks("owner") as tasks:
        one = tasks.spawn("one", forever())
        tasks.spawn("two", forever())
        await clock.run_until_done(one.stop())
        assert one.done()
        assert tasks.names() == ["owner/two"]
        await one.wait()


async def test_a_cancelled_waiter_leaves_the_task_running() -> None:
    """A deadline on waiting for a task does not cancel the task."""
    clock = SimulatedClock()

    async def wait_within(seconds: float) -> None:
        async with clock.timeout(seconds):
            await task.wait()

    async with Tasks("owner") as tasks:
        task = tasks.spawn("slow", clock.sleep(9))
        with pytest.raises(TimeoutError):
            await clock.run_until_done(wait_within(5))
        assert not task.done()
        await clock.run_until_done(task.wait())
        assert clock.monotonic() == 9


async def test_close_waits_for_clean_up() -> None:
    """Close returns only when every task's clean-up is done."""
    clock = SimulatedClock()
    cleaned: list[float] = []

    async def slow_cleanup() -> None:
        try:
            await forever()
        finally:
            await clock.sleep(3)
            cleaned.append(clock.monotonic())

    tasks = Tasks("owner")
    tasks.spawn("slow", slow_cleanup())
    await settle()
    await clock.run_until_done(tasks.close())
    assert cleaned == [3]


async def test_a_cancelled_closer_stops_waiting(caplog: pytest.LogCaptureFixture) -> None:
    """A deadline on close holds although a task does not end, and close may be called again."""
    clock = SimulatedClock()

    async def stubborn() -> None:
        try:
            await forever()
        finally:
            await clock.sleep(100)

    async def close_within(seconds: float) -> None:
        async with clock.timeout(seconds):
            await tasks.close()

    tasks = Tasks("owner")
    tasks.spawn("stubborn", stubborn())
    await settle()
    with pytest.raises(TimeoutError):
        await clock.run_until_done(close_within(5))
    assert clock.monotonic() == 5
    assert "still running: ['owner/stubborn']" in caplog.text
    assert tasks.names() == ["owner/stubborn"]
    await clock.advance(100)
    assert tasks.names() == []
    await tasks.close()


async def test_a_task_cannot_close_its_owner() -> None:
    """A task that closes its own owner gets an error instead of waiting for itself."""
    failures: list[TaskFailure] = []
    tasks = Tasks("owner", on_failure=failures.append)
    tasks.spawn("suicidal", tasks.close())
    await settle()
    assert isinstance(failures[0].error, RuntimeError)
    await tasks.close()


async def test_a_broken_invariant_is_fatal(caplog: pytest.LogCaptureFixture) -> None:
    """It passes a broad except, reaches the fatal hook at once, and close raises it itself."""
    seen: list[InvariantViolation] = []
    failures: list[TaskFailure] = []
    tasks = Tasks("owner", on_failure=failures.append, fatal=seen.append)
    tasks.spawn("bad", violate())
    await settle()
    assert [str(violation) for violation in seen] == ["two and two are five"]
    assert failures == []
    assert "task owner/bad broke an invariant" in caplog.text
    with pytest.raises(InvariantViolation):
        await tasks.close()


async def test_a_violation_inside_a_group_is_fatal() -> None:
    """It is also found when a task's own TaskGroup has wrapped it."""
    seen: list[InvariantViolation] = []

    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(violate())

    tasks = Tasks("owner", fatal=seen.append)
    tasks.spawn("bad", grouped())
    await settle()
    assert len(seen) == 1
    with pytest.raises(InvariantViolation):
        await tasks.close()


async def test_a_violation_wins_over_the_body_error() -> None:
    """An error of the body, which may be caught further up, does not hide a violation."""
    seen: list[InvariantViolation] = []

    async def body() -> None:
        async with Tasks("owner", fatal=seen.append) as tasks:
            tasks.spawn("bad", violate())
            await settle()
            raise ZeroDivisionError

    with pytest.raises(InvariantViolation):
        await body()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_by_default_a_violation_stops_the_loop(loop_factory: type) -> None:
    """Without a hook the loop ends with a non-zero exit code, on asyncio and on uvloop."""
    later: list[str] = []

    async def main() -> None:
        tasks = Tasks("owner")
        tasks.spawn("bad", violate())
        try:
            await forever()
        except Exception:  # noqa: BLE001
            later.append("swallowed")

    with (
        asyncio.Runner(loop_factory=loop_factory) as runner,
        pytest.raises(SystemExit) as caught,
    ):
        runner.run(main())
    assert caught.value.code == EXIT_CODE_INVARIANT
    assert isinstance(caught.value.__cause__, InvariantViolation)
    assert later == []


async def test_a_loop_that_fails_is_recorded() -> None:
    """Until it is started again; tasks that were cancelled or are no loops are not recorded."""
    failed: dict[str, str] = {}
    async with Tasks("owner", on_failure=lambda _: None, failed_loops=failed) as tasks:
        tasks.spawn("once", fail())
        stopped = tasks.spawn_loop("stopped", forever())
        tasks.spawn_loop("follow", fail("no such thing"))
        await stopped.stop()
        await settle()
        assert failed == {"owner/follow": "LookupError: no such thing"}
        tasks.spawn_loop("follow", forever())
        assert failed == {}
    assert failed == {}
