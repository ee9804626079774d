"""Backups: a file with one revision of a store, which is complete or does not exist."""

import asyncio
import stat
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.backup import write_backup
from restow.storage.drivers import open_storage
from restow.storage.errors import OpenRefused, StorageError, StoreDamaged, StoreFull, Unavailable
from restow.storage.interface import Key, Put, Transaction
from tests.unit.census.stores import delete_all, fill, opened, put_all, read_all

VALUES = {f"/registry/pods/default/{number:04}": b"pod" * 50 for number in range(300)}


def files_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir() if each.is_file())


async def test_sqlite_backup_holds_all_keys(tmp_path: Path, runtime: Runtime) -> None:
    """A SQLite backup has every key, the store's revision, and is private to its owner."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    async with opened(address) as storage:
        await put_all(storage, VALUES)
        seen: list[tuple[int, int]] = []
        backup = await write_backup(
            address,
            tmp_path / "a.backup",
            runtime,
            on_progress=lambda done, total: seen.append((done, total)),
        )
        assert backup.revision == await storage.revision()
    assert backup.form == "sqlite"
    assert backup.size == (tmp_path / "a.backup").stat().st_size
    assert stat.S_IMODE((tmp_path / "a.backup").stat().st_mode) == 0o600
    assert seen[-1][0] == seen[-1][1] > 0
    assert await read_all(f"snapshot:{tmp_path / 'a.backup'}") == VALUES


async def test_sqlite_backup_shows_one_moment(tmp_path: Path, runtime: Runtime) -> None:
    """Two keys that are always written together are equal in a copy made meanwhile."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    pair = (Key("/restow/left"), Key("/restow/right"))
    async with opened(address) as storage:
        await put_all(storage, VALUES)
        is_over = asyncio.Event()

        async def write() -> None:
            number = 0
            while not is_over.is_set():
                number += 1
                value = str(number).encode()
                await storage.commit(Transaction((), tuple(Put(key, value) for key in pair)))

        async with asyncio.TaskGroup() as group:
            group.create_task(write(), name="write")
            for number in range(5):
                path = tmp_path / f"{number}.backup"
                backup = await write_backup(address, path, runtime)
                found = await read_all(f"snapshot:{path}")
                assert found.get(pair[0]) == found.get(pair[1])
                assert backup.revision <= await storage.revision()
            is_over.set()


async def test_no_server_opens_a_backup(tmp_path: Path, runtime: Runtime) -> None:
    """A copy is refused as a store, and the error names the restore command."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    await fill(address, VALUES)
    await write_backup(address, tmp_path / "a.backup", runtime)
    with pytest.raises(OpenRefused, match="restow restore"):
        await open_storage(f"sqlite:{tmp_path / 'a.backup'}", runtime)


async def test_an_existing_file_is_kept(tmp_path: Path, runtime: Runtime) -> None:
    """An existing file is refused, unless --overwrite is given."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    await fill(address, VALUES)
    path = tmp_path / "a.backup"
    path.write_text("precious")
    with pytest.raises(OpenRefused, match="--overwrite"):
        await write_backup(address, path, runtime)
    assert path.read_text() == "precious"
    await write_backup(address, path, runtime, overwrite=True)
    assert await read_all(f"snapshot:{path}") == VALUES


@pytest.mark.parametrize(
    ("address", "path", "words"),
    [
        ("memory:", "a.backup", "cannot back up"),
        ("sqlite:", "a.backup", "cannot back up"),
        ("sqlite:nothing.db", "a.backup", "does not exist"),
        ("sqlite:text", "a.backup", "not an SQLite file"),
        ("sqlite:text", ".", "is a directory"),
        ("sqlite:text", "nowhere/a.backup", "is not a directory"),
    ],
)
async def test_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, path: str, words: str
) -> None:
    """Invalid sources and targets are refused with a reason, and no file is left."""
    runtime = Runtime.system()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("no store" * 1000)
    with pytest.raises(OpenRefused, match=words):
        await write_backup(address, Path(path), runtime)
    assert files_in(tmp_path) == ["text"]


async def test_damage_is_found(tmp_path: Path, runtime: Runtime) -> None:
    """A store whose pages are damaged gives no backup and no file."""
    path = tmp_path / "store.db"
    await fill(f"sqlite:{path}", VALUES)
    with path.open("r+b") as file:
        for page in range(8, 16):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    with pytest.raises(StoreDamaged):
        await write_backup(f"sqlite:{path}", tmp_path / "a.backup", runtime)
    assert files_in(tmp_path) == ["store.db"]


async def test_a_full_disk_leaves_nothing(tmp_path: Path, runtime: Runtime) -> None:
    """A full disk is reported, and no file is left."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    await fill(address, VALUES)

    def fail(_done: int, _total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreFull, match=r"a\.backup"):
        await write_backup(address, tmp_path / "a.backup", runtime, on_progress=fail)
    assert files_in(tmp_path) == ["store.db"]


async def test_a_cancelled_backup_leaves_nothing(tmp_path: Path, runtime: Runtime) -> None:
    """Cancelling a backup leaves neither a file nor a running thread."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    await fill(address, VALUES)
    loop = asyncio.get_running_loop()

    async def back_up() -> None:
        task = asyncio.current_task()
        assert task is not None

        def stop(_done: int, _total: int) -> None:
            loop.call_soon_threadsafe(task.cancel)

        await write_backup(address, tmp_path / "a.backup", runtime, on_progress=stop)
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await back_up()
    assert set(files_in(tmp_path)) <= {"store.db", "a.backup"}


async def test_etcd_backup_holds_all_keys(
    tmp_path: Path, runtime: Runtime, empty_etcd: str
) -> None:
    """An etcd snapshot has every key, and the revision of a compacted deletion."""
    async with opened(empty_etcd) as storage:
        await put_all(storage, {**VALUES, "/registry/pods/default/gone": b"x"})
        await delete_all(storage, ["/registry/pods/default/gone"])
        revision = await storage.revision()
        await storage.compact(revision)
        backup = await write_backup(empty_etcd, tmp_path / "a.backup", runtime)
    assert backup.form == "etcd"
    assert backup.revision == revision
    assert stat.S_IMODE((tmp_path / "a.backup").stat().st_mode) == 0o600
    assert await read_all(f"snapshot:{tmp_path / 'a.backup'}", "/registry/") == VALUES


async def test_etcd_that_is_down(tmp_path: Path, runtime: Runtime) -> None:
    """An etcd that does not reply is reported as unavailable, and no file is left."""
    with pytest.raises(Unavailable):
        await write_backup("etcd://127.0.0.1:1", tmp_path / "a.backup", runtime)
    assert files_in(tmp_path) == []


async def test_a_backup_without_right_to_write(tmp_path: Path, runtime: Runtime) -> None:
    """The error names a directory that cannot be written to."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    await fill(address, VALUES)
    with pytest.raises(StorageError, match=r"/proc/a\.backup"):
        await write_backup(address, Path("/proc/a.backup"), runtime)
