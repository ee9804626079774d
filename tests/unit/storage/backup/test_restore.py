"""Restore: a new store with all keys of a backup, at revisions that were never used before."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.aio import Runtime
from restow.storage.backup import write_backup
from restow.storage.drivers import UNFINISHED_RESTORE_KEY, open_storage
from restow.storage.errors import Compacted, OpenRefused, StoreDamaged, Unavailable
from restow.storage.etcd import open_etcd, parse_address
from restow.storage.etcd.bolt_file import BoltFile
from restow.storage.etcd.messages import TXN, TxnRequest
from restow.storage.etcd.session import SESSIONS_PREFIX
from restow.storage.etcd.storage import EtcdStorage
from restow.storage.identity import IDENTITY_KEY, decode_record
from restow.storage.interface import (
    EVERYTHING,
    Delete,
    Key,
    Outcome,
    Put,
    Revision,
    Transaction,
    Unknown,
)
from restow.storage.restore import AHEAD_SQLITE, ATTEMPTS_MAX, Restored, restore_backup
from tests.unit.census.stores import commit_all, fill, opened, put_all, read_all

VALUES = {f"/registry/pods/default/{number:04}": b"pod" * 50 for number in range(300)}
EXAMPLES = 10
"""Maximum of examples: each creates two stores and syncs them to disk."""
OWN = {"/restow/servers/a": b"{}", "/restow/epoch/core.pods": b'{"epoch":3}'}


@pytest.fixture
async def backup(tmp_path: Path, runtime: Runtime) -> Path:
    """A backup of a SQLite store."""
    address = f"sqlite:{tmp_path / 'origin.db'}"
    await fill(address, VALUES | OWN)
    path = tmp_path / "a.backup"
    await write_backup(address, path, runtime)
    return path


async def check(address: str, restored: Restored, wanted: dict[str, bytes]) -> None:
    """Check that the store holds exactly these keys, all above the backup's revisions."""
    async with opened(address) as storage:
        page = await storage.range(EVERYTHING)
        found = {item.key: item.value for item in page.items}
        record = decode_record(found.pop(IDENTITY_KEY))
        assert record is not None
        assert record.accepted
        assert found == wanted
        assert await storage.revision() == restored.revision
        assert min(item.revision for item in page.items) > restored.backup_revision
        for old in (1, restored.backup_revision, restored.backup_revision + 1):
            with pytest.raises(Compacted):
                await storage.range(EVERYTHING, revision=Revision(old))
            watch = storage.watch(EVERYTHING, after=Revision(old))
            with pytest.raises(Compacted):
                await anext(watch)
            await watch.close()
        put = Transaction((), (Put(Key("/registry/pods/default/new"), b"x"),))
        await storage.commit(put)
        assert await storage.revision() == restored.revision + 1


