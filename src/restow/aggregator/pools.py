"""Connection pools to the servers of one API each, with limits and server selection.

Each API has a pool with its own limits, so that hanging servers delay only requests to their own
API. A request over the limit is rejected at once and never queued: requests to an unresponsive
backend would only accumulate.

A server is selected at random. One that refused a connection is avoided for a while, and another
one is tried, as long as nothing was sent. Names are resolved here for each connection, and the
connection uses the address that was checked.

A server that is no longer an endpoint of its Service may be stopping normally, or hang. A
repeatable request without a response is repeated at another server at once. Other requests get the
time that a server needs to finish them, and are then aborted: no client waits for a stopped server.

Not here: which servers there are (`services`), and the requests (`exchanges`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from restow.aggregator.addresses import parse_address, refusal_of
from restow.aggregator.exchanges import BackendRequest, Exchange, talk
from restow.aggregator.services import ServiceEndpoint
from restow.aio import Runtime
from restow.client.config import ClientConfig
from restow.client.connections import ClientConnection, ConnectionLimits, Connections
from restow.client.errors import ConfigInvalid, ConnectionFailed, connection_failed

PLACES_TRIED_MAX: Final = 3
PASSED_OVER_SECONDS: Final = 5.0
"""Time for which a server that refused a connection is tried last."""
ADDRESSES_MAX: Final = 16
"""Limit of addresses used per name."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a name to addresses. Raises OSError."""


