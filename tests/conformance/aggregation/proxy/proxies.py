"""A real server that forwards requests, and the backend behind it, for the tests of the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from restow.aggregator.backends import ClientCertificate, RemoteBackends
from restow.aggregator.interface import RemoteApi, ServiceRef
from restow.aggregator.pools import BackendLimits, Resolve, resolve_by_system
from restow.aggregator.proxy import Proxy, ProxyLimits
from restow.aggregator.services import NoServiceEndpoint, ServiceEndpoint
from restow.aio import Runtime
from restow.aio.events import EventChannel
from tests.conformance.api.servers import TOKEN, RunningServer
from tests.support.aggregated_backend import AggregatedBackend

WAIT_SECONDS = 20.0
GROUP = "samples.example.com"
SERVICE = ServiceRef(namespace="extensions", name="samples", port=443)
HOST_NAME = "samples.extensions.svc"
FLUNDERS = f"/apis/{GROUP}/v1/flunders"


@dataclass(slots=True)
class OneApi:
    """A directory of one API."""

    api: RemoteApi | None
    why_not: str | None = None
    changed: EventChannel[[]] = field(default_factory=EventChannel)

    def find(self, group: str, version: str) -> RemoteApi | None:
        known = self.api
        is_it = known is not None and (group, version) == (known.group, known.version)
        return known if is_it else None

    def all(self) -> Sequence[RemoteApi]:
        return [] if self.api is None else [self.api]

    def unavailable(self, api: RemoteApi) -> str | None:
        return self.why_not


@dataclass(slots=True)
class FixedServices:
    """Resolves one Service to fixed endpoints."""

    found: list[ServiceEndpoint] = field(default_factory=list)

    async def places(self, service: ServiceRef) -> Sequence[ServiceEndpoint]:
        if not self.found:
            raise NoServiceEndpoint("MissingEndpoints", "no endpoints")
        return self.found


@dataclass(slots=True)
class Rig:
    """Server, proxy and backend."""

    backend: AggregatedBackend
    server: RunningServer
    directory: OneApi
    services: FixedServices
    backends: RemoteBackends
    proxy: Proxy

    @property
    def api(self) -> RemoteApi:
        assert self.directory.api is not None
        return self.directory.api

    async def stop(self) -> None:
        await self.server.stop()
        await self.proxy.close()
        await self.backends.close()
        await self.backend.stop()


def join(
    server: RunningServer,
    backend: AggregatedBackend,
    *,
    certificate: ClientCertificate,
    limits: ProxyLimits | None = None,
    backend_limits: BackendLimits | None = None,
    allows_loopback: bool = True,
    resolve: Resolve = resolve_by_system,
) -> Rig:
    """Make a running server forward the requests for one API to a backend."""
    runtime = Runtime.system()
    api = RemoteApi(
        name=f"v1.{GROUP}",
        uid="u-1",
        group=GROUP,
        version="v1",
        service=SERVICE,
        ca_pem=backend.ca_pem,
    )
    directory = OneApi(api)
    services = FixedServices([ServiceEndpoint("127.0.0.1", backend.port)])
    backends = RemoteBackends(
        services,
        runtime,
        identity=lambda: certificate,
        limits=backend_limits,
        allows_loopback=allows_loopback,
        resolve=resolve,
    )
    proxy = Proxy(directory, backends, runtime, limits=limits)
    app = server.assembly.app
    app._aggregation = proxy
    directory.changed.subscribe(app._routes.forget)
    return Rig(backend, server, directory, services, backends, proxy)


class RawClient:
    """One connection to a server, at byte level."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> RawClient:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def ask(self, target: str, *lines: str, method: str = "GET", token: str | None = TOKEN) -> None:
        """Send a request; the caller reads the response."""
        head = [f"{method} {target} HTTP/1.1", "Host: localhost", *lines]
        if token is not None:
            head.append(f"Authorization: Bearer {token}")
        self.writer.write(("\r\n".join(head) + "\r\n\r\n").encode("latin-1"))

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(WAIT_SECONDS):
            raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.split("\r\n")[:-2]
        pairs = (line.split(": ", 1) for line in lines)
        return int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read the next response, which must have a length."""
        code, headers = await self.head()
        async with asyncio.timeout(WAIT_SECONDS):
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return code, headers, body

    async def chunk(self) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def read(self, nbytes: int) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.reader.readexactly(nbytes)

    async def rest(self) -> bytes:
        """Read until the server closes."""
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


def echoed(body: bytes) -> dict[str, Any]:
    """The request as the backend received it."""
    found: dict[str, Any] = orjson.loads(body)
    return found


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - any condition, of any part
            await asyncio.sleep(0.005)