async def test_sqlite_to_sqlite(backup: Path, tmp_path: Path, runtime: Runtime) -> None:
    """All keys are restored at much higher revisions, and old revisions are compacted."""
    path = tmp_path / "new" / "store.db"
    path.parent.mkdir()
    seen: list[tuple[int, int]] = []
    restored = await restore_backup(
        backup,
        f"sqlite:{path}",
        runtime,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert restored.keys == len(VALUES | OWN)
    assert restored.revision > restored.backup_revision + AHEAD_SQLITE
    assert seen[-1] == (restored.keys, restored.keys)
    await check(f"sqlite:{path}", restored, VALUES | OWN)


async def test_sqlite_to_etcd_and_back(
    backup: Path, tmp_path: Path, runtime: Runtime, empty_etcd: str
) -> None:
    """A backup of either form can be restored to either driver."""
    restored = await restore_backup(backup, empty_etcd, runtime, ahead=500)
    assert restored.revision >= restored.backup_revision + 500
    await check(empty_etcd, restored, VALUES | OWN)
    await write_backup(empty_etcd, tmp_path / "b.backup", runtime)
    address = f"sqlite:{tmp_path / 'back.db'}"
    again = await restore_backup(tmp_path / "b.backup", address, runtime)
    await check(address, again, VALUES | OWN | {"/registry/pods/default/new": b"x"})


async def test_foreign_keys_are_skipped(tmp_path: Path, runtime: Runtime, empty_etcd: str) -> None:
    """Session keys of lost commits and keys that restow cannot hold are not restored."""
    storage = await open_etcd(parse_address(empty_etcd), runtime)
    try:
        await put_all(storage, VALUES | {f"{SESSIONS_PREFIX}a": b""})
        request = TxnRequest()
        request.success.add().request_put.key = b"compact_rev_key"
        await storage._connection.call(TXN, request, timeout_seconds=5, repeatable=False)
        await write_backup(empty_etcd, tmp_path / "a.backup", runtime)
        # Not a key of restow, so the wipe of the next test does not remove it.
        request = TxnRequest()
        request.success.add().request_delete_range.key = b"compact_rev_key"
        await storage._connection.call(TXN, request, timeout_seconds=5, repeatable=False)
    finally:
        await storage.close()
    address = f"sqlite:{tmp_path / 'store.db'}"
    restored = await restore_backup(tmp_path / "a.backup", address, runtime)
    assert (restored.keys, restored.left_out) == (len(VALUES), 1)
    await check(address, restored, VALUES)


async def test_an_existing_store_is_kept(
    backup: Path, tmp_path: Path, runtime: Runtime, empty_etcd: str
) -> None:
    """A restore is refused into a store with keys, over a file, or beside an old log."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    await fill(address, {"/registry/pods/default/a": b"precious"})
    with pytest.raises(OpenRefused, match="already"):
        await restore_backup(backup, address, runtime)
    assert await read_all(address) == {"/registry/pods/default/a": b"precious"}
    (tmp_path / "other.db-wal").write_bytes(b"left behind")
    with pytest.raises(OpenRefused, match=r"other\.db-wal"):
        await restore_backup(backup, f"sqlite:{tmp_path / 'other.db'}", runtime)
    await fill(empty_etcd, {"/registry/pods/default/a": b"precious"})
    with pytest.raises(OpenRefused, match="holds 1 keys"):
        await restore_backup(backup, empty_etcd, runtime)
    assert await read_all(empty_etcd) == {"/registry/pods/default/a": b"precious"}


async def test_an_unfinished_restore_is_finished(
    backup: Path, tmp_path: Path, runtime: Runtime, empty_etcd: str
) -> None:
    """An interrupted restore keeps servers away, refuses another backup, and can continue."""

    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if total == len(VALUES | OWN) and done > 100:
            raise Stopped

    with pytest.raises(Stopped):
        await restore_backup(backup, empty_etcd, runtime, ahead=200, on_progress=stop)
    with pytest.raises(OpenRefused, match="restow restore"):
        await open_storage(empty_etcd, runtime)
    other = tmp_path / "other.backup"
    await fill(f"sqlite:{tmp_path / 'x.db'}", OWN)
    await write_backup(f"sqlite:{tmp_path / 'x.db'}", other, runtime)
    with pytest.raises(OpenRefused, match="another backup"):
        await restore_backup(other, empty_etcd, runtime, ahead=200)
    restored = await restore_backup(backup, empty_etcd, runtime, ahead=200)
    await check(empty_etcd, restored, VALUES | OWN)
    assert UNFINISHED_RESTORE_KEY not in await read_all(empty_etcd)


@pytest.mark.parametrize("lost", [1, ATTEMPTS_MAX])
async def test_an_unknown_outcome_of_the_last_step_is_resolved(
    backup: Path, runtime: Runtime, empty_etcd: str, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """If the outcome of the last step is unknown, it is repeated, or an error says so."""
    commit, asked = EtcdStorage.commit, 0

    async def lose(self: EtcdStorage, transaction: Transaction) -> Outcome:
        nonlocal asked
        if transaction.writes == (Delete(UNFINISHED_RESTORE_KEY),):
            asked += 1
            if asked <= lost:
                return Unknown("lost")
        return await commit(self, transaction)

    monkeypatch.setattr(EtcdStorage, "commit", lose)
    if lost == ATTEMPTS_MAX:
        with pytest.raises(Unavailable, match="restore again"):
            await restore_backup(backup, empty_etcd, runtime, ahead=200)
    restored = await restore_backup(backup, empty_etcd, runtime, ahead=200)
    await check(empty_etcd, restored, VALUES | OWN)


async def test_a_stopped_restore_leaves_no_file(
    backup: Path, tmp_path: Path, runtime: Runtime
) -> None:
    """A SQLite store is complete or does not exist."""
    directory = tmp_path / "new"
    directory.mkdir()

    class Stopped(Exception):
        pass

    def stop(_done: int, _total: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        await restore_backup(backup, f"sqlite:{directory / 'store.db'}", runtime, on_progress=stop)
    assert list(directory.iterdir()) == []


async def test_etcd_is_not_raised_for_hours(
    backup: Path, runtime: Runtime, empty_etcd: str
) -> None:
    """Raising the revision by too much is refused, and the error names a faster way."""
    with pytest.raises(OpenRefused, match=r"etcdutl snapshot restore .* --bump-revision"):
        await restore_backup(backup, empty_etcd, runtime, ahead=10**9)
    async with opened(empty_etcd) as storage:
        assert await storage.count(EVERYTHING) == 0


async def test_files_that_are_not_backups(tmp_path: Path, runtime: Runtime) -> None:
    """Files that are not backups, and missing ones, are refused before anything is created."""
    target = f"sqlite:{tmp_path / 'store.db'}"
    (tmp_path / "text").write_text("no backup" * 1000)
    with pytest.raises(OpenRefused, match="is neither a copy of a restow store nor a snapshot"):
        await restore_backup(tmp_path / "text", target, runtime)
    with pytest.raises(OpenRefused, match="nothing"):
        await restore_backup(tmp_path / "nothing", target, runtime)
    with pytest.raises(OpenRefused, match="cannot restore to"):
        await restore_backup(tmp_path / "text", "memory:", runtime)
    assert not (tmp_path / "store.db").exists()


async def test_a_damaged_backup(backup: Path, tmp_path: Path, runtime: Runtime) -> None:
    """A truncated or changed backup is refused as a whole."""
    target = f"sqlite:{tmp_path / 'store.db'}"
    data = bytearray(backup.read_bytes())
    cut = tmp_path / "cut.backup"
    cut.write_bytes(data[: len(data) // 2])
    with pytest.raises(StoreDamaged, match=r"cut\.backup"):
        await restore_backup(cut, target, runtime)
    data[8 * 4096 : 9 * 4096] = bytes(4096)
    changed = tmp_path / "changed.backup"
    changed.write_bytes(data)
    with pytest.raises(StoreDamaged, match=r"changed\.backup"):
        await restore_backup(changed, target, runtime)
    assert not (tmp_path / "store.db").exists()


async def test_a_damaged_snapshot(tmp_path: Path, runtime: Runtime, empty_etcd: str) -> None:
    """One changed byte in an etcd snapshot is detected by its hash."""
    await fill(empty_etcd, VALUES)
    path = tmp_path / "a.backup"
    await write_backup(empty_etcd, path, runtime)
    with BoltFile(path) as file:
        place = file.size // 2
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match="SHA-256"):
        await restore_backup(path, f"sqlite:{tmp_path / 'store.db'}", runtime)


@settings(max_examples=EXAMPLES)
@given(
    values=st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).map(
            lambda text: f"/registry/things/{text}"
        ),
        st.binary(max_size=100),
        max_size=20,
    ),
    ahead=st.integers(min_value=1, max_value=10**12),
)
async def test_any_keys_and_values(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, bytes], ahead: int
) -> None:
    """Any keys and values are the same after backup and restore, at higher revisions."""
    runtime = Runtime.system()
    directory = tmp_path_factory.mktemp("any")
    try:
        async with opened(f"sqlite:{directory / 'a.db'}") as storage:
            puts = [Transaction((), (Put(Key(key), value),)) for key, value in values.items()]
            await commit_all(storage, puts)
            revision = await storage.revision()
        await write_backup(f"sqlite:{directory / 'a.db'}", directory / "b", runtime)
        address = f"sqlite:{directory / 'c.db'}"
        restored = await restore_backup(directory / "b", address, runtime, ahead=ahead)
        assert restored.revision == revision + ahead + len(values) + 1  # and its identity
        found = await read_all(address)
        assert found.pop(IDENTITY_KEY)
        assert found == values
    finally:
        shutil.rmtree(directory)
