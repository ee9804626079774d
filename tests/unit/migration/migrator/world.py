"""A cluster for the migrator's tests: real servers on one in-memory store, with injected faults.

Objects are written to the store directly in the old version, as an older release left them, and
tests check every raw value.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from restow.aio import Backoff, Runtime
from restow.apimachinery.names import GroupResource
from restow.client import ApiClient, ApiResource, ClientConfig, ConnectionFailed, HttpTransport
from restow.client.transport import ClientRequest, ClientResponse, Transport
from restow.endpoints.barrier import WriteBarrier
from restow.migration.migrator.controller import find_migration_apis, find_resource
from restow.migration.migrator.engine import Engine
from restow.migration.migrator.jobs import Job, RunListener, RunOutcome
from restow.migration.migrator.options import EngineOptions
from restow.migration.migrator.patch_rewrite import PatchOptions
from restow.registry.stored_bytes import encode
from restow.storage.interface import Key, Put, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.membership import MembershipOptions
from tests.conformance.api.servers import TOKEN, RunningServer, catalog_of, start_server
from tests.support.storageversion_audit import stored_versions

V1, V2 = "example.com/v1", "example.com/v2"
ROOT = "/registry/example.com/widgets/"
WIDGETS = GroupResource("example.com", "widgets")
WAIT_SECONDS_MAX = 60.0
QUICK = EngineOptions(
    page_limit_first=5,
    page_limit_max=5,
    position_seconds=0.0,
    progress_seconds=0.0,
    discovery_seconds=0.01,
    page_attempts_max=20,
    conflicts_max=20,
    retry_backoff=Backoff(initial_seconds=0.001, factor=1.5, max_seconds=0.01, jitter=0.5),
    patch=PatchOptions(page_objects=5, in_flight_max=8),
)

Before = Callable[[ClientRequest], Awaitable[int]]
"""Called before each request: 0 sends it, a status code replaces the reply, -1 loses the reply."""


async def nothing(_request: ClientRequest) -> int:
    return 0


def is_rewrite(request: ClientRequest) -> bool:
    return request.target.endswith("/rewrite")


class Faulty:
    """A transport that can inject replies."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.before: Before = nothing
        self.routes: dict[str, Transport] = {}
        """Transports for paths with a prefix."""
        self.server = inner.server

    async def prepare(self) -> None:
        await self.inner.prepare()

    def send(self, request: ClientRequest) -> AbstractAsyncContextManager[ClientResponse]:
        return self._send(request)

    @asynccontextmanager
    async def _send(self, request: ClientRequest) -> AsyncIterator[ClientResponse]:
        # Tests use plain HTTP, over which the client sends no credentials.
        headers = (*request.headers, ("Authorization", f"Bearer {TOKEN}"))
        request = replace(request, headers=headers)
        code = await self.before(request)
        if code > 0:
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
            yield ClientResponse(code, {}, _pieces(orjson.dumps(body)), self.server)
            return
        routes = [each for path, each in self.routes.items() if request.target.startswith(path)]
        async with (*routes, self.inner)[0].send(request) as response:
            if code < 0:
                await response.read(bytes_max=1 << 20)
                raise ConnectionFailed(self.server, "lost", advice="", may_have_happened=True)
            yield response

    async def close(self) -> None:
        await self.inner.close()


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body


