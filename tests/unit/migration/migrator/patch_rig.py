"""A server with objects in the old version, and a client whose requests a test can delay or fail.

The server is a real one on an in-memory store. Sleeping takes no real time, so a test with eight
retries is as quick as one without retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from restow.admission import Admission
from restow.aio import LoopSteps, RandomIds, Runtime, SeededRandomness, SystemClock, Timer
from restow.apimachinery.status import StatusError
from restow.client import ApiClient, ApiResource, ClientConfig, ConnectionFailed, HttpTransport
from restow.client.transport import ClientRequest, ClientResponse
from restow.migration.migrator.passes import PageDone
from restow.migration.migrator.patch_rewrite import PatchOptions, PatchRewrite
from restow.registry.stored_bytes import encode
from restow.storage.interface import Key, Put, Transaction
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import TOKEN, RunningServer, catalog_of, start_server
from tests.support.storageversion_audit import stored_versions

V1, V2 = "example.com/v1", "example.com/v2"
ROOT = "/registry/example.com/widgets/"
OPTIONS = PatchOptions(page_objects=10, in_flight_max=8)

Fault = Callable[[ClientRequest], Awaitable[StatusError | Exception | None]]
"""A StatusError replaces the reply; any other exception is raised after the request is carried
out."""


class QuickClock:
    """Real time, except that sleeping advances the clock at once."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._real = SystemClock()
        self._skipped = 0.0

    def monotonic(self) -> float:
        return self._real.monotonic() + self._skipped

    def wall(self) -> datetime:
        return self._real.wall()

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.slept.append(seconds)
            self._skipped += seconds
        await self._real.sleep(0)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return self._real.timeout(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._real.call_later(seconds, callback)


async def no_fault(_request: ClientRequest) -> StatusError | Exception | None:
    return None


class FaultyTransport:
    """A transport that injects the test's faults and counts the requests in flight."""

    def __init__(self, inner: HttpTransport) -> None:
        self.server = inner.server
        self.fault: Fault = no_fault
        self.sent: list[ClientRequest] = []
        self.in_flight = 0
        self.in_flight_peak = 0
        self._inner = inner

    def of(self, method: str) -> list[ClientRequest]:
        """Returns the requests sent with a method."""
        return [each for each in self.sent if each.method == method]

    async def prepare(self) -> None:
        await self._inner.prepare()

    def send(self, request: ClientRequest) -> AbstractAsyncContextManager[ClientResponse]:
        return self._send(request)

    @asynccontextmanager
    async def _send(self, request: ClientRequest) -> AsyncIterator[ClientResponse]:
        self.sent.append(request)
        self.in_flight += 1
        self.in_flight_peak = max(self.in_flight, self.in_flight_peak)
        try:
            fault = await self.fault(request)
            if isinstance(fault, StatusError):
                headers = {"retry-after": str(fault.retry_after_seconds or "")}
                headers = {name: value for name, value in headers.items() if value}
                yield ClientResponse(fault.code, headers, _one(fault.to_bytes()), self.server)
                return
            # Over plain HTTP the client sends no credential by itself.
            known = replace(
                request, headers=(*request.headers, ("Authorization", f"Bearer {TOKEN}"))
            )
            async with self._inner.send(known) as response:
                if fault is not None:
                    await response.read(bytes_max=1 << 24)
                    raise fault
                yield response
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        await self._inner.close()


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body


def lost() -> ConnectionFailed:
    """A lost reply to a request that was carried out."""
    return ConnectionFailed("test", "lost", advice="", may_have_happened=True)


@dataclass(slots=True)
class Rig:
    """The server, its client, and direct access to the store."""

    server: RunningServer
    storage: MemoryStorage
    transport: FaultyTransport
    client: ApiClient
    resource: ApiResource
    clock: QuickClock = field(default_factory=QuickClock)

    @property
    def runtime(self) -> Runtime:
        randomness = SeededRandomness("patches")
        steps = LoopSteps(self.clock.monotonic)
        ids = RandomIds(randomness)
        return Runtime(clock=self.clock, randomness=randomness, ids=ids, steps=steps)

    def patching(self, options: PatchOptions = OPTIONS, **more: Any) -> PatchRewrite:
        resource = more.pop("resource", self.resource)
        return PatchRewrite(self.client, resource, runtime=self.runtime, options=options, **more)

    async def plant(self, count: int, version: str = V1) -> None:
        for number in range(count):
            await self.plant_one(f"w{number:03d}", version)

    async def plant_one(self, name: str, version: str = V1, *, uid: str = "") -> None:
        metadata = {"name": name, "namespace": "default", "uid": uid or f"u-{name}"}
        obj = {"metadata": metadata, "spec": {"count": 0}}
        await self.plant_raw(name, encode(obj, version, "Widget"))

    async def plant_raw(self, name: str, value: bytes) -> None:
        put = Put(Key(f"{ROOT}default/{name}"), value)
        await self.storage.commit(Transaction(writes=(put,)))

    async def versions(self) -> dict[str, int]:
        """Counts the raw values by their version."""
        return dict(await stored_versions(self.storage, ROOT))

    async def objects(self) -> dict[str, Any]:
        """Returns all objects as clients read them, without resource versions."""
        found: dict[str, Any] = {}
        async for item in self.client.items(self.resource.resource):
            del item["metadata"]["resourceVersion"]
            found[item["metadata"]["name"]] = item
        return found


@asynccontextmanager
async def running(count: int = 0, *, admission: Sequence[Admission] = ()) -> AsyncIterator[Rig]:
    """Yields a rig with this many objects in the old version."""
    storage = MemoryStorage()
    server = await start_server(storage, catalog_of("x+2"), admission=admission)
    config = ClientConfig(server=f"http://127.0.0.1:{server.port}")
    transport = FaultyTransport(HttpTransport(config, clock=SystemClock()))
    client = ApiClient(transport, runtime=Runtime.system())
    try:
        namespace = {"metadata": {"name": "default"}}
        assert (await server.client.post("/api/v1/namespaces", namespace)).status == 201
        resource = (await client.discover()).find("widgets.example.com")
        rig = Rig(server, storage, transport, client, resource)
        await rig.plant(count)
        transport.sent.clear()
        transport.in_flight_peak = 0
        yield rig
    finally:
        await client.close()
        await server.stop()


async def whole(pages: PatchRewrite, token: str = "") -> list[PageDone]:
    """Runs a complete pass."""
    found = [await pages.page(token)]
    while found[-1].token:
        found.append(await pages.page(found[-1].token))
    return found


def totals(pages: list[PageDone]) -> tuple[int, int, int, int]:
    """Returns the sums of rewritten, unchanged, settled and failed."""
    return (
        sum(page.rewritten for page in pages),
        sum(page.unchanged for page in pages),
        sum(page.settled for page in pages),
        sum(page.failed for page in pages),
    )


async def soon(check: Callable[[], bool]) -> None:
    """Polls until the check is true."""
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110  (the condition has no event to wait for)
            await asyncio.sleep(0.001)
