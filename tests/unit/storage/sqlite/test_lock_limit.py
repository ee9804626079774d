"""Waiting for the write lock has a timeout, and the store works again when the lock is free."""

from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import Unavailable
from restow.storage.interface import Done, Key, Put, Transaction
from restow.storage.sqlite import file_setup, locks, open_sqlite


async def test_a_lock_that_is_never_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits fail while another process keeps the lock, and succeed afterwards."""
    monkeypatch.setattr(locks, "WAIT_SECONDS_MAX", 0.1)
    storage = await open_sqlite(tmp_path / "store.db", Runtime.system())
    holder = locks.WriteLock(file_setup.peers_directory(tmp_path / "store.db"))
    assert holder.try_acquire()
    put = Transaction((), (Put(Key("/a"), b"1"),))
    with pytest.raises(Unavailable, match="write lock"):
        await storage.commit(put)
    with pytest.raises(Unavailable, match="write lock"):
        await storage.compact(await storage.revision())
    holder.release()
    assert isinstance(await storage.commit(put), Done)
    holder.close()
    await storage.close()
