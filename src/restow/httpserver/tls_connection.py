"""TLS between a connection and its socket, by what the system's library does in memory.

To the event loop it is a protocol, to the connection a transport:

    socket -> data_received -> the library -> the connection's data_received
    socket <- write         <- the library <- write of the connection

The event loop has a layer for that, too. With every request it asks the library for more until an
error says that there is no more; here it is asked only if there are bytes left, which makes a short
get a tenth cheaper.

A client that ends its half has the answers that are ready, and then the connection is over. Closing
says so to the client, and drops what comes until it has done the same: otherwise the system would
answer with a reset, which can overtake what was written. How long that may take is for the
connection to say.

What comes from a client that has not shown who it is, also its handshake, is not even decrypted
before it is its turn. The library is given one record at a time, for it would work through any
number of those that carry no data, each of which costs two changes of keys, before it returns.
Of anybody only so many are looked at in one turn, and so many without data in a row are the end.
While the connection does not want to read, a little is held as it came: only
a socket that is read shows that its client has left.

Not here: certificates, and what is spoken (`tls`); who accepts, and how long a handshake may take
(`shared_port`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from restow.httpserver.connection_writer import IN_LINE, ConnectionWriter
from restow.httpserver.limits import AddressShare, Budgets
from restow.httpserver.unauthenticated_budget import UnauthenticatedBudget

RECORD_BYTES_MAX: Final = 16 * 1024
"""What TLS sends in one piece: a read of the library gives no more than that."""
SEALED_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""So much is encrypted at once: the memory that the library needs for it, it keeps."""
HELD_BYTES: Final = 2 * RECORD_BYTES_MAX
"""Who has sent more that cannot be looked at yet is not read until it can."""
FREE_BYTES: Final = 4 * 1024
"""So much of a stranger is held whatever others have sent: a handshake, or a request without a
body."""
RECORDS_AT_ONCE_MAX: Final = 16
"""What is decrypted for a stranger in one turn: records may be as short as one byte."""
KNOWN_RECORDS_AT_ONCE_MAX: Final = 64
"""The same for who is known: more than what is read at once, if the records are long."""
EMPTY_RECORDS_MAX: Final = 32
"""Records without data in a row, such as changes of keys. More ends the connection."""
HEADER_BYTES: Final = 5
"""What says how long a record is, in its last two bytes."""

logger = logging.getLogger(__name__)


