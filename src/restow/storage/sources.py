"""Sources of keys and values: a SQLite store, etcd, or a snapshot file of either.

A driver is imported on first use, as in `restow.storage.drivers`. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from restow.aio import Runtime, check_regular
from restow.storage.errors import OpenRefused
from restow.storage.interface import Span

if TYPE_CHECKING:
    from restow.storage.etcd.snapshot_file import EtcdSnapshot
    from restow.storage.sqlite.read_only import ReadOnlyFile

Entry = tuple[str, bytes]
"""A key and its value."""
SOURCE_FORMS: Final = "sqlite:FILE | etcd://HOST:PORT[,HOST:PORT…] | snapshot:FILE"

PAGE_KEYS: Final = 1000
PAGE_BYTES_WANTED: Final = 4 * 1024 * 1024

_SQLITE_HEAD: Final = b"SQLite format 3\0"


class KeyValueSource(Protocol):
    """A store that is only read, at one revision."""

    @property
    def revision(self) -> int:
        """Known when something has been read."""

    async def count(self, prefixes: Sequence[str]) -> int | None:
        """How many keys have one of the prefixes; None if all would have to be read for it."""

    def pages(self, prefixes: Sequence[str]) -> AsyncIterator[Sequence[Entry]]:
        """The keys with one of the prefixes, and their values, in any order, each once."""

    async def close(self) -> None: ...


async def open_source(address: str, runtime: Runtime) -> KeyValueSource:
    """Open the source at this address; raises `OpenRefused` for an invalid address."""
    scheme, _, rest = address.partition(":")
    match scheme:
        case "sqlite" if rest:
            from restow.storage.sqlite.file_setup import check_private  # noqa: PLC0415

            check_private(Path(rest))
            return _open_sqlite(Path(rest))
        case "snapshot" if rest:
            return _open_snapshot(Path(rest))
        case "etcd" | "etcds" if rest:
            from restow.storage.etcd import parse_address, read_only  # noqa: PLC0415

            return await read_only.open_read_only(parse_address(address), runtime)
        case _:
            raise OpenRefused(f"{address!r} is nothing to take a census of: {SOURCE_FORMS}")


def _open_sqlite(path: Path) -> KeyValueSource:
    from restow.storage.sqlite.read_only import open_read_only  # noqa: PLC0415

    return _SqliteSource(open_read_only(path))


def _open_snapshot(path: Path) -> KeyValueSource:
    """Open a snapshot file; its content shows whether it is from SQLite or etcd."""
    from restow.storage.etcd.snapshot_file import EtcdSnapshot  # noqa: PLC0415

    try:
        if not path.is_dir():  # opening that fails, with a clearer reason
            check_regular(path.stat(), path)
        with path.open("rb") as file:
            head = file.read(len(_SQLITE_HEAD))
    except OSError as error:
        raise OpenRefused(f"{path} cannot be read: {error.strerror}") from error
    if head == _SQLITE_HEAD:
        return _open_sqlite(path)
    return _SnapshotSource(EtcdSnapshot(path))


class _SqliteSource:
    def __init__(self, file: ReadOnlyFile) -> None:
        self._file = file
        self.revision = int(file.revision)

    async def count(self, prefixes: Sequence[str]) -> int:
        return self._file.count([Span.of_prefix(prefix) for prefix in prefixes])

    async def pages(self, prefixes: Sequence[str]) -> AsyncIterator[Sequence[Entry]]:
        for page in _in_pages(self._file.rows([Span.of_prefix(prefix) for prefix in prefixes])):
            yield page

    async def close(self) -> None:
        self._file.close()


class _SnapshotSource:
    def __init__(self, snapshot: EtcdSnapshot) -> None:
        self._snapshot = snapshot
        self.revision = snapshot.revision

    async def count(self, prefixes: Sequence[str]) -> None:
        return None

    async def pages(self, prefixes: Sequence[str]) -> AsyncIterator[Sequence[Entry]]:
        for page in _in_pages(self._snapshot.entries(prefixes)):
            yield page

    async def close(self) -> None:
        self._snapshot.close()


def _in_pages(entries: Iterator[tuple[str, bytes]]) -> Iterator[Sequence[Entry]]:
    """Split into pages large enough for progress reports and small enough for memory."""
    page: list[Entry] = []
    size = 0
    for entry in entries:
        page.append(entry)
        size += len(entry[1])
        if len(page) == PAGE_KEYS or size > PAGE_BYTES_WANTED:
            yield page
            page, size = [], 0
    if page:
        yield page
