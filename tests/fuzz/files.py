"""Targets for files that an operator passes to a command: backups, snapshots, kubeconfigs.

A file may come from anybody: a command reports what is wrong with it, and ends soon.
"""

from __future__ import annotations

import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from restow.client.errors import ConfigInvalid
from restow.client.kubeconfig import read_kubeconfig
from restow.storage.errors import OpenRefused, StorageError, StoreDamaged, Unavailable
from restow.storage.etcd.bolt_file import BoltFile
from restow.storage.etcd.snapshot_file import EtcdSnapshot
from restow.storage.interface import EVERYTHING, REVISION_MAX
from restow.storage.sqlite import file_setup
from restow.storage.sqlite.backup import check_file, make_store_at
from restow.storage.sqlite.read_only import open_read_only
from tests.support.bolt_pages import branch, bucket, change, database, leaf, with_checksums

READ_PER_BYTE_MAX: Final = 40
"""Bytes that may be read for each byte of a snapshot: its metas, hash and pages, a few times."""

_INLINE: Final = (
    struct.pack("<QHHI", 0, 2, 1, 0)
    + struct.pack("<IIII", 0, 16, 18, 17)
    + b"finishedCompactRev"
    + struct.pack(">QcQ", 3, b"_", 0)
)
SNAPSHOTS: Final = (
    database(
        [
            leaf(2, [bucket(b"key", 3), bucket(b"meta", 0, _INLINE)]),
            leaf(3, [change(4, b"/a", b"1"), change(5, b"/b", b"2"), change(6, b"/a", b"", b"t")]),
        ]
    ),
    database(
        [
            leaf(2, [bucket(b"key", 3)]),
            branch(3, [(b"", 4), (struct.pack(">QcQ", 5, b"_", 0), 5)]),
            leaf(4, [change(4, b"/a", b"1")]),
            leaf(5, [change(5, b"/b", b"2")]),
        ]
    ),
)


@cache
def _directory() -> Path:
    return Path(tempfile.mkdtemp(prefix="restow-fuzz-files-"))


def snapshot(data: bytes) -> None:
    """Every file gives entries or an error, in time proportional to its size, and no entry that is
    not in it."""
    path = _directory() / "snapshot"
    path.write_bytes(with_checksums(data))
    size = path.stat().st_size
    bytes_read = 0
    read = BoltFile.read

    def counted(file: BoltFile, offset: int, nbytes: int) -> bytes:
        nonlocal bytes_read
        bytes_read += nbytes
        assert bytes_read <= READ_PER_BYTE_MAX * size, "pages are read repeatedly"
        return read(file, offset, nbytes)

    with patch.object(BoltFile, "read", counted):
        opened = EtcdSnapshot(path)
        try:
            assert 1 <= opened.revision <= REVISION_MAX
            found = list(opened.entries(("",)))
        finally:
            opened.close()
    assert len({key for key, _ in found}) == len(found)
    assert sum(len(key) + len(value) for key, value in found) <= size, "more than the file has"


@cache
def _store() -> bytes:
    """A small store file."""
    path = _directory() / "store.db"
    make_store_at(path, REVISION_BEGIN)
    connection = file_setup.connect(path, cache_kib=file_setup.READER_CACHE_KIB)
    for number, (key, value) in enumerate((("/a", b"1"), ("/b", b"x" * 5000), ("/c", b""))):
        place = (int(REVISION_BEGIN) << 7) + number
        connection.execute("INSERT INTO keys VALUES (?, ?, ?)", (key, place, int(REVISION_BEGIN)))
        connection.execute("INSERT INTO versions VALUES (?, ?)", (place, value))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA journal_mode = DELETE")
    file_setup.disconnect(connection)
    return path.read_bytes()


REVISION_BEGIN: Final[Any] = 7


def sqlite_backup(data: bytes) -> None:
    """A store file with some bytes overwritten: two bytes say where (from the front, or within the
    page that the first of them selects), one how many, and the rest is what."""
    made = bytearray(_store())
    at = 0
    while at + 3 <= len(data):
        place, count = int.from_bytes(data[at : at + 2]) % len(made), data[at + 2] % 16
        made[place : place + count] = data[at + 3 : at + 3 + count]
        at += 3 + count
    path = _directory() / "backup.db"
    path.write_bytes(made)
    check_file(path)
    file = open_read_only(path)
    try:
        assert 0 <= file.revision <= REVISION_MAX
        for key, value in file.rows([EVERYTHING]):
            assert isinstance(key, str)
            assert isinstance(value, bytes)
    finally:
        file.close()


def kubeconfig(data: bytes) -> None:
    path = _directory() / "kubeconfig"
    path.write_bytes(data)
    found = read_kubeconfig([path])
    assert found.server
    assert all(isinstance(name, str) for pair in found.impersonation for name in pair)


_CONTEXT: Final = b"current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
KUBECONFIGS: Final = (
    b"kind: Config\n"
    + _CONTEXT
    + b"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', tls-server-name: x}}]\n"
    + b"users: [{name: u, user: {token: t, as: j, as-groups: [g], as-user-extra: {k: [v]}}}]\n",
    _CONTEXT
    + b"clusters: [{name: c, cluster: {server: s, certificate-authority-data: YQ==}}]\n"
    + b"users: [{name: u, user: {tokenFile: x}}]\n",
    _CONTEXT
    + b"clusters: [{name: c, cluster: {server: s, certificate-authority: x/y,"
    + b" insecure-skip-tls-verify: false}}]\nusers: [{name: u}]\n",
)
STORE_PATCHES: Final = (b"", b"\x00\x10\x02\x10\x00", b"\x20\x00\x04abcd", b"\x00\x64\x05xxxxx")
FILE_ERRORS: Final = (OpenRefused, StoreDamaged, Unavailable, StorageError)
CONFIG_ERRORS: Final = (ConfigInvalid,)
