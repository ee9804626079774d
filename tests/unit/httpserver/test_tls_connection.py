"""TLS in memory: however the bytes are split, and however either side ends."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from restow.httpserver import (
    HttpRequest,
    HttpResponse,
    PullStream,
    PushStream,
    StreamWriter,
    TlsMaterial,
)
from restow.httpserver.connection import ServerConnection
from restow.httpserver.tls_connection import (
    EMPTY_RECORDS_MAX,
    HELD_BYTES,
    RECORD_BYTES_MAX,
    SEALED_BYTES_MAX,
    TlsConnection,
)
from tests.support.certificates import CertificateFiles
from tests.support.key_updates import keep_secrets, key_updates
from tests.unit.httpserver.conftest import (
    WAIT_SECONDS,
    Harness,
    client_context,
    promised,
    request_bytes,
    short,
    until,
)

GET = request_bytes("GET", "/")


class Speaker:
    """A client whose TLS goes through memory, so that a test can send and receive single bytes."""

    def __init__(
        self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.reader, self.writer = reader, writer

    async def _more(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            data = await self.reader.read(1 << 16)
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()

    def flush(self) -> None:
        """Send the pending output of TLS."""
        self.writer.write(self.outgoing.read())

    async def greet(self) -> bytes:
        """Do the handshake; returns its last bytes, which the test sends."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                await self._more()
            else:
                return self.outgoing.read()

    def sealed(self, data: bytes) -> bytes:
        """One record."""
        self.tls.write(data)
        return self.outgoing.read()

    def damaged(self, data: bytes) -> bytes:
        """The same with one bit flipped."""
        record = bytearray(self.sealed(data))
        record[-1] ^= 1
        return bytes(record)

    def goodbye(self) -> bytes:
        """The client's close_notify."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()

    async def answer(self) -> bytes:
        """The next data; empty after the server's close_notify. EOFError: there was none."""
        while True:
            try:
                return self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError as error:
                raise EOFError from error


async def speaker(harness: Harness, certificates: CertificateFiles) -> Speaker:
    bare = await harness.connect()
    return Speaker(client_context(certificates.ca_file), bare.reader, bare.writer)


def open_count(harness: Harness) -> int:
    return harness.listeners[-1].counters.connections_open


def connections() -> list[object]:
    """All connections in memory, of any test."""
    kinds = (TlsConnection, ServerConnection)
    return [each for each in gc.get_objects() if isinstance(each, kinds)]


async def long_answer(harness: Harness, client: Speaker, *, pieces_count: int) -> list[int]:
    """Request a response with this number of pieces; returns the list of those that are made."""
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(pieces_count):
            made.append(number)
            yield b"x" * 100_000

    harness.app.paths["/"] = lambda _: PullStream(200, pieces())
    client.writer.write(await client.greet() + client.sealed(GET))
    await until(lambda: bool(made))
    return made


async def test_byte_by_byte(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A handshake and a request that arrive in single bytes are accepted."""
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    last = await client.greet()
    for byte in last + client.sealed(GET):
        client.writer.write(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert (await client.answer()).endswith(b"\r\n\r\n/|")


async def test_all_at_once(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """The end of the handshake, two requests in three records, and the client's close_notify in one
    piece: both requests are answered, then the server sends its own close_notify."""
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    second = request_bytes("GET", "/second")
    pieces = await client.greet(), *map(client.sealed, (GET, second[:9], second[9:]))
    client.writer.write(b"".join(pieces) + client.goodbye())
    got = b""
    while more := await client.answer():
        got += more
    assert got.count(b"HTTP/1.1 200 OK") == 2
    assert got.endswith(b"\r\n\r\n/second|")
    await until(lambda: open_count(harness) == 0)


@pytest.mark.parametrize(
    "length",
    [1, RECORD_BYTES_MAX, RECORD_BYTES_MAX + 1, SEALED_BYTES_MAX + 1, 3 * SEALED_BYTES_MAX],
)
async def test_answers_of_any_length(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial, length: int
) -> None:
    """Data that is longer than a record, or than is passed on at once, arrives whole and in
    order."""
    body = b"".join(b"%07x\n" % number for number in range(length // 8 + 1))[:length]
    harness.app.paths["/"] = lambda _: HttpResponse(200, body, b"")
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(GET))
    got = b""
    while len(got.partition(b"\r\n\r\n")[2]) < length:
        got += await client.answer()
    assert got.partition(b"\r\n\r\n")[2] == body


async def test_the_servers_close_notify(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A connection that the server closes ends with close_notify, and then its socket, so
    truncation is detectable. Data of the client is dropped meanwhile."""
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet())
    client.writer.write(client.sealed(request_bytes("GET", "/", "Connection: close")))
    assert (await client.answer()).endswith(b"/|")
    assert await client.answer() == b""
    client.writer.write(client.sealed(GET))
    async with asyncio.timeout(WAIT_SECONDS):
        assert await client.reader.read() == b""
    assert open_count(harness) == 1
    client.writer.close()
    await until(lambda: open_count(harness) == 0)
    assert len(harness.app.seen) == 1


