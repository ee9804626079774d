"""Leader election by a key of the store."""

import asyncio
from dataclasses import dataclass, field

import orjson
import pytest

from restow.aio import Runtime, SimulatedClock
from restow.aio.leader_election import LeaderElector
from restow.controllers.store_lock import LOCKS_PREFIX, store_elector
from restow.storage.errors import Unavailable
from restow.storage.interface import Delete, Done, Key, Outcome, Put, Transaction, Unknown
from restow.storage.memory import MemoryStorage

KEY = Key(f"{LOCKS_PREFIX}work")


class UnreliableStorage(MemoryStorage):
    """A store whose commits can fail, or succeed without a response."""

    fails = False
    loses_answers = False

    async def commit(self, transaction: Transaction) -> Outcome:
        if self.fails:
            raise Unavailable("disconnected")
        outcome = await super().commit(transaction)
        if self.loses_answers and isinstance(outcome, Done):
            return Unknown("the response was lost")
        return outcome


@dataclass
class Worker:
    """A candidate that records its work."""

    elector: LeaderElector
    runtime: Runtime
    log: list[str] = field(default_factory=list)

    async def work(self) -> None:
        self.log.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            self.log.append("ended")

    @property
    def works(self) -> bool:
        return bool(self.log) and self.log[-1] == "began"


def make(storage: MemoryStorage, clock: SimulatedClock, name: str) -> Worker:
    runtime = Runtime.simulated(name, clock=clock)
    elector = store_elector(storage, runtime, name="work", identity=name, lease_seconds=15)
    return Worker(elector, runtime)


async def test_only_one_works_and_another_follows_a_clean_stop() -> None:
    """The second server starts soon after the first has stopped, and never before."""
    storage, clock = MemoryStorage(), SimulatedClock()
    first, second = make(storage, clock, "a"), make(storage, clock, "b")
    tasks = first.runtime.tasks("test")
    running = tasks.spawn("a", first.elector.run(first.work))
    await clock.advance(1)
    tasks.spawn("b", second.elector.run(second.work))
    await clock.advance(120)
    assert (first.works, second.works) == (True, False)
    await running.stop()
    assert first.log == ["began", "ended"]
    assert await storage.get(KEY) is None
    await clock.advance(6)
    assert second.works
    assert second.elector.is_leading
    await tasks.close()


async def test_the_lock_of_an_expired_server_is_taken_over_after_the_duration() -> None:
    """A key without renewals is taken over after it was observed for the whole duration."""
    storage, clock = MemoryStorage(), SimulatedClock()
    await storage.commit(Transaction((), (Put(KEY, b'{"holder":"dead","beat":7}'),)))
    worker = make(storage, clock, "a")
    tasks = worker.runtime.tasks("test")
    tasks.spawn("a", worker.elector.run(worker.work))
    await clock.advance(14.9)
    assert worker.log == []
    await clock.advance(1)
    assert worker.works
    await tasks.close()


@pytest.mark.parametrize("value", [b"", b"[]", b'{"holder":3}', b"\xff"])
async def test_a_broken_value_is_taken_over_too(value: bytes) -> None:
    """An unreadable value is taken over after the duration."""
    storage, clock = MemoryStorage(), SimulatedClock()
    await storage.commit(Transaction((), (Put(KEY, value),)))
    worker = make(storage, clock, "a")
    tasks = worker.runtime.tasks("test")
    tasks.spawn("a", worker.elector.run(worker.work))
    await clock.advance(16)
    assert worker.works
    await tasks.close()


async def test_a_server_that_cannot_renew_stops_before_another_may_begin() -> None:
    """A disconnected holder stops its work within the duration, and contends again later."""
    storage, clock = UnreliableStorage(), SimulatedClock()
    worker = make(storage, clock, "a")
    tasks = worker.runtime.tasks("test")
    tasks.spawn("a", worker.elector.run(worker.work))
    await clock.advance(1)
    storage.fails = True
    await clock.advance(14)
    assert worker.log == ["began", "ended"]
    storage.fails = False
    await clock.advance(16)
    assert worker.works
    await tasks.close()


async def test_a_renewal_with_a_lost_reply_is_recognised() -> None:
    """An unknown outcome does not lose the lock: the next attempt reads its own identity."""
    storage, clock = UnreliableStorage(), SimulatedClock()
    worker = make(storage, clock, "a")
    tasks = worker.runtime.tasks("test")
    tasks.spawn("a", worker.elector.run(worker.work))
    await clock.advance(1)
    storage.loses_answers = True
    await clock.advance(7)
    storage.loses_answers = False
    await clock.advance(60)
    assert worker.log == ["began"]
    await tasks.close()


async def test_a_stolen_lock_ends_the_work() -> None:
    """The leader detects another holder at its next renewal, and contends again."""
    storage, clock = MemoryStorage(), SimulatedClock()
    worker = make(storage, clock, "a")
    tasks = worker.runtime.tasks("test")
    tasks.spawn("a", worker.elector.run(worker.work))
    await clock.advance(1)
    await storage.commit(Transaction((), (Put(KEY, orjson.dumps({"holder": "b"})),)))
    await clock.advance(8)
    assert worker.log == ["began", "ended"]
    item = await storage.get(KEY)
    assert item is not None, "a lock of another process is not released"
    await tasks.close()


async def test_a_lock_that_was_deleted_starts_the_work_again() -> None:
    """Only the leader deletes its key: if it is missing, the store was replaced or emptied, and the
    work must start again."""
    storage, clock = MemoryStorage(), SimulatedClock()
    worker = make(storage, clock, "a")
    tasks = worker.runtime.tasks("test")
    tasks.spawn("a", worker.elector.run(worker.work))
    await clock.advance(1)
    await storage.commit(Transaction((), (Delete(KEY),)))
    await clock.advance(12)
    assert worker.log == ["began", "ended", "began"]
    await tasks.close()


async def test_the_lock_is_released_when_the_work_ends() -> None:
    """The end of the work, with or without an error, releases the lock; the error is raised."""
    storage, clock = MemoryStorage(), SimulatedClock()
    worker = make(storage, clock, "a")

    async def good() -> None:
        assert await storage.get(KEY) is not None

    async def bad() -> None:
        raise ValueError("no")

    await worker.elector.run(good)
    assert await storage.get(KEY) is None
    with pytest.raises(ValueError, match="no"):
        await worker.elector.run(bad)
    assert await storage.get(KEY) is None
    assert not worker.elector.is_leading


async def test_a_holder_that_is_known_to_have_ended_is_not_waited_for() -> None:
    """The lock of an ended holder is free at once; that of another one is not."""
    storage, clock = MemoryStorage(), SimulatedClock()
    await storage.commit(Transaction((), (Put(KEY, b'{"holder":"dead","beat":7}'),)))
    worker = make(storage, clock, "a")
    worker.elector.note_gone(frozenset({"other"}))
    tasks = worker.runtime.tasks("test")
    running = tasks.spawn("a", worker.elector.run(worker.work))
    await clock.advance(1)
    assert worker.log == []
    await running.stop()
    worker.elector.note_gone(frozenset({"dead"}))
    tasks.spawn("b", worker.elector.run(worker.work))
    await clock.advance(0.1)
    assert worker.works
    await tasks.close()
