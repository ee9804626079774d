"""Closing a store: waiting calls get a result, and nothing stays open."""

import asyncio
import threading
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import StorageClosed, Unavailable
from restow.storage.interface import (
    EVERYTHING,
    Batch,
    Done,
    Key,
    Outcome,
    Put,
    RangePage,
    Revision,
    Transaction,
)
from restow.storage.sqlite import open_sqlite, writer
from tests.unit.storage.sqlite.children import child

SECONDS_MAX = 20


def put(number: int, size: int = 100) -> Transaction:
    return Transaction((), (Put(Key(f"/restow/x/{number}"), b"v" * size),))


def open_files() -> list[str]:
    """Names of the files that this process has open, without the listing itself."""
    links = list(Path("/proc/self/fd").iterdir())
    return sorted(str(link.readlink()) for link in links if link.is_symlink())


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "sqlite" in thread.name]


@pytest.mark.parametrize("size", [100, 30_000])
async def test_waiting_commits_get_an_outcome(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits that wait when the store is closed are done or refused as closed, never left
    waiting; also when a checkpoint becomes due meanwhile."""
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 4)
    path = tmp_path / "db"
    storage = await open_sqlite(path, Runtime.system())
    async with asyncio.timeout(SECONDS_MAX):
        tasks = [asyncio.create_task(storage.commit(put(n, size))) for n in range(400)]
        await asyncio.sleep(0.002)
        await storage.close()
        answers: list[Outcome | BaseException] = await asyncio.gather(
            *tasks, return_exceptions=True
        )
    for answer in answers:
        assert isinstance(answer, Done | StorageClosed), answer
    storage = await open_sqlite(path, Runtime.system())
    found = {item.key: item.revision for item in (await storage.range(EVERYTHING)).items}
    await storage.close()
    assert found == {
        Key(f"/restow/x/{number}"): answer.revision
        for number, answer in enumerate(answers)
        if isinstance(answer, Done)
    }


async def test_after_the_close(tmp_path: Path) -> None:
    """A closed store raises `StorageClosed` for every call, and may be closed again."""
    storage = await open_sqlite(tmp_path / "db", Runtime.system())
    assert isinstance(await storage.commit(put(1)), Done)
    watch = storage.watch(EVERYTHING, after=await storage.revision())

    async def wait() -> Batch:
        return await anext(watch)

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0.01)
    await storage.close()
    await storage.close()
    with pytest.raises(StorageClosed):
        await waiting
    with pytest.raises(StorageClosed):
        await storage.commit(put(2))
    with pytest.raises(StorageClosed):
        await storage.get(Key("/restow/x/1"))
    with pytest.raises(StorageClosed):
        await storage.range(EVERYTHING)
    with pytest.raises(StorageClosed):
        await storage.count(EVERYTHING)
    with pytest.raises(StorageClosed):
        await storage.revision()
    with pytest.raises(StorageClosed):
        await storage.compact(Revision(2))
    with pytest.raises(StorageClosed):
        storage.watch(EVERYTHING, after=Revision(1))


async def test_nothing_stays_open(tmp_path: Path) -> None:
    """After the close there is no thread, no open file, no log, and no socket."""
    path = tmp_path / "db"
    await (await open_sqlite(path, Runtime.system())).close()  # the loop creates its own threads
    before = open_files()
    for _ in range(3):
        storage = await open_sqlite(path, Runtime.system())
        await asyncio.gather(*(storage.commit(put(number)) for number in range(20)))
        await asyncio.gather(*(storage.range(EVERYTHING) for _ in range(10)))
        await storage.compact(Revision(await storage.revision() - 1))
        assert our_threads()
        await storage.close()
    assert open_files() == before
    assert our_threads() == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["db", "db-peers"]
    assert sorted(entry.suffix for entry in (tmp_path / "db-peers").iterdir()) == [".lock"] * 3


async def test_two_closes_at_once(tmp_path: Path) -> None:
    """Two tasks may close the same store."""
    storage = await open_sqlite(tmp_path / "db", Runtime.system())
    pending = asyncio.create_task(storage.commit(put(1)))
    await asyncio.sleep(0)
    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.gather(storage.close(), storage.close())
        assert isinstance(await pending, Done)
    assert our_threads() == []


async def test_a_close_in_the_middle_of_a_compaction(tmp_path: Path) -> None:
    """A compaction that the close interrupts ends with a clear error, or succeeds."""
    storage = await open_sqlite(tmp_path / "db", Runtime.system())
    for number in range(300):
        await storage.commit(put(number % 3, 3000))
    compaction = asyncio.create_task(storage.compact(await storage.revision()))
    await asyncio.sleep(0.001)
    async with asyncio.timeout(SECONDS_MAX):
        await storage.close()
        (ended,) = await asyncio.gather(compaction, return_exceptions=True)
    assert ended is None or isinstance(ended, Unavailable)


async def test_a_close_while_another_process_writes(tmp_path: Path) -> None:
    """A commit that waits for another process is finished before the close ends."""
    path = tmp_path / "db"
    storage = await open_sqlite(path, Runtime.system())
    with child("hold", path, 0.3) as other:
        other.wait_open()
        pending = asyncio.create_task(storage.commit(put(1)))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(SECONDS_MAX):
            await storage.close()
            assert isinstance(await pending, Done)


async def test_a_close_during_a_range(tmp_path: Path) -> None:
    """A range that the close interrupts has ended when the close ends. Otherwise closing the
    change counter would drop the locks of its snapshot, and it would read later writes."""
    storage = await open_sqlite(tmp_path / "db", Runtime.system())
    await asyncio.gather(*(storage.commit(put(number, 3000)) for number in range(1000)))
    ranges = [asyncio.create_task(storage.range(EVERYTHING)) for _ in range(30)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    async with asyncio.timeout(SECONDS_MAX):
        await storage.close()
        assert all(reading.done() for reading in ranges)
        for ended in await asyncio.gather(*ranges, return_exceptions=True):
            assert isinstance(ended, StorageClosed | RangePage)


async def test_a_cancelled_close(tmp_path: Path) -> None:
    """A close that was cancelled may be repeated, and then nothing stays open."""
    path = tmp_path / "db"
    storage = await open_sqlite(path, Runtime.system())
    with child("hold", path, 0.3) as other:
        other.wait_open()
        pending = asyncio.create_task(storage.commit(put(1)))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await storage.close()
        async with asyncio.timeout(SECONDS_MAX):
            await storage.close()
            assert isinstance(await pending, Done)
    assert our_threads() == []
    assert sorted(entry.suffix for entry in (tmp_path / "db-peers").iterdir()) == [".lock"] * 3


async def test_cancelled_callers(tmp_path: Path) -> None:
    """Commits whose callers were cancelled do not stop the writer for the others."""
    storage = await open_sqlite(tmp_path / "db", Runtime.system())
    tasks = [asyncio.create_task(storage.commit(put(number))) for number in range(100)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    async with asyncio.timeout(SECONDS_MAX):
        kept = await asyncio.gather(*tasks[1::2])
        assert all(isinstance(outcome, Done) for outcome in kept)
        await storage.close()
