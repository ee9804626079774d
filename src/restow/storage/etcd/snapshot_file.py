"""Reads an etcd snapshot, as `etcdctl snapshot save` writes it: the newest value of each key.

The file is etcd's database, followed by a SHA-256; the database of a stopped member
(`member/snap/db`) is the same without it. In its bucket `key` a change is stored under its revision
as a protobuf message with the key and the value; a deletion has one more letter in its key.

    key      revision u64, "_", number of the change in its transaction u64 (both big-endian), ["t"]
    value    KeyValue{1: key, 2: created, 3: changed, 4: version, 5: value, 6: lease}

The bucket is read from its end, so the first change found for a key is its newest. Only the keys
read so far are in memory, no values. A compaction removes deletions, so the newest remaining change
may be older than the database; the compaction's revision is in the bucket `meta`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from restow.apimachinery.protobuf_values import read_small
from restow.storage.errors import StoreDamaged
from restow.storage.etcd.bolt_file import BoltFile
from restow.storage.interface import REVISION_FIRST, REVISION_MAX

HASH_BYTES: Final = 32
DISK_SECTOR_BYTES: Final = 512
"""A database is a multiple of this; etcd itself derives from it whether a hash follows."""
_CHUNK_BYTES: Final = 4 * 1024 * 1024

_BUCKET: Final = b"key"
_META: Final = b"meta"
_COMPACTIONS: Final = (b"scheduledCompactRev", b"finishedCompactRev")
_REVISION: Final = Struct(">QcQ")
_DELETED: Final = b"t"
_KEY, _VALUE = 1, 5


class EtcdSnapshot:
    """An open snapshot. Close it when done."""

    def __init__(self, path: Path) -> None:
        self._file = BoltFile(path)
        try:
            self._check_hash()
            self.revision = self._newest_revision()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def entries(self, prefixes: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Keys that have one of the prefixes, with their newest values; newest change first."""
        starts = tuple(prefix.encode("utf-8", "surrogateescape") for prefix in prefixes)
        seen: set[bytes] = set()
        try:
            for _, is_deleted, message in self._changes():
                fields = read_small(message, 0, len(message))
                key = fields[_KEY]
                if not key.startswith(starts) or key in seen:
                    continue
                seen.add(key)
                if not is_deleted:
                    yield key.decode("utf-8", "surrogateescape"), fields.get(_VALUE, b"")
        except (StoreDamaged, IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
            self._file.check_unchanged()  # raises if that is the reason
            if isinstance(error, StoreDamaged):
                raise
            raise self._damaged("a change in it cannot be decoded") from error
        self._file.check_unchanged()

    def _changes(self) -> Iterator[tuple[int, bool, bytes]]:
        """Revision, whether it is a deletion, and the message; the newest first."""
        before = b""
        for place, message in self._file.entries_backwards(_BUCKET):
            revision, mark, _ = _REVISION.unpack_from(place) if len(place) >= 17 else (0, b"", 0)
            if mark != b"_" or len(place) > _REVISION.size + 1:
                raise self._damaged(f"{place!r} is not a revision")
            if before and place >= before:
                raise self._damaged("its revisions are not in order")
            before = place
            yield revision, place[_REVISION.size :] == _DELETED, message

    def _newest_revision(self) -> int:
        newest = max(next((each[0] for each in self._changes()), 0), REVISION_FIRST)
        for name, value in self._file.entries_backwards(_META):
            if name in _COMPACTIONS and len(value) >= _REVISION.size:
                newest = max(newest, _REVISION.unpack_from(value)[0])
        if newest > REVISION_MAX:
            raise self._damaged(f"its revision {newest} is larger than any cluster's")
        return newest

    def _check_hash(self) -> None:
        """Compare the hash at the end, if there is one."""
        file = self._file
        if file.size % DISK_SECTOR_BYTES != HASH_BYTES:
            return
        end = file.size - HASH_BYTES
        digest = hashlib.sha256()
        for offset in range(0, end, _CHUNK_BYTES):
            digest.update(file.read(offset, min(_CHUNK_BYTES, end - offset)))
        if digest.digest() != file.read(end, HASH_BYTES):
            raise self._damaged("its SHA-256 does not match; was it copied completely?")

    def _damaged(self, why: str) -> StoreDamaged:
        return StoreDamaged(f"{self._file.path} is a damaged snapshot: {why}")
