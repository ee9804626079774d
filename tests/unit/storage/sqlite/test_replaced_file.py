"""A store file that is replaced, removed or hard-linked: nothing is acknowledged afterwards."""

import shutil
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import OpenRefused, StorageError, StoreReplaced
from restow.storage.interface import Done, Key, Put, Transaction
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


ATTACKS = (replace_by_copy, Path.unlink, link, move_away, move_away_and_replace, remove_log)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_write_is_acknowledged_after_the_file_changed(
    attack: object, tmp_path: Path
) -> None:
    """Without waiting for a renewal: the writer itself sees that the file was exchanged."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    assert await acknowledged(storage, count=1) == 1
    assert callable(attack)
    attack(path)
    assert await acknowledged(storage, count=5) == 0
    with pytest.raises(StoreReplaced) as caught:
        await storage.commit(put(9))
    assert str(path) in str(caught.value)
    with pytest.raises(StoreReplaced):  # readers are told as well
        await storage.revision()
    with pytest.raises(StoreReplaced):
        storage.revision_now()
    await storage.close()


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_look_finds_what_happened_to_the_file(attack: object, tmp_path: Path) -> None:
    """At each renewal, also where nothing is written: another file, none, or one more name."""
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


async def test_a_removed_link_lets_writes_go_on(tmp_path: Path) -> None:
    """The file is still the one that is open, so nothing needs a restart."""
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
    """A file that is older than what was acknowledged takes no write, whatever made it so."""
    path = tmp_path / "store.db"
    storage = await open_sqlite(path, Runtime.system())
    assert await acknowledged(storage, count=3) == 3
    await storage._writer.run(  # as if somebody had copied an older file into this one
        lambda connection: connection.execute(
            "UPDATE meta SET value = 2 WHERE name = 'revision'"
        ).fetchall()
    )
    assert await acknowledged(storage, count=3) == 0
    await storage.close()


async def test_the_open_descriptor_does_not_drop_locks(tmp_path: Path) -> None:
    """Closing one handle must not take away the locks of another handle of this process."""
    path = tmp_path / "store.db"
    first = await open_sqlite(path, Runtime.system())
    second = await open_sqlite(path, Runtime.system())
    await second.close()
    locks = Path("/proc/locks").read_text()
    inode = path.with_name(path.name + "-shm").stat().st_ino
    assert f":{inode} " in locks
    assert await acknowledged(first, count=1) == 1
    await first.close()
