"""The interface between the client and the wire: sends a request, returns a streamed response.

    async with transport.send(ClientRequest(method="GET", target="/version")) as response:
        body = await response.read(bytes_max=1_000_000)

Two implementations: `HttpTransport` uses HTTP/1.1, `InProcessTransport` calls a function. Leaving
the block before the body has been read discards the response. All failures below HTTP are
ConnectionFailed in both.

Not here: the meaning of paths and responses, retries, and timeouts: the caller sets a deadline
around the request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Protocol

from restow.aio import Clock
from restow.client.config import ClientConfig
from restow.client.connections import ClientConnection, ConnectionLimits, Connections
from restow.client.credentials import ClientCredentials
from restow.client.errors import (
    AnswerTooLarge,
    ConfigInvalid,
    ConnectionFailed,
    CredentialsFailed,
    connection_failed,
)
from restow.client.http1 import Head, body_pieces, encode_request, read_head, read_small

REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A request. The target is an encoded path with its query."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    is_stream: bool = False
    """Whether the response may be unbounded, as of a watch."""
    is_repeatable: bool = False
    """Whether it is idempotent, so that it can be sent twice, like a GET."""

    @property
    def is_write(self) -> bool:
        """Whether it may have changed something if its response is lost."""
        return self.method != "GET"


class ClientResponse:
    """A response whose body is still being received. Header names are in lower case."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        pieces: AsyncIterator[bytes],
        server: str,
        *,
        whole: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        """`whole` reads the whole body at once; it is faster for small bodies."""
        self.status = status
        self.headers = headers
        self._pieces = pieces
        self._server = server
        self._whole = whole

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives; can be iterated once."""
        return self._pieces

    async def read(self, *, bytes_max: int) -> bytes:
        """Read the whole body, once; AnswerTooLarge above `bytes_max`."""
        if self._whole is not None:
            body = await self._whole()
            if len(body) > bytes_max:
                raise AnswerTooLarge(self._server, bytes_max=bytes_max)
            return body
        parts: list[bytes] = []
        size = 0
        async for piece in self._pieces:
            size += len(piece)
            if size > bytes_max:
                raise AnswerTooLarge(self._server, bytes_max=bytes_max)
            parts.append(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Transport(Protocol):
    """Sends requests to one server."""

    @property
    def server(self) -> str:
        """The server address, for messages."""
        ...

    async def prepare(self) -> None:
        """Obtain the credentials of the next request, which can take longer than a request: a
        credential plugin may wait for a login. `send` does it as well, within its deadline."""
        ...

    def send(self, request: ClientRequest) -> AbstractAsyncContextManager[ClientResponse]:
        """Send the request; the block is entered when the head of the response has arrived."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


@dataclass(frozen=True, slots=True)
class InProcessResponse:
    """The response of an in-process handler, with the whole body or its pieces."""

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[str, str, Mapping[str, str], bytes], Awaitable[InProcessResponse]]
"""Arguments: method, target, headers in lower case, body."""


class InProcessTransport:
    """Calls a function instead of a server, for tests and the simulator."""

    def __init__(self, handler: Handler, *, server: str = "in-process") -> None:
        self.server = server
        self._handler = handler
        self._closed = False

    async def prepare(self) -> None:
        """A function needs no credentials."""

    @asynccontextmanager
    async def send(self, request: ClientRequest) -> AsyncIterator[ClientResponse]:
        if self._closed:
            raise closed(self.server)
        # Validated as for HTTP, otherwise the simulator would accept what no server receives.
        encode_request(request.method, request.target, request.headers, request.body)
        headers = {name.lower(): value for name, value in request.headers}
        try:
            answer = await self._handler(request.method, request.target, headers, request.body)
        except (OSError, EOFError) as error:
            raise self._failed(error, request) from error
        names = {name.lower(): value for name, value in answer.headers.items()}
        async with aclosing(self._pieces(answer.body, request)) as pieces:
            yield ClientResponse(answer.status, names, pieces, self.server)

    async def _pieces(
        self, body: bytes | AsyncIterator[bytes], request: ClientRequest
    ) -> AsyncGenerator[bytes, None]:
        if isinstance(body, bytes):
            if body:
                yield body
            return
        try:
            async for piece in body:
                yield piece
        except (OSError, EOFError) as error:
            raise self._failed(error, request) from error
        finally:
            if (close := getattr(body, "aclose", None)) is not None:
                await close()

    async def close(self) -> None:
        self._closed = True

    def _failed(self, error: Exception, request: ClientRequest) -> ConnectionFailed:
        return connection_failed(error, server=self.server, may_have_happened=request.is_write)


