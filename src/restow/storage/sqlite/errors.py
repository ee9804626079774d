"""The border: what apsw and the operating system raise, as what storage raises."""

from __future__ import annotations

from typing import Final

import apsw

from restow.storage.errors import (
    NO_SPACE,
    OpenRefused,
    StorageError,
    StoreDamaged,
    StoreFull,
    Unavailable,
)

NO_ROOM: Final = "no space left for the store"

FOREIGN: Final = (apsw.Error, UnicodeDecodeError)
"""What apsw raises while it reads a file: errors of SQLite, and damaged text."""


def translate(error: Exception) -> StorageError:
    """The storage error that says the same; total over everything that apsw can raise."""
    match error:
        case StorageError():
            return error
        case apsw.FullError():
            return StoreFull(f"no space left for the store: {error}", told=NO_ROOM)
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreDamaged(f"the store file is damaged: {error}")
        case UnicodeDecodeError():
            return StoreDamaged(f"the store file is damaged: it holds text that is none: {error}")
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            text = "the store file cannot be opened for writing"
            return OpenRefused(f"{text}: {error}", told=text)
        case OSError() if error.errno in NO_SPACE:
            return StoreFull(f"no space left for the store: {error}", told=NO_ROOM)
        case _:
            text = f"the store failed: {type(error).__name__}"
            return Unavailable(f"{text}: {error}", told=text)


def is_settled(error: Exception) -> bool:
    """Whether a commit that ended so has certainly left nothing behind.

    SQLite reports a full disk from a write, and a commit's last frame is its last write: without
    it the commit can never come back. After any other I/O error the frames may all be on disk.
    """
    return isinstance(error, apsw.FullError | apsw.BusyError | apsw.ReadOnlyError)
