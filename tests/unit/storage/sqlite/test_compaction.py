"""Space freed by a compaction, and the state after a crash during one."""

import asyncio
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import Compacted
from restow.storage.interface import EVERYTHING, Done, Key, Put, Revision, Transaction
from restow.storage.sqlite import SqliteStorage, open_sqlite, storage
from tests.unit.storage.sqlite.workload import integrity

VALUE_BYTES = 20_000
CHANGES = 600


async def fill(store: SqliteStorage) -> Revision:
    """Change ten keys many times."""
    revision = Revision(1)
    for number in range(CHANGES):
        value = b"%d" % number * (VALUE_BYTES // len(str(number)))
        put = Put(Key(f"/restow/{number % 10}"), value)
        outcome = await store.commit(Transaction((), (put,)))
        assert isinstance(outcome, Done)
        revision = outcome.revision
    return revision


async def test_space_is_freed(fast_path: Path) -> None:
    """After a compaction and a checkpoint the file itself is small again."""
    path = fast_path / "db"
    store = await open_sqlite(path, Runtime.system())
    revision = await fill(store)
    await store.close()
    full = path.stat().st_size
    assert full > CHANGES * VALUE_BYTES
    store = await open_sqlite(path, Runtime.system())
    await store.compact(revision)
    held = (await store.range(EVERYTHING)).items
    await store.close()
    assert path.stat().st_size < full / 4
    assert len(held) == 10
    assert integrity(path) == "ok"


@pytest.mark.parametrize("steps", [1, 2, 5])
async def test_leftovers_are_harmless(
    steps: int, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted compaction is in effect as a whole, and the next one removes its leftover
    rows."""
    path = fast_path / "db"
    store = await open_sqlite(path, Runtime.system())
    revision = await fill(store)
    middle = Revision(revision - 100)
    monkeypatch.setattr(storage, "FORGET_ROWS_PER_JOB", 50)
    jobs, run = 0, store._writer.run

    async def run_some(work: object) -> object:
        nonlocal jobs
        jobs += 1
        if jobs > steps:
            raise asyncio.CancelledError
        return await run(work)  # type: ignore[arg-type]

    monkeypatch.setattr(store._writer, "run", run_some)
    with pytest.raises(asyncio.CancelledError):
        await store.compact(middle)
    monkeypatch.undo()
    await store.close()
    full = path.stat().st_size

    store = await open_sqlite(path, Runtime.system())
    with pytest.raises(Compacted):
        await store.range(EVERYTHING, revision=Revision(middle - 1))
    assert len((await store.range(EVERYTHING, revision=middle)).items) == 10
    with pytest.raises(Compacted):
        await anext(store.watch(EVERYTHING, after=Revision(middle - 1)))
    batch = await anext(store.watch(EVERYTHING, after=middle))
    assert batch.events[0].revision == middle + 1
    with pytest.raises(Compacted):
        await store.compact(middle)
    await store.compact(Revision(middle + 1))
    await store.close()
    assert path.stat().st_size < full / 3
    assert integrity(path) == "ok"
