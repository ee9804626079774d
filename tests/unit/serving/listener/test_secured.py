"""TLS in memory: whatever pieces the bytes come in, however either side ends."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Iterator

import pytest

from restow.serving.listener import Deferred, PullStream, Response, TlsFiles, TlsMaterial
from restow.serving.listener.connection import Connection
from restow.serving.listener.secured import RECORD_BYTES_MAX, UNSENT_BYTES, Secured
from restow.testing.certificates import CertificateFiles
from tests.unit.serving.listener.conftest import (
    WAIT_SECONDS,
    Harness,
    client_context,
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


@pytest.fixture
def tls(certificates: CertificateFiles) -> TlsMaterial:
    return TlsMaterial(TlsFiles(cert_file=certificates.cert_file, key_file=certificates.key_file))


async def speaker(harness: Harness, certificates: CertificateFiles) -> Speaker:
    bare = await harness.connect()
    return Speaker(client_context(certificates.ca_file), bare.reader, bare.writer)


def open_count(harness: Harness) -> int:
    return harness.listeners[-1].counters.connections_open


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
    "length", [1, RECORD_BYTES_MAX, RECORD_BYTES_MAX + 1, UNSENT_BYTES + 1, 3 * UNSENT_BYTES]
)
async def test_answers_of_any_length(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial, length: int
) -> None:
    """What is longer than a record, or than is handed on at once, comes whole and in order."""
    body = b"".join(b"%07x\n" % number for number in range(length // 8 + 1))[:length]
    harness.app.paths["/"] = lambda _: Response(200, body, b"")
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
    """Who is refused gets TLS's last word behind the reason, at once."""
    await harness.start(tls=tls, limits=short(linger_seconds=1000))
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
    record = bytearray(client.sealed(GET))
    record[-1] ^= 1
    client.writer.write(record)
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        await client.answer()
    await until(lambda: open_count(harness) == 0)
    assert len(harness.app.seen) == 1


async def test_a_client_that_vanishes(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A socket that ends without a word ends its connection, and its request is given up."""
    given_up = asyncio.Event()
    harness.app.paths["/"] = lambda _: Deferred(given_up.set)
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
    gc.disable()
    try:
        client = await speaker(harness, certificates)
        client.writer.write(await client.greet() + client.sealed(GET))
        assert await client.answer()
        client.writer.close()
        await until(lambda: open_count(harness) == 0)
        await asyncio.sleep(0)
        kinds = (Secured, Connection)
        assert [each for each in gc.get_objects() if isinstance(each, kinds)] == []
    finally:
        gc.enable()


async def test_a_client_that_does_not_read(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A long answer is made only as far as its client reads it."""
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(500):
            made.append(number)
            yield b"x" * 100_000

    harness.app.paths["/"] = lambda _: PullStream(200, pieces())
    await harness.start(tls=tls)
    client = await speaker(harness, certificates)
    client.writer.write(await client.greet() + client.sealed(GET))
    await until(lambda: bool(made))
    seen = -1
    while seen < len(made):
        seen = len(made)
        await asyncio.sleep(0.2)
    assert seen < 300, "what the system takes, and not more"
    got = b""
    while not got.endswith(b"\r\n0\r\n\r\n"):
        got = got[-10:] + await client.answer()
    assert len(made) == 500
