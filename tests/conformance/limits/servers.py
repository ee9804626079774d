"""A server with several users who may do everything, and writes that block until they are
released."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from restow.admission import Attributes, WriteOf
from restow.apiserver.build_inputs import AuthParts
from restow.authentication import Authentication, TokenAuthenticator
from restow.httpserver import Limits, TlsFiles, TlsMaterial
from restow.request.context import User
from restow.request.limits import InFlight, RequestLimits
from restow.request.request_info import RequestInfo
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import RunningServer, start_server
from tests.support.api_client import ApiClient
from tests.support.certificates import CertificateFiles

WAIT_SECONDS = 10.0
USERS = ("alice", "bob", "carol")
MASTER = "root"


class AllowAll:
    """Authorizes every request."""

    def allows(self, user: User, info: RequestInfo) -> bool:
        return True

    def reason(self, user: User, info: RequestInfo) -> str:
        return ""


class Hold:
    """Blocks writes of objects whose name begins with `held` until they are released."""

    def __init__(self) -> None:
        self.waiting = 0
        self.go = asyncio.Event()

    def concerns(self, _write: WriteOf) -> bool:
        return True

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        return self._wait() if attributes.name.startswith("held") else None

    async def _wait(self) -> None:
        self.waiting += 1
        try:
            await self.go.wait()
        finally:
            self.waiting -= 1


@dataclass(slots=True)
class Limited:
    """The server, its clients by user, and the hold on writes."""

    server: RunningServer
    hold: Hold
    tls: ssl.SSLContext | None = None

    def client(self, user: str) -> ApiClient:
        return ApiClient(self.server.port, token=user, tls=self.tls)

    @property
    def in_flight(self) -> InFlight:
        return self.server.assembly.app.in_flight

    @property
    def slots_taken(self) -> list[int]:
        flights = self.in_flight
        limiters = (flights.reads, flights.writes, flights.streams)
        assert all(bool(each.taken) == bool(each.held) for each in limiters)
        return [each.taken for each in limiters]


@asynccontextmanager
async def limited(
    limits: RequestLimits | None = None,
    *,
    listener_limits: Limits | None = None,
    names: Sequence[str] = USERS,
    certificates: CertificateFiles | None = None,
) -> AsyncIterator[Limited]:
    """Such a server, over TLS if it has certificates; at its end all slots must be free."""
    users = {name: User(name) for name in names}
    tls, material = None, None
    if certificates is not None:
        tls = ssl.create_default_context(cafile=certificates.ca_file)
        files = TlsFiles(cert_file=certificates.cert_file, key_file=certificates.key_file)
        material = TlsMaterial(files)
    tokens = TokenAuthenticator({**users, MASTER: User(MASTER, ("system:masters",))})
    auth_parts = AuthParts(authentication=Authentication([tokens]), authorizer=AllowAll())
    storage, hold = MemoryStorage(), Hold()
    server = await start_server(
        storage,
        admission=[hold],
        auth_parts=auth_parts,
        limits=limits,
        listener_limits=listener_limits,
        tls=material,
    )
    server.client = ApiClient(server.port, token=MASTER, tls=tls)
    try:
        await server.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        made = Limited(server, hold, tls)
        yield made
        hold.go.set()
        await until(lambda: made.slots_taken == [0, 0, 0])
    finally:
        hold.go.set()
        await server.stop()
        await storage.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true, with a timeout."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110  (the condition has no event)
            await asyncio.sleep(0.005)
