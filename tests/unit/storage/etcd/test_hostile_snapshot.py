"""Snapshot files that were made to mislead or to stop the reader: an error, and soon."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import OpenRefused, StoreDamaged
from restow.storage.etcd.bolt_file import BoltFile
from restow.storage.etcd.snapshot_file import EtcdSnapshot
from restow.storage.interface import REVISION_MAX
from restow.storage.restore import restore_backup
from restow.storage.sources import open_source
from tests.support.bolt_pages import PAGE_BYTES, branch, bucket, change, database, leaf, page

KEY = bucket(b"key", 3)


def read_all(path: Path) -> list[tuple[str, bytes]]:
    snapshot = EtcdSnapshot(path)
    try:
        return list(snapshot.entries(("",)))
    finally:
        snapshot.close()


@pytest.fixture
def pages_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads; more than a thousand end the test."""
    sizes: list[int] = []
    read = BoltFile.read

    def counted(file: BoltFile, offset: int, size: int) -> bytes:
        sizes.append(size)
        assert len(sizes) < 1_000, "the reader does not end"
        return read(file, offset, size)

    monkeypatch.setattr(BoltFile, "read", counted)
    return sizes


def test_a_small_snapshot(tmp_path: Path) -> None:
    """The pages that these tests make are valid: a snapshot made of them is read."""
    path = tmp_path / "snapshot"
    path.write_bytes(
        database([leaf(2, [KEY]), leaf(3, [change(4, b"/a", b"1"), change(5, b"/b", b"2")])])
    )
    assert read_all(path) == [("/b", b"2"), ("/a", b"1")]


def test_pages_with_many_parents(tmp_path: Path, pages_read: list[int]) -> None:
    """Branches whose children are all the next page are an error after as many pages as the file
    has, whatever number it claims to have; a walk of all paths would take 40 to the power of 10."""
    path = tmp_path / "snapshot"
    levels = [branch(n, [(b"%02d" % child, n + 1) for child in range(40)]) for n in range(3, 13)]
    pages = [leaf(2, [KEY]), *levels, leaf(13, [])]
    path.write_bytes(database(pages, pages_count=1 << 62))
    with pytest.raises(StoreDamaged, match="more than once"):
        read_all(path)
    assert sum(pages_read) < 20 * path.stat().st_size


def test_long_pages_that_overlap(tmp_path: Path, pages_read: list[int]) -> None:
    """Pages that each claim the whole rest of the file are not all read: a page is part of one
    other."""
    path = tmp_path / "snapshot"
    leaves = [page(n, 2, 0, b"", overflow=43 - n) for n in range(4, 44)]
    whole = branch(3, [(b"%02d" % n, n) for n in range(4, 44)])
    path.write_bytes(database([leaf(2, [KEY]), whole, *leaves]))
    with pytest.raises(StoreDamaged):
        read_all(path)
    assert sum(pages_read) < 4 * path.stat().st_size


@pytest.mark.parametrize("number", [20, 1 << 40, (1 << 62) - 1])
def test_a_page_behind_the_end(tmp_path: Path, number: int) -> None:
    """A page whose place is behind the end of the file, or larger than any file, is an error."""
    path = tmp_path / "snapshot"
    path.write_bytes(database([leaf(2, [bucket(b"key", number)])], pages_count=1 << 62))
    with pytest.raises(StoreDamaged, match="truncated"):
        read_all(path)


def test_entries_that_overlap(tmp_path: Path) -> None:
    """Entries that all share the same bytes are an error: a file does not give more data than it
    has."""
    path = tmp_path / "snapshot"
    heads = b"".join(struct.pack("<IIII", 0, 0, 17, 900 - 16 * n) for n in range(30))
    path.write_bytes(database([leaf(2, [KEY]), page(3, 2, 30, heads)]))
    with BoltFile(path) as file, pytest.raises(StoreDamaged, match="overlap"):
        list(file.entries_backwards(b"key"))


@pytest.mark.parametrize("revision", [REVISION_MAX + 1, 1 << 63, (1 << 64) - 1])
async def test_a_revision_that_no_store_can_have(tmp_path: Path, revision: int) -> None:
    """A snapshot at such a revision is damaged, and is not restored."""
    path = tmp_path / "snapshot"
    path.write_bytes(database([leaf(2, [KEY]), leaf(3, [change(revision, b"/a", b"1")])]))
    with pytest.raises(StoreDamaged, match="revision"):
        EtcdSnapshot(path)
    path.chmod(0o600)
    with pytest.raises(StoreDamaged, match="revision"):
        await restore_backup(path, f"sqlite:{tmp_path / 'store.db'}", Runtime.system())


async def test_no_room_above_the_revision(tmp_path: Path) -> None:
    """A backup whose revision cannot be raised is refused, and no store is created."""
    path = tmp_path / "snapshot"
    path.write_bytes(database([leaf(2, [KEY]), leaf(3, [change(REVISION_MAX, b"/a", b"1")])]))
    path.chmod(0o600)
    with pytest.raises(OpenRefused, match="--ahead"):
        await restore_backup(path, f"sqlite:{tmp_path / 'store.db'}", Runtime.system())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["snapshot"]


@pytest.mark.timeout(20)
async def test_a_pipe(tmp_path: Path) -> None:
    """A pipe without a writer is refused; a command does not wait for one."""
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    with pytest.raises(OpenRefused, match="not a regular file"):
        BoltFile(path)
    with pytest.raises(OpenRefused, match="not a regular file"):
        await open_source(f"snapshot:{path}", Runtime.system())
    with pytest.raises(OpenRefused, match="not a regular file"):
        await restore_backup(path, f"sqlite:{tmp_path / 'store.db'}", Runtime.system())


def test_pages_are_small() -> None:
    """The builder makes pages of one size, as the meta pages say."""
    assert len(database([leaf(2, [])])) == 3 * PAGE_BYTES
