"""What an answer that is no success means for the one object that was to be written.

    GONE         it does not exist any more: nothing to do
    CONFLICT     it has changed: read it again, and write that
    REFUSED      it will not be taken as it is: told by name, and the rest goes on
    UNSUPPORTED  not this kind of write: try the other one
    AGAIN        may go well next time: bounded, with a pause
    STOP         it is not about this object: nobody else would fare better

Who has used up the tries of AGAIN is told by name when the answer may be about the object, as when
its webhook is down; when the server as a whole is at fault, the page has failed.

Pure. Not here: waiting, and how many requests are sent at once (`pace`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from restow.apimachinery.status import StatusError
from restow.client import ConnectionFailed

CONFLICTS_MAX: Final = 8
"""How often an object is read again because it has changed under us."""
WEBHOOK_ATTEMPTS_MAX: Final = 3
OBJECT_ATTEMPTS_MAX: Final = 5
SERVER_ATTEMPTS_MAX: Final = 8
MESSAGE_LENGTH_MAX: Final = 1024

NOT_ASKED: Final = "DryRunUnsupported"
"""The reason when admission has no opinion without a real write."""

_WEBHOOK: Final = "failed calling webhook"
_NO_DRY_RUN: Final = "does not support dry run"


class Means(Enum):
    """What to do about the object."""

    GONE = auto()
    CONFLICT = auto()
    REFUSED = auto()
    UNSUPPORTED = auto()
    AGAIN = auto()
    STOP = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteClass:
    """What an answer means, and what follows from it for the others."""

    means: Means
    attempts_max: int = 1
    """With AGAIN: how often at most, the first time included."""
    is_about_server: bool = False
    """With AGAIN: whether it is the page that has failed, once the tries are used up."""
    is_load: bool = False
    """Whether the server has too much to do: send less."""
    wait_seconds: float = 0.0
    """How long the server wants to be left alone, by everyone."""


_CONFLICT: Final = WriteClass(means=Means.CONFLICT)
_REFUSED: Final = WriteClass(means=Means.REFUSED)
_STOP: Final = WriteClass(means=Means.STOP)


def classify(error: StatusError | ConnectionFailed) -> WriteClass:
    """What an error means for the object whose write or read it answers."""
    if isinstance(error, ConnectionFailed):
        return WriteClass(
            means=Means.AGAIN,
            attempts_max=SERVER_ATTEMPTS_MAX,
            is_about_server=True,
            is_load=True,
        )
    match error.code:
        case 401:
            return _STOP
        case 404:
            # Without a name it is the resource that is not served, and nothing was settled.
            return WriteClass(means=Means.GONE) if _is_about_object(error) else _STOP
        case 405 | 415:
            return WriteClass(means=Means.UNSUPPORTED)
        case 409:
            return _CONFLICT
        case 422 if any(cause.field == "metadata.uid" for cause in error.causes):
            # How Kubernetes says that another object has the name now.
            return _CONFLICT
        case 408 | 429 | 502 | 503:
            return WriteClass(
                means=Means.AGAIN,
                attempts_max=SERVER_ATTEMPTS_MAX,
                is_about_server=True,
                is_load=True,
                wait_seconds=float(error.retry_after_seconds),
            )
        case code if code >= 500:
            is_webhook = _WEBHOOK in error.message
            return WriteClass(
                means=Means.AGAIN,
                attempts_max=WEBHOOK_ATTEMPTS_MAX if is_webhook else OBJECT_ATTEMPTS_MAX,
                is_load=code == 504,
                wait_seconds=float(error.retry_after_seconds),
            )
        case _:
            return _REFUSED


def reason_of(error: StatusError | ConnectionFailed) -> str:
    """One word for why an object failed."""
    if isinstance(error, ConnectionFailed):
        return "ConnectionFailed"
    if error.code == 400 and _NO_DRY_RUN in error.message:
        return NOT_ASKED
    # Kubernetes leaves it out when it fails to read an object.
    return error.reason or ("InternalError" if error.code >= 500 else "Unknown")


def message_of(error: StatusError | ConnectionFailed) -> str:
    """What was said, shortened."""
    text = error.message if isinstance(error, StatusError) else str(error)
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"


def _is_about_object(error: StatusError) -> bool:
    return error.details is not None and bool(error.details.name)
