"""Streamed responses: pushed by a producer (watch), or pulled in pieces (long lists).

A stream is an object with callbacks. There is no task and no queue per stream: whether data that
the transport cannot take is kept or dropped is up to the producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol

LAST_CHUNK: Final = b"0\r\n\r\n"
CHUNKED_LINE: Final = b"Transfer-Encoding: chunked\r\n"


def encode_chunk(data: bytes) -> bytes:
    """One chunk with its size line. It can be encoded once and sent to any number of streams."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def split_chunks(chunks: bytes) -> Iterator[bytes]:
    """The data of each of some whole chunks, as `encode_chunk` makes them."""
    position = 0
    while position < len(chunks):
        line_end = chunks.index(b"\r\n", position)
        begin = line_end + 2
        end = begin + int(chunks[position:line_end], 16)
        yield chunks[begin:end]
        position = end + 2


def decode_chunks(chunks: bytes) -> bytes:
    """The data of whole chunks, joined."""
    return b"".join(split_chunks(chunks))


class StreamChannel(Protocol):
    """The interface of a connection that a stream uses."""

    def stream_overfull(self) -> bool:
        """Whether more is unsent than any stream may leave unsent. If so, the connection is
        ending."""
        ...

    def stream_done(self) -> None: ...

    def stream_abort(self) -> None: ...


class StreamWriter:
    """The producer's end of a pushed stream.

    `writable` is False while the client is slow. A producer with more data then pauses, sets
    `on_writable`, and continues when it is called. `on_close` is called once if the stream is ended
    by the other side: the client disconnected, or the server stops. `on_end` is for others than the
    producer: it is called once, whichever side ends the stream.
    """

    __slots__ = (
        *("_channel", "_chunked", "_later", "_write"),
        *("closed", "may_end", "on_close", "on_end", "on_writable", "writable"),
    )

    def __init__(
        self,
        channel: StreamChannel,
        write: Callable[[bytes], object],
        *,
        chunked: bool,
        may_end: bool = True,
        later: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`later` does work of the producer when the work budget of the connection allows it; a
        stream without one does it in the next iteration of the event loop."""
        self._channel = channel
        self._later = later
        self.may_end = may_end
        self._write = write
        self._chunked = chunked
        self.closed = False
        self.writable = True
        self.on_writable: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.on_end: Callable[[], None] | None = None

    def write(self, data: bytes) -> bool:
        """Send some bytes; False asks the producer to pause (these bytes are sent nevertheless)."""
        if not data:
            # An empty chunk would end the stream.
            return self.writable and not self.closed
        return self.send_raw_chunk(encode_chunk(data))

    def send_raw_chunk(self, chunk: bytes) -> bool:
        """Send one or more results of `encode_chunk`; False asks the producer to pause."""
        if self.closed or (not self.writable and self._channel.stream_overfull()):
            return False
        self._write(chunk if self._chunked else decode_chunks(chunk))
        return self.writable

    def do_later(self, work: Callable[[], None]) -> None:
        """Do work for this stream in a later iteration of the event loop, when the work budget of
        its connection allows it. It must check whether the stream has ended meanwhile."""
        if self._later is not None:
            self._later(work)
        elif not self.closed:
            asyncio.get_running_loop().call_soon(work)

    def close(self) -> None:
        """End the stream cleanly. The connection stays usable where the protocol allows it."""
        if not self.closed:
            self._end()
            self._channel.stream_done()

    def abort(self) -> None:
        """Abort the connection, so that the client does not take the stream for complete."""
        if not self.closed:
            self._end()
            self._channel.stream_abort()

    def drop(self) -> None:
        """End a stream that neither side has ended, and notify the producer: cleanly if it may end
        at any point, else by aborting the connection."""
        if not self.closed:
            left = self.on_close
            if self.may_end:
                self.close()
            else:
                self.abort()
            if left is not None:
                left()

    def cut(self) -> None:
        """Notify the producer that the other side has ended the stream."""
        if not self.closed:
            left = self.on_close
            self._end()
            if left is not None:
                left()

    def _end(self) -> None:
        self.closed = True
        # The producer holds the writer, and with it the connection and its buffers. If the writer
        # kept a reference to the producer, the memory would be free only after garbage collection
        # of cycles, which is rare in a server.
        self.on_writable = self.on_close = self._later = None
        ended, self.on_end = self.on_end, None
        if ended is not None:
            ended()


class PushStream:
    """A stream whose producer decides when something is sent.

    The head is sent at once, then `start` is called with the writer; or `on_dropped`, if the stream
    is not sent. `may_end` means that it can be ended at any point, as a watch can. Other streams
    are waited for when the server stops, and aborted if that takes too long. `on_revoked` ends a
    started stream whose user may not have it any more; it is called with the Status that a new
    request would get, as JSON; the default is `StreamWriter.drop`.
    """

    __slots__ = ("headers", "may_end", "on_dropped", "on_revoked", "start", "status")

    def __init__(
        self,
        status: int,
        start: Callable[[StreamWriter], None],
        headers: bytes = b"",
        *,
        may_end: bool = True,
        on_dropped: Callable[[], None] | None = None,
        on_revoked: Callable[[bytes], None] | None = None,
    ) -> None:
        self.status = status
        self.start = start
        self.headers = headers
        self.may_end = may_end
        self.on_dropped = on_dropped
        self.on_revoked = on_revoked

    def close(self) -> None:
        """Notify the producer that the stream is not sent."""
        dropped, self.on_dropped = self.on_dropped, None
        if dropped is not None:
            dropped()


class PullStream:
    """A stream of pieces that are requested only while the client is not slow.

    Good pieces are about 100 KB and take a millisecond or less to make: other connections are
    served between two pieces, not within one. Empty pieces are skipped. With `length` (the sum of
    all pieces) the response has a Content-Length, without it chunks. An iterator with a `close`
    method is closed at the end.
    """

    __slots__ = ("headers", "length", "pieces", "status")

    def __init__(
        self,
        status: int,
        pieces: Iterator[bytes],
        headers: bytes = b"",
        *,
        length: int | None = None,
    ) -> None:
        self.status = status
        self.pieces = pieces
        self.headers = headers
        self.length = length

    def close(self) -> None:
        """Notify the producer that no more pieces are needed."""
        close = getattr(self.pieces, "close", None)
        if close is not None:
            close()
