"""The checks of the open file do not mistake writes of this process for a replaced file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.interface import Key, Put, Transaction
from restow.storage.sqlite import file_setup, open_sqlite
from restow.storage.sqlite.file_identity import FileIdentity


def test_a_log_that_grows_while_it_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of the log is read on the event loop, and the writer's thread commits before it is
    compared: the log is not taken for truncated."""
    path, log = tmp_path / "store", tmp_path / "store-wal"
    path.write_bytes(b"file")
    log.write_bytes(b"log")
    identity = FileIdentity(path)
    assert identity.is_in_place()
    stat = os.stat
    grown: list[int] = []

    def stat_and_commit(name: str | Path, **rest: bool) -> os.stat_result:
        found = stat(name, **rest)
        if name == str(log) and not grown:
            grown.append(log.write_bytes(b"a longer log"))
            assert identity.is_in_place()
        return found

    monkeypatch.setattr(os, "stat", stat_and_commit)
    identity.check()
    assert grown
    log.write_bytes(b"log")
    assert not identity.has_whole_log()
    identity.close()


async def test_a_checkpoint_while_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two concurrent comparisons: one that read the file before a checkpoint is not compared with
    what the other has read since."""
    storage = await open_sqlite(tmp_path / "store", Runtime.system())
    read = file_setup.read_file_revision
    revisions: list[int | None] = []

    def read_before_another(path: Path, *, vfs: str | None = None) -> int | None:
        found = read(path, vfs=vfs)
        if not revisions:
            revisions.append(found)
            storage._file_revision = found + 1  # type: ignore[assignment, operator]
        return found

    await storage.commit(Transaction((), (Put(Key("/a"), b"a"),)))
    await storage.look()
    monkeypatch.setattr(file_setup, "read_file_revision", read_before_another)
    await storage.look()
    assert revisions
    assert storage.blocked is None
    await storage.close()
