"""Copies a store file while servers write, checks the copy, and marks it as a backup.

A copy shows one revision: it is taken inside one read transaction, so that no other commit can make
SQLite start over, however much is written meanwhile. It is one file without a log, and its `meta`
marks it as a backup, so that no server continues with it, which would make clients see older
revisions again (`file_setup` rejects it).

Not here: where copies are stored and how they are named (`storage.backup`), and how they are
restored (`storage.restore`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from restow.storage.errors import StorageError, StoreDamaged, StoreFull
from restow.storage.interface import Revision
from restow.storage.sqlite import file_setup, schema
from restow.storage.sqlite.errors import FOREIGN, translate
from restow.storage.sqlite.read_only import open_read_only

PAGES_PER_STEP: Final = 1000
PROBLEMS_ASKED_MAX: Final = 10
PROBLEMS_SHOWN_MAX: Final = 3

_DANGLING: Final = (
    "SELECT count(*) FROM keys WHERE NOT EXISTS"
    " (SELECT 1 FROM versions WHERE versions.place = keys.place)"
)


def copy_store(
    source: Path, target: Path, *, taken_at: int, on_progress: Callable[[int, int], None]
) -> Revision:
    """Copy a store to a new file and check the copy; return the revision of the copy.

    `taken_at` is the time in seconds that is written to the copy. `on_progress` gets the number
    of pages done, and the total. Blocks the thread.
    """
    file_setup.check_private(source)
    origin = open_read_only(source)
    try:
        origin.copy_into(target, pages_per_step=PAGES_PER_STEP, on_progress=on_progress)
        revision = origin.revision
    except apsw.Error as error:
        raise _failed(target, error) from error
    finally:
        origin.close()
    try:
        _mark(target, taken_at)
        check_file(target)
    except apsw.FullError as error:
        raise _failed(target, error) from error
    except (StoreDamaged, *FOREIGN) as error:
        raise _damaged(source, error) from error
    return revision


def check_file(path: Path) -> None:
    """Check every page and every key of a file that is not in use; raises `StoreDamaged`."""
    try:
        found = problems_of(path, is_thorough=True)
    except StoreDamaged as error:
        raise StoreDamaged(f"{path} is damaged, or was not copied completely: {error}") from error
    if found:
        raise StoreDamaged(f"{path} is damaged: {some_of(found)}")


def problems_of(path: Path, *, is_thorough: bool) -> list[str]:
    """Problems found by SQLite and by restow's own check; the file may be in use."""
    file = open_read_only(path)
    try:
        check = "integrity_check" if is_thorough else "quick_check"
        rows = file.query(f"PRAGMA {check}({PROBLEMS_ASKED_MAX})")
        # SQLite puts several lines into a row, the first of which only names the database.
        lines = [line for row in rows for line in str(row[0]).splitlines()]
        if lines != ["ok"]:
            return [line for line in lines if not line.startswith("***")] or lines
        dangling: Any = file.query(_DANGLING)[0][0]
        return [f"{dangling} keys have no value"] if dangling else []
    finally:
        file.close()


def some_of(problems: Sequence[str]) -> str:
    """The first problems, and how many more there are."""
    shown = "; ".join(problems[:PROBLEMS_SHOWN_MAX])
    more = len(problems) - PROBLEMS_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def make_store_at(path: Path, revision: Revision) -> None:
    """Create a new, empty store file that begins at a revision."""
    file_setup.prepare(path).close()
    connection = file_setup.connect(path, cache_kib=file_setup.READER_CACHE_KIB)
    try:
        connection.execute(schema.SET_REVISION, (revision,))
    except apsw.Error as error:
        raise translate(error) from error
    finally:
        file_setup.disconnect(connection)


def _mark(path: Path, taken_at: int) -> None:
    """Mark the copy as a backup, and make it independent of other files."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute(schema.SET_BACKUP, (taken_at,))
    finally:
        file_setup.disconnect(connection)


def _damaged(source: Path, error: Exception) -> StoreDamaged:
    """The error for a damaged copy: the store is damaged, or the copy was written badly."""
    try:
        found = problems_of(source, is_thorough=True)
    except StoreDamaged as problem:
        found = [str(problem)]
    if found:
        return StoreDamaged(f"{source} is damaged, so no backup was written: {some_of(found)}")
    return StoreDamaged(f"{source} is intact, but its copy is damaged: check the disk ({error})")


def _failed(target: Path, error: apsw.Error) -> StorageError:
    if isinstance(error, apsw.FullError):
        return StoreFull(f"no space left for {target}: {error}")
    return translate(error)
