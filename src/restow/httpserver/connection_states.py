"""What a connection can be doing. Values only."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ConnectionState(Enum):
    """What a connection is doing."""

    READING = "reading"
    ANSWERING = "answering"  # somebody else works on the answer
    STREAMING = "streaming"
    TUNNELLING = "tunnelling"  # no HTTP any more: bytes pass as they are
    ENDING = "ending"  # the last answer is written; input is dropped
    CLOSED = "closed"


# Plain names: reading a member through its class costs more than the comparison.
READING: Final = ConnectionState.READING
ANSWERING: Final = ConnectionState.ANSWERING
STREAMING: Final = ConnectionState.STREAMING
TUNNELLING: Final = ConnectionState.TUNNELLING
ENDING: Final = ConnectionState.ENDING
CLOSED: Final = ConnectionState.CLOSED
