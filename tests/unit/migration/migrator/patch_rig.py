"""A server with objects in the old version, and a client whose requests a test can hold or fail.

The server is a real one on a store in memory. Waiting takes no time, so that a test of eight tries
is as quick as one of a single try.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from restow.admission import Admission
from restow.aio import RandomIds, Runtime, SeededRandomness, SystemClock, Timer
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
"""What comes instead of the answer; an exception comes behind it, when all has been carried out."""


class QuickClock:
    """Real time, but for sleeping, which moves the clock on at once."""

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
    """Sends what the test lets through, and counts what is under way."""

    def __init__(self, inner: HttpTransport) -> None:
        self.server = inner.server
        self.fault: Fault = no_fault
        self.sent: list[ClientRequest] = []
        self.under_way = 0
        self.under_way_most = 0
        self._inner = inner

    def of(self, method: str) -> list[ClientRequest]:
        """What was sent with a method."""
        return [each for each in self.sent if each.method == method]

    def send(self, request: ClientRequest) -> AbstractAsyncContextManager[ClientResponse]:
        return self._send(request)

    @asynccontextmanager
    async def _send(self, request: ClientRequest) -> AsyncIterator[ClientResponse]:
        self.sent.append(request)
        self.under_way += 1
        self.under_way_most = max(self.under_way, self.under_way_most)
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
            self.under_way -= 1

    async def close(self) -> None:
        await self._inner.close()


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body


def lost() -> ConnectionFailed:
    """An answer that did not come; what was asked has happened."""
    return ConnectionFailed("test", "lost", advice="", may_have_happened=True)


@dataclass(slots=True)
class Rig:
    """The server, the client, and what a test does behind their backs."""

    server: RunningServer
    storage: MemoryStorage
    transport: FaultyTransport
    client: ApiClient
    resource: ApiResource
    clock: QuickClock = field(default_factory=QuickClock)

    @property
    def runtime(self) -> Runtime:
        randomness = SeededRandomness("patches")
        return Runtime(clock=self.clock, randomness=randomness, ids=RandomIds(randomness))

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
        """Every raw value, by the version it is in."""
        return dict(await stored_versions(self.storage, ROOT))

    async def objects(self) -> dict[str, Any]:
        """What clients see, but for resource versions."""
        found: dict[str, Any] = {}
        async for item in self.client.items(self.resource.resource):
            del item["metadata"]["resourceVersion"]
            found[item["metadata"]["name"]] = item
        return found


@asynccontextmanager
async def running(count: int = 0, *, admission: Sequence[Admission] = ()) -> AsyncIterator[Rig]:
    """A rig with so many objects in the old version."""
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
        transport.under_way_most = 0
        yield rig
    finally:
        await client.close()
        await server.stop()


async def whole(pages: PatchRewrite, token: str = "") -> list[PageDone]:
    """A complete pass."""
    found = [await pages.page(token)]
    while found[-1].token:
        found.append(await pages.page(found[-1].token))
    return found


def totals(pages: list[PageDone]) -> tuple[int, int, int, int]:
    """Rewritten, unchanged, settled, failed."""
    return (
        sum(page.rewritten for page in pages),
        sum(page.unchanged for page in pages),
        sum(page.settled for page in pages),
        sum(page.failed for page in pages),
    )


async def soon(check: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110  (what is waited for knows nothing of it)
            await asyncio.sleep(0.001)
