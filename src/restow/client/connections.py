"""Connections to one server: opened, reused, and limited in number.

Requests and streams have separate limits: a watch uses its connection for minutes, and must not
block the renewal of a lease. A request over the limit waits for a slot; a stream over the limit
fails, because a slot may never become free.

Not here: the protocol (`http1`).
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from restow.aio import Clock
from restow.client.config import ClientConfig
from restow.client.errors import ConnectionFailed, ProxyFailed, connection_failed
from restow.client.tunnels import Target, open_streams

CLOSE_SECONDS_MAX: Final = 2.0
# A dead peer is detected after about a minute, even without traffic.
_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of the number of connections, and of the time to connect."""

    requests_max: int = 64
    """Concurrent requests."""
    streams_max: int = 256
    """Concurrent watches."""
    kept_max: int = 64
    """Idle connections that are kept open."""
    kept_seconds_max: float = 30.0
    """How long a connection stays idle; servers close them after a minute or more."""
    connect_seconds_max: float = 10.0
    """Timeout of the connection and the TLS handshake."""

    def __post_init__(self) -> None:
        if min(self.requests_max, self.streams_max) < 1 or self.kept_max < 0:
            raise ValueError("requests_max and streams_max must be at least 1, kept_max at least 0")


class ClientConnection:
    """One open connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext | None,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.context = context
        """The TLS context that it was opened with."""
        self.kept_at = 0.0
        self.is_at_end = True
        """Whether the last response has been read completely."""

    def is_usable(self) -> bool:
        """Whether it is open, and has no unexpected data."""
        if not self.seems_open():
            return False
        # Buffered data belongs to no request, and must not be taken for the next response.
        if self.reader._buffer:  # type: ignore[attr-defined]  # noqa: SLF001
            return False
        # The server may have closed it without the event loop knowing yet.
        found = self.writer.get_extra_info("socket")
        return found is not None and not _is_readable(found.fileno())

    def seems_open(self) -> bool:
        """Whether it is open: the event loop has not detected that it was closed."""
        return not (self.reader.at_eof() or self.reader.exception() or self.writer.is_closing())

    def abort(self) -> None:
        self.writer.transport.abort()


class Connections:
    """All connections to one server."""

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        limits: ConnectionLimits,
        *,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """`context` is reused, if one was already created from such a configuration."""
        self.limits = limits
        self._config = config
        self._clock = clock
        self._context = context or config.ssl_context()
        self._proxy_context = config.proxy_context()
        self._requests = asyncio.Semaphore(limits.requests_max)
        self._streams = 0
        self._kept: list[ClientConnection] = []
        self._closed = False

    async def enter(self, *, is_stream: bool) -> None:
        """Acquire a slot for one request or stream, which must be released by `leave`."""
        if self._closed:
            raise self._refused("the client is closed", "Use it before it is closed")
        if not is_stream:
            await self._requests.acquire()
            return
        if self._streams >= self.limits.streams_max:
            raise self._refused(
                f"{self._streams} watches are open, the limit of streams_max",
                "Raise streams_max, or open fewer watches",
            )
        self._streams += 1

    def leave(self, *, is_stream: bool) -> None:
        """Release a slot."""
        if is_stream:
            self._streams -= 1
        else:
            self._requests.release()

    def take_kept(self) -> ClientConnection | None:
        """The most recently used idle connection, if it is usable; expired ones are closed."""
        now = self._clock.monotonic()
        while self._kept:
            connection = self._kept.pop()
            if now - connection.kept_at < self.limits.kept_seconds_max and connection.is_usable():
                return connection
            connection.abort()
        return None

    def give_back(self, connection: ClientConnection) -> None:
        """Keep a connection for the next request."""
        is_outdated = connection.context is not self._context
        is_full = len(self._kept) >= self.limits.kept_max
        if self._closed or is_full or is_outdated or not connection.seems_open():
            connection.abort()
            return
        connection.kept_at = self._clock.monotonic()
        self._kept.append(connection)

    def use_context(self, context: ssl.SSLContext | None) -> None:
        """Use another client certificate: connections that were opened with the previous one end
        with their request."""
        self._context = context
        kept, self._kept = self._kept, []
        for connection in kept:
            connection.abort()

    async def connect(self, *, address: str | None = None) -> ClientConnection:
        """Open a connection, to a resolved address of the server if given."""
        config, context = self._config, self._context
        target = Target(
            host=address or config.host,
            port=config.port,
            context=context,
            server_name=None if context is None else config.server_name or config.host,
        )
        try:
            async with self._clock.timeout(self.limits.connect_seconds_max):
                reader, writer = await open_streams(target, config.proxy, self._proxy_context)
        except (OSError, TimeoutError, ProxyFailed, ValueError) as error:
            raise connection_failed(error, server=config.server) from error
        _keep_alive(writer)
        if self._closed:
            writer.transport.abort()
            raise self._refused("the client is closed", "Use it before it is closed")
        return ClientConnection(reader, writer, context)

    def cut(self) -> None:
        """Close idle connections at once; close the others when their requests end."""
        self._closed = True
        kept, self._kept = self._kept, []
        for connection in kept:
            connection.abort()

    async def close(self) -> None:
        """Close idle connections; close the others when their requests end."""
        self._closed = True
        kept, self._kept = self._kept, []
        for connection in kept:
            connection.writer.close()
        with suppress(TimeoutError):
            async with self._clock.timeout(CLOSE_SECONDS_MAX):
                for connection in kept:
                    with suppress(OSError):
                        await connection.writer.wait_closed()
        for connection in kept:
            connection.abort()

    def _refused(self, what: str, advice: str) -> ConnectionFailed:
        return ConnectionFailed(self._config.server, what, advice=advice)


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    found = writer.get_extra_info("socket")
    if found is None:
        return
    with suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if (option := getattr(socket, name, None)) is not None:
                found.setsockopt(socket.IPPROTO_TCP, option, value)
