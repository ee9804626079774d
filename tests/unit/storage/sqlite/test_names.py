"""A file may be opened by any of its names, always with the same store."""

import asyncio
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.interface import EVERYTHING, Done, Key, Put, Transaction
from restow.storage.sqlite import open_sqlite

PUT = Transaction((), (Put(Key("/restow/x"), b"1"),))
SECONDS_MAX = 20


async def test_a_symbolic_link(tmp_path: Path) -> None:
    """A symbolic link gives the same file, log, and peers that notify each other."""
    (tmp_path / "link").symlink_to("db")  # to a file that does not exist yet
    linked = await open_sqlite(tmp_path / "link", Runtime.system())
    direct = await open_sqlite(tmp_path / "db", Runtime.system())
    watch = direct.watch(EVERYTHING, after=await direct.revision())
    assert isinstance(await linked.commit(PUT), Done)
    async with asyncio.timeout(SECONDS_MAX):
        assert [event.key for event in (await anext(watch)).events] == [Key("/restow/x")]
    await linked.close()
    await direct.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["db", "db-peers", "link"]


async def test_another_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is resolved at the start, also for connections opened later."""
    monkeypatch.chdir(tmp_path)
    storage = await open_sqlite("db", Runtime.system())
    monkeypatch.chdir("/")
    assert isinstance(await storage.commit(PUT), Done)
    for page in await asyncio.gather(*(storage.range(EVERYTHING) for _ in range(10))):
        assert len(page.items) == 1
    await storage.close()


@pytest.mark.parametrize("name", [":memory:", "file:db?mode=memory", "a?b#c%20d e"])
async def test_a_name_that_sqlite_reads_otherwise(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is taken literally, however SQLite would interpret it."""
    monkeypatch.chdir(tmp_path)
    storage = await open_sqlite(name, Runtime.system())
    assert isinstance(await storage.commit(PUT), Done)
    await storage.close()
    assert (tmp_path / name).stat().st_size > 0
