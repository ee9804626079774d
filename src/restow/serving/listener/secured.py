"""TLS between a connection and its socket, by what the system's library does in memory.

To the event loop it is a protocol, to the connection a transport:

    socket -> data_received -> the library -> the connection's data_received
    socket <- write         <- the library <- write of the connection

The event loop has a layer for that, too. With every request it asks the library for more until an
error says that there is no more; here it is asked only if there are bytes left, which makes a short
get a tenth cheaper.

A client that ends its half has its answers, and then the connection is over. Closing says so to the
client, and drops what comes until it has closed as well: otherwise the system would answer with a
reset, which can overtake what was written. How long that may take is for the connection to say.

Not here: certificates, and what is spoken (`tls`); who accepts, and how long a handshake may take
(`front`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

RECORD_BYTES_MAX: Final = 16 * 1024
"""What TLS sends in one piece. A read or write of the library is about no more than that."""
UNSENT_BYTES: Final = 16 * RECORD_BYTES_MAX
"""So much is handed on at once: what the library holds for a connection, it holds for good."""

logger = logging.getLogger(__name__)


class Secured(asyncio.Transport, asyncio.Protocol):
    """One connection that speaks TLS. `make` makes its protocol when both sides know each other."""

    __slots__ = (
        "_decrypt",
        "_dropped_bytes",
        "_dropped_bytes_max",
        "_encrypt",
        "_hand_on",
        "_incoming",
        "_is_closing",
        "_make",
        "_outgoing",
        "_protocol",
        "_reading_paused",
        "_send",
        "_ssl",
        "_transport",
        "greeted",
    )

    _transport: asyncio.Transport
    _send: Callable[[bytes], None]
    _hand_on: Callable[[bytes], None]

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        *,
        dropped_bytes_max: int,
    ) -> None:
        super().__init__()
        self._make = make
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._decrypt, self._encrypt = self._ssl.read, self._ssl.write
        self._protocol: asyncio.Protocol | None = None
        self._is_closing = False
        self._reading_paused = False
        self._dropped_bytes = 0
        self._dropped_bytes_max = dropped_bytes_max
        self.greeted: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        """Done when the handshake is over, well or not."""

    # --- called by the event loop ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No check of the class: uvloop's transports do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._send = self._transport.write

    def data_received(self, data: bytes) -> None:
        if self._protocol is None or self._is_closing:
            self._receive_otherwise(data)
            return
        incoming = self._incoming
        incoming.write(data)
        try:
            plain = self._decrypt(RECORD_BYTES_MAX)
        except ssl.SSLError as error:
            self._unreadable(error)
            return
        if not plain or incoming.pending or self._outgoing.pending:
            self._receive_more(plain)
        else:
            self._hand_on(plain)

    def eof_received(self) -> None:
        """The client has closed its half of the socket. The event loop closes the other half when
        all is written."""
        if self._protocol is not None:
            self._protocol.eof_received()
            self._say_goodbye()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            # Both know each other: without this, they would wait for the garbage collector.
            del self._hand_on
            protocol.connection_lost(exc)
        self._end_greeting()

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    # --- reading -----------------------------------------------------------------------------

    def _receive_otherwise(self, data: bytes) -> None:
        if self._is_closing:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > self._dropped_bytes_max:
                self.abort()
            return
        self._incoming.write(data)
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()
        protocol = self._protocol = self._make()
        self._hand_on = protocol.data_received
        self._end_greeting()
        protocol.connection_made(self)
        if self._incoming.pending and not self._is_closing:
            self.data_received(b"")  # what came behind the handshake

    def _receive_more(self, first: bytes) -> None:
        """Hand on all that came, in one piece, and see whether it is the last."""
        pieces, last = [first], first
        try:
            while last and self._incoming.pending:
                last = self._decrypt(RECORD_BYTES_MAX)
                pieces.append(last)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()  # the library itself may have something to say, for example that keys change
        if plain := b"".join(pieces):
            self._hand_on(plain)
        if not last and not self._is_closing:
            assert self._protocol is not None
            self._protocol.eof_received()
            self.close()

    def _unreadable(self, error: ssl.SSLError) -> None:
        if isinstance(error, ssl.SSLWantReadError):
            self._flush()
        else:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Say why, as far as TLS has a word for that, and close."""
        logger.debug("a connection has ended, for TLS failed: %s", error)
        self._is_closing = True
        self._flush()
        self._transport.close()

    def _end_greeting(self) -> None:
        if not self.greeted.done():
            self.greeted.set_result(None)

    # --- called by the connection ------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing or not data:
            return
        try:
            done = self._encrypt(data)
            if done == len(data):
                self._send(self._outgoing.read())
            else:
                self._write_rest(memoryview(data)[done:])
        except ssl.SSLError as error:
            self._fail(error)

    def _write_rest(self, data: memoryview[Any]) -> None:
        while data:
            if self._outgoing.pending >= UNSENT_BYTES:
                self._flush()
            data = data[self._encrypt(data) :]
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._send(self._outgoing.read())

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._say_goodbye():
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if self._reading_paused:
            self._transport.resume_reading()  # otherwise nobody sees the client's end

    def _say_goodbye(self) -> bool:
        """The last word of TLS, with which the client knows that nothing was cut off; whether it
        has said its own."""
        try:
            self._ssl.unwrap()
        except ssl.SSLError:
            return False
        finally:
            self._flush()
        return True

    def abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._reading_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._transport.resume_reading()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.close()  # which reads on, too: there is nothing that TLS could do with it

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        if name == "ssl_object":
            return self._ssl
        return self._transport.get_extra_info(name, default)
