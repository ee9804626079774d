"""Processes that acknowledge writes are killed repeatedly, on one file."""

import logging
import time
from pathlib import Path

import apsw
import pytest

from restow.aio import Runtime, SeededRandomness
from restow.storage.errors import OpenRefused, StoreDamaged
from restow.storage.interface import EVERYTHING, Delete, Done, Item, Key, Put, Span, Transaction
from restow.storage.sqlite import open_sqlite
from tests.sizes import SIZES
from tests.support.sqlite_child import PREFIX, key_of, value_of
from tests.unit.storage.sqlite.children import Child, acknowledged, child, socket_names
from tests.unit.storage.sqlite.workload import integrity

CLEAN_EVERY = 15

logger = logging.getLogger(__name__)


def one_cycle(path: Path, names: list[str], seconds: float) -> dict[str, dict[int, int]]:
    """Start a writer for each name, kill them all after some time; what they acknowledged."""
    writers: list[Child] = []
    try:
        for name in names:
            writers.append(Child("write", path, name))
        if seconds > 0:
            for writer in writers:
                writer.wait_open()
            time.sleep(seconds)
        else:
            time.sleep(-seconds)  # it may still be opening the store
        for writer in writers:
            writer.kill()
        done: dict[str, dict[int, int]] = {}
        for name, writer in zip(names, writers, strict=True):
            output, errors = writer.finish()
            assert not errors, errors
            done[name] = acknowledged(output)
        return done
    finally:
        for writer in writers:
            writer.end()


async def check_cycle(path: Path, done: dict[str, dict[int, int]], *, clean: bool) -> None:
    """Open it, as the next process would, and check every acknowledged write."""
    storage = await open_sqlite(path, Runtime.system())
    try:
        now = await storage.revision()
        for name, numbers in done.items():
            items = (await storage.range(Span.of_prefix(f"{PREFIX}{name}/"))).items
            found = {item.key: item for item in items}
            for number, revision in numbers.items():
                item = found.get(key_of(name, number))
                assert isinstance(item, Item), f"{name}/{number} was acknowledged, and is lost"
                assert item.revision == revision <= now
            for item in items:  # acknowledged or not, each is complete
                assert item.value == value_of(name, int(item.key.rpartition("/")[2]))
        if clean:
            for item in (await storage.range(EVERYTHING)).items:
                await storage.commit(Transaction((), (Delete(item.key),)))
    finally:
        await storage.close()


async def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    """SIGKILL at random moments, one writer or two at once: no acknowledged write is lost, the
    file passes the integrity check, and each start finds it as the last one left it."""
    chance = SeededRandomness("kill")
    path = tmp_path / "db"
    total, cycles_with_writes = 0, 0
    for cycle in range(SIZES.sqlite_kill_cycles):
        names = [f"{cycle}-{letter}" for letter in ("ab" if cycle % 4 == 3 else "a")]
        seconds = -chance.uniform(0, 0.4) if cycle % 5 == 4 else chance.uniform(0.001, 0.12)
        done = one_cycle(path, names, seconds)
        if not path.exists():
            continue
        if cycle % 2:
            # Right after the kill: SQLite recovers the log here, and must find it intact.
            assert integrity(path) == "ok"
        await check_cycle(path, done, clean=cycle % CLEAN_EVERY == CLEAN_EVERY - 1)
        assert integrity(path) == "ok"
        count = sum(map(len, done.values()))
        total += count
        cycles_with_writes += count > 0
    assert cycles_with_writes > SIZES.sqlite_kill_cycles // 2, "the load was too low"
    logger.info("%d acknowledged writes in %d cycles", total, SIZES.sqlite_kill_cycles)


def damage(path: Path) -> None:
    """Overwrite the inside of most pages with garbage, as a faulty disk might."""
    page_bytes = 8192
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        for page in range(2, size // page_bytes):
            file.seek(page * page_bytes)
            file.write(b"\xa5" * 512)


async def make_store(path: Path) -> None:
    storage = await open_sqlite(path, Runtime.system())
    for number in range(200):
        put = Put(Key(f"/restow/x/{number}"), b"v" * 500)
        assert isinstance(await storage.commit(Transaction((), (put,))), Done)
    await storage.close()


async def test_quick_check_after_an_unclean_stop(tmp_path: Path) -> None:
    """After a process was killed the file is checked at the next start, and damage refused."""
    path = tmp_path / "db"
    await make_store(path)
    with child("write", path, "killed") as writer:
        writer.wait_open()
        while not writer.read_line().startswith("done"):
            pass
        writer.kill()
        writer.finish()
    assert Path(f"{path}-wal").stat().st_size > 0
    damage(path)
    with pytest.raises(
        StoreDamaged, match=r"(?s)not closed cleanly and is damaged.*restore a backup"
    ):
        await open_sqlite(path, Runtime.system())


async def test_a_killed_process_leaves_no_socket_for_long(tmp_path: Path) -> None:
    """The first commit after a kill removes the killed process's socket."""
    path = tmp_path / "db"
    storage = await open_sqlite(path, Runtime.system())
    with child("stay", path) as other:
        other.wait_open()
        assert len(socket_names(path)) == 2
        other.kill()
        other.finish()
    assert len(socket_names(path)) == 2
    await storage.commit(Transaction((), (Put(Key("/restow/x"), b""),)))
    names = socket_names(path)
    await storage.close()
    assert len(names) == 1
    assert socket_names(path) == []


async def test_a_crash_while_the_store_is_made(tmp_path: Path) -> None:
    """A process that is killed while it creates the file leaves one that can be opened."""
    for step, statements in enumerate(
        [
            [],
            ["PRAGMA page_size = 8192", "PRAGMA auto_vacuum = INCREMENTAL"],
            ["PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA journal_mode = WAL"],
        ]
    ):
        path = tmp_path / f"db-{step}"
        connection = apsw.Connection(str(path))
        for statement in statements:
            connection.execute(statement)
        connection.close()
        path.touch()
        await make_store(path)
        assert integrity(path) == "ok"


async def test_a_file_with_foreign_tables_is_refused(tmp_path: Path) -> None:
    """A file with tables but without restow's mark is never taken for an incomplete store."""
    path = tmp_path / "db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(OpenRefused, match="not a restow store"):
        await open_sqlite(path, Runtime.system())
