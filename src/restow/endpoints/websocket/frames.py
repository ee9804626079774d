"""WebSocket frames of one connection (RFC 6455, section 5): wsproto, with limits for clients.

wsproto encodes and parses frames and does no I/O: the same bytes give the same events, wherever
reads begin and end. It sets no limit on the length of a message or on the number of frames, so
both are limited here. The contents of a client's messages are parsed and discarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits

MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a client's message, all its fragments together."""
FRAMES_PER_READ_MAX: Final = 1_000
"""Frames in one read of the socket. An empty frame costs more to parse than to send."""

_NO_RESERVED_BITS: Final = RsvBits(rsv1=False, rsv2=False, rsv3=False)


class FrameConnection:
    """Encodes the frames of the server and parses those of the client, for one connection."""

    __slots__ = ("_connection", "_is_read_closed")

    def __init__(self) -> None:
        self._connection = Connection(ConnectionType.SERVER, [_MessageLimit()])
        self._is_read_closed = False

    def text(self, payload: bytes) -> bytes:
        """A text message in one frame. `payload` is UTF-8, as JSON always is."""
        return self._connection.send(TextMessage(data=payload.decode()))

    def binary(self, payload: bytes) -> bytes:
        """A binary message in one frame."""
        return self._connection.send(BytesMessage(data=payload))

    def pong(self, payload: bytes) -> bytes:
        """The answer to a ping."""
        return self._connection.send(Pong(payload=payload))

    def close(self, code: int) -> bytes:
        """A close frame, after which nothing can be sent. Call it once."""
        return self._connection.send(CloseConnection(code=code))

    def receive(self, data: bytes) -> Iterator[Ping | CloseConnection]:
        """Parse what was read from the client: its pings, and its close as the last event.

        A violation of the protocol or of a limit is a close too, with the code to answer with. A
        close frame without a code is answered as a normal closure. Later bytes are ignored.
        """
        if self._is_read_closed:
            return
        self._connection.receive_data(data)
        for count, event in enumerate(self._connection.events(), 1):
            if isinstance(event, CloseConnection):
                self._is_read_closed = True
                has_code = event.code != CloseReason.NO_STATUS_RCVD
                yield event if has_code else CloseConnection(CloseReason.NORMAL_CLOSURE)
                return
            if count > FRAMES_PER_READ_MAX:
                self._is_read_closed = True
                yield CloseConnection(CloseReason.POLICY_VIOLATION, "too many frames at once")
                return
            if isinstance(event, Ping):
                yield event


class _MessageLimit(Extension):
    """Rejects a frame by the length in its header if its message exceeds MESSAGE_BYTES_MAX.

    Not an extension that a client can negotiate: it is how wsproto shows headers of frames before
    their payload arrives. It reserves no bits and changes no bytes.
    """

    name = "message-limit"

    def __init__(self) -> None:
        self._message_bytes = 0
        self._is_control = False

    def enabled(self) -> bool:
        return True

    def offer(self) -> Literal[False]:
        return False

    def frame_inbound_header(
        self,
        proto: FrameDecoder | FrameProtocol,
        opcode: Opcode,
        rsv: RsvBits,
        payload_length: int,
    ) -> CloseReason | RsvBits:
        """Check the length. Called again for the same header if the mask was not read with it."""
        self._is_control = opcode.iscontrol()
        if not self._is_control:
            if opcode is not Opcode.CONTINUATION:
                self._message_bytes = 0
            if self._message_bytes + payload_length > MESSAGE_BYTES_MAX:
                return CloseReason.MESSAGE_TOO_BIG
        return _NO_RESERVED_BITS

    def frame_inbound_payload_data(self, proto: FrameDecoder | FrameProtocol, data: bytes) -> bytes:
        if not self._is_control:
            self._message_bytes += len(data)
        return data
