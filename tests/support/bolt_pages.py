"""Builds small files in bbolt's format, the database file of etcd, with pages of any contents."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from restow.storage.etcd import bolt_file

PAGE_BYTES: Final = 1024

_META: Final = struct.Struct("<IIIIQQQQQ")
_LEAF_FLAG: Final = 2
_BRANCH_FLAG: Final = 1


def page(number: int, flags: int, count: int, body: bytes, *, overflow: int = 0) -> bytes:
    """A page: its header and its body."""
    made = struct.pack("<QHHI", number, flags, count, overflow) + body
    return made + bytes(PAGE_BYTES - len(made))


def leaf(number: int, entries: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    """A leaf page with entries: flags, key and value."""
    heads, data = b"", b""
    for index, (flags, key, value) in enumerate(entries):
        position = (len(entries) - index) * 16 + len(data)
        heads += struct.pack("<IIII", flags, position, len(key), len(value))
        data += key + value
    return page(number, _LEAF_FLAG, len(entries), heads + data)


def branch(number: int, children: Sequence[tuple[bytes, int]]) -> bytes:
    """A branch page with children: the first key and the page of each."""
    heads, data = b"", b""
    for index, (key, child) in enumerate(children):
        position = (len(children) - index) * 16 + len(data)
        heads += struct.pack("<IIQ", position, len(key), child)
        data += key
    return page(number, _BRANCH_FLAG, len(children), heads + data)


def change(number: int, key: bytes, value: bytes, mark: bytes = b"") -> tuple[int, bytes, bytes]:
    """The entry of a change of a key, as etcd stores it."""
    place = struct.pack(">QcQ", number, b"_", 0) + mark
    message = b"\x0a" + bytes([len(key)]) + key
    if value:
        message += b"\x2a" + bytes([len(value)]) + value
    return 0, place, message


def database(pages: Sequence[bytes], *, pages_count: int | None = None) -> bytes:
    """A database whose root is page 2, with these pages from there on. `pages_count` is what its
    meta pages say."""
    count = 2 + len(pages) if pages_count is None else pages_count
    metas = b"".join(
        page(
            number, 4, 0,
            _META.pack(bolt_file.MAGIC, 2, PAGE_BYTES, 0, 2, 0, 0, count, number),
        )
        for number in (0, 1)
    )  # fmt: skip
    return with_checksums(metas + b"".join(pages))


def with_checksums(data: bytes) -> bytes:
    """Correct the checksums of the two metas, as otherwise no other change would be read."""
    made = bytearray(data.ljust(2 * PAGE_BYTES, b"\0"))
    for begin in (16, 16 + PAGE_BYTES):
        fields = bytes(made[begin : begin + _META.size])
        made[begin + _META.size : begin + _META.size + 8] = struct.pack(
            "<Q", bolt_file._fnv(fields)
        )
    return bytes(made)


def bucket(name: bytes, root: int, inline: bytes = b"") -> tuple[int, bytes, bytes]:
    """The entry of a bucket: its root page, or 0 and its inline page."""
    return 1, name, struct.pack("<QQ", root, 0) + inline
