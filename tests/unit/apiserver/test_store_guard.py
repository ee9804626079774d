"""A server recognises its store by its identity and the newest revision that it has seen."""

import asyncio
import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.apiserver.store_guard import StoreGuard, open_guarded
from restow.storage.drivers import open_storage
from restow.storage.errors import Compacted, OpenRefused, StorageError, StoreReplaced
from restow.storage.identity import (
    IDENTITY_KEY,
    IdentifiedStorage,
    IdentityRecord,
    Mark,
    Seen,
    accept,
    difference,
)
from restow.storage.interface import (
    EVERYTHING,
    Delete,
    Done,
    Key,
    Put,
    Revision,
    Storage,
    Transaction,
)
from restow.storage.sqlite.storage import SqliteStorage
from restow.storage.store_mark import MARK_NAME, read_mark, write_mark

RUNTIME = Runtime.system()
ADDRESS = "sqlite:/x/store.db"
MARK = Mark(id="a", revision=100, address=ADDRESS)


def put(number: int) -> Transaction:
    return Transaction((), (Put(Key(f"/restow/x{number}"), b"1"),))


@asynccontextmanager
async def server(directory: Path) -> AsyncIterator[tuple[Storage, StoreGuard]]:
    """Open the store of a data directory as a server does."""
    async with AsyncExitStack() as undo:
        storage, guard = await open_guarded(
            f"sqlite:{directory / 'store.db'}", RUNTIME, undo, data_dir=directory
        )
        assert guard is not None
        yield storage, guard


async def refusal(directory: Path) -> str:
    with pytest.raises(OpenRefused) as caught:
        async with server(directory):
            pass
    return str(caught.value)


async def fill(directory: Path, *, count: int = 20) -> None:
    async with server(directory) as (storage, _):
        for number in range(count):
            assert isinstance(await storage.commit(put(number)), Done)


async def test_a_store_gets_an_identity_once(tmp_path: Path) -> None:
    """Also one of an earlier release without identity: at the first start, and never again."""
    storage = await open_storage(f"sqlite:{tmp_path / 'store.db'}", RUNTIME)
    assert isinstance(await storage.commit(put(0)), Done)
    await storage.close()
    seen = set()
    for _ in range(3):
        async with server(tmp_path) as (storage, _):
            item = await storage.get(IDENTITY_KEY)
            assert item is not None
            seen.add(item.value)
    assert len(seen) == 1


