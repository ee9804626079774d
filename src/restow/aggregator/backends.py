"""Calls to the servers of remote APIs. Implements `interface.Backends`.

An APIService defines their Service and CA; this server authenticates with its own client
certificate. A changed API gets new connections, and so does every API after this server's
certificate was renewed: the old connections accept no more requests, and those of a changed or
deleted API are aborted soon.

Not here: the user of a request (`proxy`), and the documents (`documents`).
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from restow.aggregator.exchanges import BackendRequest, Exchange
from restow.aggregator.interface import RemoteApi, ServiceRef
from restow.aggregator.pools import (
    BackendLimits,
    Pool,
    Resolve,
    resolve_by_system,
    trust,
)
from restow.aggregator.services import NoServiceEndpoint, ServiceEndpoint, Services, name_of
from restow.aio import Runtime
from restow.apimachinery.status_error import StatusError
from restow.client.errors import ConfigInvalid, ConnectionFailed, ProtocolBroken, connection_failed
from restow.client.http1 import encode_passed_request
from restow.client.transport import ClientRequest, ClientResponse


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The client certificate that this server presents to backends, in PEM form."""

    cert_pem: str
    key_pem: str = field(repr=False)


Identity = Callable[[], ClientCertificate | None]
"""Called periodically, so that a renewed certificate is used. May read files, and raise OSError."""

IDENTITY_SECONDS: Final = 10.0
"""How long a certificate is used before it is read again."""


def authority_of(service: ServiceRef) -> str:
    """The Host header for a backend."""
    name = name_of(service)
    return name if service.port == 443 else f"{name}:{service.port}"


class RemoteBackends:
    """One connection pool per API."""

    def __init__(
        self,
        services: Services,
        runtime: Runtime,
        *,
        identity: Identity,
        limits: BackendLimits | None = None,
        allows_loopback: bool = False,
        resolve: Resolve = resolve_by_system,
    ) -> None:
        """`allows_loopback` is for a cluster that runs on one machine."""
        self._services = services
        self._runtime = runtime
        self._identity = identity
        self._certificate: ClientCertificate | None = None
        self._look_at = -math.inf
        self._limits = limits or BackendLimits()
        self._allows_loopback = allows_loopback
        self._resolve = resolve
        self._pools: dict[str, tuple[RemoteApi, ClientCertificate | None, Pool]] = {}
        self._retired: list[Pool] = []
        self._is_closed = False

    async def exchange(self, api: RemoteApi, question: BackendRequest) -> Exchange:
        """Send a request to one of the servers of an API. Raises ConnectionFailed. Sets no timeout
        except for connecting."""
        pool = self._pool(api)
        try:
            places = await self._services.places(api.service)
        except NoServiceEndpoint as error:
            raise _unreachable(api, error.message) from error
        except StatusError as error:
            raise _unreachable(api, f"cannot read its Service: {error.message}") from error
        return await pool.exchange(places, question)

    def send(
        self, api: RemoteApi, request: ClientRequest
    ) -> AbstractAsyncContextManager[ClientResponse]:
        """Send a request to one of the servers of an API. See `interface.Backends`."""
        return self._sent(api, request)

    @asynccontextmanager
    async def _sent(self, api: RemoteApi, request: ClientRequest) -> AsyncIterator[ClientResponse]:
        lines = [("Host", authority_of(api.service)), ("Accept-Encoding", "identity")]
        lines += [(name, value.encode().decode("latin-1")) for name, value in request.headers]
        data = encode_passed_request(request.method, request.target, lines, request.body)
        question = BackendRequest(method=request.method, data=data, is_stream=request.is_stream)
        exchange = await self.exchange(api, question)
        try:
            coding = exchange.head.headers.get("content-encoding", "identity")
            if coding not in {"", "identity"}:
                broken = ProtocolBroken("it is compressed although that was not requested")
                raise connection_failed(broken, server=exchange.server) from broken
            whole = exchange.whole if exchange.head.is_small else None
            async with aclosing(exchange.pieces()) as pieces:
                head = exchange.head
                yield ClientResponse(
                    head.status, head.headers, pieces, exchange.server, whole=whole
                )
        finally:
            exchange.end()

    def keep(self, apis: Iterable[RemoteApi]) -> None:
        """Close the connections to all other APIs, which no longer exist."""
        names = {api.name for api in apis}
        for name in [each for each in self._pools if each not in names]:
            self._retire(self._pools.pop(name)[2], is_gone=True)

    def settle(self, where: Mapping[str, Sequence[ServiceEndpoint]]) -> None:
        """Record the current endpoints by API name, and end requests at servers that have left.
        Call it about every second."""
        for name, (_, _, pool) in self._pools.items():
            if name in where:
                pool.settle(where[name])
            pool.cut_left()
        for pool in self._retired:
            pool.cut_left()
        self._retired = [each for each in self._retired if each.open_count]

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for _, _, pool in self._pools.values():
            pool.abort()
        for pool in self._retired:
            pool.abort()
        self._pools.clear()
        self._retired.clear()

    def _pool(self, api: RemoteApi) -> Pool:
        if self._is_closed:
            raise _unreachable(api, "the server is stopping")
        certificate = self._current(api)
        # Priorities in discovery do not affect connections.
        same = replace(api, group_priority=0, version_priority=0)
        known = self._pools.get(api.name)
        if known is not None and known[0] == same and known[1] == certificate:
            return known[2]
        try:
            pool = Pool(
                trust(
                    name_of(api.service),
                    ca_pem=api.ca_pem,
                    is_verified=not api.is_unverified,
                    cert_pem=certificate.cert_pem if certificate else None,
                    key_pem=certificate.key_pem if certificate else None,
                ),
                self._runtime,
                limits=self._limits,
                resolve=self._resolve,
                allows_loopback=self._allows_loopback,
            )
        except ConfigInvalid as error:
            raise _unreachable(api, str(error)) from error
        if known is not None:
            # If only the client certificate has changed, requests in flight may complete.
            self._retire(known[2], is_gone=known[0] != same)
        self._pools[api.name] = (same, certificate, pool)
        return pool

    def _current(self, api: RemoteApi) -> ClientCertificate | None:
        now = self._runtime.clock.monotonic()
        if now >= self._look_at:
            try:
                self._certificate = self._identity()
            except (OSError, ValueError) as error:
                raise _unreachable(api, f"cannot read the client certificate: {error}") from error
            self._look_at = now + IDENTITY_SECONDS
        return self._certificate

    def _retire(self, pool: Pool, *, is_gone: bool) -> None:
        pool.close(is_gone=is_gone)
        self._retired = [each for each in (*self._retired, pool) if each.open_count]


def _unreachable(api: RemoteApi, what: str) -> ConnectionFailed:
    advice = f"Check the APIService {api.name}"
    return ConnectionFailed(f"https://{name_of(api.service)}", what, advice=advice)
