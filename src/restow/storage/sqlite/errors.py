"""Translates errors of apsw and the operating system into errors of storage."""

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

NO_SPACE_LEFT: Final = "no space left for the store"

FOREIGN: Final = (apsw.Error, UnicodeDecodeError)
"""Exceptions of apsw while it reads a file: errors of SQLite, and damaged text."""


def translate(error: Exception) -> StorageError:
    """The equivalent storage error; total over everything that apsw can raise."""
    match error:
        case StorageError():
            return error
        case apsw.FullError():
            return StoreFull(f"no space left for the store: {error}", client_message=NO_SPACE_LEFT)
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreDamaged(f"the store file is damaged: {error}")
        case UnicodeDecodeError():
            return StoreDamaged(f"the store file is damaged: it holds invalid text: {error}")
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            text = "the store file cannot be opened for writing"
            return OpenRefused(f"{text}: {error}", client_message=text)
        case OSError() if error.errno in NO_SPACE:
            return StoreFull(f"no space left for the store: {error}", client_message=NO_SPACE_LEFT)
        case _:
            text = f"the store failed: {type(error).__name__}"
            return Unavailable(f"{text}: {error}", client_message=text)


def is_settled(error: Exception) -> bool:
    """Whether a commit that failed with this error has certainly left nothing behind.

    SQLite reports a full disk from a write, and a commit's last frame is its last write: without
    it the commit can never be recovered. After any other I/O error all frames may be on disk.
    """
    return isinstance(error, apsw.FullError | apsw.BusyError | apsw.ReadOnlyError)
