"""The event loop is never blocked: not by the disk, another process, or a foreign writer."""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from restow.aio import Runtime
from restow.storage.interface import Done, Key, Put, Revision, Storage, Transaction
from restow.storage.sqlite import open_sqlite, writer
from restow.storage.sqlite.batch import Applied
from tests.support.faulty_vfs import FaultyVfs
from tests.unit.storage.sqlite.children import child

TICK_SECONDS = 0.005
DELAY_SECONDS_MAX = 0.15
HELD_SECONDS = 0.4

logger = logging.getLogger(__name__)


@pytest.fixture(autouse=True)
def frozen_heap() -> Iterator[None]:
    """Freeze existing objects, as a server does, so that the garbage collector skips them.

    Collecting the heap of a long test run takes half a second, which is not the store's fault.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def kept_waiting_seconds() -> float:
    """How long this thread was runnable without a core."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


class Ticker:
    """A task that sleeps repeatedly, and records by how much the loop woke it too late.

    Delays by other load on the machine are not the store's fault, and are not counted.
    """

    def __init__(self) -> None:
        self.worst_seconds = 0.0
        self.ticks = 0

    async def run(self) -> None:
        while True:
            before, waited = time.monotonic(), kept_waiting_seconds()
            await asyncio.sleep(TICK_SECONDS)
            late = time.monotonic() - before - TICK_SECONDS - (kept_waiting_seconds() - waited)
            self.worst_seconds = max(self.worst_seconds, late)
            self.ticks += 1


@asynccontextmanager
async def ticking() -> AsyncIterator[Ticker]:
    """The body must not block the loop."""
    ticker = Ticker()
    task = asyncio.create_task(ticker.run())
    await asyncio.sleep(TICK_SECONDS)
    try:
        yield ticker
        await asyncio.sleep(TICK_SECONDS * 2)  # a delay at the very end shows only afterwards
    finally:
        task.cancel()
        await asyncio.wait([task])
    logger.info("the loop was late by at most %.1f ms", ticker.worst_seconds * 1000)
    assert ticker.ticks > 1
    assert ticker.worst_seconds < DELAY_SECONDS_MAX


async def put(storage: Storage, key: str, value: bytes = b"v") -> Revision:
    outcome = await storage.commit(Transaction((), (Put(Key(f"/restow/{key}"), value),)))
    assert isinstance(outcome, Done)
    return outcome.revision


async def test_many_writers(tmp_path: Path) -> None:
    """While 64 tasks write as fast as they can, other tasks still run."""
    storage = await open_sqlite(tmp_path / "db", Runtime.system())
    end = time.monotonic() + 1.0

    async def write(number: int) -> None:
        while time.monotonic() < end:
            await put(storage, f"{number}", b"v" * 1024)

    async with ticking(), asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task(write(number))
    await storage.close()


async def test_the_lock_of_another_process(tmp_path: Path) -> None:
    """While another process has the write lock, commits wait and the loop does not."""
    path = tmp_path / "db"
    storage = await open_sqlite(path, Runtime.system())
    await put(storage, "before")
    with child("hold", path, HELD_SECONDS) as other:
        other.wait_open()
        async with ticking():
            began = time.monotonic()
            await asyncio.gather(*(put(storage, f"{number}") for number in range(8)))
            waited = time.monotonic() - began
            assert await storage.get(Key("/restow/7")) is not None
        assert waited > HELD_SECONDS / 2
    await storage.close()


async def test_a_writer_that_ignores_the_lock(tmp_path: Path) -> None:
    """Another program has the file locked: commits wait for it, the loop does not."""
    path = tmp_path / "db"
    storage = await open_sqlite(path, Runtime.system())
    await put(storage, "before")
    other_program = apsw.Connection(str(path))
    other_program.execute("BEGIN IMMEDIATE")
    async with ticking():
        began = time.monotonic()
        waiting = asyncio.gather(*(put(storage, f"{number}") for number in range(8)))
        await asyncio.sleep(HELD_SECONDS)
        assert await storage.get(Key("/restow/before")) is not None
        assert not waiting.done()
        other_program.execute("COMMIT")
        revisions = await waiting
        assert time.monotonic() - began >= HELD_SECONDS
    other_program.close()
    assert sorted(revisions) == list(range(min(revisions), min(revisions) + 8))
    await storage.close()


@pytest.mark.parametrize("phase", ["commits", "compaction", "close"])
async def test_a_slow_disk(phase: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync takes a fifth of a second: commits, checkpoints, compaction and the close all
    wait for it, and the loop never does."""
    if phase != "close":  # which must find a log without a checkpoint
        monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 8)
    vfs = FaultyVfs(f"slow-{phase}")
    storage = await open_sqlite(fast_path / "db", Runtime.system(), vfs=vfs.name)
    revision = await put(storage, "1", b"v" * 30_000)
    revision = await put(storage, "1", b"w" * 30_000)
    vfs.sync_seconds = 0.2
    async with ticking():
        if phase == "commits":
            for number in range(4):
                await put(storage, f"{number}", b"v" * 90_000)
        if phase == "compaction":
            await storage.compact(revision)
        if phase == "close":
            await storage.close()
    vfs.sync_seconds = 0
    await storage.close()
    vfs.unregister()


async def test_callers_get_their_outcomes_if_a_listener_fails(fast_path: Path) -> None:
    """A durable commit is reported to its caller, even if passing it on to the watches fails."""
    storage = await open_sqlite(fast_path / "db", Runtime.system())
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: reported.append(str(context["exception"]))
    )

    def fail(_applied: Applied) -> None:
        raise LookupError("a listener fails")

    storage._writer._on_commit = fail
    async with asyncio.timeout(5):
        await put(storage, "1", b"v")
    assert reported == ["a listener fails"]
    await storage.close()
