"""The errors of the storage layer. Expected outcomes of a commit are values (see `interface`).

    StorageError
    ├── InvalidTransaction      invalid for every driver: an error of the caller
    │   └── TransactionTooLarge     too many operations or bytes
    ├── InvalidKey              empty, too long, or not valid as a key
    ├── Compacted               the revision was compacted
    ├── FutureRevision          the revision does not exist yet
    ├── Unavailable             nothing was written; try again later
    │   ├── StoreFull               no space left; works again when there is space
    │   ├── PluginSilent            the KMS plugin does not reply
    │   ├── StoreReplaced           not the store that acknowledged earlier writes
    │   └── StorageClosed           this handle was closed
    ├── StoreDamaged            corrupted data was read
    │   └── CannotOpen              it is encrypted, and no key of this server decrypts it
    └── OpenRefused             the store may not be opened; the text says why and what to do

Each driver translates foreign errors into these in one function of its own.
"""

from __future__ import annotations

import errno
from typing import Final

from restow.storage.interface import Revision

__all__ = [
    "NO_SPACE",
    "REPLACED_MESSAGE",
    "CannotOpen",
    "Compacted",
    "FutureRevision",
    "InvalidKey",
    "InvalidTransaction",
    "OpenRefused",
    "PluginSilent",
    "StorageClosed",
    "StorageError",
    "StoreDamaged",
    "StoreFull",
    "StoreReplaced",
    "TransactionTooLarge",
    "Unavailable",
]

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Values of `OSError.errno` for a full disk or quota."""

REPLACED_MESSAGE: Final = (
    "the store was replaced or went back to an earlier state, so this server neither reads nor"
    " writes it; the server's log and `restow doctor` show the reason and what to do"
)
"""Message to clients for `StoreReplaced`."""


class StorageError(Exception):
    """Base class of all storage errors."""

    def __init__(self, *args: object, client_message: str = "") -> None:
        """`client_message`: text for clients, if the error text itself is for operators only."""
        super().__init__(*args)
        self._client_message = client_message

    @property
    def client_message(self) -> str:
        """Text for clients: without addresses and without messages of other programs."""
        return self._client_message or str(self)


class InvalidTransaction(StorageError):
    """A transaction that every driver rejects, whatever is stored."""


class TransactionTooLarge(InvalidTransaction):
    """More operations or bytes than one transaction may have."""


class InvalidKey(StorageError):
    """A text that is not a valid key."""


class Compacted(StorageError):
    """The requested revision has been compacted."""

    def __init__(self, compacted: Revision) -> None:
        super().__init__(f"revisions before {compacted} have been compacted")
        self.compacted = compacted
        """The oldest revision that can still be read."""


class FutureRevision(StorageError):
    """The requested revision does not exist yet."""

    def __init__(self, asked: Revision, current: Revision) -> None:
        super().__init__(f"revision {asked} is beyond the current revision {current}")
        self.asked = asked
        self.current = current


class Unavailable(StorageError):
    """The store cannot serve the request now. For a commit: nothing was written."""


class StoreFull(Unavailable):
    """No space left. Nothing was written; writes work again when there is space."""


class PluginSilent(Unavailable):
    """A KMS plugin does not reply: values encrypted with its keys cannot be decrypted."""


class StoreReplaced(Unavailable):
    """The store was replaced, or went back to an earlier state, so it must not be used.

    The text is for operators; clients get a shorter one.
    """

    def __init__(self, text: str, *, passes: bool = False) -> None:
        """`passes`: the open store is the right one; the error ends when its cause is removed."""
        super().__init__(text, client_message=REPLACED_MESSAGE)
        self.passes = passes


class StorageClosed(Unavailable):
    """The handle has been closed."""


class StoreDamaged(StorageError):
    """The store returned corrupted data."""


class CannotOpen(StoreDamaged):
    """A value is encrypted, and no key of this server decrypts it. The value still exists."""

    def __init__(self, text: str, *, tried: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.tried = tried
        """The ids of this server's keys with the key name in the value, if any: either they are
        different keys of that name, or the value is damaged."""


class OpenRefused(StorageError):
    """The store may not be opened in this way."""
