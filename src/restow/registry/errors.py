"""The border: what storage raises, as what the API answers.

Clients are told what an error says is for them (`told`): addresses, files and what other programs
have said are for the log of who runs the store.
"""

from __future__ import annotations

from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.storage.errors import (
    Compacted,
    FutureRevision,
    InvalidKey,
    InvalidTransaction,
    OpenRefused,
    StorageClosed,
    StorageError,
    StoreDamaged,
    StoreFull,
    TransactionTooLarge,
    Unavailable,
)


class DoAgain(Exception):
    """A request that cannot be finished as it was begun. After `settle` it can be done anew."""

    async def settle(self) -> None:
        """Wait for what it lacks."""


class ResourceReplaced(DoAgain):
    """The definition of a custom resource has changed while a request was under way."""


class VersionUnknown(StoreDamaged):
    """An object is stored in a version that this server does not know. Another may."""


def translate(error: StorageError) -> StatusError:
    """The answer for a storage error; total over the whole tree."""
    match error:
        case Compacted():
            return status.expired(
                "The provided resource version is too old to display a consistent list result."
            )
        case FutureRevision():
            return status.resource_version_too_large(error.asked, error.current)
        case TransactionTooLarge():
            return status.too_large(f"the object is too large to be stored: {error.told}")
        case InvalidKey() | InvalidTransaction():
            return status.bad_request(error.told)
        case StoreFull():
            return status.unavailable(
                f"the store is full: {error.told}", retry_after_seconds=status.RETRY_AFTER_SECONDS
            )
        case StorageClosed():
            return status.unavailable(
                "this server is shutting down", retry_after_seconds=status.RETRY_AFTER_SECONDS
            )
        case Unavailable():
            return status.unavailable(error.told, retry_after_seconds=status.RETRY_AFTER_SECONDS)
        case StoreDamaged() | OpenRefused():
            return status.internal(error.told)
        case _:
            return status.internal(f"storage: {error.told}")
