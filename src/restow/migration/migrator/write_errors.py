"""Classification of the errors of a write to one object.

    GONE         the object does not exist any more: nothing to do
    CONFLICT     it has changed: read it again, and write it
    REFUSED      the server rejects it: list it as failed, and continue with the others
    UNSUPPORTED  the server does not support this kind of write: use the other one
    RETRY        a retry may succeed: bounded, with backoff
    STOP         the error is not about this object: every other write would fail too

An object that has used up the tries of RETRY is listed as failed if the error may be about it, as
when its webhook is down; if the server as a whole is at fault, the page has failed.

Pure. Not here: waiting, and the number of concurrent requests (`pace`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from restow.apimachinery.status import StatusError
from restow.client import ConnectionFailed

CONFLICTS_MAX: Final = 8
"""Maximum number of reads of an object after concurrent changes."""
WEBHOOK_ATTEMPTS_MAX: Final = 3
OBJECT_ATTEMPTS_MAX: Final = 5
SERVER_ATTEMPTS_MAX: Final = 8
MESSAGE_LENGTH_MAX: Final = 1024

DRY_RUN_UNSUPPORTED: Final = "DryRunUnsupported"
"""The reason when admission cannot be checked without a real write."""

_WEBHOOK: Final = "failed calling webhook"
_NO_DRY_RUN: Final = "does not support dry run"


class Means(Enum):
    """The action for the object."""

    GONE = auto()
    CONFLICT = auto()
    REFUSED = auto()
    UNSUPPORTED = auto()
    RETRY = auto()
    STOP = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteClass:
    """The action after an error, and its consequences for other writes."""

    means: Means
    attempts_max: int = 1
    """With RETRY: limit of the tries, including the first."""
    is_about_server: bool = False
    """With RETRY: whether the page, not the object, has failed after the last try."""
    is_load: bool = False
    """Whether the server is overloaded: send fewer requests."""
    wait_seconds: float = 0.0
    """Retry-After of the server, which applies to all requests."""


_CONFLICT: Final = WriteClass(means=Means.CONFLICT)
_REFUSED: Final = WriteClass(means=Means.REFUSED)
_STOP: Final = WriteClass(means=Means.STOP)


def classify(error: StatusError | ConnectionFailed) -> WriteClass:
    """Classify an error of a read or write of an object."""
    if isinstance(error, ConnectionFailed):
        return WriteClass(
            means=Means.RETRY,
            attempts_max=SERVER_ATTEMPTS_MAX,
            is_about_server=True,
            is_load=True,
        )
    match error.code:
        case 401:
            return _STOP
        case 404:
            # Without a name the resource is not served, and nothing is known of the object.
            return WriteClass(means=Means.GONE) if _is_about_object(error) else _STOP
        case 405 | 415:
            return WriteClass(means=Means.UNSUPPORTED)
        case 409:
            return _CONFLICT
        case 422 if any(cause.field == "metadata.uid" for cause in error.causes):
            # Kubernetes reports this way that another object has the name now.
            return _CONFLICT
        case 408 | 429 | 502 | 503:
            return WriteClass(
                means=Means.RETRY,
                attempts_max=SERVER_ATTEMPTS_MAX,
                is_about_server=True,
                is_load=True,
                wait_seconds=float(error.retry_after_seconds),
            )
        case code if code >= 500:
            is_webhook = _WEBHOOK in error.message
            return WriteClass(
                means=Means.RETRY,
                attempts_max=WEBHOOK_ATTEMPTS_MAX if is_webhook else OBJECT_ATTEMPTS_MAX,
                is_load=code == 504,
                wait_seconds=float(error.retry_after_seconds),
            )
        case _:
            return _REFUSED


def reason_of(error: StatusError | ConnectionFailed) -> str:
    """Return the reason of a failed object, in CamelCase."""
    if isinstance(error, ConnectionFailed):
        return "ConnectionFailed"
    if error.code == 400 and _NO_DRY_RUN in error.message:
        return DRY_RUN_UNSUPPORTED
    # Kubernetes omits the reason when it fails to decode an object.
    return error.reason or ("InternalError" if error.code >= 500 else "Unknown")


def message_of(error: StatusError | ConnectionFailed) -> str:
    """Return the message of an error, truncated."""
    text = error.message if isinstance(error, StatusError) else str(error)
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"


def _is_about_object(error: StatusError) -> bool:
    return error.details is not None and bool(error.details.name)
