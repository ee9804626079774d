"""A store file that is replaced, removed or hard-linked: nothing is acknowledged afterwards."""

import os
import shutil
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import OpenRefused, StorageError, StoreReplaced
from restow.storage.interface import EVERYTHING, Done, Key, Put, Transaction
from restow.storage.sqlite import SqliteStorage, open_sqlite


def put(number: int) -> Transaction:
    return Transaction((), (Put(Key(f"/restow/x{number}"), b"1"),))


async def acknowledged(storage: SqliteStorage, *, count: int) -> int:
    """How many of some writes are acknowledged."""
    done = 0
    for number in range(count):
        try:
            done += isinstance(await storage.commit(put(number)), Done)
        except StorageError:
            continue
    return done


def replace_by_copy(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)


def move_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def link(path: Path) -> None:
    path.with_name("second-name").hardlink_to(path)


def move_away_and_replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    move_away(path)
    path.with_name("copy").rename(path)


def remove_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


def remove_shared_memory(path: Path) -> None:
    path.with_name(path.name + "-shm").unlink()


ATTACKS = (
    *(replace_by_copy, Path.unlink, link, move_away, move_away_and_replace),
    *(remove_log, remove_shared_memory),
)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_write_is_acknowledged_after_the_file_changed(
    attack: object, tmp_path: Path
) -> None:
    """Without waiting for the next periodic check: the writer itself detects the replacement."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    assert await acknowledged(storage, count=1) == 1
    assert callable(attack)
    attack(path)
    assert await acknowledged(storage, count=5) == 0
    with pytest.raises(StoreReplaced) as caught:
        await storage.commit(put(9))
    assert str(path) in str(caught.value)
    with pytest.raises(StoreReplaced):  # reads fail as well
        await storage.revision()
    with pytest.raises(StoreReplaced):
        storage.revision_now()
    await storage.close()


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_check_detects_a_replaced_file(attack: object, tmp_path: Path) -> None:
    """At each periodic check, also without writes: another file, none, or an additional link."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    assert await acknowledged(storage, count=1) == 1
    await storage.look()
    assert callable(attack)
    attack(path)
    with pytest.raises(StoreReplaced) as caught:
        await storage.look()
    assert str(path) in str(caught.value)
    assert await acknowledged(storage, count=3) == 0
    await storage.close()


async def test_writes_work_again_when_the_link_is_removed(tmp_path: Path) -> None:
    """The file is still the open one, so no restart is needed."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    link(path)
    assert await acknowledged(storage, count=2) == 0
    path.with_name("second-name").unlink()
    seen = await storage.look()
    storage.unblock(seen)
    assert await acknowledged(storage, count=2) == 2
    await storage.close()


async def test_a_hard_linked_file_is_not_opened(tmp_path: Path) -> None:
    """A second name has a log of its own: two servers would overwrite each other."""
    path = tmp_path / "store.db"
    await (await open_sqlite(path, Runtime.system())).close()
    link(path)
    for name in (path, path.with_name("second-name")):
        with pytest.raises(OpenRefused, match="2 hard links"):
            await open_sqlite(name, Runtime.system())


async def test_a_revision_that_went_back_refuses_writes(tmp_path: Path) -> None:
    """A file that is older than an acknowledged write accepts no write, whatever the cause."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    assert await acknowledged(storage, count=3) == 3
    await storage._writer.run(  # as if an older file had been copied into this one
        lambda connection: connection.execute(
            "UPDATE meta SET value = 2 WHERE name = 'revision'"
        ).fetchall()
    )
    assert await acknowledged(storage, count=3) == 0
    assert storage.blocked is not None
    with pytest.raises(StoreReplaced):  # reads fail as well
        await storage.revision()
    await storage.close()


async def test_the_open_descriptor_does_not_drop_locks(tmp_path: Path) -> None:
    """Closing one handle must not drop the locks of another handle of this process."""
    path = tmp_path / "store.db"
    first = await open_sqlite(path, Runtime.system())
    second = await open_sqlite(path, Runtime.system())
    await second.close()
    locks = Path("/proc/locks").read_text()
    inode = path.with_name(path.name + "-shm").stat().st_ino
    assert f":{inode} " in locks
    assert await acknowledged(first, count=1) == 1
    await first.close()


async def test_checks_drop_no_lock_and_keep_no_descriptor(tmp_path: Path) -> None:
    """Without its lock on the file, a process that closes it last would delete the log."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    await storage.look()
    mark, descriptors = f":{path.stat().st_ino} ", len(list(Path("/proc/self/fd").iterdir()))
    before = [line for line in Path("/proc/locks").read_text().splitlines() if mark in line]
    for _ in range(20):
        await storage.look()
        assert await acknowledged(storage, count=1) == 1
    after = [line for line in Path("/proc/locks").read_text().splitlines() if mark in line]
    assert len(after) == len(before) > 0
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 1
    await storage.close()


async def test_a_truncated_log_accepts_no_write(tmp_path: Path) -> None:
    """Its pages are lost, and later frames cannot be recovered after a crash."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    assert await acknowledged(storage, count=3) == 3
    os.truncate(path.with_name(path.name + "-wal"), 0)
    assert await acknowledged(storage, count=3) == 0
    with pytest.raises(StoreReplaced, match="was truncated"):
        await storage.look()
    await storage.close()


async def checkpoint(storage: SqliteStorage) -> None:
    """Move all pages of the log to the file."""
    await storage._writer.run_locked(storage._writer._checkpointer._step)


async def test_a_file_that_is_overwritten_by_an_older_copy(tmp_path: Path) -> None:
    """It has the same inode, and the newest pages are in the log, but not all of them. The next
    check detects it; a checkpoint of this store is not mistaken for it."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    await checkpoint(storage)
    shutil.copyfile(path, tmp_path / "older")
    for _ in range(3):
        assert await acknowledged(storage, count=3) == 3
        await storage.look()
        await checkpoint(storage)
        await storage.look()
    shutil.copyfile(tmp_path / "older", path)
    with pytest.raises(StoreReplaced, match="overwritten by an older copy"):
        await storage.look()
    assert await acknowledged(storage, count=3) == 0
    await storage.close()


async def test_a_damaged_file_accepts_no_write(tmp_path: Path) -> None:
    """A read that detects damage ends all reads and writes; nothing more is acknowledged."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    assert await acknowledged(storage, count=3) == 3
    await checkpoint(storage)
    await storage.close()
    storage = await open_sqlite(path, Runtime.system())
    damage = path.stat().st_size - 4096
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * damage)
    with pytest.raises(StorageError, match="damaged"):
        await storage.range(EVERYTHING)
    assert isinstance(storage.blocked, StoreReplaced)
    assert await acknowledged(storage, count=3) == 0
    await storage.close()


async def test_a_file_that_is_overwritten_between_two_checks(tmp_path: Path) -> None:
    """A checkpoint and the overwrite both fall between two checks, so that the file is not older
    than at the last check. Cached pages of the handle hide that; a new connection reveals it."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    assert await acknowledged(storage, count=3) == 3
    await checkpoint(storage)
    await storage.look()
    shutil.copyfile(path, tmp_path / "older")
    assert await acknowledged(storage, count=3) == 3
    newest = storage.newest
    await checkpoint(storage)
    assert await storage.revision() == newest
    shutil.copyfile(tmp_path / "older", path)
    seen = await storage.look()
    assert seen.revision < newest
    await storage.close()
