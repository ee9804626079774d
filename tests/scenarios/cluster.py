"""Named servers with faulty connections to the store, and queries about one resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from restow.registry.catalog import Catalog
from restow.storage.interface import Span
from restow.storageversion.records import SELECTED_PREFIX
from restow.storageversion.vote_objects import VOTES_PREFIX, decode_vote
from restow.storageversion.voting import Vote
from tests.scenarios.faults import Wire
from tests.support.storageversion_audit import AuditedStorage
from tests.unit.storageversion.named_keys import open_any
from tests.unit.storageversion.world import GROUP, RELEASES, Server, World

WIDGETS = f"{GROUP}.widgets"
PREFERRED = {release: f"{GROUP}/{storage}" for release, (_, storage) in RELEASES.items()}


class Node:
    """A named server, its connection, and its disturbances."""

    def __init__(self, server: Server, wire: Wire, release: str, mode: str) -> None:
        self.server = server
        self.wire = wire
        self.release = release
        self.mode = mode
        self.first_id = ""
        self.starting: asyncio.Task[None] | None = None
        self.is_running = True
        self.is_paused = False
        self.was_disturbed = False
        """Whether an event has occurred that may cost it its identity."""

    @property
    def id(self) -> str:
        return self.server.id

    def pause(self) -> None:
        self.is_paused = self.was_disturbed = True
        self.server.line.pause()
        self.wire.link.is_stalled = True

    def wake(self) -> None:
        self.is_paused = False
        self.server.line.wake()
        self.wire.link.is_stalled = False
        self.wire.link.look_again()

    async def end(self) -> None:
        """Ends at once, as if killed."""
        self.is_running = False
        await self.cancel_start()
        await self.server.kill()
        await self.wire.close()

    async def cancel_start(self) -> None:
        if self.starting is not None:
            self.starting.cancel()
            await asyncio.gather(self.starting, return_exceptions=True)


class Cluster(World):
    """A world of small catalogs with named servers."""

    def __init__(self, directory: Path, *, kinds: Sequence[str] = ("Widget",), seed: int) -> None:
        super().__init__(directory, kinds=kinds, seed=seed)
        self.catalogs = {name: _small(catalog) for name, catalog in self.catalogs.items()}
        self.storage = AuditedStorage(self.catalogs.values(), opens=open_any)
        self.nodes: dict[str, Node] = {}
        self.ended: list[Node] = []

    def node(self, name: str, release: str, **options: Any) -> Node:
        """Returns a new server with a name; an earlier one with it must have ended."""
        old = self.nodes.get(name)
        if old is not None:
            assert not old.is_running, f"{name} is running"
            self.ended.append(old)
        server = self.server(release, **options)
        wire = Wire(self.storage, self.clock, f"{self.seed}/{server.name}")
        server.line._storage = wire
        node = self.nodes[name] = Node(server, wire, release, options.get("mode", "report"))
        return node

    async def begin(self, node: Node) -> None:
        """Starts the server in the background."""
        await node.server.caches.start()
        work = node.server.coordinator.start()
        node.starting = asyncio.create_task(work, name=f"start {node.server.name}")

    def running(self) -> dict[str, Node]:
        return {name: node for name, node in self.nodes.items() if node.is_running}

    def name_of(self, server_id: str) -> str:
        """Returns the name of the server with an ID."""
        for name, node in self.nodes.items():
            if node.id == server_id:
                return name
        return next((f"old {n.server.name}" for n in self.ended if n.id == server_id), server_id)

    async def votes(self) -> list[Vote]:
        found = (await self.storage.range(Span.of_prefix(VOTES_PREFIX))).items
        return [decode_vote(item).vote for item in found if item.key.endswith(".widgets")]

    async def selected(self) -> str | None:
        """Returns the selected version, from the key that the fence compares."""
        found = (await self.storage.range(Span.of_prefix(SELECTED_PREFIX + WIDGETS))).items
        return found[0].value.decode() if found else None

    async def close(self) -> None:
        for node in (*self.nodes.values(), *self.ended):
            await node.end()
        await self.storage.close()


def _small(catalog: Catalog) -> Catalog:
    """Returns the resources for coordination, and the kinds of the scenario."""
    kept = [r for r in catalog if r.kind.pinned or r.kind.group_resource.group == GROUP]
    return Catalog(kept, name=catalog.name)


@asynccontextmanager
async def open_cluster(
    directory: Path, *, kinds: Sequence[str] = ("Widget",), seed: int = 1
) -> AsyncIterator[Cluster]:
    cluster = Cluster(directory, kinds=kinds, seed=seed)
    try:
        yield cluster
        cluster.storage.check()
    finally:
        await cluster.close()
