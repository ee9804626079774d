"""Reads bbolt, the database file format of an etcd snapshot. It never writes.

A file is an array of pages. Pages 0 and 1 are *metas*, of which the newer valid one counts. It
names the root of a tree of *branch* and *leaf* pages whose entries are *buckets*, and each of these
is a tree of keys and values. A page may extend over the following pages (`overflow`). A small
bucket is stored inline in its entry, as one leaf page with the number 0.

    page      id u64, flags u16, count u16, overflow u32
    meta      magic u32, version u32, page size u32, flags u32, root u64, sequence u64,
              freelist u64, pages u64, transaction u64, checksum u64 (FNV-1a of all before)
    branch    count x (position u32, key size u32, page u64)
    leaf      count x (flags u32, position u32, key size u32, value size u32)

Positions are relative to the entry. Numbers have the byte order of the machine that wrote them:
little-endian on every platform that etcd supports.

One page is in memory at a time, and nothing read is trusted: a truncated or changed file gives
`StoreDamaged`, not a wrong result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Self

from restow.aio import FileRefused, check_regular
from restow.storage.errors import OpenRefused, StoreDamaged, Unavailable

MAGIC: Final = 0xED0CDAED
VERSION: Final = 2
PAGE_BYTES_POSSIBLE: Final = tuple(1024 << shift for shift in range(8))
DEPTH_MAX: Final = 64
"""Depth limit: a deeper tree has a cycle."""
PAGE_AND_OVERFLOW_BYTES_MAX: Final = 256 * 1024 * 1024
"""Size limit of a page with its overflow; a value of etcd is at most a few megabytes."""

_BRANCH: Final = 0x01
_LEAF: Final = 0x02
_IS_BUCKET: Final = 0x01

_HEADER: Final = Struct("<QHHI")
_META_FIELDS: Final = Struct("<IIIIQQQQQQ")
_BRANCH_ENTRY: Final = Struct("<IIQ")
_LEAF_ENTRY: Final = Struct("<IIII")
_BUCKET: Final = Struct("<QQ")

_FNV_START: Final = 0xCBF29CE484222325
_FNV_FACTOR: Final = 0x100000001B3
_BITS_64: Final = (1 << 64) - 1


class Meta(NamedTuple):
    """The contents of a meta page."""

    page_bytes: int
    root: int
    pages: int
    transaction: int


class _Page(NamedTuple):
    flags: int
    entries: int
    data: bytes


class BoltFile:
    """An open file. Close it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Open it; raises `OpenRefused` if it is not a bbolt file."""
        self.path = path
        try:
            # Opening a pipe must not wait for a writer.
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise OpenRefused(f"{path} cannot be read: {error.strerror}") from error
        try:
            status = os.fstat(self._file)
            check_regular(status, path)
            self.size = status.st_size
            self.meta = self._read_meta()
        except FileRefused as error:
            os.close(self._file)
            raise OpenRefused(f"{path} cannot be read: {error.strerror}") from error
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._file)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; raises `StoreDamaged` if it ends before."""
        if offset > self.size:  # the system refuses some of these offsets with another error
            raise self._damaged("it is truncated; was it copied completely?")
        parts: list[bytes] = []
        while size > 0:
            try:
                part = os.pread(self._file, size, offset)
            except OSError as error:
                raise Unavailable(f"{self.path} cannot be read: {error.strerror}") from error
            if not part:
                raise self._damaged("it is truncated; was it copied completely?")
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)

    def entries_backwards(self, bucket: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys and values of a bucket in descending key order; none if it does not exist."""
        found = self._find_bucket(bucket)
        if found is None:
            return
        root, inline = found
        pages = self._leaves_backwards(root) if root else iter((_as_page(inline),))
        for page in pages:
            yield from self._leaf_backwards(page)

    def check_unchanged(self) -> None:
        """Raise if a process, such as a running etcd, wrote to the file since it was opened."""
        try:
            is_same = self._read_meta() == self.meta
        except (OpenRefused, StoreDamaged):
            is_same = False
        if not is_same:
            raise Unavailable(
                f"{self.path} is being written, so the data read are inconsistent:"
                " take a snapshot with `etcdctl snapshot save`, or use the endpoint of etcd"
            )

    def _read_meta(self) -> Meta:
        first = self._meta_at(0)
        # The second meta is in the next page; if the first is damaged, the page size is unknown.
        sizes = PAGE_BYTES_POSSIBLE if first is None else (first.page_bytes,)
        second = next((meta for size in sizes if (meta := self._meta_at(size)) is not None), None)
        sound = [meta for meta in (first, second) if meta is not None]
        if not sound:
            raise OpenRefused(
                f"{self.path} is not an etcd snapshot: it is not a bbolt database file,"
                " or its first pages are damaged"
            )
        meta = max(sound, key=lambda each: each.transaction)
        return meta

    def _meta_at(self, offset: int) -> Meta | None:
        """The meta in the page at an offset, if it is valid."""
        if offset + _HEADER.size + _META_FIELDS.size > self.size:
            return None
        data = self.read(offset + _HEADER.size, _META_FIELDS.size)
        magic, version, page_bytes, _, root, _, _, pages, transaction, checksum = (
            _META_FIELDS.unpack(data)
        )
        is_sound = (
            magic == MAGIC
            and version == VERSION
            and page_bytes in PAGE_BYTES_POSSIBLE
            and checksum == _fnv(data[:-8])
        )
        return Meta(page_bytes, root, pages, transaction) if is_sound else None

    def _find_bucket(self, name: bytes) -> tuple[int, bytes] | None:
        """The page number of a bucket's root, or 0 and the inline page itself."""
        for page in self._leaves_backwards(self.meta.root):
            for flags, key, value in self._leaf_entries(page):
                if key == name and flags & _IS_BUCKET:
                    if len(value) < _BUCKET.size:
                        raise self._damaged(f"bucket {name!r} has no root")
                    return _BUCKET.unpack_from(value)[0], value[_BUCKET.size :]
        return None

    def _leaves_backwards(self, root: int) -> Iterator[_Page]:
        """The leaves of a tree, the last first; at most one page of each level is in memory."""
        waiting: list[list[int]] = [[root]]
        # Each page of the file is part of one tree, once; what the meta says is not a limit.
        pages_left = self.size // self.meta.page_bytes
        while waiting:
            if not waiting[-1]:
                waiting.pop()
                continue
            if len(waiting) > DEPTH_MAX:
                raise self._damaged("its pages form a cycle")
            number = waiting[-1].pop()
            page = self._page(number, pages_left)
            pages_left -= len(page.data) // self.meta.page_bytes
            if page.flags & _LEAF:
                yield page
            elif page.flags & _BRANCH:
                waiting.append(self._children(page))
            else:
                raise self._damaged(f"page {number} is neither branch nor leaf")

    def _page(self, number: int, pages_max: int) -> _Page:
        """A page with its overflow, of at most so many pages."""
        page_bytes = self.meta.page_bytes
        if not 1 < number < self.meta.pages:
            raise self._damaged(f"page {number} is beyond its {self.meta.pages} pages")
        data = self.read(number * page_bytes, page_bytes)
        stated, flags, count, overflow = _HEADER.unpack_from(data)
        if stated != number or overflow * page_bytes > PAGE_AND_OVERFLOW_BYTES_MAX:
            raise self._damaged(f"page {number} has another number in its header")
        if 1 + overflow > pages_max:
            raise self._damaged("its pages are used more than once")
        if overflow:
            data += self.read((number + 1) * page_bytes, overflow * page_bytes)
        return _Page(flags, count, data)

    def _children(self, page: _Page) -> list[int]:
        end = _HEADER.size + page.entries * _BRANCH_ENTRY.size
        if end > len(page.data):
            raise self._damaged("a branch page is truncated")
        return [entry[2] for entry in _BRANCH_ENTRY.iter_unpack(page.data[_HEADER.size : end])]

    def _leaf_entries(self, page: _Page) -> Iterator[tuple[int, bytes, bytes]]:
        """Flags, key and value of each entry, the last first."""
        data, size = page.data, len(page.data)
        first = _HEADER.size
        if not page.flags & _LEAF or first + page.entries * _LEAF_ENTRY.size > size:
            raise self._damaged("a leaf page is truncated")
        last = first + (page.entries - 1) * _LEAF_ENTRY.size
        unused = size
        for place in range(last, first - 1, -_LEAF_ENTRY.size):
            flags, position, key_size, value_size = _LEAF_ENTRY.unpack_from(data, place)
            begin = place + position
            middle = begin + key_size
            end = middle + value_size
            if end > size:
                raise self._damaged("an entry extends beyond its page")
            unused -= key_size + value_size
            if unused < 0:
                raise self._damaged("the entries of a page overlap")
            yield flags, data[begin:middle], data[middle:end]

    def _leaf_backwards(self, page: _Page) -> Iterator[tuple[bytes, bytes]]:
        for flags, key, value in self._leaf_entries(page):
            if not flags & _IS_BUCKET:
                yield key, value

    def _damaged(self, why: str) -> StoreDamaged:
        return StoreDamaged(f"{self.path} is a damaged database file: {why}")


def _as_page(data: bytes) -> _Page:
    """Parse an inline page."""
    if len(data) < _HEADER.size:
        return _Page(0, 0, data)
    _, flags, count, _ = _HEADER.unpack_from(data)
    return _Page(flags, count, data)


def _fnv(data: bytes) -> int:
    checksum = _FNV_START
    for byte in data:
        checksum = ((checksum ^ byte) * _FNV_FACTOR) & _BITS_64
    return checksum
