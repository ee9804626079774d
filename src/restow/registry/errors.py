"""Maps storage errors to API errors.

The API returns only the part of an error that is meant for clients (`client_message`). Addresses,
file names and messages of other programs are logged only.
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
    """A request that must be started again; `settle` waits until that can succeed."""

    async def settle(self) -> None:
        """Wait for the missing data."""


class ResourceReplaced(DoAgain):
    """The CRD of a custom resource changed while a request was in progress."""


class VersionUnknown(StoreDamaged):
    """An object is stored in a version that this server does not support; other servers may."""


def translate(error: StorageError) -> StatusError:
    """Return the API error for a storage error; covers all subclasses."""
    match error:
        case Compacted():
            return status.expired(
                "The provided resource version is too old to display a consistent list result."
            )
        case FutureRevision():
            return status.resource_version_too_large(error.asked, error.current)
        case TransactionTooLarge():
            return status.too_large(f"the object is too large to be stored: {error.client_message}")
        case InvalidKey() | InvalidTransaction():
            return status.bad_request(error.client_message)
        case StoreFull():
            return status.unavailable(
                f"the store is full: {error.client_message}",
                retry_after_seconds=status.RETRY_AFTER_SECONDS,
            )
        case StorageClosed():
            return status.unavailable(
                "this server is shutting down", retry_after_seconds=status.RETRY_AFTER_SECONDS
            )
        case Unavailable():
            return status.unavailable(
                error.client_message, retry_after_seconds=status.RETRY_AFTER_SECONDS
            )
        case StoreDamaged() | OpenRefused():
            return status.internal(error.client_message)
        case _:
            return status.internal(f"storage: {error.client_message}")
