"""Reads a store file without changing it or the files beside it: for census and backup.

How a file is opened depends on what lies beside it:

- With a `-shm` file it is, or was, in use: SQLite's own locks are taken, as by every other reader,
  so it can be read while servers write. Readers and writers do not block each other.
- Without one, but with a log, no process uses it (a copy, or after a reboot). SQLite would create a
  new `-shm` file; instead the log is indexed in memory, without locks.
- With neither, the file alone is complete, and is read as immutable.

Without locks, a process may begin to use the file meanwhile; then the reading ends with an error
that says so, and the next attempt will find the `-shm` file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import apsw

from restow.storage.deleted_log import check_deleted_log
from restow.storage.errors import OpenRefused, StorageError, StoreDamaged, Unavailable
from restow.storage.interface import REVISION_MAX, Key, Revision, Span
from restow.storage.sqlite import file_setup, schema
from restow.storage.sqlite.batch import read_revision
from restow.storage.sqlite.errors import FOREIGN, translate

_NO_LIMIT: Final = -1
_SUFFIXES: Final = ("", "-wal", "-journal")

_SETTINGS: Final = (
    "PRAGMA query_only = 1",
    "PRAGMA trusted_schema = 0",
    "PRAGMA cell_size_check = 1",
    f"PRAGMA cache_size = -{file_setup.READER_CACHE_KIB}",
    "PRAGMA mmap_size = 0",
)

_FileState = list[tuple[int, int] | None]


class ReadOnlyFile:
    """A store file at one revision. Made by `open_read_only`; close it when done.

    For commands only: it must not be used in a process that also writes the same file.
    """

    def __init__(
        self, path: Path, connection: apsw.Connection, *, before: _FileState | None
    ) -> None:
        """`before` is the state of the files when they were opened without locks."""
        self._path = path
        self._connection = connection
        self._before = before
        connection.execute("BEGIN")
        self.revision: Revision = read_revision(connection)
        if not 0 <= self.revision <= REVISION_MAX:
            raise StoreDamaged(f"{path} is damaged: its revision is {self.revision}")

    def count(self, spans: Sequence[Span]) -> int:
        """How many keys the spans hold."""
        return sum(self._count(span) for span in spans)

    def rows(self, spans: Sequence[Span]) -> Iterator[tuple[Key, bytes]]:
        """The keys and values of the spans, one after the other."""
        try:
            for span in spans:
                query = schema.range_now(bounded=span.end is not None)
                for row in self._connection.execute(query, _wanted(span)):
                    key, value = row[0], row[1]
                    if not isinstance(value, bytes):
                        raise StoreDamaged(f"the value of {key} is missing or damaged")
                    yield Key(str(key)), value
        except FOREIGN as error:
            self._check_unchanged()
            raise _translate(self._path, error) from error
        self._check_unchanged()

    def copy_into(
        self, target: Path, *, pages_per_step: int, on_progress: Callable[[int, int], None]
    ) -> None:
        """Copy the whole file, as it is at this revision, to an existing empty file.

        Raises apsw's errors for the target.
        """
        copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # The copy is not used before it is complete, checked, and synced by its owner.
            copy.execute("PRAGMA synchronous = OFF")
            with copy.backup("main", self._connection, "main") as backup:
                while not backup.done:
                    backup.step(pages_per_step)
                    on_progress(backup.page_count - backup.remaining, backup.page_count)
        finally:
            file_setup.disconnect(copy)
        self._check_unchanged()

    def query(
        self, statement: str, values: Mapping[str, Any] | tuple[Any, ...] | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of a read-only query about the file itself."""
        try:
            rows: list[Any] = self._connection.execute(statement, values).fetchall()
        except FOREIGN as error:
            self._check_unchanged()
            raise _translate(self._path, error) from error
        self._check_unchanged()
        return rows

    def close(self) -> None:
        file_setup.disconnect(self._connection)

    def _count(self, span: Span) -> int:
        query = schema.count_slice(bounded=span.end is not None)
        return int(self.query(query, {**_wanted(span), "then": 0})[0][0])

    def _check_unchanged(self) -> None:
        if self._before is not None and _file_state(self._path) != self._before:
            raise Unavailable(
                f"{self._path} came into use while it was read as a file that is not in use:"
                " try again"
            )


