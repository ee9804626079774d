"""Files of a store are private to their owner: created so, restricted, or refused."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.census import open_source
from restow.storage import private_files
from restow.storage.backup import write_backup
from restow.storage.checkup import FileFacts, check_up
from restow.storage.drivers import open_storage
from restow.storage.errors import OpenRefused
from restow.storage.interface import Key, Put, Transaction
from restow.storage.restore import restore_backup

SUFFIXES = ("", "-wal", "-shm")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o177])
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def runtime() -> Runtime:
    return Runtime.system()


@pytest.fixture
async def store(tmp_path: Path, runtime: Runtime) -> Path:
    """A closed store, in a directory of its own."""
    path = tmp_path / "data" / "store.db"
    private_files.make_data_directory(path.parent)
    storage = await open_storage(f"sqlite:{path}", runtime)
    await storage.commit(Transaction(writes=(Put(Key("/a"), b"1"),)))
    await storage.close()
    return path


@pytest.mark.usefixtures("any_umask")
async def test_modes_do_not_depend_on_the_umask(tmp_path: Path, runtime: Runtime) -> None:
    """Directories have 0700 and files 0600, also log and backup, whatever the umask."""
    path = tmp_path / "deep" / "data" / "store.db"
    private_files.make_data_directory(path.parent)
    storage = await open_storage(f"sqlite:{path}", runtime)
    try:
        await storage.commit(Transaction(writes=(Put(Key("/a"), b"1"),)))
        await write_backup(f"sqlite:{path}", path.with_name("a.backup"), runtime)
        made = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
        for file in (*made, path.with_name("a.backup")):
            assert mode_of(file) == 0o600, file
        for directory in (path.parent, path.parent.parent, path.with_name("store.db-peers")):
            assert mode_of(directory) == 0o700, directory
    finally:
        await storage.close()


async def test_permissions_to_read_are_restricted(
    store: Path, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory with 0755 and files with 0644 are restricted, and the log names them."""
    log = store.with_name("store.db-wal")
    log.touch()
    store.parent.chmod(0o755)
    for file in (store, log):
        file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        private_files.make_data_directory(store.parent)
        await (await open_storage(f"sqlite:{store}", runtime)).close()
    assert (mode_of(store.parent), mode_of(store)) == (0o700, 0o600)
    for place in (store.parent, store, log):
        assert any(record.getMessage().startswith(f"{place} had") for record in caplog.records)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal", "-peers", "/.."])
@pytest.mark.parametrize("mode", [0o020, 0o002])
async def test_permissions_to_write_are_rejected(
    store: Path, runtime: Runtime, suffix: str, mode: int
) -> None:
    """Each file of the store and its directory; the message has path, mode and what to do."""
    place = store.parent if suffix == "/.." else store.with_name(store.name + suffix)
    place.touch()
    place.chmod((0o700 if place.is_dir() else 0o600) | mode)
    with pytest.raises(OpenRefused, match=rf"{place} has mode \d+,.* chmod .*{place}"):
        await open_storage(f"sqlite:{store}", runtime)
    if suffix == "/..":
        with pytest.raises(OpenRefused, match="use a private directory in it"):
            private_files.make_data_directory(place)


async def test_reading_commands_refuse_it_too(
    store: Path, runtime: Runtime, tmp_path: Path
) -> None:
    """Census and backup of a store that others can write, and a restore of such a backup."""
    backup = tmp_path / "a.backup"
    await write_backup(f"sqlite:{store}", backup, runtime)
    backup.chmod(0o660)
    with pytest.raises(OpenRefused, match="mode 660"):
        await restore_backup(backup, f"sqlite:{tmp_path / 'new.db'}", runtime)
    store.chmod(0o606)
    with pytest.raises(OpenRefused, match="mode 606"):
        await open_source(f"sqlite:{store}", runtime)
    with pytest.raises(OpenRefused, match="mode 606"):
        await write_backup(f"sqlite:{store}", tmp_path / "b.backup", runtime)
    facts = await check_up(f"sqlite:{store}", runtime)
    assert isinstance(facts, FileFacts)
    assert "mode 606" in facts.exposures[0]
    assert mode_of(store) == 0o606


def test_files_of_another_user(tmp_path: Path) -> None:
    """A file of another user is not trusted, and the message names the owner."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to(file)
    owner = file.stat().st_uid
    for place in (file, link, tmp_path):
        assert private_files.ownership_problem(place) is None
        problem = private_files.ownership_problem(place, (owner + 1,)) or ""
        assert problem.startswith(f"{place} belongs to another user (uid {owner}): use")


def test_keys_must_be_secret(tmp_path: Path) -> None:
    """A key that others can read is refused; read permission of the group is allowed."""
    key = tmp_path / "key"
    key.touch()
    for mode, is_good in ((0o600, True), (0o640, True), (0o644, False), (0o620, False)):
        key.chmod(mode)
        assert (private_files.key_problem(key) is None) == is_good


def test_the_opened_file_is_checked(tmp_path: Path) -> None:
    """The check and the read use the same file, and only a file safe from others is read."""
    file = tmp_path / "file"
    file.write_bytes(b"content")
    for mode, kept, secret in (
        (0o600, True, True),
        (0o640, True, True),
        (0o644, True, False),
        (0o620, False, False),
        (0o602, False, False),
    ):
        file.chmod(mode)
        for is_good, is_secret in ((kept, False), (secret, True)):
            if is_good:
                assert private_files.read_kept(file, bytes_max=9, is_secret=is_secret) == b"content"
                continue
            with pytest.raises(private_files.FileExposed) as refusal:
                private_files.read_kept(file, bytes_max=9, is_secret=is_secret)
            assert str(refusal.value).startswith(str(file))
            assert f"mode {mode:o}" in str(refusal.value)
            assert f"chmod 600 {file}" in str(refusal.value)


def test_remedy_for_a_file_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suggested mode keeps the permission by which the group or others may read it."""
    file = tmp_path / "file"
    file.touch()
    owner = file.stat().st_uid
    file.chmod(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(private_files.FileExposed, match=f"chmod 644 {file} if"):
        private_files.read_kept(file, bytes_max=1, trusted=(owner,))
    with pytest.raises(private_files.FileExposed, match=f"chmod 640 {file} if"):
        private_files.read_kept(file, bytes_max=1, is_secret=True, trusted=(owner,))
    with pytest.raises(private_files.FileExposed, match="belongs to another user"):
        private_files.read_kept(file, bytes_max=1, trusted=(owner + 1,))