async def test_a_refusal_ends_well(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A rejected client gets the error at once, and if it does not close, close_notify."""
    await harness.start(tls=tls, limits=short(linger_seconds=0.2))
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(b"nonsense\r\n\r\n" + GET))
    assert b" 400 Bad Request" in await client.answer()
    assert await client.answer() == b""
    client.writer.close()
    await until(lambda: open_count(harness) == 0)


async def test_a_client_that_keeps_sending_is_disconnected(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """After the end a limited number of bytes is dropped."""
    await harness.start(tls=tls, limits=short(linger_bytes_max=100_000))
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet())
    client.writer.write(client.sealed(request_bytes("GET", "/", "Connection: close")))
    assert (await client.answer()).endswith(b"/|")
    client.writer.write(b"x" * 90_000)
    await client.writer.drain()
    await asyncio.sleep(0.05)
    assert open_count(harness) == 1
    client.writer.write(b"x" * 20_000)
    await until(lambda: open_count(harness) == 0)


async def test_a_damaged_record(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A record that fails authentication is not a request: the client gets an alert, and is
    disconnected."""
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(GET))
    assert await client.answer()
    client.writer.write(client.damaged(GET))
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        await client.answer()
    await until(lambda: open_count(harness) == 0)
    assert len(harness.app.seen) == 1


