"""`python -m benchmarks.tls_layers.event_loop_tls serve ...`: restow on the event loop's TLS.

The same server, with its TLS layer replaced before it starts. RESTOW_BENCH_TLS chooses how:

    plain     uvloop's TLS with its handshake timeout, and the limit on unfinished handshakes
    limited   the same with all limits that public interfaces allow: an SSLObject that gives OpenSSL
              one record at a time, ends a connection after too many records without data and reads
              the rest later; one unauthenticated connection is read in an iteration of the event
              loop; handshakes begin one after the other, when their first bytes have arrived and
              the unauthenticated work budget allows it

Only a benchmark needs such a server, so the product has no switch for it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
import time
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

from restow.httpserver import server, shared_port, tls
from restow.httpserver.tls_connection import (
    EMPTY_RECORDS_MAX,
    HEADER_BYTES,
    HELD_BYTES,
    RECORD_BYTES_MAX,
)
from restow.httpserver.work_budget import WorkBudget

VARIANT: Final = "RESTOW_BENCH_TLS"
ACTIVE_HANDSHAKES_MAX: Final = 1
ACTIVE_SECONDS: Final = 0.05
"""Timeout of a handshake that blocks the next one. Its client may be far away."""
SHUTDOWN_SECONDS: Final = 1.0
RECORDS_AT_ONCE_MAX: Final = 16
KEY_UPDATE_BYTES: Final = 27
SHORT_BYTES: Final = KEY_UPDATE_BYTES * EMPTY_RECORDS_MAX


class LimitedSslObject(ssl.SSLObject):
    """Limits the work that one read of the event loop causes in OpenSSL.

    The event loop fills `come`; OpenSSL reads `given`, which gets one record at a time.
    """

    come: ssl.MemoryBIO
    given: ssl.MemoryBIO
    transport: asyncio.Transport | None = None
    reads: WorkBudget | None = None
    held = b""
    lacking_bytes = 0
    empty_records = 0
    is_allowed = False
    is_waiting = False

    def do_handshake(self) -> None:
        while True:
            try:
                super().do_handshake()
            except ssl.SSLWantReadError:
                if not self._give_record():
                    raise
            else:
                return

    def pending(self) -> int:
        return len(self.held) or super().pending()

    def read(self, nbytes: int = 1024, buffer: Any = None) -> Any:
        if not self._is_known and not self._may_read():
            raise ssl.SSLWantReadError
        if not self.held and not self.lacking_bytes and self.come.pending <= SHORT_BYTES:
            data = self.come.read()
            if int.from_bytes(data[3:HEADER_BYTES]) + HEADER_BYTES == len(data):
                self.given.write(data)  # one whole record: most requests
                try:
                    plain = super().read(RECORD_BYTES_MAX)
                except ssl.SSLWantReadError:
                    self._note_empty(1)
                    raise
                self.empty_records = 0
                return plain
            self.held = data
        return self._read_records()

    def _read_records(self) -> bytes:
        plain: list[bytes] = []
        for _ in range(RECORDS_AT_ONCE_MAX):
            if not self._give_record():
                break
            try:
                plain.append(super().read(RECORD_BYTES_MAX))
            except ssl.SSLWantReadError:
                self._note_empty(not self.lacking_bytes)
            else:
                self.empty_records = 0
                if not plain[-1]:
                    break
        else:
            asyncio.get_running_loop().call_soon(self._go_on)
            if plain:
                return b"".join(plain)
        if not plain:
            raise ssl.SSLWantReadError
        return b"".join(plain)

    def _give_record(self) -> bool:
        if not self.held and not self.come.pending:
            return False
        if not self.lacking_bytes:
            head = self._take(HEADER_BYTES)
            if len(head) < HEADER_BYTES:
                self.held = head
                return False
            self.lacking_bytes = int.from_bytes(head[3:])
            self.given.write(head)
        piece = self._take(self.lacking_bytes)
        self.lacking_bytes -= len(piece)
        self.given.write(piece)
        return True

    def _take(self, nbytes: int) -> bytes:
        piece, self.held = self.held[:nbytes], self.held[nbytes:]
        return piece + self.come.read(nbytes - len(piece)) if len(piece) < nbytes else piece

    def _note_empty(self, count: int) -> None:
        self.empty_records += count
        if self.empty_records > EMPTY_RECORDS_MAX:
            raise ssl.SSLError("too many records without data")

    @property
    def _is_known(self) -> bool:
        transport = self.transport
        return transport is not None and cast("Any", transport.get_protocol()).peer.is_known

    def _may_read(self) -> bool:
        """Only one unauthenticated connection is read in an iteration of the event loop."""
        if self.reads is None:
            return True
        if not self.is_allowed and not self.is_waiting:
            self.is_waiting = True
            self.reads.take(self._allow, key="")
        allowed, self.is_allowed = self.is_allowed, False
        return allowed

    def _allow(self) -> None:
        self.is_waiting, self.is_allowed = False, True
        self._go_on()

    def _go_on(self) -> None:
        """Make the event loop read again. If the application has paused, it does so later."""
        if self.transport is not None and self.transport.is_reading():
            self.transport.pause_reading()
            self.transport.resume_reading()


class LimitedContext(ssl.SSLContext):
    """A context whose connections are limited."""

    sslobject_class = LimitedSslObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, *rest: Any, **named: Any) -> ssl.SSLObject:
        given = ssl.MemoryBIO()
        made = super().wrap_bio(given, *rest, **named)
        assert isinstance(made, LimitedSslObject)
        made.come, made.given = incoming, given
        return made


class EventLoopPort(shared_port.SharedPort):
    """A shared port whose connections speak TLS by the event loop."""

    def __init__(self, *rest: Any, **named: Any) -> None:
        super().__init__(*rest, **named)
        # Next to no time, which allows one in each iteration.
        self._reads = WorkBudget(time.monotonic, 1e-9)
        self._active = asyncio.Semaphore(ACTIVE_HANDSHAKES_MAX)

    async def _connect(self, accepted: socket.socket, address: str) -> None:
        assert self._tls is not None
        shut = partial(_shut, accepted)
        self._shared.handshakes.add(address, shut)
        try:
            if not isinstance(self._tls, LimitedContext):
                await self._handshake(accepted)
                return
            async with asyncio.timeout(self._shared.limits.handshake_seconds):
                await self._first_bytes(accepted)
                await self._active.acquire()
            inactive = asyncio.get_running_loop().call_later(ACTIVE_SECONDS, self._active.release)
            try:
                transport = await self._handshake(accepted)
            finally:
                if not inactive.cancelled() and inactive.when() > asyncio.get_running_loop().time():
                    inactive.cancel()
                    self._active.release()
            made = transport.get_extra_info("ssl_object")
            assert isinstance(made, LimitedSslObject)
            made.transport, made.reads = transport, self._reads
            cast("Any", transport).set_read_buffer_limits(high=HELD_BYTES)  # of uvloop
        except (OSError, TimeoutError) as error:
            shared_port.logger.debug("a connection ended before its first request: %s", error)
            accepted.close()
        finally:
            self._shared.handshakes.remove(address, shut)

    async def _handshake(self, accepted: socket.socket) -> asyncio.Transport:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            self._make,
            accepted,
            ssl=self._tls,
            ssl_handshake_timeout=self._shared.limits.handshake_seconds,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
        return transport

    async def _first_bytes(self, accepted: socket.socket) -> None:
        """Wait until bytes have arrived, and until the budget allows reading them."""
        loop = asyncio.get_running_loop()
        allowed: asyncio.Future[None] = loop.create_future()

        def begin() -> None:
            if not allowed.done():
                allowed.set_result(None)

        def on_readable() -> None:
            loop.remove_reader(accepted.fileno())
            self._shared.work.unauthenticated.take(begin, key="", is_new=True)

        loop.add_reader(accepted.fileno(), on_readable)
        try:
            await allowed
        finally:
            loop.remove_reader(accepted.fileno())


def _shut(accepted: socket.socket) -> None:
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)


def use_contexts(*, limited: bool) -> None:
    """Make the module `tls` create its contexts from this class, which it looks up by name."""
    names = vars(ssl) | {"SSLContext": LimitedContext}
    made = SimpleNamespace(**names) if limited else ssl
    setattr(tls, "ssl", made)  # noqa: B010 - not a name of its interface


def main() -> int:
    setattr(server, "SharedPort", EventLoopPort)  # noqa: B010 - not a name of its interface
    use_contexts(limited=os.environ[VARIANT] == "limited")
    from restow.cli.main import main as run  # noqa: PLC0415

    return run()


if __name__ == "__main__":
    sys.exit(main())