class TlsConnection(asyncio.Transport, asyncio.Protocol):
    """One connection that speaks TLS. `make` makes its protocol when both sides know each other."""

    __slots__ = (
        "_budgets",
        "_charged_bytes",
        "_decrypt",
        "_dropped_bytes",
        "_dropped_bytes_max",
        "_empty_records",
        "_encrypt",
        "_hand_on",
        "_has_ended",
        "_held",
        "_held_bytes",
        "_incoming",
        "_is_closing",
        "_is_direct",
        "_is_held_up",
        "_is_in_line",
        "_is_listening",
        "_make",
        "_outgoing",
        "_protocol",
        "_reading_paused",
        "_record_bytes",
        "_send",
        "_share",
        "_ssl",
        "_transport",
        "_turns",
        "greeted",
    )

    _transport: asyncio.Transport
    _share: AddressShare
    _send: Callable[[bytes], None]
    _hand_on: Callable[[bytes], None]

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], ConnectionWriter],
        *,
        turns: UnauthenticatedBudget,
        budgets: Budgets,
        dropped_bytes_max: int,
    ) -> None:
        super().__init__()
        self._make = make
        self._turns = turns
        self._budgets = budgets
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._decrypt, self._encrypt = self._ssl.read, self._ssl.write
        self._protocol: ConnectionWriter | None = None
        # Whether what comes is decrypted at once: its sender is known, and nothing is ending.
        self._is_direct = False
        # What came before it is its turn, and whether it is read no further until then.
        self._held = bytearray()
        self._held_bytes = 0
        # What the library lacks of the record that it was given the beginning of.
        self._record_bytes = 0
        self._empty_records = 0
        self._charged_bytes = 0
        self._is_in_line = False
        self._is_held_up = False
        # Whether the client has closed its half of the socket.
        self._has_ended = False
        self._is_closing = False
        # Whether the client's last word could be heard: nothing that it has sent is missing.
        self._is_listening = False
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
        name = transport.get_extra_info("peername")
        self._share = self._budgets.share_of(str(name[0]) if isinstance(name, tuple) else "")

    def data_received(self, data: bytes) -> None:
        # The short way is for one whole record.
        if not self._is_direct or int.from_bytes(data[3:HEADER_BYTES]) + HEADER_BYTES != len(data):
            self._receive_otherwise(data)
            return
        self._incoming.write(data)
        try:
            plain = self._decrypt(RECORD_BYTES_MAX)
        except ssl.SSLWantReadError:
            self._flush()  # the library may have something to say, for example that keys change
            self._note_empty()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        if plain:
            self._empty_records = 0
            self._hand_on(plain)
        else:
            self._end_by_word()

    def eof_received(self) -> bool:
        """The client has closed its half of the socket; whether the other half stays open for now.
        Otherwise the event loop closes it when all is written."""
        self._has_ended = True
        if self._is_in_line and not self._reading_paused:
            return True  # what it has sent has its turn first
        self._end_input()
        return False

    def _end_input(self) -> None:
        if self._protocol is not None and not self._is_closing:
            self._protocol.eof_received()
            self._say_goodbye()

    def connection_lost(self, exc: Exception | None) -> None:
        self._begin_end()
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
            self._drop(data)
            return
        self._held += data
        self._held_bytes += len(data)
        if not self._is_in_line and not self._reading_paused:
            if self._is_known:
                self._receive_held()
            else:
                self._stand_in_line()
        if self._held and not self._charge():
            logger.debug("a connection is cut: there is no room for what cannot be looked at yet")
            self.abort()
        elif self._held and self._held_bytes > HELD_BYTES and not self._is_held_up:
            self._is_held_up = True
            self._transport.pause_reading()

    def _charge(self) -> bool:
        """Note what is held for a stranger; whether there is room for it."""
        more = self._held_bytes - FREE_BYTES - self._charged_bytes
        if more <= 0 or self._is_known:
            return True
        if not self._share.take(more):
            return False
        self._charged_bytes += more
        return True

    @property
    def _is_known(self) -> bool:
        return self._protocol is not None and self._protocol.peer.is_known

    @property
    def _has_more(self) -> bool:
        """Whether there is something to give to the library. It would not look at half a header."""
        return len(self._held) >= (1 if self._record_bytes else HEADER_BYTES)

    def _feed(self) -> bool:
        """Give the library the next record, or what has come of it; whether there was any."""
        if not self._has_more:
            return False
        held = self._held
        if not self._record_bytes:
            self._record_bytes = HEADER_BYTES + int.from_bytes(held[3:HEADER_BYTES])
        piece = held[: self._record_bytes]
        del held[: self._record_bytes]
        self._record_bytes -= len(piece)
        self._incoming.write(piece)
        return True

    def _note_empty(self) -> bool:
        """A record had no data in it, or is not whole yet; whether the connection goes on."""
        self._empty_records += not self._record_bytes
        if self._empty_records <= EMPTY_RECORDS_MAX:
            return True
        logger.debug("a connection is cut: its client changes keys and says nothing")
        self.abort()
        return False

    def _stand_in_line(self) -> None:
        if not self._is_closing:
            self._is_in_line = True
            self._turns.take(self._take_turn, is_new=self._protocol is None)

    def _take_turn(self) -> None:
        if not self._is_in_line or self._is_closing:
            return  # it has ended meanwhile
        self._is_in_line = False
        if not self._reading_paused:
            self._receive_held()
        if self._has_ended and not self._is_in_line:
            self._end_input()
            self._transport.close()

    def _receive_held(self) -> None:
        if self._protocol is None:
            self._greet()
        else:
            self._receive_more()
        if not self._has_more:
            self._let_go()

    def _let_go(self) -> None:
        """Nothing is held any longer but half a header."""
        if self._charged_bytes:
            self._share.give_back(self._charged_bytes)
        self._held_bytes, self._charged_bytes = len(self._held), 0
        if self._is_held_up:
            self._is_held_up = False
            if not self.is_closing():
                self._transport.resume_reading()

    def _drop(self, data: bytes) -> None:
        """Look only for the client's last word, and for that not long."""
        self._dropped_bytes += len(data)
        self._is_listening &= self._dropped_bytes <= HELD_BYTES
        if self._dropped_bytes > self._dropped_bytes_max:
            self.abort()
        elif self._is_listening:
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
            self._is_listening = False
            self._held.clear()

    def _greet(self) -> None:
        """Steps of the handshake."""
        for _ in range(RECORDS_AT_ONCE_MAX):
            if not self._feed():
                self._flush()
                return
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                self._fail(error)
                return
            break
        else:
            self._flush()
            self._go_on_later()
            return
        self._flush()
        protocol = self._protocol = self._make()
        self._hand_on = protocol.data_received
        self._end_greeting()
        protocol.connection_made(self)
        if self._has_more and not self._is_closing and not self._reading_paused:
            self._receive_more()  # what came behind the handshake

    def _receive_more(self) -> None:
        """Hand on what came, in one piece, and see whether it is the last. Only so many records of
        it: the rest in another turn."""
        pieces: list[bytes] = []
        is_over = False
        try:
            for _ in range(KNOWN_RECORDS_AT_ONCE_MAX if self._is_known else RECORDS_AT_ONCE_MAX):
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
        self._flush()  # the library itself may have something to say, for example that keys change
        if plain := b"".join(pieces):
            self._hand_on(plain)
        if self._is_closing:
            return
        if is_over:
            self._end_by_word()
        elif self._reading_paused or self._is_in_line:
            pass
        elif self._has_more:
            self._go_on_later()
        else:
            self._is_direct = self._is_known and not self._held and not self._record_bytes

    def _end_by_word(self) -> None:
        """The client has said that it is over."""
        assert self._protocol is not None
        self._protocol.eof_received()
        self.close()

    def _go_on_later(self) -> None:
        """Look at the rest of what came in another turn."""
        self._is_in_line = True
        self._is_direct = False
        if self._is_known:
            asyncio.get_running_loop().call_soon(self._take_turn)
        else:
            self._turns.wait(self._take_turn)

    def _fail(self, error: Exception) -> None:
        """Say why, as far as TLS has a word for that, and close."""
        logger.debug("a connection has ended, for TLS failed: %s", error)
        is_behind = self._transport.get_write_buffer_size() > 0
        self._begin_end()
        self._flush()
        if self._protocol is not None:
            self._protocol.eof_received()
        if is_behind:
            self._transport.abort()  # it does not read: it would never hear it
        else:
            self._transport.close()

    def _begin_end(self) -> None:
        self._is_closing = True
        self._is_direct = False
        self._is_in_line = False
        self._held.clear()
        self._let_go()

    def _end_greeting(self) -> None:
        if not self.greeted.done():
            self.greeted.set_result(None)

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
            # Not `_fail`: whoever writes is in the middle of something.
            logger.debug("a connection is cut, for TLS failed: %s", error)
            self.abort()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._send(self._outgoing.read())

    def close(self) -> None:
        if self._is_closing:
            return
        is_held_up = self._is_held_up
        self._is_listening = not self._held
        self._begin_end()
        if self._say_goodbye() or self._has_ended:
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if is_held_up:
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
        self._begin_end()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def give_up(self) -> None:
        """Wait for the handshake no longer."""
        if self._protocol is None:
            self.abort()

    def pause_reading(self) -> None:
        self._reading_paused = True
        self._is_direct = False

    def resume_reading(self) -> None:
        self._reading_paused = False
        if self._has_more and not self._is_in_line and not self._is_closing:
            self._go_on_later()  # not at once: whoever resumes is in the middle of something

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        if name == "ssl_object":
            return self._ssl
        if name == IN_LINE:
            return self._is_in_line
        return self._transport.get_extra_info(name, default)