def open_read_only(path: Path) -> ReadOnlyFile:
    """Open a store file as it is now; raises `OpenRefused` for any other file."""
    if not path.is_file():
        raise OpenRefused(f"{path} does not exist, or is not a file")
    check_deleted_log(path)
    connection = None
    try:
        before = _file_state(path)
        connection, with_locks = _connect(path)
        _check_marks(path, connection)
        _check_schema(path, connection)
        return ReadOnlyFile(path, connection, before=None if with_locks else before)
    except (*FOREIGN, OSError) as error:
        if connection is not None:
            file_setup.disconnect(connection)
        raise _translate(path, error) from error
    except BaseException:
        if connection is not None:
            file_setup.disconnect(connection)
        raise


def _connect(path: Path) -> tuple[apsw.Connection, bool]:
    """A connection, and whether it takes locks."""
    address = f"file:{quote(str(path.absolute()))}"
    if any(_beside(path, suffix).exists() for suffix in ("-shm", "-journal")):
        return _open(f"{address}?mode=ro"), True
    if _size(_beside(path, "-wal")):
        # Without other users, the index of the log need not be shared.
        return _open(
            f"{address}?mode=ro", "PRAGMA locking_mode = EXCLUSIVE", vfs="unix-none"
        ), False
    return _open(f"{address}?immutable=1"), False


def _open(address: str, *first: str, vfs: str | None = None) -> apsw.Connection:
    """`first` are statements to execute before anything is read."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(address, flags=flags, vfs=vfs)
    try:
        # Otherwise the last connection that closes a file would checkpoint the log.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.set_busy_timeout(file_setup.BUSY_MILLISECONDS)
        for statement in (*first, *_SETTINGS):
            connection.execute(statement)
    except BaseException:
        file_setup.disconnect(connection)
        raise
    return connection


def _check_marks(path: Path, connection: apsw.Connection) -> None:
    rows = [
        connection.execute(f"PRAGMA {name}").fetchone()
        for name in ("application_id", "user_version")
    ]
    mark, form = (int(row[0]) if row else 0 for row in rows)
    if mark != schema.APPLICATION_ID:
        raise OpenRefused(f"{path} is an SQLite file, but not a restow store")
    if form > schema.FORMAT:
        raise OpenRefused(
            f"{path} has format {form}; this restow supports formats up to {schema.FORMAT}:"
            " use a newer restow"
        )


def _check_schema(path: Path, connection: apsw.Connection) -> None:
    """Refuse a file that has other tables, views or triggers: it was not made by restow, and
    reading a view can take forever."""
    others = connection.execute(schema.OTHER_OBJECTS).fetchall()
    count = connection.execute(schema.COUNT_OBJECTS).fetchone()
    if others or count != (len(schema.TABLES),):
        names = ", ".join(str(row[0])[:80] for row in others[:3])
        raise OpenRefused(
            f"{path} has other tables than a restow store{names and f' ({names})'}: it was changed"
            " by another program, or made by one"
        )


def _translate(path: Path, error: Exception) -> StorageError:
    match error:
        case apsw.NotADBError():
            return OpenRefused(f"{path} is not an SQLite file, so not a restow store")
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            return OpenRefused(f"{path} cannot be opened for reading: {error}")
        case OSError():
            return OpenRefused(f"{path} cannot be opened for reading: {error.strerror}")
        case _:
            return translate(error)


def _file_state(path: Path) -> _FileState:
    """Size and time of the file and its log: they show whether a process has written."""
    found: _FileState = []
    for suffix in _SUFFIXES:
        try:
            status = _beside(path, suffix).stat()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_size, status.st_mtime_ns))
    return found


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _wanted(span: Span) -> dict[str, Any]:
    return {"start": span.start, "end": span.end, "limit": _NO_LIMIT}
