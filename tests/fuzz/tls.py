"""The TLS layer as a target: a client with valid keys that does anything it likes.

The bytes of an input are a program. Its first byte selects the TLS version and how the handshake is
cut; each further pair of bytes is a step of the client, of the socket, or of the server. The server
is a real TlsConnection with a real ServerConnection; only the socket is simulated.

Whatever the program does:

- no exception reaches the event loop;
- OpenSSL is called at most once per received byte, and the loop becomes idle in a number of
  iterations that is limited by the number of received bytes;
- records without data cause few answers;
- more than EMPTY_RECORDS_MAX records without data in a row end the connection;
- a connection holds little more than HELD_BYTES, and stops reading its socket above that;
- the requests that the application gets are those that the client sent, in their order;
- when the socket has ended, all counters and byte budgets are at zero, and no timer is left.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from restow.aio import Runtime
from restow.httpserver import HttpRequest, HttpResponse, Limits, PullStream, TlsFiles, TlsMaterial
from restow.httpserver.byte_budgets import Share
from restow.httpserver.connection import ServerConnection
from restow.httpserver.listener_state import Counters, ListenerState, PendingTasks
from restow.httpserver.reader import RequestLineCache
from restow.httpserver.response import plain_error_body
from restow.httpserver.tls_connection import EMPTY_RECORDS_MAX, HELD_BYTES, TlsConnection
from tests.support.certificates import make_certificate
from tests.support.tls_records import (
    ALERT,
    CLIENT_HELLO,
    HANDSHAKE,
    Sealer,
    keep_secrets,
    sealer_of,
)

STEPS_MAX: Final = 48
IDLE_ITERATIONS: Final = 60
"""Iterations of the event loop that may pass before it is idle, besides one for each byte."""
ANSWER_BYTES_MAX: Final = 4_000
"""Alerts and KeyUpdate messages that the records of one step may cause, and an error response."""
GET: Final = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
_VERSIONS: Final = (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2)


class Socket(asyncio.Transport):
    """The transport of the event loop: what it reads is given by the program."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.sent = bytearray()
        self.sent_bytes = 0
        self.waiting: list[bytes] = []
        self.is_paused = self.is_over = self.has_eof = self.is_lost = False
        self.unsent_bytes = 0
        self.received_bytes = 0

    def receive(self, data: bytes) -> None:
        """Bytes of the client: read now, or when the server resumes reading."""
        self.waiting.append(data)
        self.read()

    def read(self) -> None:
        while self.waiting and not (self.is_paused or self.is_over or self.has_eof):
            data = self.waiting.pop(0)
            self.received_bytes += len(data)
            self.protocol.data_received(data)
            if not self.is_over:
                held = len(self.protocol._held)
                assert held <= HELD_BYTES or self.is_paused, "too much is held"
                assert held <= HELD_BYTES + len(data)

    def end_input(self) -> None:
        """The client closes its half."""
        if self.is_over or self.has_eof or self.is_paused:
            return
        self.has_eof = True
        if not self.protocol.eof_received():
            self.close()

    def write(self, data: Any) -> None:
        self.sent_bytes += len(data)
        self.sent += data[: 1 << 14]

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        asyncio.get_running_loop().call_soon(self.read)

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            asyncio.get_running_loop().call_soon(self.lose, None)

    def abort(self) -> None:
        self.close()

    def lose(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_over = self.is_lost = True
            self.protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self.is_over

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return ("192.0.2.1", 1) if name == "peername" else default


class _Run:
    """One program."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.runtime = Runtime.system()
        self.seen: list[str] = []
        self.pending: list[asyncio.Future[Any]] = []
        limits = Limits(
            unauthenticated_work_seconds=1e-9 if data[0] & 8 else 1.0,
            unauthenticated_bytes_max=65_536,
            unauthenticated_address_bytes_max=16_384 if data[0] & 16 else 65_536,
            pipelined_seconds=1.0,
            refusal_seconds=1e-6,
            refusal_seconds_max=1e-6,
        )
        self.shared = ListenerState(
            app=self.answer,
            gate=None,
            given_up=None,
            quick=None,
            lines=RequestLineCache(None),
            error_body=plain_error_body,
            limits=limits,
            clock=self.runtime.clock,
            fatal=self.runtime.fatal,
            tasks=PendingTasks.of_runtime(self.runtime, limits),
            steps=self.runtime.steps,
            counters=Counters(),
        )
        self.socket = Socket()
        self.calls_count = 0
        self.requests_sent = 0
        self.empty_records = 0
        """Records without data that the last step sent."""

    def answer(self, request: HttpRequest) -> Any:
        self.seen.append(request.path)
        match len(self.seen) % 6:
            case 1:
                if self.data[0] & 4:
                    request.peer.admit("alice", is_privileged=False)
            case 3:
                made = asyncio.get_running_loop().create_future()
                self.pending.append(made)
                return made
            case 4:
                return PullStream(200, iter([b"x" * 70_000] * 3))
            case 5:
                return HttpResponse(403, b"no")
        return HttpResponse(200, b"ok")

    async def run(self) -> None:
        material, client_context, key_log = _contexts(self.data[0] & 1)
        os.truncate(key_log, 0)
        self.tls = TlsConnection(
            material.context,
            lambda: ServerConnection(self.shared),
            work=self.shared.work,
            share=Share(self.shared.budgets.unauthenticated, "192.0.2.1"),
            dropped_bytes_max=100_000,
        )
        self.tls._decrypt = self._counted(self.tls._decrypt)  # type: ignore[assignment]
        self.socket.protocol = self.tls
        self.tls.connection_made(self.socket)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        first_bytes = b""
        while True:
            try:
                client.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            flight = outgoing.read()
            if is_done:
                break
            if not await self._send(flight, is_last=False):
                await self._end()
                return
            first_bytes = first_bytes or bytes(self.socket.sent)
            incoming.write(bytes(self.socket.sent))
            self.socket.sent.clear()
        if not await self._send(flight, is_last=True):
            await self._end()
            return
        self.sealer: Sealer = sealer_of(key_log, client, first_bytes)
        steps = self.data[1 : 1 + 2 * STEPS_MAX]
        for at in range(0, len(steps) - 1, 2):
            sent_before, seen_before = self.socket.sent_bytes, len(self.seen)
            is_answering = self.shared.counters.answers_pending + self.shared.counters.streams_open
            self._step(steps[at], steps[at + 1])
            await self._settle()
            if 4 <= steps[at] % 24 <= 10 and len(self.seen) == seen_before and not is_answering:
                sent = self.socket.sent_bytes - sent_before
                assert sent <= ANSWER_BYTES_MAX, "many answers to records without data"
            is_read = not (self.socket.is_paused or self.tls._reading_paused)
            if self.empty_records > EMPTY_RECORDS_MAX and is_read:
                assert self.socket.is_over or self.tls._is_closing, "a flood of empty records"
        await self._end()

    def _counted(self, decrypt: Callable[..., bytes]) -> Callable[[int], bytes]:
        def counted(nbytes: int) -> bytes:
            self.calls_count += 1
            return decrypt(nbytes)

        return counted

    async def _send(self, flight: bytes, *, is_last: bool) -> bool:
        """Send a part of the handshake; whether it continues."""
        cut = self.data[0] >> 5
        if cut == 7 - is_last and len(self.data) > 1:
            self._deliver(flight[: self.data[1] * len(flight) // 256], how=self.data[0])
            return False
        self._deliver(flight, how=cut)
        await self._settle()
        return not self.socket.is_over

    def _deliver(self, data: bytes, *, how: int) -> None:
        """Give bytes to the server: in one piece, in halves, as single bytes, or in thirds."""
        size = (len(data), len(data) // 2 + 1, 1, len(data) // 3 + 1)[how % 4] or 1
        if len(data) > 4_000:
            size = max(size, 1_000)
        for begin in range(0, len(data), size):
            self.socket.receive(data[begin : begin + size])

    async def _settle(self) -> None:
        """Let the event loop become idle."""
        loop: Any = asyncio.get_running_loop()
        for _ in range(IDLE_ITERATIONS + self.socket.received_bytes):
            await asyncio.sleep(0)
            if not loop._ready:
                break
        else:
            raise AssertionError("the event loop does not become idle")
        assert self.calls_count <= self.socket.received_bytes, "OpenSSL is called in a loop"
        assert self.seen == [f"/{n}" for n in range(len(self.seen))], "other requests than sent"
        assert len(self.seen) <= self.requests_sent

    def _step(self, code: int, size: int) -> None:
        kind = code % 24
        self.empty_records = 0
        if kind <= 11:
            self._send_records(kind, code, size)
        elif kind <= 15:
            self._send_requests(kind, code, size)
        elif kind <= 19:
            self._use_socket(kind, size)
        else:
            self._use_server(kind, code, size)

    def _send_records(self, kind: int, code: int, size: int) -> None:
        seal, how = self.sealer.seal, code >> 6
        count = 1 + size % 40
        match kind:
            case 0 | 1 | 2:
                self._deliver(seal(self._request()), how=size)
            case 3:
                self._deliver(b"".join(seal(bytes([b])) for b in self._request()), how=size)
            case 4:
                self.empty_records = count
                self._deliver(b"".join(seal(b"") for _ in range(count)), how=size)
            case 5 | 6:
                self.empty_records = count
                updates = (self.sealer.update_key(is_requested=code > 99) for _ in range(count))
                self._deliver(b"".join(updates), how=size)
            case 7:
                self._deliver(seal(bytes([1 + code % 2, size]), ALERT), how=how)
            case 8:
                self._deliver(seal(CLIENT_HELLO * (1 + size), HANDSHAKE), how=how)
            case 9:
                self._deliver(seal(bytes([size]) * (code >> 2), HANDSHAKE), how=how)
            case 10:
                record = bytearray(seal(b"x" * size))
                record[size % len(record)] ^= 1 << (code >> 5)
                self._deliver(bytes(record), how=size)
            case _:
                self._deliver(self.data[:size], how=size)

    def _send_requests(self, kind: int, code: int, size: int) -> None:
        seal, how = self.sealer.seal, code >> 6
        match kind:
            case 12:
                body = b"b" * (size * 600)
                head = b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
                self.requests_sent += 1
                whole = head % (self.requests_sent - 1, len(body)) + body
                parts = (whole[n : n + 16_000] for n in range(0, len(whole), 16_000))
                self._deliver(b"".join(map(seal, parts)), how=how)
            case 13:
                requests = (seal(self._request()) for _ in range(1 + size % 40))
                self._deliver(b"".join(requests), how=how)
            case 14:
                self._deliver(seal(b"", padding=size * 60), how=how)
            case _:
                self._deliver(seal(self._request())[: size or 1], how=how)

    def _use_socket(self, kind: int, size: int) -> None:
        socket = self.socket
        match kind:
            case 16:
                socket.end_input()
            case 17:
                socket.lose(ConnectionResetError() if size % 2 else None)
            case 18 if not socket.is_over:
                socket.unsent_bytes = 1 << 20
                self.tls.pause_writing()
            case 19 if not socket.is_over and socket.unsent_bytes:
                socket.unsent_bytes = 0
                self.tls.resume_writing()

    def _use_server(self, kind: int, code: int, size: int) -> None:
        match kind:
            case 20:
                for each in self.pending:
                    if not each.done():
                        each.set_result(HttpResponse(200, b"later", close=bool(size % 2)))
            case 21:
                (self.tls.close, self.tls.abort, self.tls.abort_handshake)[size % 3]()
            case 22:
                self._deliver(self.sealer.seal(self._request(), padding=size), how=code >> 6)
            case _:
                for connection in list(self.shared.connections):
                    connection.check(self.runtime.clock.monotonic() + 1_000 * (size % 2))

    def _request(self) -> bytes:
        self.requests_sent += 1
        return GET % (self.requests_sent - 1)

    async def _end(self) -> None:
        """The socket ends, if the server has not closed it: everything must be given back."""
        self.socket.waiting.clear()
        self.socket.lose(None)
        await self._settle()
        for each in self.pending:
            each.cancel()
        await self._settle()
        assert self.tls.handshake_over.done()
        assert not self.tls._held
        counters, budgets = self.shared.counters, self.shared.budgets
        assert counters.connections_open == counters.handshakes_open == 0
        assert counters.answers_pending == counters.streams_open == counters.tunnels_open == 0
        assert (budgets.bytes_held, budgets.unauthenticated.keys) == (0, ())
        assert not self.shared.connections
        assert not self.shared.tasks.running
        work = self.shared.work
        assert not any(map(len, (work.unauthenticated, work.authenticated, work.privileged)))
        loop: Any = asyncio.get_running_loop()
        assert [each for each in loop._scheduled if not each.cancelled()] == []


@cache
def _contexts(is_old: int) -> tuple[TlsMaterial, ssl.SSLContext, Path]:
    directory = Path(tempfile.mkdtemp(prefix="restow-fuzz-tls-"))
    files = make_certificate(directory, name="localhost")
    material = TlsMaterial(TlsFiles(cert_file=files.cert_file, key_file=files.key_file))
    context = ssl.create_default_context(cafile=files.ca_file)
    key_log = directory / "keys"
    keep_secrets(context, key_log, version=_VERSIONS[is_old])
    return material, context, key_log


@cache
def _loop() -> tuple[asyncio.AbstractEventLoop, list[dict[str, Any]]]:
    loop = asyncio.new_event_loop()
    problems: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    return loop, problems


def tls_program(data: bytes) -> None:
    """Run one program."""
    if not data:
        return
    loop, problems = _loop()
    problems.clear()
    loop.run_until_complete(_Run(data).run())
    assert not problems, problems


SEEDS: Final = (
    b"\x00" + bytes([0, 0, 0, 1, 0, 2, 3, 0]),
    b"\x01" + bytes([0, 0, 8, 5, 5, 3, 9, 1, 7, 90]),
    b"\x04" + bytes([0, 0, 5, 20, 101, 31, 4, 9, 0, 0, 14, 9, 22, 30]),
    b"\x0c" + bytes([13, 20, 0, 0, 18, 0, 13, 30, 19, 0, 20, 0, 20, 1]),
    b"\x18" + bytes([12, 90, 16, 0, 23, 1]),
    b"\x24" + bytes([0, 0, 15, 40, 17, 0]),
    b"\x44" + bytes([0, 0, 12, 255, 13, 39, 7, 0, 16, 0]),
    b"\xe1\x80",
    b"\xc0\x40",
    b"\x04" + bytes([0, 0, 0, 0, 0, 0, 16, 0, 20, 0]),
    b"\x05" + bytes([0, 0, 10, 3, 11, 9, 21, 0]),
)
