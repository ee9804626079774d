"""The work in one event loop iteration is limited by bytes, not only by rows."""

import asyncio
from pathlib import Path
from typing import Self

from restow.aio import Runtime
from restow.storage.feed import Chunk
from restow.storage.interface import (
    EVERYTHING,
    Absent,
    Delete,
    Done,
    Key,
    Put,
    Refused,
    Revision,
    Span,
    Transaction,
)
from restow.storage.sqlite import SqliteStorage, open_sqlite, writer
from restow.storage.sqlite.batch import work_of_event
from restow.storage.sqlite.file_setup import READER_CACHE_KIB, connect
from restow.storage.sqlite.reader import LOG_REVISIONS_MAX, LOG_WORK, read_changes

LARGE_BYTES = 1_000_000
LARGE_COUNT = 24
SECONDS_MAX = 30


def key_of(number: int) -> Key:
    return Key(f"/restow/large/{number:03}")


async def fill(storage: SqliteStorage) -> None:
    for number in range(LARGE_COUNT):
        put = Put(key_of(number), b"v" * LARGE_BYTES)
        assert isinstance(await storage.commit(Transaction((), (put,))), Done)


class Turns:
    """Counts how often other tasks run."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run())
        await asyncio.sleep(0)
        self.count = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()


async def test_large_values(tmp_path: Path) -> None:
    """A range or an old watch yields to the loop after every one or two large values."""
    storage = await open_sqlite(tmp_path / "db", Runtime.system())
    await fill(storage)
    other = await open_sqlite(tmp_path / "db", Runtime.system())
    async with asyncio.timeout(SECONDS_MAX):
        async with Turns() as turns:
            assert len((await other.range(EVERYTHING)).items) == LARGE_COUNT
        assert turns.count >= LARGE_COUNT / 2
        watch = other.watch(EVERYTHING, after=Revision(1))
        seen = 0
        async with Turns() as turns:
            while seen < LARGE_COUNT:
                events = (await anext(watch)).events
                assert sum(map(work_of_event, events[:-1])) <= LOG_WORK
                seen += len(events)
        assert turns.count >= LARGE_COUNT / 3
    await other.close()
    await storage.close()


async def test_a_log_of_others(tmp_path: Path) -> None:
    """A part of the log is limited even if nothing in it belongs to the span, and all parts
    together have every event once."""
    storage = await open_sqlite(tmp_path / "db", Runtime.system())
    count = LOG_REVISIONS_MAX + 500
    for first in range(0, count, 500):
        puts = (Put(Key(f"/restow/{number % 7}"), b"v") for number in range(first, first + 500))
        await asyncio.gather(*(storage.commit(Transaction((), (put,))) for put in puts))
    connection = connect(tmp_path / "db", cache_kib=READER_CACHE_KIB)
    span = Span.of_prefix("/elsewhere/")
    middle, end = Revision(1 + LOG_REVISIONS_MAX), Revision(1 + count)
    assert read_changes(connection, span, Revision(1)) == Chunk([], middle)
    assert read_changes(connection, span, middle) == Chunk([], end)
    position = Revision(1)
    revisions: list[Revision] = []
    while position < end:
        part = read_changes(connection, EVERYTHING, position)
        revisions += [entry.revision for entry in part.entries]
        assert part.upto == revisions[-1]
        position = part.upto
    assert revisions == list(range(2, 2 + count))
    connection.close()
    await storage.close()


async def test_a_batch_above_the_work_limit_is_split(tmp_path: Path) -> None:
    """A batch that would block the loop for long is split, and the rest follows in order."""
    storage = await open_sqlite(tmp_path / "db", Runtime.system())
    await fill(storage)
    before = await storage.revision()
    deletes = [Transaction((), (Delete(key_of(number)),)) for number in range(LARGE_COUNT)]
    creates = [Transaction((Absent(key_of(n)),), (Put(key_of(n), b""),)) for n in range(3)]
    watch = storage.watch(EVERYTHING, after=before)

    async def count_batches() -> int:
        batches, position = 0, before
        while position < before + LARGE_COUNT:
            position = (await anext(watch)).revision
            batches += 1
        return batches

    async with asyncio.timeout(SECONDS_MAX):
        counting = asyncio.create_task(count_batches())
        outcomes = await asyncio.gather(
            *(storage.commit(transaction) for transaction in (*deletes, *creates, creates[0]))
        )
        assert outcomes[:-1] == [Done(Revision(before + 1 + n)) for n in range(LARGE_COUNT + 3)]
        assert isinstance(outcomes[-1], Refused)
        batches = await counting
    assert batches >= LARGE_COUNT * LARGE_BYTES // (2 * writer.BATCH_WORK_MAX)
    await storage.close()
