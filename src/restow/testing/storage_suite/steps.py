"""Helpers for tests of a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from restow.aio import SeededRandomness, SystemClock
from restow.storage.feed import RevisionEvents
from restow.storage.interface import (
    EVERYTHING,
    OPERATIONS_MAX,
    Batch,
    Delete,
    Done,
    Guard,
    Item,
    Key,
    Outcome,
    Put,
    Refused,
    Revision,
    Span,
    Storage,
    Transaction,
    Watch,
    Write,
)
from restow.testing.history import History, Recorder, log_of
from restow.testing.watch_checks import WatchRecord, check_watch

WAIT_SECONDS_MAX: Final = 20.0
"""Timeout of a watch: if no event comes for longer, events were lost."""

WATCHES_AT_ONCE: Final = 50

CLOCK: Final = SystemClock()

TEST_PREFIX: Final = "/t/"
TEST_SPAN: Final = Span.of_prefix(TEST_PREFIX)


def k(name: str) -> Key:
    """A key under the suite's prefix."""
    return Key(TEST_PREFIX + name)


class CommitTarget(Protocol):
    """A store, or a recorder of one."""

    async def commit(self, transaction: Transaction) -> Outcome: ...


async def commit(storage: CommitTarget, *writes: Write, guards: tuple[Guard, ...] = ()) -> Revision:
    """Commit a transaction that must succeed; return its revision."""
    outcome = await storage.commit(Transaction(guards, writes))
    assert isinstance(outcome, Done), outcome
    return outcome.revision


async def put(storage: CommitTarget, name: str, value: bytes = b"value") -> Revision:
    return await commit(storage, Put(k(name), value))


async def delete(storage: CommitTarget, name: str) -> Revision:
    return await commit(storage, Delete(k(name)))


async def refuse(storage: CommitTarget, *writes: Write, guards: tuple[Guard, ...]) -> Refused:
    """Commit a transaction that must be refused; return the outcome."""
    outcome = await storage.commit(Transaction(guards, writes))
    assert isinstance(outcome, Refused), outcome
    return outcome


async def fill(storage: Storage, items: dict[str, bytes]) -> Revision:
    """Put many keys, several to a commit; return the last revision."""
    revision = await storage.revision()
    writes = [Put(k(name), value) for name, value in items.items()]
    while writes:
        size, some = 0, list[Put]()
        while writes and len(some) < OPERATIONS_MAX and size + len(writes[0].value) < 1_000_000:
            size += len(writes[0].value)
            some.append(writes.pop(0))
        revision = await commit(storage, *some)
    return revision


async def contents(storage: Storage, revision: Revision | None = None) -> dict[str, bytes]:
    """All items that the store holds under the suite's prefix, by short name."""
    page = await storage.range(TEST_SPAN, revision=revision)
    return {item.key.removeprefix(TEST_PREFIX): item.value for item in page.items}


async def next_batch(watch: Watch) -> Batch:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await anext(watch)


async def collect(watch: Watch, upto: Revision) -> list[Batch]:
    """Read a watch until it has reached `upto`."""
    watch.expect(upto)
    batches = [await next_batch(watch)]
    while batches[-1].revision < upto:
        batches.append(await next_batch(watch))
    return batches


async def record(storage: Storage, span: Span, *, after: Revision, upto: Revision) -> WatchRecord:
    """Open a watch, read it up to `upto`, and close it."""
    watch = storage.watch(span, after=after)
    try:
        return WatchRecord(span, after, await collect(watch, upto))
    finally:
        await watch.close()


async def record_all(
    storage: Storage, asked: Iterable[tuple[Span, Revision]], *, upto: Revision
) -> list[WatchRecord]:
    """Record many watches, several at a time."""
    turns = asyncio.Semaphore(WATCHES_AT_ONCE)

    async def record_one(span: Span, after: Revision) -> WatchRecord:
        async with turns:
            return await record(storage, span, after=after, upto=upto)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(record_one(span, after)) for span, after in asked]
    return [task.result() for task in tasks]


def assert_complete(seen: WatchRecord, log: list[RevisionEvents], upto: Revision) -> None:
    """Assert the nine properties, and that the watch has reached `upto`."""
    assert seen.upto >= upto
    assert check_watch(seen, log) == []


async def let_others_run(rounds: int = 20) -> None:
    """Let every ready task run; does not wait for anything outside of this process."""
    for _ in range(rounds):
        await CLOCK.sleep(0)


async def recorder_of(storage: Storage) -> Recorder:
    """Begin a history with the current contents of the store."""
    page = await storage.range(EVERYTHING)
    return Recorder(storage, History(page.revision, page.items))


async def random_history(
    recorder: Recorder, *, commits: int, seed: int | str = "history"
) -> list[RevisionEvents]:
    """Make random commits under two prefixes; return the log so far.

    There are few keys, so most are created, changed, deleted and created again.
    """
    randomness = SeededRandomness(seed)
    names = [f"{prefix}/{number}" for prefix in ("a", "b") for number in range(4)]
    for _ in range(commits):
        randomness.shuffle(names)
        writes: list[Write] = []
        for name in names[: 1 + randomness.randrange(3)]:
            if randomness.randrange(3):
                writes.append(Put(k(name), b"%d" % randomness.randrange(3)))
            else:
                writes.append(Delete(k(name)))
        await recorder.commit(Transaction(writes=tuple(writes)))
        await let_others_run(1)  # a store in memory would not
    return log_of(recorder.history)


@asynccontextmanager
async def opened_watch(storage: Storage, span: Span, *, after: Revision) -> AsyncIterator[Watch]:
    watch = storage.watch(span, after=after)
    try:
        yield watch
    finally:
        await watch.close()


def item(name: str, value: bytes, revision: int, created: int | None = None) -> Item:
    made = revision if created is None else created
    return Item(k(name), value, Revision(revision), Revision(made))