class HttpTransport:
    """HTTP/1.1 to one server, over a limited number of reused connections.

    A GET, or a request marked as repeatable, is sent once more on a new connection if a reused one
    turns out to be closed. Others are not, because they may have been executed. After a 401, every
    request is sent once more if the credential has changed.
    """

    def __init__(
        self, config: ClientConfig, *, clock: Clock, limits: ConnectionLimits | None = None
    ) -> None:
        self.server = config.server
        self._host = ("Host", config.authority)
        self._base_path = config.base_path
        self._config = config
        self._credentials = ClientCredentials(config, clock)
        self._certificate: tuple[str, str] | None = None
        """The certificate of the credential plugin that new connections use."""
        self._connections = Connections(config, clock, limits or ConnectionLimits())

    async def prepare(self) -> None:
        if self._config.plugin is None:
            return
        await self._credentials.prepare()
        certificate = self._credentials.certificate
        if certificate != self._certificate:
            try:
                self._connections.use_context(self._config.ssl_context(certificate))
            except ConfigInvalid as error:
                raise CredentialsFailed(
                    self.server, str(error), advice="Check the output of the credential plugin"
                ) from error
            self._certificate = certificate

    def send(self, request: ClientRequest) -> AbstractAsyncContextManager[ClientResponse]:
        return _Sending(self, request)

    async def close(self) -> None:
        await self._connections.close()

    async def begin(self, request: ClientRequest) -> tuple[ClientConnection, Head]:
        """Send, and read the head of the response; the caller must `end` the connection."""
        await self.prepare()
        headers, certificate = self._credentials.headers(), self._certificate
        connection, head = await self._attempt(request, headers)
        if head.status != 401:
            return connection, head
        # Nothing was executed: the request is sent once more if there are new credentials.
        try:
            self._credentials.refused()
            await self.prepare()
            renewed = self._credentials.headers()
        except BaseException:
            self.end(request, connection, is_kept=False)
            raise
        if (renewed, self._certificate) == (headers, certificate):
            return connection, head
        self.end(request, connection, is_kept=False)
        return await self._attempt(request, renewed)

    async def _attempt(
        self, request: ClientRequest, credentials: list[tuple[str, str]]
    ) -> tuple[ClientConnection, Head]:
        data = self._encode(request, credentials)
        await self._connections.enter(is_stream=request.is_stream)
        try:
            return await self._exchange(request, data)
        except BaseException:
            self._connections.leave(is_stream=request.is_stream)
            raise

    def end(self, request: ClientRequest, connection: ClientConnection, *, is_kept: bool) -> None:
        """Finish a response; its connection can be reused if `is_kept`."""
        self._connections.leave(is_stream=request.is_stream)
        if is_kept:
            self._connections.give_back(connection)
        else:
            connection.abort()

    def failed(self, error: Exception, request: ClientRequest) -> ConnectionFailed:
        return connection_failed(error, server=self.server, may_have_happened=request.is_write)

    def _encode(self, request: ClientRequest, credentials: list[tuple[str, str]]) -> bytes:
        if len(request.body) > REQUEST_BYTES_MAX:
            raise ValueError(
                f"a body of {len(request.body)} bytes exceeds {REQUEST_BYTES_MAX} bytes"
            )
        headers = [
            self._host,
            ("Accept-Encoding", "identity"),
            *credentials,
            *request.headers,
        ]
        target = self._base_path + request.target
        return encode_request(request.method, target, headers, request.body)

    async def _exchange(self, request: ClientRequest, data: bytes) -> tuple[ClientConnection, Head]:
        connection = self._connections.take_kept()
        if connection is not None:
            try:
                return connection, await self._send_on(connection, request, data)
            except ConnectionFailed as error:
                may_repeat = request.is_repeatable or not request.is_write
                if not may_repeat or not isinstance(error.__cause__, OSError | EOFError):
                    raise
        connection = await self._connections.connect()
        return connection, await self._send_on(connection, request, data)

    async def _send_on(
        self, connection: ClientConnection, request: ClientRequest, data: bytes
    ) -> Head:
        try:
            # Not drained: a server may respond, with an error, before it has read the whole body.
            connection.is_at_end = False
            connection.writer.write(data)
            return await read_head(connection.reader, method=request.method)
        except Exception as error:
            connection.abort()
            raise self.failed(error, request) from error
        except BaseException:
            connection.abort()
            raise


class _Sending:
    """One request and its response; the connection is reused if the response was read completely.

    It is not a generator, except for large bodies, to keep small requests cheap.
    """

    __slots__ = ("_connection", "_head", "_pieces", "_request", "_transport")

    def __init__(self, transport: HttpTransport, request: ClientRequest) -> None:
        self._transport = transport
        self._request = request

    async def __aenter__(self) -> ClientResponse:
        self._connection, self._head = await self._transport.begin(self._request)
        self._pieces = self._read_pieces()
        head = self._head
        whole = self._read_whole if head.is_small else None
        return ClientResponse(
            head.status, head.headers, self._pieces, self._transport.server, whole=whole
        )

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        is_kept = False
        try:
            await self._pieces.aclose()
            is_kept = error is None and self._connection.is_at_end and self._head.is_kept
        finally:
            self._transport.end(self._request, self._connection, is_kept=is_kept)

    async def _read_whole(self) -> bytes:
        try:
            body = await read_small(self._connection.reader, self._head)
        except Exception as error:
            raise self._transport.failed(error, self._request) from error
        self._connection.is_at_end = True
        return body

    async def _read_pieces(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(body_pieces(self._connection.reader, self._head)) as pieces:
            try:
                async for piece in pieces:
                    yield piece
            except Exception as error:
                raise self._transport.failed(error, self._request) from error
        self._connection.is_at_end = True


def closed(server: str) -> ConnectionFailed:
    """The error of a request on a closed transport."""
    return ConnectionFailed(server, "the client is closed", advice="Use it before it is closed")
