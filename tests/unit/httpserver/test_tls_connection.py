"""TLS in memory: whatever pieces the bytes come in, however either side ends."""

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
    """A client whose TLS goes through memory, so that a test sees and sends single bytes."""

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
        """Send what TLS has to say."""
        self.writer.write(self.outgoing.read())

    async def greet(self) -> bytes:
        """The handshake; its last bytes are for the test to send."""
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
        """The same with a bit flipped."""
        record = bytearray(self.sealed(data))
        record[-1] ^= 1
        return bytes(record)

    def goodbye(self) -> bytes:
        """The last word of TLS."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()

    async def answer(self) -> bytes:
        """What comes next; nothing after the server's last word. EOFError: there was none."""
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
    """All that are in memory, of whatever test."""
    kinds = (TlsConnection, ServerConnection)
    return [each for each in gc.get_objects() if isinstance(each, kinds)]


async def long_answer(harness: Harness, client: Speaker, *, pieces_count: int) -> list[int]:
    """Ask for an answer of so many pieces; which of them are made, from the first one on."""
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
    """A handshake and a request that come in single bytes are as good as any."""
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
    """The end of the handshake, two requests in three records, and the client's last word in one
    piece: both are answered, and then the server says its own last word."""
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
    """What is longer than a record, or than is handed on at once, comes whole and in order."""
    body = b"".join(b"%07x\n" % number for number in range(length // 8 + 1))[:length]
    harness.app.paths["/"] = lambda _: HttpResponse(200, body, b"")
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(GET))
    got = b""
    while len(got.partition(b"\r\n\r\n")[2]) < length:
        got += await client.answer()
    assert got.partition(b"\r\n\r\n")[2] == body


async def test_the_servers_last_word(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A connection that the server closes ends with TLS's word for it, and its socket with it: so
    nobody can have cut off anything. What the client sends meanwhile is dropped."""
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
    """Who is refused gets the reason at once, and when it does not close, TLS's last word."""
    await harness.start(tls=tls, limits=short(linger_seconds=0.2))
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(b"nonsense\r\n\r\n" + GET))
    assert b" 400 Bad Request" in await client.answer()
    assert await client.answer() == b""
    client.writer.close()
    await until(lambda: open_count(harness) == 0)


async def test_who_does_not_stop_sending_is_cut(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """After the end so much is dropped and no more."""
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
    """Bytes that nobody has sealed are no request: the client is told, and cut off."""
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
    """A socket that ends without a word ends its connection, and its request is given up."""
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


async def test_nothing_is_left_behind(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """The memory of a connection is free when it is over, and not when somebody looks for it."""
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
    """A long answer is made only as far as its client reads it."""
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
    """A pushed stream of which so much is unsent that nothing more goes out."""
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
async def test_a_stream_whose_client_is_over(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial, end: str
) -> None:
    """A client that reads nothing and then breaks TLS, or ends it, does not hold a stream."""
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


async def test_a_long_answer_is_not_made_for_nobody(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """When TLS is broken in the middle of an answer, the rest of it is not made."""
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    made = await long_answer(harness, client, pieces_count=2_000)
    client.writer.write(client.damaged(GET))
    with suppress(EOFError, ssl.SSLError, ConnectionError):
        while await client.answer():
            pass
    await until(lambda: open_count(harness) == 0)
    assert len(made) < 1_000


async def test_who_leaves_while_nobody_reads(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A client that asks again before it has its answer, and leaves, is known to have left."""
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
async def test_what_is_held_comes_later(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial, length: int
) -> None:
    """What comes while an answer is outstanding is looked at behind it, however much it is, and
    none of it is lost; of somebody known and of a stranger."""
    for is_known in (True, False):
        answer = promised()

        def first(request: HttpRequest, answer: Any = answer, known: bool = is_known) -> Any:
            request.peer.is_known = known
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


async def test_the_library_keeps_little(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A long answer is encrypted in parts, so that an idle connection keeps the memory of one."""
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


async def test_the_clients_last_word_is_enough(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A client that answers the server's last word is not waited for, whatever its socket does."""
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
    """A request whose body came in pieces is over with its answer, and so is its memory."""
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


async def test_what_is_over_does_not_begin_again(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A connection that is lost between a word to read on and the reading is lost."""
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
    secured.connection_lost(None)  # as the loop says it when it looks at sockets
    await asyncio.sleep(0.01)
    assert (listener.counters.connections_total, open_count(harness)) == (1, 0)
    secured.abort()


async def test_a_client_that_leaves_in_line(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A stranger that sends more than is read and ends its half is known to have left, though its
    answer is outstanding and nobody reads what it has sent."""
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
    """Some are answered; a flood of them takes no turn of the loop, and ends the connection."""
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
        harness.connection.peer.is_known = is_known
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
