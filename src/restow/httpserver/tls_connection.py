"""TLS between a connection and its socket: OpenSSL works in memory, through Python's `ssl`.

To the event loop it is a protocol, to the connection a transport:

    socket -> data_received -> OpenSSL -> the connection's data_received
    socket <- write         <- OpenSSL <- write of the connection

The event loop has such a layer, too. It cannot limit or delay what OpenSSL does for a client before
that client is authenticated; docs/adr/0014 has the figures.

Until a request of a connection was authenticated, everything it sends, also its handshake, is
decrypted only when the unauthenticated work budget allows it. OpenSSL is given one record at a
time: before it returns it would process any number of records without data, such as KeyUpdate
messages, each of which costs two key derivations. Of any client only some records are processed in
one iteration of the event loop, and too many in a row without data end the connection. While the
connection does not read, a little is held encrypted: only a socket that is read shows that its
client has disconnected.

Sessions of TLS 1.2 are not resumed: the context refuses them when it selects the certificate, and
then the handshake starts again with the same ClientHello, as a full one. A failed handshake would
not do: clients that cache sessions by themselves would lose every second connection.

When a client closes its half, the answers that are ready are sent, and then the connection ends.
`close` sends close_notify and the end of the socket's own half, and drops what comes until the
client has done the same: otherwise the kernel would send a reset, which can overtake what was
written. The connection limits how long that may take.

Not here: certificates and TLS versions (`tls`); accepting, the handshake time-out and the limit on
concurrent handshakes (`shared_port`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from restow.httpserver.byte_budgets import Share
from restow.httpserver.connection_writer import HAS_QUEUED_INPUT, ConnectionWriter
from restow.httpserver.work_budget import WorkBudgets

RECORD_BYTES_MAX: Final = 16 * 1024
"""The data of one TLS record: a read of OpenSSL gives no more than that."""
SEALED_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""Bytes encrypted at once: OpenSSL keeps the memory that it needs for them."""
HELD_BYTES: Final = 2 * RECORD_BYTES_MAX
"""Bytes received and not decrypted. With more, the socket is not read until some are decrypted."""
UNCHARGED_BYTES: Final = 4 * 1024
"""Bytes held for each unauthenticated connection even if the byte budget is used up: enough for a
handshake, or a request without a body."""
RECORDS_AT_ONCE_MAX: Final = 16
"""Records decrypted at once for an unauthenticated connection; a record can have one byte."""
AUTHENTICATED_RECORDS_AT_ONCE_MAX: Final = 64
"""Records decrypted at once for an authenticated connection: if long, more than one socket read."""
EMPTY_RECORDS_MAX: Final = 32
"""Records without data in a row, such as KeyUpdate messages. More ends the connection."""
HELLO_BYTES_MAX: Final = 8 * 1024
"""Bytes of a ClientHello that are kept to repeat a handshake without the session that the client
offered; with a longer one, the handshake fails instead."""
HEADER_BYTES: Final = 5
"""Size of a record's header; its last two bytes are the length of the rest."""
APPLICATION_DATA: Final = 23
TYPES_AFTER_HANDSHAKE: Final = (APPLICATION_DATA, 21)
"""Types of records after the handshake, the first byte of the header: data and alerts. In TLS 1.3
all are of the first. In TLS 1.2 a handshake message requests a renegotiation, which is off; OpenSSL
would answer each of the thousands that fit into one record with an alert."""

logger = logging.getLogger(__name__)


