"""SQLite: group commit compared to single commits, and a range compared to a bare SELECT."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import apsw

from benchmarks.rounds import Comparison, measure_both, rate
from benchmarks.storage import workload
from restow.aio import Runtime
from restow.storage.interface import (
    Absent,
    Done,
    Guard,
    Key,
    Put,
    Revision,
    RevisionIs,
    Transaction,
)
from restow.storage.sqlite import file_setup, open_sqlite, schema
from restow.storage.sqlite.batch import apply

WRITERS = 64


async def measure_writes(directory: Path, *, rounds: int, each: int) -> Comparison:
    """Guarded puts per second: 64 writers on the driver, and a loop that commits each alone."""
    storage = await open_sqlite(directory / "grouped.db", Runtime.system())
    bare = await open_bare(directory / "bare.db")
    names = count()

    async def ours() -> float:
        work = workload.guarded_puts(storage, writers=WRITERS, each=each, name=str(next(names)))
        return await rate(work, operations=WRITERS * each)

    async def theirs() -> float:
        begin, writes = time.perf_counter(), each * 4
        key = Key(f"{workload.PREFIX}bare-{next(names)}")
        guard: Guard = Absent(key)
        for _ in range(writes):
            guard = RevisionIs(key, _commit_alone(bare, guard))
        return writes / (time.perf_counter() - begin)

    found = await measure_both(ours, theirs, rounds=rounds)
    await storage.close()
    bare.close()
    return found


async def measure_range(directory: Path, *, rounds: int, items: int) -> Comparison:
    """Milliseconds for all items: the driver's range, and a bare SELECT on the same file."""
    path = directory / "range.db"
    storage = await open_sqlite(path, Runtime.system())
    await workload.fill(storage, count=items)
    bare = apsw.Connection(str(path))
    select = schema.range_now(bounded=True)
    bounds = {"start": workload.PREFIX, "end": workload.PREFIX[:-1] + "0", "limit": -1}

    async def ours() -> float:
        begin = time.perf_counter()
        assert len(await workload.read_all(storage)) == items
        return (time.perf_counter() - begin) * 1000

    async def theirs() -> float:
        begin = time.perf_counter()
        assert len(bare.execute(select, bounds).fetchall()) == items
        return (time.perf_counter() - begin) * 1000

    found = await measure_both(ours, theirs, rounds=rounds)
    bare.close()
    await storage.close()
    return found


async def open_bare(path: Path) -> apsw.Connection:
    """A connection to a new store without the driver."""
    await (await open_sqlite(path, Runtime.system())).close()
    connection = file_setup.connect(path, cache_kib=file_setup.WRITER_CACHE_KIB)
    connection.execute("PRAGMA wal_autocheckpoint = 1000")
    return connection


def _commit_alone(connection: apsw.Connection, guard: Guard) -> Revision:
    """The same statements as the driver's, in an SQLite transaction of their own."""
    connection.execute("BEGIN IMMEDIATE")
    put = Put(guard.key, workload.VALUE)
    (outcome,) = apply(connection, [Transaction((guard,), (put,))]).outcomes
    connection.execute("COMMIT")
    assert isinstance(outcome, Done), outcome
    return outcome.revision
