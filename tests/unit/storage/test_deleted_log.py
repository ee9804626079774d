"""The write-ahead log is deleted while a process has the store open: commands detect that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.deleted_log import deleted_log_problem
from restow.storage.errors import OpenRefused
from restow.storage.interface import Key, Put, Transaction
from restow.storage.sqlite import open_sqlite
from restow.storage.sqlite.read_only import open_read_only


async def test_a_deleted_log_is_named_until_the_store_is_closed(tmp_path: Path) -> None:
    """The message names the process; a close writes the log back."""
    tmp_path.chmod(0o700)
    path, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    assert deleted_log_problem(path) is None
    storage = await open_sqlite(path, Runtime.system())
    await storage.commit(Transaction((), (Put(Key("/a"), b"1"),)))
    assert deleted_log_problem(path) is None
    log.unlink()
    with pytest.raises(OpenRefused, match=f"process {os.getpid()}.*stop all servers normally"):
        open_read_only(path)
    assert not log.exists()
    await storage.close()
    assert deleted_log_problem(path) is None
    file = open_read_only(path)
    assert file.revision == 2
    file.close()


async def test_the_deleted_log_of_an_earlier_file_does_not_count(tmp_path: Path) -> None:
    """A process that has a replaced file open has the log of that file."""
    tmp_path.chmod(0o700)
    path = tmp_path / "store.db"
    await (await open_sqlite(path, Runtime.system())).close()
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    storage = await open_sqlite(path, Runtime.system())
    await storage.commit(Transaction((), (Put(Key("/a"), b"1"),)))
    path.with_name("store.db-wal").unlink()
    other.rename(path)
    assert deleted_log_problem(path) is None
    await storage.close()