class BackendBusy(ConnectionFailed):
    """The limit of requests in flight to the servers of an API is reached."""

    def __init__(self, server: str, count: int) -> None:
        super().__init__(
            server, f"{count} requests to it are in flight, which is the limit", advice="Try again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendLimits:
    """Limits for one API."""

    requests_max: int = 128
    """Concurrent requests."""
    streams_max: int = 2_000
    """Concurrent watches and tunnels."""
    kept_max: int = 16
    """Idle connections per server."""
    kept_seconds_max: float = 30.0
    connect_seconds_max: float = 5.0
    """Time limit for DNS, connection and TLS, including all servers that are tried."""
    left_seconds_max: float = 5.0
    """Time limit for requests at a server that has left. A graceful shutdown takes less."""


@dataclass(slots=True)
class _Use:
    """The use of a connection."""

    place: ServiceEndpoint
    question: BackendRequest
    is_answered: bool = False
    """Whether a response has begun."""


async def resolve_by_system(name: str, port: int) -> Sequence[str]:
    """Resolve a name with the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class Pool:
    """The connections to the servers of one API."""

    def __init__(
        self,
        config: ClientConfig,
        runtime: Runtime,
        *,
        limits: BackendLimits,
        resolve: Resolve = resolve_by_system,
        allows_loopback: bool,
    ) -> None:
        """`config` defines how server and client authenticate. Raises ConfigInvalid."""
        self._config = config
        self._context = config.ssl_context()
        self._clock = runtime.clock
        self._randomness = runtime.randomness
        self._limits = limits
        self._resolve = resolve
        self._resolving = asyncio.Lock()  # a hanging resolver blocks at most one thread
        self._allows_loopback = allows_loopback
        self._connections: dict[ServiceEndpoint, Connections] = {}
        self._refused_at: dict[ServiceEndpoint, float] = {}
        self._open: set[Exchange] = set()
        self._places: tuple[ServiceEndpoint, ...] = ()
        """The endpoints last reported."""
        self._uses: dict[ClientConnection, _Use] = {}
        self._left_at: dict[ServiceEndpoint, float] = {}
        """Servers that have left but still have requests in flight, with the time of leaving."""
        self._requests = 0
        self._streams = 0
        self._is_closed = False

    @property
    def open_count(self) -> int:
        """Requests in flight."""
        return self._requests + self._streams

    async def exchange(
        self, places: Sequence[ServiceEndpoint], question: BackendRequest
    ) -> Exchange:
        """Send a request to one of the servers. Raises ConnectionFailed."""
        self.settle(places)
        self._enter(question)
        try:
            exchange = await self._ask_one(places, question)
        except BaseException:
            self._leave(question)
            raise
        if self._is_closed:
            exchange.end()
            raise self._failed("its connection pool was just replaced")
        self._open.add(exchange)
        return exchange

    def settle(self, places: Sequence[ServiceEndpoint]) -> None:
        """Record the current endpoints. Pending connections to other servers are aborted."""
        places = tuple(places)
        if places == self._places:
            return
        self._places = places
        for place in [each for each in self._connections if each not in places]:
            self._refused_at.pop(place, None)
            self._connections.pop(place).cut()
        for connection, use in self._uses.items():
            can_ask_again = use.question.may_repeat and not use.is_answered
            if places and can_ask_again and use.place not in places:
                connection.abort()  # the waiting request is repeated at another server
        self.cut_left()

    def cut_left(self) -> None:
        """Abort requests at servers that have left, once their time is over.

        Call it periodically.
        """
        now, here = self._clock.monotonic(), set(self._places)
        away = {use.place for use in self._uses.values()} - here
        self._left_at = {place: self._left_at.get(place, now) for place in away}
        for connection, use in self._uses.items():
            since = self._left_at.get(use.place, now)
            if use.place in away and now - since >= self._limits.left_seconds_max:
                connection.abort()

    def close(self, *, is_gone: bool = False) -> None:
        """Close idle connections now, and the others when their requests have ended.

        `is_gone`: the API has no servers any more, so its requests end within `left_seconds_max`.
        """
        self._is_closed = True
        if is_gone:
            self.settle(())
        for connections in self._connections.values():
            connections.cut()
        self._connections.clear()

    def abort(self) -> None:
        """Close connections in use as well."""
        self.close()
        for exchange in list(self._open):
            exchange.end()

    async def _ask_one(
        self, places: Sequence[ServiceEndpoint], question: BackendRequest
    ) -> Exchange:
        # A tunnel is not requested on an idle connection, which may be closing.
        place, connection, is_kept = await self._open_one(places, is_new=bool(question.upgrade))
        try:
            return await self._talk(place, connection, question)
        except ConnectionFailed as error:
            has_left = bool(self._places) and place not in self._places
            may_be_stale = (is_kept or has_left) and _is_stale(error)
            if not question.may_repeat or not may_be_stale:
                raise
        # The connection may be closed, or its server has left: try another one.
        place, connection, _ = await self._open_one(self._places or places, is_new=True)
        return await self._talk(place, connection, question)

    async def _open_one(
        self, places: Sequence[ServiceEndpoint], *, is_new: bool
    ) -> tuple[ServiceEndpoint, ClientConnection, bool]:
        """Return a connection to an endpoint, and whether it was idle. Raises ConnectionFailed."""
        failed = self._failed("it has no servers")
        tried = self._in_order(places)[:PLACES_TRIED_MAX]
        seconds_max = self._limits.connect_seconds_max
        try:
            async with self._clock.timeout(seconds_max):
                for place in tried:
                    kept = None if is_new else self._to(place).take_kept()
                    if kept is not None:
                        return place, kept, True
                    try:
                        # A hanging server leaves time for the others.
                        async with self._clock.timeout(seconds_max / len(tried)):
                            return place, await self._connect(place), False
                    except TimeoutError as error:
                        failed = connection_failed(error, server=self._config.server)
                        failed.__cause__ = error
                    except ConnectionFailed as error:
                        failed = error
        except TimeoutError as error:
            raise connection_failed(error, server=self._config.server) from error
        raise failed

    def _in_order(self, places: Sequence[ServiceEndpoint]) -> list[ServiceEndpoint]:
        order = list(places)
        self._randomness.shuffle(order)
        since = self._clock.monotonic() - PASSED_OVER_SECONDS
        return sorted(order, key=lambda place: self._refused_at.get(place, since) > since)

    async def _connect(self, place: ServiceEndpoint) -> ClientConnection:
        failed = self._failed(f"{place} has no address")
        # Until the connection succeeds, also if it is cancelled because it takes too long.
        self._refused_at[place] = self._clock.monotonic()
        for address in await self._addresses(place):
            refusal = refusal_of(address, allows_loopback=self._allows_loopback)
            if refusal is not None:
                failed = self._failed(f"{refusal}, which is not permitted for a backend")
                continue
            try:
                connection = await self._to(place).connect(address=address)
            except ConnectionFailed as error:
                failed = error
                continue
            self._refused_at.pop(place, None)
            return connection
        raise failed

    async def _addresses(self, place: ServiceEndpoint) -> Sequence[str]:
        if parse_address(place.host) is not None:
            return [place.host]
        try:
            async with self._resolving:
                return (await self._resolve(place.host, place.port))[:ADDRESSES_MAX]
        except (OSError, UnicodeError) as error:
            raise connection_failed(error, server=str(place)) from error

    def _to(self, place: ServiceEndpoint) -> Connections:
        found = self._connections.get(place)
        if found is None:
            limits = self._limits
            found = Connections(
                self._config_of(place),
                self._clock,
                ConnectionLimits(
                    kept_max=limits.kept_max,
                    kept_seconds_max=limits.kept_seconds_max,
                    connect_seconds_max=limits.connect_seconds_max,
                ),
                context=self._context,
            )
            self._connections[place] = found
        return found

    def _config_of(self, place: ServiceEndpoint) -> ClientConfig:
        try:
            return ClientConfig(
                server=f"https://{place}",
                server_name=self._config.host,
            )
        except ConfigInvalid as error:
            raise self._failed(str(error)) from error

    async def _talk(
        self, place: ServiceEndpoint, connection: ClientConnection, question: BackendRequest
    ) -> Exchange:
        def end(exchange: Exchange, is_kept: bool) -> None:  # noqa: FBT001 - called by position
            self._open.discard(exchange)
            self._uses.pop(connection, None)
            self._leave(question)
            kept = self._connections.get(place)
            if is_kept and kept is not None and not self._is_closed:
                kept.give_back(connection)
            else:
                connection.abort()

        use = self._uses[connection] = _Use(place, question)
        try:
            exchange = await talk(connection, question, server=self._config.server, on_end=end)
        except BaseException:
            self._uses.pop(connection, None)
            raise
        use.is_answered = True
        return exchange

    def _enter(self, question: BackendRequest) -> None:
        if self._is_closed:
            raise self._failed("its connection pool was just replaced")
        count = self._streams if question.is_stream else self._requests
        limits = self._limits
        if count >= (limits.streams_max if question.is_stream else limits.requests_max):
            raise BackendBusy(self._config.server, count)
        self._count(question, 1)

    def _leave(self, question: BackendRequest) -> None:
        self._count(question, -1)

    def _count(self, question: BackendRequest, change: int) -> None:
        if question.is_stream:
            self._streams += change
        else:
            self._requests += change

    def _failed(self, what: str) -> ConnectionFailed:
        advice = "Check the Service of the APIService, and its endpoints"
        return ConnectionFailed(self._config.server, what, advice=advice)


def _is_stale(error: ConnectionFailed) -> bool:
    """Whether an idle connection turned out to be closed."""
    return isinstance(error.__cause__, OSError | EOFError)


def trust(
    server_name: str,
    *,
    ca_pem: str | None,
    is_verified: bool,
    cert_pem: str | None = None,
    key_pem: str | None = None,
) -> ClientConfig:
    """The TLS trust for the servers of an API, and this server's client certificate."""
    return ClientConfig(
        server=f"https://{server_name}",
        ca_pem=ca_pem,
        is_verified=is_verified,
        client_cert_pem=cert_pem,
        client_key_pem=key_pem,
        source="APIService",
    )
