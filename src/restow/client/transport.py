"""The seam between the client and the wire: a request goes out, an answer comes back in pieces.

    async with transport.send(Request(method="GET", target="/version")) as response:
        body = await response.read(bytes_max=1_000_000)

Two forms: `HttpTransport` speaks HTTP/1.1 to a server, `InProcessTransport` calls a function.
Leaving the block before the body has been read gives the answer up. Whatever goes wrong below HTTP
is a ConnectionFailed in both.

Not here: what a path or an answer means, whether to try again later, and how long to wait: whoever
asks sets a deadline around it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from restow.client.config import ClientConfig
from restow.client.connections import Connection, ConnectionLimits, Connections
from restow.client.credentials import Credentials
from restow.client.errors import ConnectionFailed, connection_failed
from restow.client.http1 import Head, body_pieces, encode_request, read_head
from restow.runtime import Clock

__all__ = [
    "Answer",
    "Handler",
    "HttpTransport",
    "InProcessTransport",
    "Request",
    "Response",
    "Transport",
]

REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent. The target is a path with its query, ready for the wire."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    is_stream: bool = False
    """Whether the answer may go on without end, as a watch does."""


class Response:
    """An answer whose body is still coming. Names of headers are in lower case."""

    def __init__(
        self, status: int, headers: Mapping[str, str], pieces: AsyncIterator[bytes], server: str
    ) -> None:
        self.status = status
        self.headers = headers
        self._pieces = pieces
        self._server = server

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes, once."""
        return self._pieces

    async def read(self, *, bytes_max: int) -> bytes:
        """The whole body; ConnectionFailed if it has more bytes than that."""
        parts: list[bytes] = []
        size = 0
        async for piece in self._pieces:
            size += len(piece)
            if size > bytes_max:
                raise ConnectionFailed(
                    self._server,
                    f"its answer has more than {bytes_max} bytes",
                    advice="Ask for less at once: list with a limit",
                )
            parts.append(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Transport(Protocol):
    """A way to a server."""

    @property
    def server(self) -> str:
        """The address, for people."""
        ...

    def send(self, request: Request) -> AbstractAsyncContextManager[Response]:
        """Send the request; the block begins when the head of the answer is there."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler in this process gives: the body whole, or in pieces."""

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[str, str, Mapping[str, str], bytes], Awaitable[Answer]]
"""Method, target, headers in lower case, body."""


class InProcessTransport:
    """Calls a function instead of a server: for tests and for the simulator."""

    def __init__(self, handler: Handler, *, server: str = "in-process") -> None:
        self.server = server
        self._handler = handler
        self._closed = False

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncIterator[Response]:
        if self._closed:
            raise closed(self.server)
        # Checked as on the wire, or the simulator would let pass what no server gets.
        encode_request(request.method, request.target, request.headers, request.body)
        headers = {name.lower(): value for name, value in request.headers}
        try:
            answer = await self._handler(request.method, request.target, headers, request.body)
        except (OSError, EOFError) as error:
            raise connection_failed(error, server=self.server, may_have_happened=True) from error
        names = {name.lower(): value for name, value in answer.headers.items()}
        async with aclosing(self._pieces(answer.body)) as pieces:
            yield Response(answer.status, names, pieces, self.server)

    async def _pieces(self, body: bytes | AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        if isinstance(body, bytes):
            if body:
                yield body
            return
        try:
            async for piece in body:
                yield piece
        except (OSError, EOFError) as error:
            raise connection_failed(error, server=self.server, may_have_happened=True) from error
        finally:
            if (close := getattr(body, "aclose", None)) is not None:
                await close()

    async def close(self) -> None:
        self._closed = True


class HttpTransport:
    """HTTP/1.1 to one server, over a bounded number of kept connections.

    A GET is sent once more, on a new connection, when a kept one turns out to have been dropped.
    Nothing else is: what may have been carried out is not done twice.
    """

    def __init__(
        self, config: ClientConfig, *, clock: Clock, limits: ConnectionLimits | None = None
    ) -> None:
        self.server = config.server
        self._host = ("Host", config.authority)
        self._base_path = config.base_path
        self._credentials = Credentials(config, clock)
        self._connections = Connections(config, clock, limits or ConnectionLimits())

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncIterator[Response]:
        data = self._encode(request)
        async with self._connections.place(is_stream=request.is_stream):
            connection, head = await self._exchange(request, data)
            is_whole = False
            try:
                if head.status == 401:
                    self._credentials.refused()
                body = self._pieces(connection, head)
                async with aclosing(body):
                    yield Response(head.status, head.headers, body, self.server)
                is_whole = connection.is_at_end
            finally:
                if is_whole and head.is_kept:
                    self._connections.give_back(connection)
                else:
                    connection.abort()

    async def close(self) -> None:
        await self._connections.close()

    def _encode(self, request: Request) -> bytes:
        if len(request.body) > REQUEST_BYTES_MAX:
            raise ValueError(f"a body of {len(request.body)} bytes is more than any server takes")
        headers = [
            self._host,
            ("Accept-Encoding", "identity"),
            *self._credentials.headers(),
            *request.headers,
        ]
        target = self._base_path + request.target
        return encode_request(request.method, target, headers, request.body)

    async def _exchange(self, request: Request, data: bytes) -> tuple[Connection, Head]:
        connection = self._connections.take_kept()
        if connection is not None:
            try:
                return connection, await self._ask(connection, request, data)
            except ConnectionFailed as error:
                if request.method != "GET" or not isinstance(error.__cause__, OSError | EOFError):
                    raise
        connection = await self._connections.connect()
        return connection, await self._ask(connection, request, data)

    async def _ask(self, connection: Connection, request: Request, data: bytes) -> Head:
        try:
            # Not drained: a server may answer, and refuse, before it has read the whole body.
            connection.is_at_end = False
            connection.writer.write(data)
            return await read_head(connection.reader, method=request.method)
        except Exception as error:
            connection.abort()
            raise self._failed(error, request.method) from error
        except BaseException:
            connection.abort()
            raise

    async def _pieces(self, connection: Connection, head: Head) -> AsyncGenerator[bytes, None]:
        async with aclosing(body_pieces(connection.reader, head)) as pieces:
            try:
                async for piece in pieces:
                    yield piece
            except Exception as error:
                raise self._failed(error, "") from error
        connection.is_at_end = True

    def _failed(self, error: Exception, method: str) -> ConnectionFailed:
        return connection_failed(error, server=self.server, may_have_happened=method != "GET")


def closed(server: str) -> ConnectionFailed:
    """The error of a transport that is used after its end."""
    return ConnectionFailed(server, "the client is closed", advice="Use it before it is closed")
