"""The HTTP transport with small servers on loopback sockets: connections and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from restow.aio import Runtime, SystemClock
from restow.apimachinery import status
from restow.apimachinery.names import GroupVersionResource
from restow.client import (
    ApiClient,
    ClientConfig,
    ClientLimits,
    ConnectionFailed,
    ConnectionLimits,
    HttpTransport,
)
from restow.client.transport import ClientRequest

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = ClientRequest(method="GET", target="/")
POST = ClientRequest(method="POST", target="/", body=b"{}")


class Server:
    """Counts its connections and keeps the heads of its requests."""

    def __init__(self, serve: Serve | None = None) -> None:
        self.connections = 0
        self.heads: list[bytes] = []
        self.port = 0
        self._serve = serve or self.answer
        self._writers: set[asyncio.StreamWriter] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to one request after another."""
        while True:
            await self.read(reader)
            writer.write(OK)

    async def read(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        if b"Content-Length: 2" in head:
            await reader.readexactly(2)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._serve(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        self._writers.discard(writer)

    def is_open(self) -> bool:
        """Whether a connection is open."""
        return bool(self._writers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            server.close()
            while self._writers:
                for writer in self._writers:
                    writer.transport.abort()
                await asyncio.sleep(0.001)


@asynccontextmanager
async def transport_to(
    server: Server, limits: ConnectionLimits | None = None
) -> AsyncIterator[HttpTransport]:
    async with server.running() as url:
        transport = HttpTransport(ClientConfig(server=url), clock=SystemClock(), limits=limits)
        try:
            yield transport
        finally:
            await transport.close()
            await asyncio.sleep(0)


async def ask(transport: HttpTransport, request: ClientRequest = GET) -> bytes:
    async with transport.send(request) as response:
        return await response.read(bytes_max=1_000)


async def test_connections_are_kept() -> None:
    """Sequential requests share a connection; concurrent ones do not."""
    server = Server()
    async with transport_to(server) as transport:
        for request in (GET, POST, GET):
            assert await ask(transport, request) == b"ok"
        assert server.connections == 1
        await asyncio.gather(*(ask(transport) for _ in range(5)))
        assert 1 < server.connections <= 5
    assert b"Accept-Encoding: identity\r\n" in server.heads[0]
    assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in server.heads[0]


async def test_the_number_of_connections_is_bounded() -> None:
    """Requests over the limit wait; streams over the limit fail."""
    running, most = 0, 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        while True:
            await server.read(reader)
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.005)
            running -= 1
            writer.write(OK)

    server = Server(slow)
    limits = ConnectionLimits(requests_max=2, streams_max=1, kept_max=2)
    stream = ClientRequest(method="GET", target="/", is_stream=True)
    async with transport_to(server, limits) as transport:
        await asyncio.gather(*(ask(transport) for _ in range(8)))
        assert (most, server.connections) == (2, 2)
        async with transport.send(stream):
            with pytest.raises(ConnectionFailed, match="1 watches are open"):
                await ask(transport, stream)
            assert await ask(transport) == b"ok"
        assert await ask(transport, stream) == b"ok"


async def test_the_number_of_kept_connections_is_bounded() -> None:
    """The number of idle connections is limited."""
    server = Server()
    async with transport_to(server, ConnectionLimits(kept_max=1)) as transport:
        for _ in range(3):
            async with transport.send(GET) as one, transport.send(GET) as two:
                assert await one.read(bytes_max=9) == await two.read(bytes_max=9) == b"ok"
        assert server.connections == 4


async def drop_second(
    server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Respond to one request, and close the connection at the next one."""
    await server.read(reader)
    writer.write(OK)
    await server.read(reader)
    writer.transport.abort()


async def test_a_dropped_connection_is_replaced_for_a_get() -> None:
    """A GET on a reused connection that was closed is sent again; a POST is not."""
    server = Server(lambda reader, writer: drop_second(server, reader, writer))
    async with transport_to(server) as transport:
        assert await ask(transport) == b"ok"
        assert await ask(transport) == b"ok"
        assert server.connections == 2
        with pytest.raises(ConnectionFailed, match="may have been executed"):
            await ask(transport, POST)
        assert server.connections == 2


async def test_a_connection_closed_while_waiting_is_not_used() -> None:
    """If an idle connection was closed, the next request, even a POST, uses a new one."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read(reader)
        writer.write(OK)
        await writer.drain()

    server = Server(once)
    async with transport_to(server) as transport:
        assert await ask(transport) == b"ok"
        while server.is_open():  # noqa: ASYNC110  (only few rounds of the loop)
            await asyncio.sleep(0)
        assert await ask(transport, POST) == b"ok"
        assert server.connections == 2


async def test_old_connections_are_not_used() -> None:
    """A connection that was idle too long is closed, because the server may close it."""
    server = Server()
    async with transport_to(server, ConnectionLimits(kept_seconds_max=0.01)) as transport:
        await ask(transport)
        await asyncio.sleep(0.02)
        await ask(transport)
    assert server.connections == 2


async def test_an_answer_given_up_is_not_taken_for_the_next() -> None:
    """Leaving before the end of a body closes the connection: its rest is not reused."""

    async def long(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfirst")
        await writer.drain()
        await reader.read()

    server = Server(long)
    async with transport_to(server) as transport:
        for _ in range(2):
            async with transport.send(GET) as response:
                assert await anext(response.pieces()) == b"first"
    assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "closed before the response was complete"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "closed before the response"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "invalid HTTP/1.1 response"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,
            "larger than 1000 bytes",
        ),
    ],
)
async def test_broken_answers(answer: bytes, text: str) -> None:
    """No response, a truncated one, invalid HTTP, and too much data each have their error."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read(reader)
        writer.write(answer)
        await writer.drain()

    server = Server(serve)
    async with transport_to(server) as transport:
        with pytest.raises(ConnectionFailed, match=text):
            await ask(transport)


@pytest.mark.parametrize("length", [b"9", b"9000000"], ids=["small", "large"])
async def test_an_answer_that_breaks_off(length: bytes) -> None:
    """A read that broke off changed nothing; a write may have been executed."""

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\nok")
        writer.close()

    server = Server(break_off)
    async with transport_to(server) as transport:
        for request, may_have_happened in ((GET, False), (POST, True)):
            with pytest.raises(
                ConnectionFailed, match="before the response was complete"
            ) as caught:
                async with transport.send(request) as response:
                    await response.read(bytes_max=10_000_000)
            assert caught.value.may_have_happened is may_have_happened


async def test_an_answer_before_the_body_was_read() -> None:
    """A server may reject a large body without reading it, and the error is received."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = status.body_too_large(7).to_bytes()
        head = f"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        await reader.read(8 * 1024 * 1024)
        await asyncio.sleep(0.05)

    server = Server(refuse)
    async with server.running() as url:
        config = ClientConfig(server=url)
        async with ApiClient.connect(config, runtime=Runtime.system()) as client:
            with pytest.raises(status.RequestEntityTooLarge, match="limit is 7"):
                await client.create(
                    GroupVersionResource("", "v1", "configmaps"),
                    {"metadata": {"name": "a"}, "data": {"k": "x" * 4_000_000}},
                    namespace="n",
                )
        await asyncio.sleep(0)


async def test_a_refused_connection() -> None:
    """A refused connection is reported, and no request was executed."""
    async with Server().running() as url:
        pass
    transport = HttpTransport(ClientConfig(server=url), clock=SystemClock())
    with pytest.raises(ConnectionFailed, match="connection refused") as caught:
        await ask(transport, POST)
    assert not caught.value.may_have_happened


async def test_a_connection_that_is_not_made_in_time() -> None:
    """TLS with a server that never responds ends after the connect timeout."""

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with Server(mute).running() as url:
        config = ClientConfig(server=url.replace("http:", "https:"))
        limits = ConnectionLimits(connect_seconds_max=0.05)
        transport = HttpTransport(config, clock=SystemClock(), limits=limits)
        with pytest.raises(ConnectionFailed, match="no response in time"):
            await ask(transport)


async def test_tls_to_a_server_without_it() -> None:
    """TLS with a server that uses plain HTTP has its own error."""

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with Server(plain).running() as url:
        config = ClientConfig(server=url.replace("http:", "https:"))
        transport = HttpTransport(config, clock=SystemClock())
        with pytest.raises(ConnectionFailed, match="uses HTTPS"):
            await ask(transport)


async def test_a_request_that_is_cancelled_leaves_nothing_behind() -> None:
    """A deadline during a response releases the slot and closes the connection."""

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read(reader)
        writer.write(OK[:-1])
        await reader.read()

    server = Server(half)
    async with server.running() as url:
        async with ApiClient.connect(
            ClientConfig(server=url),
            runtime=Runtime.system(),
            connections=ConnectionLimits(requests_max=1),
            limits=ClientLimits(request_seconds_max=0.03),
        ) as client:
            for _ in range(2):
                with pytest.raises(ConnectionFailed, match="no response in time"):
                    await client.version()
        await asyncio.sleep(0)
    assert server.connections == 2


async def test_a_closed_transport() -> None:
    """A closed transport opens no connection."""
    server = Server()
    async with server.running() as url:
        transport = HttpTransport(ClientConfig(server=url), clock=SystemClock())
        assert await ask(transport) == b"ok"
        await transport.close()
        with pytest.raises(ConnectionFailed, match="closed"):
            await ask(transport)
    assert server.connections == 1
