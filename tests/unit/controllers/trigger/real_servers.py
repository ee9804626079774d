"""Real API servers of several releases in this process, on one store and simulated time.

A client calls the chain of a server directly, through the seam of the transport: no sockets, so
that time moves only when a test says so. A fault can be put in its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from restow.apiserver.assembly import Assembly, Secrets, assemble
from restow.client import Answer, ApiClient, InProcessTransport
from restow.coordination.coordinator import Coordinator, CoordinatorOptions
from restow.coordination.membership import MembershipOptions
from restow.resources.catalog import Catalog
from restow.runtime import Runtime, SimulatedClock
from restow.serving.app import App
from restow.serving.barrier import WriteBarrier
from restow.serving.context import User
from restow.serving.listener import (
    Deferred,
    Headers,
    Peer,
    PullStream,
    PushStream,
    Request,
    Response,
    Shielded,
    StreamWriter,
)
from restow.storage.interface import Storage
from restow.testing.coordination_audit import AuditedStorage
from tests.unit.coordination.world import GROUP, Line, World

TOKEN = "token-of-the-trigger"
SECRETS = Secrets(
    tokens={TOKEN: User("trigger", ("system:masters",))}, continue_key=b"shared by all servers"
)
Fault = Callable[[str, str], Exception | None]
"""Asked with method and target before each request; what it returns is raised instead of it."""
LostAnswer = Callable[[str, str], bool]


class Door:
    """The way of one client into one server, with the faults on it."""

    def __init__(self, app: App, clock: SimulatedClock) -> None:
        self._app = app
        self._clock = clock
        self._streams: set[_Stream] = set()
        self.fault: Fault | None = None
        self.loses: LostAnswer | None = None
        """Whether the answer to a request that was carried out is lost."""
        self.calls: list[tuple[str, str]] = []

    async def handle(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        self.calls.append((method, target))
        error = None if self.fault is None else self.fault(method, target)
        if error is not None:
            raise error
        path, _, query = target.partition("?")
        lines = [*headers.items(), ("authorization", f"Bearer {TOKEN}")]
        request = Request(
            method, path, query, Headers(lines), body, Peer(1), self._clock.monotonic()
        )
        answer = await _kept(self._app(request))
        if self.loses is not None and self.loses(method, target):
            raise ConnectionResetError
        if isinstance(answer, PushStream):
            stream = _Stream(answer)
            self._streams.add(stream)
            return Answer(answer.status, stream.pieces(), _headers(answer.headers))
        if isinstance(answer, PullStream):
            return Answer(answer.status, b"".join(answer.pieces), _headers(answer.headers))
        found = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        return Answer(answer.status, found, _headers(answer.headers))

    def cut(self) -> None:
        """Break all streams."""
        for stream in self._streams:
            stream.stream_abort()
        self._streams.clear()


async def _kept(promise: Any) -> Response | PushStream | PullStream:
    """The answer of a promise."""
    while not isinstance(promise, Response | PushStream | PullStream):
        if isinstance(promise, Deferred):
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            promise.then(partial(_resolve, future))
            promise = await future
        else:
            promise = await (promise.awaitable if isinstance(promise, Shielded) else promise)
    return promise


def _resolve(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


class _Stream:
    """A pushed stream as its reader has it."""

    def __init__(self, stream: PushStream) -> None:
        self._stream = stream
        self._pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._writer = StreamWriter(self, self._pieces.put_nowait, chunked=False)

    async def pieces(self) -> AsyncIterator[bytes]:
        self._stream.start(self._writer)
        try:
            while True:
                piece = await self._pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                if piece is None:
                    return
                yield piece
        finally:
            if not self._writer.closed:
                self._writer.closed = True
                if self._writer.on_close is not None:
                    self._writer.on_close()

    def stream_overfull(self) -> bool:
        return False

    def stream_done(self) -> None:
        self._pieces.put_nowait(None)

    def stream_abort(self) -> None:
        self._pieces.put_nowait(ConnectionResetError())


def _headers(block: bytes) -> dict[str, str]:
    lines = block.decode("latin-1").split("\r\n")
    return {name: value for name, _, value in (each.partition(": ") for each in lines) if name}


class ApiServer:
    """One life of a server: its coordination and its whole chain."""

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
            self.line,
            self.catalog,
            self.runtime,
            secrets=SECRETS,
            address="127.0.0.1:6443",
            policy=self.coordinator.policy,
            barrier=WriteBarrier(self.coordinator),
            version_of=self.coordinator.version_of,
        )
        self.coordinator.table.on_switch = self.assembly.discovery.forget
        await self.coordinator.start()

    def door(self) -> Door:
        assert self.assembly is not None
        return Door(self.assembly.app, self.clock)

    def client(self, door: Door | None = None, *, seed: str = "client") -> ApiClient:
        runtime = Runtime.simulated(f"{self.name}/{seed}", clock=self.clock)
        door = door or self.door()
        return ApiClient(InProcessTransport(door.handle, server=self.name), runtime=runtime)

    async def stop(self) -> None:
        """A graceful end: it takes its reports back."""
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
        self._lives = 0

    async def serve(self, name: str, release: str) -> ApiServer:
        """Start a server, in the place of the one that had its name."""
        if name in self.servers:
            await self.stop(name)
        self._lives += 1
        server = self.servers[name] = ApiServer(self, f"{name}-{self._lives}", release)
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
    """What coordination needs, a group to play with, and the requests."""
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