async def test_the_mark_is_private_and_grows(tmp_path: Path) -> None:
    """Only its owner may read it; each renewal and the shutdown record the newest revision."""
    async with server(tmp_path) as (storage, guard):
        await storage.commit(put(1))
        assert await guard.step()
        mark = read_mark(tmp_path / MARK_NAME)
        assert mark is not None
        assert mark.revision == await storage.revision()
        await storage.commit(put(2))
        newest = await storage.revision()
    mark = read_mark(tmp_path / MARK_NAME)
    assert mark is not None
    assert mark.revision == newest
    assert stat.S_IMODE((tmp_path / MARK_NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.glob(".store.mark*")] == []


async def test_a_store_that_lost_its_log_is_refused(tmp_path: Path) -> None:
    """A server was killed and its log deleted: the file lacks acknowledged writes."""
    files = tmp_path / "killed"
    files.mkdir(mode=0o700)
    async with server(tmp_path) as (storage, guard):
        for number in range(20):
            assert isinstance(await storage.commit(put(number)), Done)
        assert await guard.step()
        shutil.copy(tmp_path / "store.db", files / "store.db")  # without its log
        shutil.copy(tmp_path / MARK_NAME, files / MARK_NAME)
    mark = read_mark(files / MARK_NAME)
    assert mark is not None
    (files / "store.db").replace(tmp_path / "store.db")
    text = await refusal(tmp_path)
    assert "is not the one that acknowledged this server's writes" in text
    assert "restow store accept --store" in text


@pytest.mark.parametrize("with_empty_file", [False, True])
async def test_a_missing_or_empty_store_is_refused(with_empty_file: bool, tmp_path: Path) -> None:
    """No server creates a second, empty store in place of one that it has used."""
    await fill(tmp_path)
    (tmp_path / "store.db").unlink()
    if with_empty_file:
        await (await open_storage(f"sqlite:{tmp_path / 'store.db'}", RUNTIME)).close()
    text = await refusal(tmp_path)
    assert ("has no identity" if with_empty_file else "the file does not exist") in text


async def test_an_older_copy_is_taken_after_it_was_accepted(tmp_path: Path) -> None:
    """Not before that; afterwards the earlier store is rejected."""
    await fill(tmp_path)
    shutil.copy(tmp_path / "store.db", tmp_path / "older")
    await fill(tmp_path)
    (tmp_path / "store.db").rename(tmp_path / "newer")
    (tmp_path / "older").rename(tmp_path / "store.db")
    assert "revision" in await refusal(tmp_path)
    storage = await open_storage(f"sqlite:{tmp_path / 'store.db'}", RUNTIME)
    await accept(storage, RUNTIME.ids)
    await storage.close()
    await fill(tmp_path)
    (tmp_path / "newer").rename(tmp_path / "store.db")
    assert "its identity is" in await refusal(tmp_path)


async def test_a_replaced_file_beside_the_log_of_the_earlier_one(tmp_path: Path) -> None:
    """It is not even opened: SQLite would copy pages of the old log into it."""
    await fill(tmp_path)
    shutil.copy(tmp_path / "store.db", tmp_path / "other")
    content = (tmp_path / "other").read_bytes()
    async with server(tmp_path) as (storage, guard):
        await storage.commit(put(1))
        await guard.step()
        (tmp_path / "other").rename(tmp_path / "store.db")
        assert not await guard.step()
        assert guard.check() is not None
        with pytest.raises(StorageError):
            await storage.commit(put(2))
        text = await refusal(tmp_path)
    assert "store.db-wal belongs to the earlier file" in text
    assert (tmp_path / "store.db").read_bytes() == content


async def test_a_missing_identity_blocks_a_running_server_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    """As after emptying a store. No restart is needed."""
    async with server(tmp_path) as (storage, guard):
        await storage.commit(Transaction((), (Delete(IDENTITY_KEY),)))
        assert not await guard.step()
        with pytest.raises(StorageError):
            await storage.commit(put(1))
        other = await open_storage(f"sqlite:{tmp_path / 'store.db'}", RUNTIME)
        await accept(other, RUNTIME.ids)
        await other.close()
        assert await guard.step()
        assert guard.check() is None
        assert isinstance(await storage.commit(put(2)), Done)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_changed_identity_is_noticed_between_two_renewals(
    is_replaced: bool, tmp_path: Path
) -> None:
    """Another process removes it, or accepts the store: both are detected before the next
    renewal."""
    async with server(tmp_path) as (storage, guard), asyncio.timeout(10):
        accepted = asyncio.Event()
        guard.accepted.subscribe(accepted.set)
        task = asyncio.create_task(guard.follow())
        other = await open_storage(f"sqlite:{tmp_path / 'store.db'}", RUNTIME)
        if is_replaced:
            await accept(other, RUNTIME.ids)
            await accepted.wait()
        else:
            await other.commit(Transaction((), (Delete(IDENTITY_KEY),)))
            while guard.check() is None:  # noqa: ASYNC110  (the guard's own task blocks it)
                await asyncio.sleep(0.01)
            with pytest.raises(StorageError):
                await storage.commit(put(1))
        await other.close()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_store_that_goes_back_during_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that began before the newest writes accepts an older copy. It does not clear what
    another read has found meanwhile, and neither does a later check."""
    async with server(tmp_path) as (storage, guard):
        assert isinstance(storage, SqliteStorage)
        look = storage.look

        async def check_late() -> Seen:
            seen = await look()
            storage.block(StoreReplaced("it went back"))
            return seen

        monkeypatch.setattr(storage, "look", check_late)
        assert not await guard.step()
        assert guard.check() == "it went back"
        monkeypatch.setattr(storage, "look", look)
        assert not await guard.step()
        assert guard.check() is not None
        mark = read_mark(tmp_path / MARK_NAME)
        assert mark is not None
        assert mark.suspect == "it went back"


def seen(record: IdentityRecord | None, *, revision: int = 100, cluster_id: str = "") -> Seen:
    return Seen(record, Revision(revision), cluster_id)


@pytest.mark.parametrize(
    ("found", "mark", "wanted"),
    [
        (seen(IdentityRecord("a")), MARK, None),
        (seen(IdentityRecord("a"), revision=99), MARK, "revision 99"),
        (seen(IdentityRecord("b"), revision=500), MARK, "identity is b"),
        (seen(None), MARK, "no identity"),
        (seen(IdentityRecord("b", accepted=True), revision=1), MARK, None),
        (
            seen(IdentityRecord("b", accepted=True)),
            Mark(id="a", revision=1, address=ADDRESS, former=("b",)),
            "identity is b",
        ),
        (seen(IdentityRecord("a", accepted=True), revision=99), MARK, "revision 99"),
        (seen(IdentityRecord("a"), cluster_id="2"), MARK, "cluster id"),
        (seen(IdentityRecord("b")), Mark(id="a", revision=1, address="sqlite:/y"), None),
        (seen(None), Mark(id="a", revision=1, address="sqlite:/y"), None),
        (
            seen(IdentityRecord("a"), revision=1),
            Mark(id="a", revision=2, address="sqlite:/y"),
            "revision",
        ),
    ],
)
def test_replaced_stores_are_detected(found: Seen, mark: Mark, wanted: str | None) -> None:
    """Identity, cluster ID and revision; an accepted store is adopted once, at any address."""
    why = difference(mark, found, address=ADDRESS)
    assert why is None if wanted is None else why is not None and wanted in why


def test_servers_of_one_directory_share_the_mark(tmp_path: Path) -> None:
    """A server that has seen less does not lower it; earlier identities are kept."""
    file = tmp_path / MARK_NAME
    for mark in (
        Mark(id="a", revision=5, address=ADDRESS),
        Mark(id="a", revision=3, address=ADDRESS),
    ):
        write_mark(file, mark, nonce="0")
    assert read_mark(file) == Mark(id="a", revision=5, address=ADDRESS)
    write_mark(file, Mark(id="b", revision=1, address=ADDRESS), nonce="0")
    assert read_mark(file) == Mark(id="b", revision=1, address=ADDRESS, former=("a",))


def test_a_damaged_mark_is_named(tmp_path: Path) -> None:
    """It is not interpreted, and the message says what to do."""
    (tmp_path / MARK_NAME).write_text("{")
    (tmp_path / MARK_NAME).chmod(0o600)
    with pytest.raises(OpenRefused, match="is damaged"):
        read_mark(tmp_path / MARK_NAME)


async def test_a_store_that_is_found_to_be_another_one_during_a_look_stays_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver may detect it between the start and the end of a check, while writes in flight
    may raise the revision to an inconspicuous one."""
    async with server(tmp_path) as (storage, guard):
        assert isinstance(storage, IdentifiedStorage)
        look = type(storage).look

        async def check_and_block(self: IdentifiedStorage) -> Seen:
            seen = await look(self)
            if self.blocked is None:
                self.block(StoreReplaced("it went back"))
            return seen

        monkeypatch.setattr(type(storage), "look", check_and_block)
        assert not await guard.step()
        assert not await guard.step()
        assert str(storage.blocked) == "it went back"
        mark = read_mark(tmp_path / MARK_NAME)
        assert mark is not None
        assert mark.suspect == "it went back"


async def test_an_accepted_store_begins_above_observed_revisions(tmp_path: Path) -> None:
    """Clients may know newer revisions than the first server that continues with the store: from
    another server, which may never come back."""
    await fill(tmp_path)
    mark = read_mark(tmp_path / MARK_NAME)
    assert mark is not None
    storage = await open_storage(f"sqlite:{tmp_path / 'store.db'}", RUNTIME)
    await accept(storage, RUNTIME.ids)
    await storage.close()
    async with server(tmp_path) as (storage, _):
        assert await storage.revision() > mark.revision + 5_000
        with pytest.raises(Compacted):
            await storage.get(IDENTITY_KEY, revision=Revision(mark.revision + 5_000))


async def test_the_newest_revision_is_remembered_while_the_store_is_blocked(tmp_path: Path) -> None:
    """Writes were acknowledged after the last renewal, then the file was replaced by a copy without
    them: the next start refuses the copy."""
    copy = tmp_path / "copy.db"
    await fill(tmp_path)
    async with server(tmp_path) as (storage, guard):
        shutil.copyfile(tmp_path / "store.db", copy)
        for number in range(5):
            assert isinstance(await storage.commit(put(number)), Done)
        acknowledged = await storage.revision()
        copy.rename(tmp_path / "store.db")
        assert not await guard.step()
    mark = read_mark(tmp_path / MARK_NAME)
    assert mark is not None
    assert mark.revision == acknowledged
    for name in ("store.db-wal", "store.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    assert "revision" in await refusal(tmp_path)


async def test_an_accepted_store_ends_watches_of_a_server_that_was_not_blocked(
    tmp_path: Path,
) -> None:
    """A server that has not noticed that its store was replaced notices it when another store is
    accepted: its watches end, so that its caches are reloaded."""
    await fill(tmp_path)
    async with server(tmp_path) as (storage, guard):
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        other = await open_storage(f"sqlite:{tmp_path / 'store.db'}", RUNTIME)
        await accept(other, RUNTIME.ids)
        await other.close()
        assert isinstance(storage, IdentifiedStorage)
        assert storage.blocked is None
        assert await guard.step()
        with pytest.raises(StorageError):
            async for _ in watch:
                pass
        await watch.close()