async def test_a_client_that_vanishes(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A socket that ends without close_notify ends its connection, and its request is cancelled."""
    given_up = asyncio.Event()
    harness.app.paths["/"] = lambda _: promised(given_up.set)
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(GET))
    await until(lambda: len(harness.app.seen) == 1)
    client.writer.close()
    async with asyncio.timeout(WAIT_SECONDS):
        await given_up.wait()
    await until(lambda: open_count(harness) == 0)


async def test_memory_is_free_after_a_connection(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """The memory of a connection is free when it ends, without cycle collection."""
    await harness.start(tls=tls)
    before = connections()
    gc.disable()
    try:
        client = await speaker(harness, certificates)
        client.writer.write(await client.greet() + client.sealed(GET))
        assert await client.answer()
        client.writer.close()
        await until(lambda: open_count(harness) == 0)
        await asyncio.sleep(0)
        assert [each for each in connections() if each not in before] == []
    finally:
        gc.enable()


async def test_a_client_that_does_not_read(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A long response is made only as far as its client reads it."""
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    made = await long_answer(harness, client, pieces_count=500)
    seen = -1
    while seen < len(made):
        seen = len(made)
        await asyncio.sleep(0.2)
    assert seen < 300, "what the system takes, and not more"
    got = b""
    while not got.endswith(b"\r\n0\r\n\r\n"):
        got = got[-10:] + await client.answer()
    assert len(made) == 500


async def unread(harness: Harness, client: Speaker) -> StreamWriter:
    """A pushed stream with so many unsent bytes that nothing more is sent."""
    writers: list[StreamWriter] = []
    harness.app.paths["/"] = lambda _: PushStream(200, writers.append)
    client.writer.write(await client.greet() + client.sealed(GET))
    await until(lambda: bool(writers))
    transport = harness.connection._transport
    while transport.get_write_buffer_size() == 0:
        writers[0].write(b"x" * 10_000)
        await asyncio.sleep(0)
    return writers[0]


@pytest.mark.parametrize("end", ["damage", "goodbye", "end of file"])
async def test_a_stream_ends_with_its_client(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial, end: str
) -> None:
    """A client that reads nothing and then breaks or closes TLS does not keep a stream open."""
    await harness.start(tls=tls, limits=short(stall_seconds=0.3))
    client = await speaker(harness, certificates)
    ended = asyncio.Event()
    stream = await unread(harness, client)
    stream.on_close = ended.set
    if end == "damage":
        client.writer.write(client.damaged(GET))
    elif end == "goodbye":
        client.writer.write(client.goodbye())
    else:
        client.writer.write_eof()
    async with asyncio.timeout(WAIT_SECONDS):
        await ended.wait()
    await until(lambda: open_count(harness) == 0)


async def test_a_long_response_stops_when_tls_fails(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """When TLS fails in the middle of a response, the rest of it is not made."""
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    made = await long_answer(harness, client, pieces_count=2_000)
    client.writer.write(client.damaged(GET))
    with suppress(EOFError, ssl.SSLError, ConnectionError):
        while await client.answer():
            pass
    await until(lambda: open_count(harness) == 0)
    assert len(made) < 1_000


async def test_a_disconnect_while_reading_is_paused(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A disconnect is detected even if the client has sent another request before its response."""
    given_up = asyncio.Event()
    harness.app.paths["/"] = lambda _: promised(given_up.set)
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(GET))
    await until(lambda: len(harness.app.seen) == 1)
    client.writer.write(client.sealed(GET))
    await client.writer.drain()
    await asyncio.sleep(0.05)
    client.writer.close()
    async with asyncio.timeout(WAIT_SECONDS):
        await given_up.wait()


@pytest.mark.parametrize("length", [0, HELD_BYTES, 20 * HELD_BYTES])
async def test_held_input_is_processed_later(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial, length: int
) -> None:
    """Data that arrives during a pending response is processed after it, however much it is, and
    none is lost; for authenticated and unauthenticated clients."""
    for is_known in (True, False):
        answer = promised()

        def first(request: HttpRequest, answer: Any = answer, known: bool = is_known) -> Any:
            if known:
                request.peer.admit("someone", is_privileged=False)
            return answer

        harness.app.paths["/"] = first
        await harness.start(tls=tls)
        client = await speaker(harness, certificates)
        client.writer.write(await client.greet() + client.sealed(GET))
        await until(lambda: bool(harness.app.seen))
        body = b"".join(b"%07x\n" % number for number in range(length // 8))
        second = request_bytes("POST", "/second", body=body)
        for begin in range(0, len(second), RECORD_BYTES_MAX):
            client.writer.write(client.sealed(second[begin : begin + RECORD_BYTES_MAX]))
        await asyncio.sleep(0.05)
        assert harness.app.lines() == ["GET /"]
        answer.set_result(HttpResponse(200, b"one"))
        got = b""
        while not got.endswith(b"/second|" + body):
            got += await client.answer()
        assert b"one" in got
        harness.app.seen.clear()


async def test_openssl_buffers_stay_small(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A long response is encrypted in parts, so that an idle connection keeps the memory of one."""
    sizes: list[int] = []
    harness.app.paths["/"] = lambda _: HttpResponse(200, b"x" * 2_000_000)
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet())
    await until(lambda: open_count(harness) == 1)
    secured = harness.connection._transport
    assert isinstance(secured, TlsConnection)
    send = secured._send

    def watched(data: bytes) -> None:
        sizes.append(len(data))
        send(data)

    secured._send = watched
    client.writer.write(client.sealed(GET))
    got = 0
    while got < 2_000_000:
        got += len(await client.answer())
    assert sum(sizes) > 2_000_000
    assert max(sizes) < SEALED_BYTES_MAX + 1_000


async def test_the_clients_close_notify_is_enough(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A client that answers the server's close_notify is not waited for, whatever its socket
    does."""
    await harness.start(tls=tls, limits=short(stall_seconds=1000))
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet())
    client.writer.write(client.sealed(request_bytes("GET", "/", "Connection: close")))
    assert (await client.answer()).endswith(b"/|")
    assert await client.answer() == b""
    client.tls.unwrap()
    client.flush()
    await until(lambda: open_count(harness) == 0)


async def test_a_body_is_not_kept(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """The memory of a request whose body arrived in pieces is free after its response."""
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    request = request_bytes("POST", "/", body=b"x" * 100_000)
    client.writer.write(await client.greet() + client.sealed(request[:1_000]))
    await until(lambda: open_count(harness) == 1)
    await asyncio.sleep(0.05)
    for begin in range(1_000, len(request), 10_000):
        client.writer.write(client.sealed(request[begin : begin + 10_000]))
    got = b""
    while not got.endswith(b"/|" + b"x" * 100_000):
        got += await client.answer()
    harness.app.seen.clear()
    kept = [each for each in gc.get_objects() if isinstance(each, HttpRequest)]
    assert [each for each in kept if len(each.body) == 100_000] == []


async def test_a_lost_connection_does_not_resume(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A connection that is lost between `resume_reading` and the read does not continue."""
    answer = promised()
    harness.app.paths["/"] = lambda _: answer
    listener = await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(GET))
    await until(lambda: len(harness.app.seen) == 1)
    connection = harness.connection
    client.writer.write(client.sealed(GET))
    await until(lambda: connection._reading_paused)
    client.writer.write(client.sealed(GET))
    secured = connection._transport
    assert isinstance(secured, TlsConnection)
    await until(lambda: bool(secured._held))
    harness.app.paths["/"] = lambda _: HttpResponse(200)
    connection._deliver(HttpResponse(200), connection._ticket)
    assert secured._is_queued
    secured.connection_lost(None)  # as the loop calls it when it polls sockets
    await asyncio.sleep(0.01)
    assert (listener.counters.connections_total, open_count(harness)) == (1, 0)
    secured.abort()


async def test_a_client_that_disconnects_while_queued(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """The disconnect of an unauthenticated client is detected, even if it has sent more than is
    read and its request is pending."""
    given_up = asyncio.Event()
    harness.app.paths["/"] = lambda _: promised(given_up.set)
    await harness.start(tls=tls, limits=short(unauthenticated_work_seconds=1e-9))
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(GET))
    await until(lambda: len(harness.app.seen) == 1)
    for _ in range(3):
        client.writer.write(client.sealed(GET))
    client.writer.write_eof()
    async with asyncio.timeout(WAIT_SECONDS):
        await given_up.wait()
    await until(lambda: open_count(harness) == 0)


@pytest.mark.parametrize("is_known", [False, True])
async def test_changes_of_keys(
    harness: Harness,
    certificates: CertificateFiles,
    tls: TlsMaterial,
    tmp_path: Path,
    *,
    is_known: bool,
) -> None:
    """Some are processed; a flood of them does not block the event loop, and ends the
    connection."""
    listener = await harness.start(tls=tls)
    for count in (EMPTY_RECORDS_MAX, 10_000):
        bare = await harness.connect()
        context = client_context(certificates.ca_file)
        keep_secrets(context, tmp_path / str(count))
        client = Speaker(context, bare.reader, bare.writer)
        last = await client.greet()
        flood = key_updates(tmp_path / str(count), client.tls, count)
        client.writer.write(last)
        await until(lambda: open_count(harness) == 1)
        if is_known:
            harness.connection.peer.admit("someone", is_privileged=False)
        given: list[int] = []
        secured = harness.connection._transport
        assert isinstance(secured, TlsConnection)
        decrypt = secured._decrypt

        def watched(nbytes: int, decrypt: Any = decrypt, given: list[int] = given) -> Any:
            given.append(1)
            return decrypt(nbytes)

        secured._decrypt = watched  # type: ignore[assignment]
        client.writer.write(flood)
        await until(lambda given=given: len(given) >= EMPTY_RECORDS_MAX)  # type: ignore[misc]
        if count > EMPTY_RECORDS_MAX:
            await until(lambda: open_count(harness) == 0)
            assert len(given) == EMPTY_RECORDS_MAX + 1
        else:
            assert open_count(harness) == 1
            bare.writer.close()
            await until(lambda: open_count(harness) == 0)
    assert listener.counters.connections_open == 0