class TlsConnection(asyncio.Transport, asyncio.Protocol):
    """A connection over TLS. `make` creates its protocol when the handshake is complete."""

    __slots__ = (
        "_awaits_close_notify",
        "_context",
        "_decrypt",
        "_deliver",
        "_dropped_bytes",
        "_dropped_bytes_max",
        "_empty_records",
        "_encrypt",
        "_has_eof",
        "_held",
        "_hello",
        "_incoming",
        "_is_closing",
        "_is_direct",
        "_is_queued",
        "_is_socket_paused",
        "_make",
        "_outgoing",
        "_protocol",
        "_reading_paused",
        "_record_bytes",
        "_send",
        "_share",
        "_ssl",
        "_transport",
        "_work",
        "handshake_over",
    )

    _transport: asyncio.Transport
    _send: Callable[[bytes], None]
    _deliver: Callable[[bytes], None]

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], ConnectionWriter],
        *,
        work: WorkBudgets,
        share: Share,
        dropped_bytes_max: int,
    ) -> None:
        super().__init__()
        self._make = make
        self._work = work
        self._share = share
        self._context = context
        self._start_handshake()
        # The input of the handshake until the first output.
        self._hello: bytearray | None = bytearray()
        self._protocol: ConnectionWriter | None = None
        # Whether input is decrypted at once: its client is authenticated, and nothing is ending.
        self._is_direct = False
        # Bytes received and not decrypted, and whether the socket is paused until they are
        # decrypted.
        self._held = bytearray()
        self._is_socket_paused = False
        # Bytes that OpenSSL needs to complete the record whose beginning it was given.
        self._record_bytes = 0
        self._empty_records = 0
        # Whether `_run_queued` will be called.
        self._is_queued = False
        # Whether the client has closed its half of the socket.
        self._has_eof = False
        self._is_closing = False
        # While closing: whether the client's close_notify can be read, since no input was dropped.
        self._awaits_close_notify = False
        self._reading_paused = False
        self._dropped_bytes = 0
        self._dropped_bytes_max = dropped_bytes_max
        self.handshake_over: Final[asyncio.Future[None]] = (
            asyncio.get_running_loop().create_future()
        )
        """Done when the handshake has succeeded or failed."""

    def _start_handshake(self) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._decrypt, self._encrypt = self._ssl.read, self._ssl.write

    # --- called by the event loop ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No check of the class: uvloop's transports do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._send = self._transport.write

    def data_received(self, data: bytes) -> None:
        # The fast path is for one whole record with data.
        if (
            not self._is_direct
            or int.from_bytes(data[3:HEADER_BYTES]) + HEADER_BYTES != len(data)
            or data[0] != APPLICATION_DATA
        ):
            self._receive_slowly(data)
            return
        self._incoming.write(data)
        try:
            plain = self._decrypt(RECORD_BYTES_MAX)
        except ssl.SSLWantReadError:
            self._flush()  # OpenSSL may have an answer, for example a KeyUpdate message
            self._note_empty()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        if plain:
            self._empty_records = 0
            self._deliver(plain)
        else:
            self._on_close_notify()

    def eof_received(self) -> bool:
        """The client has closed its half of the socket. Returns whether the other half stays open;
        otherwise the event loop closes it when everything is written."""
        self._has_eof = True
        if self._is_queued and not self._reading_paused:
            return True  # its pending input is processed first
        self._end_input()
        return False

    def _end_input(self) -> None:
        if self._protocol is not None and not self._is_closing:
            self._protocol.eof_received()
            self._send_close_notify()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_reading()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            # A reference cycle, whose memory would be free only after garbage collection.
            del self._deliver
            protocol.connection_lost(exc)
        self._end_handshake()

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    # --- reading -----------------------------------------------------------------------------

    def _receive_slowly(self, data: bytes) -> None:
        if self._is_closing:
            self._drop(data)
            return
        self._held += data
        if not self._is_queued and not self._reading_paused:
            if self._is_privileged:
                self._receive_held()
            else:
                self._queue_input()
        if self._held and not self._charge():
            logger.debug("connection aborted: the budget of unauthenticated bytes is used up")
            self.abort()
        elif len(self._held) > HELD_BYTES and not self._is_socket_paused:
            self._is_socket_paused = True
            self._transport.pause_reading()

    def _charge(self) -> bool:
        """Charge the held bytes of an unauthenticated client to its byte budget; whether the budget
        allows them."""
        more = len(self._held) - UNCHARGED_BYTES - self._share.bytes_held
        return more <= 0 or self._is_known or self._share.take(more, self.abort)

    @property
    def _is_known(self) -> bool:
        return self._protocol is not None and self._protocol.peer.is_known

    @property
    def _is_privileged(self) -> bool:
        return self._protocol is not None and self._protocol.peer.is_privileged

    @property
    def _has_more(self) -> bool:
        """Whether OpenSSL can be given more: the header of a record only when it is complete."""
        return len(self._held) >= (1 if self._record_bytes else HEADER_BYTES)

    def _feed(self) -> bool:
        """Give OpenSSL the next record, or the received part of it; whether there was any.

        Raises an SSLError if it is of a type that is not allowed after the handshake.
        """
        if not self._has_more:
            return False
        held = self._held
        if not self._record_bytes:
            if self._protocol is not None and held[0] not in TYPES_AFTER_HANDSHAKE:
                raise ssl.SSLError(f"a record of type {held[0]} after the handshake")
            self._record_bytes = HEADER_BYTES + int.from_bytes(held[3:HEADER_BYTES])
        piece = held[: self._record_bytes]
        del held[: self._record_bytes]
        self._record_bytes -= len(piece)
        self._incoming.write(piece)
        if self._hello is not None:
            self._hello = self._hello + piece if len(self._hello) < HELLO_BYTES_MAX else None
        return True

    def _note_empty(self) -> bool:
        """Count a record without data, if it is complete; whether the connection continues."""
        self._empty_records += not self._record_bytes
        if self._empty_records <= EMPTY_RECORDS_MAX:
            return True
        logger.debug("connection aborted: %d records without data", self._empty_records)
        self.abort()
        return False

    def _queue_input(self) -> None:
        if not self._is_closing:
            self._is_queued = True
            protocol, work = self._protocol, self._work
            if protocol is None:
                work.unauthenticated.take(self._run_queued, key=self._share.key, is_new=True)
            else:
                peer = protocol.peer
                work.of(peer).take(self._run_queued, key=peer.key)

    def _run_queued(self) -> None:
        if not self._is_queued or self._is_closing:
            return  # it has ended since it was queued
        self._is_queued = False
        if not self._reading_paused:
            self._receive_held()
        if self._has_eof and not self._is_queued:
            self._end_input()
            self._transport.close()

    def _receive_held(self) -> None:
        if self._protocol is None:
            self._continue_handshake()
        else:
            self._receive_more()
        if not self._has_more:
            self._release_held()

    def _release_held(self) -> None:
        """Resume reading of the socket, as no bytes are held any longer, except for a part of a
        record's header."""
        self._share.release()
        if self._is_socket_paused:
            self._is_socket_paused = False
            if not self.is_closing():
                self._transport.resume_reading()

    def _drop(self, data: bytes) -> None:
        """Search only for the client's close_notify, in a limited number of bytes."""
        self._dropped_bytes += len(data)
        self._awaits_close_notify &= self._dropped_bytes <= HELD_BYTES
        if self._dropped_bytes > self._dropped_bytes_max:
            self.abort()
        elif self._awaits_close_notify:
            self._held += data
            try:
                for _ in range(RECORDS_AT_ONCE_MAX):
                    if not self._feed():
                        return
                    with suppress(ssl.SSLWantReadError):
                        if not self._decrypt(RECORD_BYTES_MAX):
                            self._transport.close()
                            return
            except ssl.SSLZeroReturnError:
                self._transport.close()
                return
            except ssl.SSLError:
                pass
            self._awaits_close_notify = False
            self._held.clear()

    def _continue_handshake(self) -> None:
        """Do the steps of the handshake for which input has arrived."""
        for _ in range(RECORDS_AT_ONCE_MAX):
            if not self._feed():
                self._flush()
                return
            try:
                self._step_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                self._fail(error)
                return
            break
        else:
            self._flush()
            self._queue_rest()
            return
        self._flush()
        protocol = self._protocol = self._make()
        self._deliver = protocol.data_received
        self._end_handshake()
        protocol.connection_made(self)
        if self._has_more and not self._is_closing and not self._reading_paused:
            self._receive_more()  # bytes that arrived with the end of the handshake

    def _step_handshake(self) -> None:
        """Raises SSLWantReadError until the handshake is complete."""
        hello = self._hello
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            if self._outgoing.pending:
                self._hello = None
            raise
        except ssl.SSLError:
            if hello is None or not self._ssl.session_reused:
                raise
            # The context has refused to resume a session, and OpenSSL has dropped it.
            self._hello = None
            self._start_handshake()
            self._incoming.write(hello)
            self._ssl.do_handshake()

    def _receive_more(self) -> None:
        """Decrypt a number of records, deliver their data in one piece, and queue the rest."""
        pieces: list[bytes] = []
        is_over = False
        try:
            for _ in range(
                AUTHENTICATED_RECORDS_AT_ONCE_MAX if self._is_known else RECORDS_AT_ONCE_MAX
            ):
                if is_over or not self._feed():
                    break
                try:
                    plain = self._decrypt(RECORD_BYTES_MAX)
                except ssl.SSLWantReadError:
                    if self._note_empty():
                        continue
                    return
                self._empty_records = 0
                is_over = not plain
                pieces.append(plain)
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()  # OpenSSL may have an answer, for example a KeyUpdate message
        if plain := b"".join(pieces):
            self._deliver(plain)
        if self._is_closing:
            return
        if is_over:
            self._on_close_notify()
        elif self._reading_paused or self._is_queued:
            pass
        elif self._has_more:
            self._queue_rest()
        else:
            self._is_direct = self._is_known and not self._held and not self._record_bytes

    def _on_close_notify(self) -> None:
        """Handle the client's close_notify."""
        assert self._protocol is not None
        self._protocol.eof_received()
        self.close()

    def _queue_rest(self) -> None:
        """Process the held bytes in another iteration of the event loop."""
        self._is_queued = True
        self._is_direct = False
        protocol = self._protocol
        if protocol is None:
            self._work.unauthenticated.wait(self._run_queued, key=self._share.key, is_new=True)
        elif protocol.peer.is_privileged:
            asyncio.get_running_loop().call_soon(self._run_queued)
        else:
            peer = protocol.peer
            self._work.of(peer).wait(self._run_queued, key=peer.key)

    def _fail(self, error: Exception) -> None:
        """Send the alert that OpenSSL has made, if any, and close."""
        logger.debug("connection closed, TLS failed: %s", error)
        is_behind = self._transport.get_write_buffer_size() > 0
        self._stop_reading()
        self._flush()
        if self._protocol is not None:
            self._protocol.eof_received()
        if is_behind:
            self._transport.abort()  # the client does not read, so it would not get the alert
        else:
            self._transport.close()

    def _stop_reading(self) -> None:
        self._is_closing = True
        self._is_direct = False
        self._is_queued = False
        self._held.clear()
        self._release_held()

    def _end_handshake(self) -> None:
        if not self.handshake_over.done():
            self.handshake_over.set_result(None)

    # --- called by the connection ------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing or not data:
            return
        try:
            if len(data) <= SEALED_BYTES_MAX:
                self._encrypt(data)
                self._send(self._outgoing.read())
            else:
                view = memoryview(data)
                for first in range(0, len(data), SEALED_BYTES_MAX):
                    self._encrypt(view[first : first + SEALED_BYTES_MAX])
                    self._send(self._outgoing.read())
        except ssl.SSLError as error:
            # Not `_fail`: the connection is not prepared to end inside of `write`.
            logger.debug("connection aborted, TLS failed: %s", error)
            self.abort()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._send(self._outgoing.read())

    def close(self) -> None:
        if self._is_closing:
            return
        is_held_up = self._is_socket_paused
        self._awaits_close_notify = not self._held
        self._stop_reading()
        if self._send_close_notify() or self._has_eof:
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if is_held_up:
            self._transport.resume_reading()  # otherwise the client's close is not detected

    def _send_close_notify(self) -> bool:
        """Send close_notify, which shows the client that nothing was cut off; whether it has sent
        its own."""
        try:
            self._ssl.unwrap()
        except ssl.SSLError:
            return False
        finally:
            self._flush()
        return True

    def abort(self) -> None:
        self._stop_reading()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def abort_handshake(self) -> None:
        """Abort the connection if its handshake is not over."""
        if self._protocol is None:
            self.abort()

    def pause_reading(self) -> None:
        self._reading_paused = True
        self._is_direct = False

    def resume_reading(self) -> None:
        self._reading_paused = False
        if self._has_more and not self._is_queued and not self._is_closing:
            self._queue_rest()  # not inside of `resume_reading`, for which the caller is not ready

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        if name == "ssl_object":
            return self._ssl
        if name == HAS_QUEUED_INPUT:
            return self._is_queued
        return self._transport.get_extra_info(name, default)