@dataclass(slots=True)
class Member:
    """A participating server."""

    coordinator: Coordinator
    server: RunningServer
    is_gone: bool = False

    async def leave(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            await self.coordinator.close()
            await self.server.stop()


@dataclass(slots=True)
class World:
    """The store, its servers, and their clients."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    members: list[Member] = field(default_factory=list)
    clients: list[ApiClient] = field(default_factory=list)
    faults: Faulty = field(init=False)
    """The transport of the client."""
    client: ApiClient = field(init=False)
    requests: ApiResource = field(init=False)
    widgets: ApiResource = field(init=False)

    @classmethod
    async def begin(cls, count: int = 0) -> World:
        world = cls()
        try:
            await world._begin(count)
        except BaseException:
            await world.end()
            raise
        return world

    async def _begin(self, count: int) -> None:
        first = await self.join()
        self.faults = Faulty(HttpTransport(config_of(first), clock=Runtime.system().clock))
        self.client = ApiClient(self.faults, runtime=Runtime.system())
        self.clients.append(self.client)
        await self.create("namespaces", {"metadata": {"name": "default"}})
        self.requests = (await find_migration_apis(self.client))[0]
        found = await find_resource(self.client, WIDGETS)
        assert found is not None
        self.widgets = found
        await self.plant(count)

    async def end(self) -> None:
        for client in self.clients:
            await client.close()
        for member in self.members:
            await member.leave()

    async def join(self, release: str = "x+2") -> Member:
        catalog = catalog_of(release)
        options = CoordinatorOptions(membership=MembershipOptions(host=f"h{len(self.members)}"))
        coordinator = Coordinator(self.storage, catalog, Runtime.system(), options)
        server = await start_server(
            self.storage, catalog, policy=coordinator.policy, barrier=WriteBarrier(coordinator)
        )
        self.members.append(Member(coordinator, server))
        await coordinator.start()
        return self.members[-1]

    # Objects.

    async def plant(self, count: int, version: str = V1, *, prefix: str = "w") -> None:
        for number in range(count):
            name = f"{prefix}{number:03d}"
            metadata = {"name": name, "namespace": "default", "uid": f"u-{name}", "generation": 4}
            await self.plant_raw(
                name, encode({"metadata": metadata, "spec": {"count": 0}}, version, "Widget")
            )

    async def plant_raw(self, name: str, value: bytes) -> None:
        put = Put(Key(f"{ROOT}default/{name}"), value)
        await self.storage.commit(Transaction(writes=(put,)))

    async def versions(self) -> dict[str, int]:
        """Counts the raw values by their version."""
        return dict(await stored_versions(self.storage, ROOT))

    # Migrations.

    async def create(self, plural: str, body: dict[str, Any]) -> Any:
        found = (await self.client.discover()).find(plural)
        return await self.client.create(found.resource, body)

    async def request(self, name: str = "m", **metadata: Any) -> Any:
        spec = {"resource": {"group": WIDGETS.group, "resource": WIDGETS.resource}}
        body = {"metadata": {"name": name, **metadata}, "spec": spec}
        return await self.client.create(self.requests.resource, body)

    async def latest(self, name: str = "m") -> Any:
        return await self.client.get(self.requests.resource, name)

    async def delete_request(self, name: str = "m") -> None:
        await self.client.delete(self.requests.resource, name)

    def job(self, request: Any, *, is_patching: bool = False) -> Job:
        api = self.requests
        if is_patching:
            api = replace(api, subresources=frozenset({"status"}))
        return Job(resource=self.widgets, migration=request, migration_api=api)

    async def run(
        self,
        request: Any,
        *,
        options: EngineOptions = QUICK,
        listener: RunListener | None = None,
        is_patching: bool = False,
    ) -> RunOutcome:
        engine = Engine(self.client, options=options)
        return await engine.run(self.job(request, is_patching=is_patching), listener)


def config_of(member: Member) -> ClientConfig:
    return ClientConfig(server=f"http://127.0.0.1:{member.server.port}")


def conditions(request: Any) -> dict[str, tuple[str, str]]:
    """Returns status and reason of each condition."""
    found = (request.get("status") or {}).get("conditions") or []
    return {each["type"]: (each["status"], each["reason"]) for each in found}


async def until(check: Callable[[], Any]) -> None:
    """Polls until the check, which may be a coroutine, is true; bounded."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            found = check()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.005)


async def run_until(
    world: World, request: Any, point: int, *, is_done: bool, is_patching: bool
) -> bool:
    """Runs the migration and kills it at its n-th write; returns False if it ended before."""
    writes, reached = 0, asyncio.Event()

    async def before(sent: ClientRequest) -> int:
        nonlocal writes
        if sent.method != "GET":
            writes += 1
            if writes >= point:
                if is_done and writes == point:
                    async with world.faults.inner.send(sent) as response:
                        await response.read(bytes_max=1 << 20)
                reached.set()
                await asyncio.Event().wait()
        return 0

    world.faults.before = before
    task = asyncio.ensure_future(world.run(request, is_patching=is_patching))
    waiting = asyncio.ensure_future(reached.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    was_killed = not task.done()
    for each in (task, waiting):
        each.cancel()
    await asyncio.gather(task, waiting, return_exceptions=True)
    return was_killed
