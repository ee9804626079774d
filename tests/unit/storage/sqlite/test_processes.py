"""Several processes on one file: they see each other's commits, and share the disk fairly."""

import asyncio
import logging
import os
import select
import statistics
import time
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.interface import Done, Key, Put, Span, Transaction
from restow.storage.sqlite import open_sqlite, writer
from restow.storage.sqlite.commit_notifications import CommitNotifications
from tests.support.faulty_vfs import FaultyVfs
from tests.support.sqlite_child import SHARED
from tests.unit.storage.sqlite.children import child, socket_names

COMMITS = 200

logger = logging.getLogger(__name__)


async def measure_delays(path: Path, *, listening: bool) -> list[float]:
    """Seconds from before each commit of another process until a watcher here has it."""
    storage = await open_sqlite(path, Runtime.system())
    if not listening:
        (name,) = socket_names(path)
        Path(f"{path}-peers", name).unlink()
    delays: list[float] = []
    with child("stamp", path, COMMITS) as other:
        other.wait_open()
        watch = storage.watch(Span.of_key(SHARED), after=await storage.revision())
        other.go()
        async with asyncio.timeout(30):
            async for batch in watch:
                now = time.monotonic()
                delays += [now - float(event.value or b"") for event in batch.events]
                if len(delays) == COMMITS:
                    break
        await watch.close()
        _, errors = other.finish()
        assert not errors, errors
    await storage.close()
    return delays


async def test_a_commit_is_seen_in_another_process(tmp_path: Path) -> None:
    """Each commit of one process reaches a watcher in another, once, and soon."""
    delays = await measure_delays(tmp_path / "db", listening=True)
    median = statistics.median(delays)
    logger.info("seen after %.2f ms at the median, %.1f at most", median * 1e3, max(delays) * 1e3)
    assert median < 1


async def test_a_lost_notification_is_compensated_by_polling(tmp_path: Path) -> None:
    """Without its socket a process still sees every commit, by polling."""
    delays = await measure_delays(tmp_path / "db", listening=False)
    median = statistics.median(delays)
    logger.info("without notices: %.1f ms at the median", median * 1e3)
    assert median < 1


async def test_writers_share_fairly(tmp_path: Path) -> None:
    """Two processes that write as fast as they can both get a good share."""
    path = tmp_path / "db"
    with child("flood", path, 1.5) as one, child("flood", path, 1.5) as two:
        for process in (one, two):
            process.wait_open()
        for process in (one, two):
            process.go()
        commits = []
        for process in (one, two):
            output, errors = process.finish()
            assert not errors, errors
            commits.append(int(output.split()[1]))
    share = min(commits) / sum(commits)
    logger.info("commits %s, the smaller share is %.2f", commits, share)
    assert share > 0.15


def test_a_peer_is_found_even_if_the_clock_of_the_directory_stands(tmp_path: Path) -> None:
    """Where a directory's time is coarse, a peer that came within one tick is found as well."""
    first = CommitNotifications(tmp_path, "first")
    stands_ns = tmp_path.stat().st_mtime_ns
    first.send()
    second = CommitNotifications(tmp_path, "second")
    os.utime(tmp_path, ns=(stands_ns, stands_ns))
    try:
        for _ in range(200):
            first.send()
        assert select.select([second], [], [], 0)[0], "no notification has arrived"
    finally:
        first.close()
        second.close()


async def test_checkpoints_at_once(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Concurrent checkpoints of two processes succeed, and nothing is logged."""
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 4)
    vfs = FaultyVfs("two-checkpoints")
    path = fast_path / "db"
    stores = [await open_sqlite(path, Runtime.system(), vfs=vfs.name) for _ in range(2)]
    vfs.sync_seconds = 0.01
    for number in range(10):
        put = Transaction((), (Put(Key(f"/restow/{number}"), b"v" * 40_000),))
        outcomes = await asyncio.gather(*(store.commit(put) for store in stores))
        assert all(isinstance(outcome, Done) for outcome in outcomes)
    for store in stores:
        await store.close()
    vfs.unregister()
    assert caplog.messages == []


async def test_two_handles_in_one_process(tmp_path: Path) -> None:
    """Two handles of one process exclude and notify each other like two processes."""
    path = tmp_path / "db"
    one = await open_sqlite(path, Runtime.system())
    two = await open_sqlite(path, Runtime.system())
    watch = one.watch(Span.of_key(SHARED), after=await one.revision())

    async def write(number: int) -> None:
        storage = (one, two)[number % 2]
        done = await storage.commit(Transaction((), (Put(SHARED, b"%d" % number),)))
        assert isinstance(done, Done)
        assert await (two, one)[number % 2].revision() >= done.revision

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(write(number))
    revisions: list[int] = []
    async with asyncio.timeout(20):
        while len(revisions) < 100:
            revisions += [event.revision for event in (await anext(watch)).events]
    assert revisions == list(range(revisions[0], revisions[0] + 100))
    assert await two.get(Key("/none")) is None
    await one.close()
    await two.close()
