"""Real API servers of several releases in this process, on one store and simulated time.

A client calls the handler chain of a server directly through an in-process transport, without
sockets, so time advances only when a test advances it. Faults can be injected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from restow.aio import Runtime, SimulatedClock
from restow.apiserver.assembly import Assembly
from restow.apiserver.build import assemble
from restow.apiserver.build_inputs import AccessOptions, EndpointOptions, Foundation, Secrets
from restow.apiserver.build_store import agreement_of
from restow.apiserver.subscriptions import agreement_subscriptions, subscribe_all
from restow.client import ApiClient, InProcessResponse, InProcessTransport
from restow.endpoints.app import App
from restow.httpserver import Peer, PushStream
from restow.registry.catalog import Catalog
from restow.request.context import User
from restow.storage.interface import Storage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.membership import MembershipOptions
from tests.support.in_process import PushedStream, answer_of, as_answer, request_of
from tests.support.storageversion_audit import AuditedStorage
from tests.unit.storageversion.world import GROUP, Line, World

TOKEN = "token-of-the-trigger"
SECRETS = Secrets(
    tokens={TOKEN: User("trigger", ("system:masters",))}, continue_key=b"shared by all servers"
)
Fault = Callable[[str, str], Exception | None]
"""Called with method and target before each request; an exception that it returns is raised
instead."""
LostAnswer = Callable[[str, str], bool]


class Connection:
    """The connection of one client to one server, with injectable faults."""

    def __init__(self, app: App, clock: SimulatedClock) -> None:
        self._app = app
        self._clock = clock
        self._streams: set[PushedStream] = set()
        self.fault: Fault | None = None
        self.loses: LostAnswer | None = None
        """Whether the reply to a request that was carried out is lost."""
        self.calls: list[tuple[str, str]] = []

    async def handle(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        self.calls.append((method, target))
        error = None if self.fault is None else self.fault(method, target)
        if error is not None:
            raise error
        asked = request_of(method, target, headers, body, token=TOKEN, peer=Peer(1))
        found = await answer_of(self._app(asked(self._clock.monotonic())))
        if self.loses is not None and self.loses(method, target):
            raise ConnectionResetError
        return as_answer(found, self._streamed)

    def _streamed(self, stream: PushStream) -> PushedStream:
        made = PushedStream(stream)
        self._streams.add(made)
        return made

    def cut(self) -> None:
        """Breaks all watch streams."""
        for stream in self._streams:
            stream.stream_abort()
        self._streams.clear()


class ApiServer:
    """One incarnation of a server: its coordination and its handler chain."""

    def __init__(self, cluster: Cluster, name: str, release: str) -> None:
        self.name = name
        self.clock = cluster.clock
        self.runtime = Runtime.simulated(f"{cluster.seed}/{name}", clock=cluster.clock)
        self.catalog = cluster.catalogs[release]
        self.line = Line(cluster.storage)
        options = CoordinatorOptions(membership=MembershipOptions(host=name))
        self.coordinator = Coordinator(self.line, self.catalog, self.runtime, options)
        self.assembly: Assembly | None = None

    async def start(self) -> None:
        self.assembly = await assemble(
            Foundation(storage=self.line, catalog=self.catalog, runtime=self.runtime),
            AccessOptions(secrets=SECRETS),
            EndpointOptions(address="127.0.0.1:6443"),
            agreement_of(self.coordinator),
        )
        subscribe_all(
            agreement_subscriptions(self.assembly, self.coordinator, guard=None, encryption=None)
        )
        await self.coordinator.start()

    def connection(self) -> Connection:
        assert self.assembly is not None
        return Connection(self.assembly.app, self.clock)

    def client(self, connection: Connection | None = None, *, seed: str = "client") -> ApiClient:
        runtime = Runtime.simulated(f"{self.name}/{seed}", clock=self.clock)
        connection = connection or self.connection()
        return ApiClient(InProcessTransport(connection.handle, server=self.name), runtime=runtime)

    async def stop(self) -> None:
        """Stops gracefully: the server removes its entries from the StorageVersions."""
        await self.coordinator.close()
        if self.assembly is not None:
            await self.assembly.close()
            self.assembly = None

    async def kill(self) -> None:
        self.line.pause()
        await self.coordinator.abandon()
        if self.assembly is not None:
            await self.assembly.close()
            self.assembly = None


class Cluster:
    """Servers by name, on one audited store."""

    def __init__(self, directory: Path, *, seed: int = 1) -> None:
        world = World(directory, seed=seed)
        self.seed = seed
        self.clock = world.clock
        self.catalogs = {name: _small(each) for name, each in world.catalogs.items()}
        self.storage: Storage = AuditedStorage(self.catalogs.values())
        self.servers: dict[str, ApiServer] = {}
        self.ended: list[ApiServer] = []
        self._incarnations = 0

    async def serve(self, name: str, release: str) -> ApiServer:
        """Starts a server and stops the one that had its name."""
        if name in self.servers:
            await self.stop(name)
        self._incarnations += 1
        server = self.servers[name] = ApiServer(self, f"{name}-{self._incarnations}", release)
        await self.clock.run_until_done(server.start(), seconds_max=60)
        return server

    async def stop(self, name: str) -> None:
        server = self.servers.pop(name)
        self.ended.append(server)
        await self.clock.run_until_done(server.stop(), seconds_max=60)

    async def close(self) -> None:
        for server in (*self.servers.values(), *self.ended):
            await server.kill()
        await self.storage.close()


def _small(catalog: Catalog) -> Catalog:
    """Returns the resources for coordination, one group for tests, and migrations."""
    groups = {GROUP, "migration.k8s.io", "storagemigration.k8s.io"}
    kept = [r for r in catalog if r.kind.pinned or r.kind.group_resource.group in groups]
    return Catalog(kept, name=catalog.name)


@asynccontextmanager
async def open_cluster(directory: Path, *, seed: int = 1) -> AsyncIterator[Cluster]:
    cluster = Cluster(directory, seed=seed)
    try:
        yield cluster
        cluster.storage.check()  # type: ignore[attr-defined]
    finally:
        await cluster.close()
