"""The work queue of keys, by examples and compared with a simple model."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import (
    Backoff,
    QueueClosed,
    QueueFull,
    SeededRandomness,
    SimulatedClock,
    WorkQueue,
)

DOUBLING = Backoff(initial_seconds=1, factor=2, max_seconds=8, jitter=0)


def make(clock: SimulatedClock | None = None, *, keys_max: int = 100) -> WorkQueue[str]:
    return WorkQueue(
        "keys",
        clock=clock or SimulatedClock(),
        randomness=SeededRandomness(1),
        retry_backoff=DOUBLING,
        keys_max=keys_max,
    )


async def test_a_key_waits_once() -> None:
    """Adding a queued key changes nothing; keys are returned in order of their first addition."""
    queue = make()
    for key in "abab":
        queue.add(key)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_in_work_is_not_returned_again() -> None:
    """A key that is added while in work is returned after done, exactly once."""
    queue = make()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done(key)
    assert len(queue) == 1
    queue.done(await queue.get())
    assert len(queue) == 0


async def test_done_without_get_is_a_mistake() -> None:
    """Ending work that was not started is rejected."""
    queue = make()
    queue.add("a")
    for key in ("a", "b"):
        with pytest.raises(ValueError, match="not in work"):
            queue.done(key)


async def test_add_after_keeps_the_earliest() -> None:
    """Of several delays of one key the shortest applies, once."""
    clock = SimulatedClock()
    queue = make(clock)
    for seconds in (5, 2, 9):
        queue.add_after("a", seconds)
    await clock.advance(1.9)
    assert len(queue) == 0
    await clock.advance(0.1)
    assert len(queue) == 1
    queue.done(await queue.get())
    await clock.advance(60)
    assert len(queue) == 0


async def test_add_after_wakes_a_waiting_worker() -> None:
    """A waiting worker gets a delayed key at its deadline."""
    clock = SimulatedClock()
    queue = make(clock)
    queue.add_after("a", 3)
    assert await clock.run_until_done(queue.get()) == "a"
    assert clock.monotonic() == 3


async def test_retry_backs_off_per_key() -> None:
    """Each failure of a key doubles its delay up to the limit; forget resets it; keys are
    separate."""
    clock = SimulatedClock()
    queue = make(clock)
    delays = []
    for _ in range(5):
        delays.append(queue.retry("a"))
        await clock.advance(delays[-1])
        queue.done(await queue.get())
    assert delays == [1, 2, 4, 8, 8]
    assert (queue.failures("a"), queue.failures("b")) == (5, 0)
    assert queue.retry("b") == 1
    queue.forget("a")
    queue.forget("never seen")
    assert queue.retry("a") == 1


async def test_the_limit_counts_all_that_is_known() -> None:
    """Queued, delayed, in-work and failed keys count; a known key may always be added again."""
    clock = SimulatedClock()
    queue = make(clock, keys_max=3)
    queue.add("work")
    await queue.get()
    queue.add("wait")
    queue.retry("fail")
    for refused in (queue.add, queue.retry, lambda key: queue.add_after(key, 1)):
        with pytest.raises(QueueFull, match="3 of 3"):
            refused("new")
    queue.add("work")
    queue.add("wait")
    await clock.advance(1)
    queue.done("work")
    for _ in range(3):
        queue.done(await queue.get())
    assert list(queue._entries) == ["fail"]
    queue.forget("fail")
    assert not queue._entries


async def test_close_drains_then_ends() -> None:
    """After close queued keys are still returned, delayed ones are dropped, workers end."""
    clock = SimulatedClock()
    queue = make(clock)
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await clock.settle()
    queue.add("a")
    queue.add_after("b", 1)
    queue.retry("c")
    queue.close()
    queue.add("d")
    queue.add_after("e", 1)
    assert queue.retry("f") == 0
    await clock.advance(60)
    assert workers[0].result() == "a"
    assert [type(worker.exception()) for worker in workers[1:]] == [QueueClosed] * 2
    assert clock.next_deadline() is None
    queue.done("a")


@dataclass
class Model:
    """A simple model of the work queue: lists, and a check of each key."""

    now: float = 0
    queue: list[str] = field(default_factory=list)
    in_work: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    delayed: list[tuple[float, int, str]] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    arrivals: int = 0

    def add(self, key: str) -> None:
        if key in self.in_work:
            if key not in self.again:
                self.again.append(key)
        elif key not in self.queue:
            self.queue.append(key)

    def add_after(self, key: str, seconds: float) -> None:
        deadline = self.now + seconds
        if seconds <= 0:
            self.add(key)
        elif not any(other == key and at <= deadline for at, _, other in self.delayed):
            self.arrivals += 1
            self.delayed = [entry for entry in self.delayed if entry[2] != key]
            self.delayed.append((deadline, self.arrivals, key))

    def retry(self, key: str) -> None:
        count = self.failures.get(key, 0)
        self.failures[key] = count + 1
        self.add_after(key, min(2**count, 8))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for entry in sorted(self.delayed):
            if entry[0] <= self.now:
                self.delayed.remove(entry)
                self.add(entry[2])

    def get(self) -> str:
        self.in_work.append(self.queue.pop(0))
        return self.in_work[-1]

    def done(self, key: str) -> None:
        self.in_work.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.queue.append(key)


OPERATIONS = ["add", "add_after", "retry", "forget", "get", "done", "advance"]
STEPS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.sampled_from("abcd"), st.integers(0, 9)),
    max_size=80,
)


@given(STEPS)
def test_the_work_queue_is_equal_to_the_model(steps: list[tuple[str, str, int]]) -> None:
    """For any sequence of operations the queue returns the same keys as the model."""
    asyncio.run(compare_with_the_model(steps))


async def compare_with_the_model(steps: list[tuple[str, str, int]]) -> None:
    clock, model = SimulatedClock(), Model()
    queue = make(clock)
    for operation, key, number in steps:
        match operation:
            case "add":
                queue.add(key)
                model.add(key)
            case "add_after":
                queue.add_after(key, number)
                model.add_after(key, number)
            case "retry":
                queue.retry(key)
                model.retry(key)
            case "forget":
                queue.forget(key)
                model.failures.pop(key, None)
            case "get" if model.queue:
                assert await queue.get() == model.get()
            case "done" if key in model.in_work:
                queue.done(key)
                model.done(key)
            case "advance":
                await clock.advance(number)
                model.advance(number)
            case _:
                pass
        assert list(queue._ready) == model.queue
        assert queue.failures(key) == model.failures.get(key, 0)
        known = {*model.queue, *model.in_work, *model.failures, *(k for _, _, k in model.delayed)}
        assert set(queue._entries) == known
