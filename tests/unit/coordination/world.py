"""Servers of several releases on one audited store in memory, with simulated time.

A server here is all of its coordination and its store of objects, without HTTP. It can be killed,
and paused at any moment: whatever it sends to the store then lands when it is woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from restow.coordination.coordinator import Coordinator, CoordinatorOptions
from restow.coordination.identity import Mode
from restow.coordination.membership import MembershipOptions
from restow.coordination.records import EpochRecord, decode_epoch, epoch_key, name_of
from restow.coordination.rules import Report, State
from restow.coordination.wire import decode_report, decode_state, report_key, state_key
from restow.kinds.releases import load_release
from restow.resources.caches import Caches
from restow.resources.catalog import Catalog, release_catalog
from restow.resources.definition import Resource
from restow.resources.store import ResourceStore, Written
from restow.runtime import Runtime, SimulatedClock
from restow.storage.interface import (
    Item,
    Key,
    Outcome,
    Page,
    Revision,
    Span,
    Storage,
    Transaction,
    Watch,
)
from restow.testing.coordination_audit import AuditedStorage

GROUP = "example.com"
RELEASES = {"x": (["v1"], "v1"), "x+1": (["v1", "v2"], "v1"), "x+2": (["v1", "v2"], "v2"),
            "x+3": (["v2"], "v2")}  # fmt: skip
"""The table of the voting proposal: supported versions, and the one preferred for storage."""


def write_release(path: Path, name: str, *, kinds: Sequence[str] = ("Widget",)) -> Path:
    """A release with a few kinds that are data only, as the table says."""
    versions, storage = RELEASES[name]
    listed = [
        {"group": GROUP, "kind": kind, "plural": f"{kind.lower()}s", "scope": "Namespaced",
         "versions": [{"name": version, "served": True, "decodable": True} for version in versions],
         "storage": storage, "conversion": "rename", "schema": "open"}
        for kind in kinds
    ]  # fmt: skip
    path.write_bytes(orjson.dumps({"release": name, "kinds": listed}))  # JSON is YAML
    return path


class Line(Storage):
    """A server's way to the store, which stands still while the server is paused."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._awake = asyncio.Event()
        self._awake.set()

    def pause(self) -> None:
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        await self._awake.wait()
        return await self._storage.get(key, revision=revision)

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> Page:
        await self._awake.wait()
        return await self._storage.range(
            span, limit=limit, revision=revision, with_total=with_total
        )

    async def count(self, span: Span, *, revision: Revision | None = None) -> int:
        return await self._storage.count(span, revision=revision)

    async def revision(self) -> Revision:
        await self._awake.wait()
        return await self._storage.revision()

    def revision_now(self) -> Revision | None:
        return self._storage.revision_now()

    async def commit(self, transaction: Transaction) -> Outcome:
        await self._awake.wait()
        return await self._storage.commit(transaction)

    def submit(self, transaction: Transaction) -> None:
        """Whoever may be paused has to wait."""

    def watch(self, span: Span, *, after: Revision) -> Watch:
        return self._storage.watch(span, after=after)

    async def compact(self, revision: Revision) -> None:
        await self._storage.compact(revision)

    async def close(self) -> None:
        return None


class Server:
    """One process life of an API server, without HTTP."""

    def __init__(self, world: World, name: str, catalog: Catalog, **options: Any) -> None:
        self.name = name
        self.catalog = catalog
        self.clock = world.clock
        self.runtime = Runtime.simulated(f"{world.seed}/{name}", clock=world.clock)
        self.line = Line(world.storage)
        mode: Mode = options.pop("mode", "report")
        membership = MembershipOptions(host=name, mode=mode)
        self.coordinator = Coordinator(
            self.line, catalog, self.runtime, CoordinatorOptions(membership=membership, **options)
        )
        self.caches = Caches(self.line, self.runtime)
        self.store = ResourceStore(self.line, self.caches, self.coordinator.policy, self.runtime)

    @property
    def id(self) -> str:
        return self.coordinator.membership.id

    def resource(self, kind: str = "Widget") -> Resource:
        found = self.catalog.of_kind(GROUP, kind)
        assert found is not None
        return found

    async def start(self) -> None:
        await self.caches.start()
        await self.coordinator.start()

    async def write(self, name: str, *, kind: str = "Widget", **fields: Any) -> Written:
        """Create an object, or change it if it is there."""
        resource = self.resource(kind)
        version, path = resource.served[0], f"ns/{name}"
        if await self.line.get(resource.key_of(path)) is None:
            obj = {"metadata": {"name": name, "namespace": "ns"}, **fields}
            return await self.store.create(resource, version, obj, namespace="ns")
        return await self.store.update(
            resource, version, path, lambda obj: {**obj, **fields}, is_patch=True
        )

    async def kill(self) -> None:
        """End at once: no withdrawal, nothing more is sent."""
        self.line.pause()
        await self.coordinator.abandon()
        await self.caches.close()

    async def stop(self) -> None:
        await self.coordinator.close()
        await self.caches.close()


class World:
    """A cluster."""

    def __init__(
        self, directory: Path, *, kinds: Sequence[str] = ("Widget",), seed: int = 1
    ) -> None:
        self.clock = SimulatedClock()
        self.seed = seed
        self.catalogs = {
            name: release_catalog(
                load_release(write_release(directory / f"{name}.yaml", name, kinds=kinds))
            )
            for name in RELEASES
        }
        self.storage = AuditedStorage(self.catalogs.values())
        self.servers: list[Server] = []
        self._made = 0

    def server(self, release: str, **options: Any) -> Server:
        self._made += 1
        server = Server(self, f"s{self._made}", self.catalogs[release], **options)
        self.servers.append(server)
        return server

    async def started(self, release: str, **options: Any) -> Server:
        server = self.server(release, **options)
        await self.run(server.start())
        return server

    async def run(self, work: Any, *, seconds_max: float = 60.0) -> Any:
        return await self.clock.run_until_done(work, seconds_max=seconds_max)

    async def report(self, kind: str = "Widget") -> Report | None:
        item = await self.storage.get(report_key(self._name(kind)))
        return None if item is None else decode_report(item).report

    async def common(self, kind: str = "Widget") -> str | None:
        report = await self.report(kind)
        return None if report is None else report.common_version

    async def state(self, kind: str = "Widget") -> State:
        item = await self.storage.get(state_key(self._name(kind)))
        assert item is not None
        return decode_state(item).state

    async def epoch(self, kind: str = "Widget") -> EpochRecord:
        item = await self.storage.get(epoch_key(self._name(kind)))
        assert item is not None
        return decode_epoch(item.value)

    async def stored(self, name: str, kind: str = "Widget") -> str:
        """The version in which an object is stored."""
        resource = self.catalogs["x+1"].of_kind(GROUP, kind)
        assert resource is not None
        item = await self.storage.get(resource.key_of(f"ns/{name}"))
        assert item is not None
        return str(orjson.loads(item.value)["apiVersion"]).partition("/")[2]

    def _name(self, kind: str) -> str:
        resource = self.catalogs["x+1"].of_kind(GROUP, kind)
        assert resource is not None
        return name_of(resource.kind.group_resource)


@asynccontextmanager
async def open_world(
    directory: Path, *, kinds: Sequence[str] = ("Widget",), seed: int = 1
) -> AsyncIterator[World]:
    """A cluster without servers; whatever promise was broken in it is raised at its end."""
    world = World(directory, kinds=kinds, seed=seed)
    try:
        yield world
        world.storage.check()
    finally:
        for server in world.servers:
            await server.kill()
        await world.storage.close()
