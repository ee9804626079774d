"""The ways to the servers behind remote APIs. Satisfies `interface.Backends`.

An APIService says who they are and how they prove it; this server proves who it is with a client
certificate of its own. An API that has changed gets new connections, and so does one whose
certificate here was renewed: the old ones take no more requests, and of an API that has changed or
gone they are cut soon.

Not here: what is asked in whose name (`proxy`), and the documents (`documents`).
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
    """What this server shows to backends, in PEM form."""

    cert_pem: str
    key_pem: str = field(repr=False)


Identity = Callable[[], ClientCertificate | None]
"""Asked now and then, so that a renewed certificate is used. May read files, and raise OSError."""

IDENTITY_SECONDS: Final = 10.0
"""How long a certificate is used before it is looked at again."""


def authority_of(service: ServiceRef) -> str:
    """What the Host header says to a backend."""
    name = name_of(service)
    return name if service.port == 443 else f"{name}:{service.port}"


class RemoteBackends:
    """A pool of connections for each API."""

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
        """`allows_loopback` is for a server whose cluster is one machine."""
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
        """Ask one of the servers of an API. Raises ConnectionFailed. Sets no deadline but for the
        connection."""
        pool = self._pool(api)
        try:
            places = await self._services.places(api.service)
        except NoServiceEndpoint as error:
            raise _unreachable(api, error.message) from error
        except StatusError as error:
            raise _unreachable(api, f"its Service cannot be read: {error.message}") from error
        return await pool.exchange(places, question)

    def send(
        self, api: RemoteApi, request: ClientRequest
    ) -> AbstractAsyncContextManager[ClientResponse]:
        """Ask one of the servers of an API, as this server. See `interface.Backends`."""
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
                broken = ProtocolBroken("it is compressed, unasked")
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
        """End the connections to all other APIs: they are gone."""
        names = {api.name for api in apis}
        for name in [each for each in self._pools if each not in names]:
            self._retire(self._pools.pop(name)[2], is_gone=True)

    def settle(self, where: Mapping[str, Sequence[ServiceEndpoint]]) -> None:
        """Note where the servers of APIs are now, by the names of the APIs, and end what is under
        way at those that are gone. To be called every second or so."""
        for name, (_, _, pool) in self._pools.items():
            if name in where:
                pool.settle(where[name])
            pool.cut_left()
        for pool in self._retired:
            pool.cut_left()
        self._retired = [each for each in self._retired if each.open_count]

    async def close(self) -> None:
        """End all connections."""
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
        # What an API is worth to discovery does not change how it is reached.
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
            # One with another certificate only is as good as before to who uses it.
            self._retire(known[2], is_gone=known[0] != same)
        self._pools[api.name] = (same, certificate, pool)
        return pool

    def _current(self, api: RemoteApi) -> ClientCertificate | None:
        now = self._runtime.clock.monotonic()
        if now >= self._look_at:
            try:
                self._certificate = self._identity()
            except (OSError, ValueError) as error:
                raise _unreachable(
                    api, f"the certificate for it cannot be read: {error}"
                ) from error
            self._look_at = now + IDENTITY_SECONDS
        return self._certificate

    def _retire(self, pool: Pool, *, is_gone: bool) -> None:
        pool.close(is_gone=is_gone)
        self._retired = [each for each in (*self._retired, pool) if each.open_count]


def _unreachable(api: RemoteApi, what: str) -> ConnectionFailed:
    advice = f"Check the APIService {api.name}"
    return ConnectionFailed(f"https://{name_of(api.service)}", what, advice=advice)
