"""States of a connection."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ConnectionState(Enum):
    """The state of a connection."""

    READING = "reading"
    ANSWERING = "answering"  # the application is working on the response
    STREAMING = "streaming"
    TUNNELLING = "tunnelling"  # no HTTP any more: bytes are passed on unchanged
    ENDING = "ending"  # the last response is written; input is dropped
    CLOSED = "closed"


# Module constants: access to a member through its class costs more than the comparison.
READING: Final = ConnectionState.READING
ANSWERING: Final = ConnectionState.ANSWERING
STREAMING: Final = ConnectionState.STREAMING
TUNNELLING: Final = ConnectionState.TUNNELLING
ENDING: Final = ConnectionState.ENDING
CLOSED: Final = ConnectionState.CLOSED
