# (Python 3.11 has no `typing.override`.)
# ruff: noqa: N802
# (SQLite names the methods.)
"""A file layer (VFS) for SQLite that injects faults, and records a journal of all operations.

It passes all calls from SQLite to the real files, except:

- the calls that a `Fault` selects, by kind and number, fail, are torn or falsely succeed;
- a write that would exceed `quota_bytes` fails with a full disk;
- a sync takes as long as configured.

`tests.support.power_cut` uses the journal of what reached the files. Shared memory (`-shm`) is not
affected: it holds nothing that must be durable.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal

import apsw

if TYPE_CHECKING:
    from typing_extensions import Buffer

Kind = Literal["write", "sync", "truncate"]


class How(Enum):
    """The effect of a faulty call."""

    IO_ERROR = "nothing is done, and an I/O error reported"
    FULL = "nothing is done, and a full disk reported"
    TORN = "the first half is written, and an I/O error reported"
    TORN_FULL = "the first half is written, and a full disk reported"
    LATE_ERROR = "all is done, and an I/O error reported all the same"
    LIE = "nothing is made durable, and success reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The calls of one kind that fail, by their number since the VFS was created."""

    kind: Kind
    how: How
    first: int
    last: int | None = None
    """The last one that fails; None means only the first."""

    def hits(self, kind: Kind, number: int) -> bool:
        return kind == self.kind and self.first <= number <= (self.last or self.first)


FOR_EVER: Final = 2**62
"""For `Fault.last`: it fails permanently."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A file was opened; `content` is what it held, None if it was created."""

    file: str
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes were written to a file, which are lost unless it is synced."""

    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    """A file was truncated, or filled with zeros, to a size."""

    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Synced:
    """All earlier writes to a file are durable."""

    file: str


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """Writes since the last sync may be lost, and no later sync makes them durable."""

    file: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """A file was deleted; the directory is synced only if `durable`."""

    file: str
    durable: bool


@dataclass(frozen=True, slots=True)
class Marked:
    """Not a disk operation: a note of the test at this point."""

    note: object


Operation = Opened | Written | Truncated | Synced | SyncFailed | Deleted | Marked


class FaultyVfs(apsw.VFS):
    """Pass its name to `open_sqlite(vfs=…)`. One directory; the journal has bare file names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: Counter[Kind] = Counter()
        self.faults: list[Fault] = []
        self.fired = 0
        """Number of calls that failed so far."""
        self.quota_bytes: int | None = None
        self.sync_seconds = 0.0
        """Duration of each sync."""
        self.journal: list[Operation] = []
        self.lock = threading.Lock()
        self.sizes: dict[str, int] = {}
        super().__init__(name, "")

    def mark(self, note: object) -> None:
        """Add a note to the journal, between the operations."""
        with self.lock:
            self.journal.append(Marked(note))

    def next_number(self, kind: Kind) -> int:
        """The number that the next call of this kind will have."""
        return self.counts[kind] + 1

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if name is None:
            return apsw.VFSFile("", name, flags)  # temporary: lost in a crash by design
        path = Path(name if isinstance(name, str) else name.filename())
        with self.lock:
            content = path.read_bytes() if path.exists() else None
            opened = _FaultyFile(self, path.name, name, flags)
            if path.name not in self.sizes:
                self.sizes[path.name] = len(content or b"")
                self.journal.append(Opened(path.name, content))
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:
        with self.lock:
            super().xDelete(filename, syncdir)
            name = Path(filename).name
            if self.sizes.pop(name, None) is not None:
                self.journal.append(Deleted(name, syncdir))

    def count(self, kind: Kind) -> How | None:
        """Count a call; return the fault to apply, if any. Under the lock."""
        self.counts[kind] += 1
        for fault in self.faults:
            if fault.hits(kind, self.counts[kind]):
                self.fired += 1
                return fault.how
        return None

    def room(self, file: str, offset: int, size: int) -> int:
        """How many of so many bytes fit within the quota. Under the lock."""
        if self.quota_bytes is None:
            return size
        free = max(self.quota_bytes - sum(self.sizes.values()), 0)
        growth = offset + size - self.sizes[file]
        return size if growth <= free else max(size - (growth - free), 0)


class _FaultyFile(apsw.VFSFile):
    def __init__(
        self,
        vfs: FaultyVfs,
        file: str,
        name: str | apsw.URIFilename,
        flags: list[int],
    ) -> None:
        self._vfs = vfs
        self._file = file
        super().__init__("", name, flags)

    def xWrite(self, data: Buffer, offset: int) -> None:
        content = bytes(data)
        with self._vfs.lock:
            match self._vfs.count("write"):
                case How.IO_ERROR:
                    raise _io_error(apsw.SQLITE_IOERR_WRITE)
                case How.FULL:
                    raise _full()
                case How.TORN:
                    self._put(content[: len(content) // 2], offset)
                    raise _io_error(apsw.SQLITE_IOERR_WRITE)
                case How.TORN_FULL:
                    self._put(content[: len(content) // 2], offset)
                    raise _full()
                case How.LATE_ERROR:
                    self._put(content, offset)
                    raise _io_error(apsw.SQLITE_IOERR_WRITE)
            room = self._vfs.room(self._file, offset, len(content))
            self._put(content[:room], offset)
            if room < len(content):
                self._vfs.fired += 1
                raise _full()

    def xSync(self, flags: int) -> None:
        if self._vfs.sync_seconds:
            threading.Event().wait(self._vfs.sync_seconds)
        with self._vfs.lock:
            match self._vfs.count("sync"):
                case How.LIE:
                    return
                case None:
                    super().xSync(flags)
                    self._vfs.journal.append(Synced(self._file))
                case _:
                    self._vfs.journal.append(SyncFailed(self._file))
                    raise _io_error(apsw.SQLITE_IOERR_FSYNC)

    def xTruncate(self, newsize: int) -> None:
        with self._vfs.lock:
            if self._vfs.count("truncate") is not None:
                raise _io_error(apsw.SQLITE_IOERR_TRUNCATE)
            super().xTruncate(newsize)
            self._vfs.sizes[self._file] = newsize
            self._vfs.journal.append(Truncated(self._file, newsize))

    def excepthook(
        self,
        etype: type[BaseException] | None,
        evalue: BaseException | None,
        etraceback: TracebackType | None,
    ) -> bool:
        """SQLite ignores some errors, for example on close: so does this layer."""
        return False

    def _put(self, data: bytes, offset: int) -> None:
        if data:
            super().xWrite(data, offset)
            sizes = self._vfs.sizes
            sizes[self._file] = max(sizes.get(self._file, 0), offset + len(data))
            self._vfs.journal.append(Written(self._file, offset, data))


def _io_error(code: int) -> Exception:
    return apsw.exception_for(code)


def _full() -> Exception:
    return apsw.exception_for(apsw.SQLITE_FULL)
