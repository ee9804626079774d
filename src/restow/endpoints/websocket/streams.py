"""A pushed stream over a WebSocket: each chunk of the stream is a message, in one frame.

The producer gets a StreamWriter, as for every stream. When it is done, the server sends a close
frame and waits CLOSE_SECONDS for that of the client. A client that violates the protocol or a limit
gets a close frame with the code for it, and is disconnected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from wsproto.events import CloseConnection
from wsproto.frame_protocol import CloseReason

from restow.aio import Clock, Timer
from restow.endpoints.websocket.frames import FrameConnection
from restow.httpserver import PushStream, StreamWriter, Tunnel, TunnelEnd
from restow.httpserver.stream import split_chunks

CLOSE_SECONDS: Final = 1.0
"""How long a client has to answer the close frame."""


def as_websocket(
    stream: PushStream, headers: bytes, *, clock: Clock, length_bytes: int | None = None
) -> Tunnel:
    """The same stream over a WebSocket.

    With `length_bytes` its chunks are binary, and begin with a length that a frame does not need.
    """

    def start(end: TunnelEnd) -> None:
        _Socket(end, clock, length_bytes).begin(stream.start)

    return Tunnel(start, headers, on_dropped=stream.close, on_revoked=stream.on_revoked)


class _Socket:
    """Connects a producer to the client: the interface of a connection to its streams."""

    __slots__ = ("_clock", "_end", "_frames", "_is_closing", "_length_bytes", "_timer", "_writer")

    def __init__(self, end: TunnelEnd, clock: Clock, length_bytes: int | None) -> None:
        self._end = end
        self._clock = clock
        self._length_bytes = length_bytes
        self._frames = FrameConnection()
        self._writer = StreamWriter(self, self._send, chunked=True, later=end.do_later)
        self._is_closing = False
        self._timer: Timer | None = None

    def begin(self, start: Callable[[StreamWriter], None]) -> None:
        end = self._end
        end.on_data = self._receive
        end.on_writable = self._go_on
        end.on_close = self._cut
        end.on_leave = lambda: self._finish(CloseReason.GOING_AWAY)
        self._writer.writable = end.writable
        start(self._writer)

    # --- to the client -----------------------------------------------------------------------

    def _send(self, chunks: bytes) -> None:
        end = self._end
        end.write(b"".join(self._encoded(chunks)))
        self._writer.writable = end.writable

    def _encoded(self, chunks: bytes) -> Iterator[bytes]:
        skip, frames = self._length_bytes, self._frames
        for event in split_chunks(chunks):
            yield frames.text(event) if skip is None else frames.binary(event[skip:])

    def _go_on(self) -> None:
        writer = self._writer
        writer.writable = True
        if not writer.closed and writer.on_writable is not None:
            writer.on_writable()

    # --- called by the stream ------------------------------------------------------------------

    def stream_overfull(self) -> bool:
        return self._end.is_overfull()

    def stream_done(self) -> None:
        """The producer has finished."""
        self._is_closing = True
        self._end.write(self._frames.close(CloseReason.NORMAL_CLOSURE))
        self._timer = self._clock.call_later(CLOSE_SECONDS, self._close)

    def stream_abort(self) -> None:
        self._end.abort()

    # --- from the client ---------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        """Discard messages, answer the last ping, and close when the client does."""
        ping: bytes | None = None
        for event in self._frames.receive(data):
            if isinstance(event, CloseConnection):
                self._finish(event.code)
                return
            ping = bytes(event.payload)
        # RFC 6455, 5.5.3: answering the latest ping is enough. A slow client gets no pongs, so that
        # they do not pile up in the buffer.
        if ping is not None and self._end.writable and not self._is_closing:
            self._end.write(self._frames.pong(ping))

    # --- the end -----------------------------------------------------------------------------

    def _finish(self, code: int) -> None:
        """Close from this side, without waiting for the client."""
        if not self._is_closing:
            self._is_closing = True
            self._end.write(self._frames.close(code))
        self._writer.cut()
        self._close()

    def _cut(self) -> None:
        """Handle that the client has disconnected."""
        self._stop_timer()
        self._writer.cut()

    def _close(self) -> None:
        self._stop_timer()
        self._end.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
