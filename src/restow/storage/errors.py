"""What storage raises. Expected outcomes of a commit are values, not errors (see `interface`).

    StorageError
    ├── InvalidTransaction      no store may take it: the caller is wrong
    │   └── TransactionTooLarge     too many operations or bytes
    ├── InvalidKey              empty, too long, not text that a key may be
    ├── Compacted               that revision is forgotten
    ├── FutureRevision          that revision is not there yet
    ├── Unavailable             nothing happened; try again later
    │   ├── StoreFull               no room; works again when there is
    │   ├── PluginSilent            who keeps the encryption keys does not answer
    │   ├── StoreReplaced           it is not the store that acknowledged earlier writes
    │   └── StorageClosed           this handle was closed
    ├── StoreDamaged            what was read cannot be right
    │   └── CannotOpen              it is encrypted, and no key of this server opens it
    └── OpenRefused             the store may not be opened; the text says why and what to do

Each driver translates foreign errors into these in one function of its own.
"""

from __future__ import annotations

import errno
from typing import Final

from restow.storage.interface import Revision

__all__ = [
    "NO_SPACE",
    "REPLACED_TOLD",
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
"""Numbers of an OSError that mean: no room."""

REPLACED_TOLD: Final = (
    "the store was replaced or went back to an earlier state, so this server neither reads nor"
    " writes it; an operator finds the reason and what to do in the server's log and with `restow"
    " doctor`"
)
"""What clients are told of `StoreReplaced`."""


class StorageError(Exception):
    """Root of all that storage raises."""

    def __init__(self, *args: object, told: str = "") -> None:
        """`told`: what clients may know, where the text itself is for those who run the store."""
        super().__init__(*args)
        self._told = told

    @property
    def told(self) -> str:
        """What clients are told: no addresses, no words of other programs."""
        return self._told or str(self)


class InvalidTransaction(StorageError):
    """A transaction that every driver refuses, whatever is stored."""


class TransactionTooLarge(InvalidTransaction):
    """More operations or bytes than one transaction may have."""


class InvalidKey(StorageError):
    """A text that cannot be a key."""


class Compacted(StorageError):
    """The revision asked for has been forgotten."""

    def __init__(self, compacted: Revision) -> None:
        super().__init__(f"revisions before {compacted} have been compacted")
        self.compacted = compacted
        """The oldest revision that can still be read."""


class FutureRevision(StorageError):
    """The revision asked for does not exist yet."""

    def __init__(self, asked: Revision, current: Revision) -> None:
        super().__init__(f"revision {asked} is beyond the current revision {current}")
        self.asked = asked
        self.current = current


class Unavailable(StorageError):
    """The store cannot answer now. For a commit: nothing happened."""


class StoreFull(Unavailable):
    """No space left. Nothing was written; writes work again when there is space."""


class PluginSilent(Unavailable):
    """A plug-in that keeps encryption keys does not answer: values under them cannot be opened."""


class StoreReplaced(Unavailable):
    """The store was replaced, or went back to an earlier state: nothing may rely on it.

    The text is for people who run the store; clients are told less.
    """

    def __init__(self, text: str, *, passes: bool = False) -> None:
        """`passes`: the open store is the right one, and its cause can be removed."""
        super().__init__(text, told=REPLACED_TOLD)
        self.passes = passes


class StorageClosed(Unavailable):
    """The handle has been closed."""


class StoreDamaged(StorageError):
    """The store gave back something that cannot be right."""


class CannotOpen(StoreDamaged):
    """A value is encrypted, and no key of this server opens it. It is there all the same."""

    def __init__(self, text: str, *, tried: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.tried = tried
        """The ids of the keys here that have the name which the value gives, if there are such:
        either they are others of that name, or the value is damaged."""


class OpenRefused(StorageError):
    """The store may not be opened like this."""
