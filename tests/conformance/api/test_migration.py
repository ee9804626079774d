"""Whole migrations on servers in this process: what admission refuses, and servers that go back.

Here a point of a migration can be hit exactly: before its n-th page. The store checks the promises
of coordination at every commit.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import pytest

from restow.admission import Admission
from restow.aio import Backoff, Runtime
from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.client import ApiClient, HttpTransport
from restow.client.transport import ClientRequest
from restow.endpoints.barrier import WriteBarrier
from restow.migration.event_sinks import NO_MIGRATOR_METRICS, NO_RECORDER
from restow.migration.migrator.controller import MigratorController
from restow.migration.migrator.dry_run import dry_run
from restow.migration.migrator.jobs import RunEnd
from restow.migration.migrator.options import MigratorOptions
from restow.migration.migrator.passes import ObjectFailure
from restow.migration.migrator.patch_rewrite import PatchOptions
from restow.migration.trigger.controller import TriggerController
from restow.migration.trigger.options import TriggerOptions
from restow.registry.catalog import Catalog
from restow.storage.memory import MemoryStorage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.membership import MembershipOptions
from tests.conformance.api.plugins import Plugin
from tests.conformance.api.servers import catalog_of, start_server
from tests.support.storageversion_audit import AuditedStorage
from tests.unit.migration.migrator.world import (
    QUICK,
    V1,
    V2,
    Faulty,
    Member,
    World,
    conditions,
    config_of,
    is_rewrite,
    until,
)

COUNT = 20
PAGES = COUNT // QUICK.page_limit_first
ROLLBACKS = 10
HASH = storage_version_hash(GroupVersionKind.of(V2, "Widget"))
STATE = "/registry/migration.k8s.io/storagestates/widgets.example.com"
GROUPS = {"example.com", "migration.k8s.io", "storagemigration.k8s.io"}
PLENTY = MigratorOptions(
    engine=QUICK,
    migration_retry_backoff=Backoff(initial_seconds=0.01, factor=1.5, max_seconds=0.1, jitter=0.5),
)


def small_catalog(release: str) -> Catalog:
    """What coordination needs, the kind that moves, and requests: nothing else is to migrate."""
    catalog = catalog_of(release)
    kept = [r for r in catalog if r.kind.pinned or r.group in GROUPS or r.plural == "namespaces"]
    return Catalog(kept, name=catalog.name)


def audited() -> AuditedStorage:
    return AuditedStorage([small_catalog("x+1"), small_catalog("x+2")])


@dataclass(slots=True)
class SmallWorld(World):
    """A world with few kinds, whose store watches over coordination, and whose servers ask a
    plug-in."""

    storage: MemoryStorage = field(default_factory=audited)
    plugins: tuple[Admission, ...] = ()

    async def join(self, release: str = "x+2") -> Member:
        catalog = small_catalog(release)
        options = CoordinatorOptions(membership=MembershipOptions(host=f"h{len(self.members)}"))
        coordinator = Coordinator(self.storage, catalog, Runtime.system(), options)
        server = await start_server(
            self.storage,
            catalog,
            policy=coordinator.policy,
            barrier=WriteBarrier(coordinator),
            admission=self.plugins,
        )
        self.members.append(Member(coordinator, server))
        await coordinator.start()
        return self.members[-1]

    @contextmanager
    def unfenced(self) -> Iterator[None]:
        """For what an older release has left, which no server of now has written."""
        assert isinstance(self.storage, AuditedStorage)
        self.storage.is_fenced = False
        yield
        self.storage.is_fenced = True

    async def persisted(self) -> list[str]:
        status = (await self.members[0].server.raw(STATE))["status"]
        found: list[str] = status["persistedStorageVersionHashes"]
        return found

    def check(self) -> None:
        assert isinstance(self.storage, AuditedStorage)
        self.storage.check()


@asynccontextmanager
async def world_of(count: int, *plugins: Admission) -> AsyncIterator[SmallWorld]:
    world = SmallWorld(plugins=plugins)
    try:
        with world.unfenced():
            await world._begin(count)
        yield world
        world.check()
    finally:
        await world.end()


@asynccontextmanager
async def controllers(world: SmallWorld) -> AsyncIterator[Faulty]:
    """Trigger and migrator at work; the way of the migrator to its server."""
    runtime = Runtime.system()
    faults = Faulty(HttpTransport(config_of(world.members[0]), clock=runtime.clock))
    bulk = ApiClient(faults, runtime=runtime)
    world.clients.append(bulk)
    trigger = TriggerController(world.client, runtime=runtime, settings=TriggerOptions())
    migrator = MigratorController(
        bulk, runtime=runtime, options=PLENTY, recorder=NO_RECORDER, metrics=NO_MIGRATOR_METRICS
    )
    async with runtime.tasks("controllers") as tasks:
        tasks.spawn("trigger", trigger.run())
        tasks.spawn("migrator", migrator.run())
        yield faults


@pytest.mark.parametrize("seed", range(ROLLBACKS))
async def test_rollback_at_a_random_page(seed: int) -> None:
    """A server of the older release appears before any page of either pass: nothing more is
    rewritten, the request goes, no hash is dropped; when it has left, all is migrated again."""
    point = random.Random(seed).randrange(1, 2 * PAGES + 1)
    pages, is_reached, is_joined = 0, asyncio.Event(), asyncio.Event()

    async def before(request: ClientRequest) -> int:
        nonlocal pages
        if is_rewrite(request) and "/widgets.example.com-" in request.target:
            pages += 1
            if pages == point:
                is_reached.set()
                await is_joined.wait()
        return 0

    async with world_of(COUNT) as world, controllers(world) as faults:
        faults.before = before
        await until(is_reached.is_set)
        old = await world.join("x+1")
        left = (await world.versions()).get(V1, 0)
        is_joined.set()
        await until(lambda: _is_over(world))
        assert (await world.versions()).get(V1, 0) == left, f"seed {seed}: page {point}"
        assert storage_version_hash(GroupVersionKind.of(V1, "Widget")) in await world.persisted()
        await old.leave()
        await until(lambda: _is_narrowed(world))
        assert await world.versions() == {V2: COUNT}


async def _is_over(world: SmallWorld) -> bool:
    """Whether no request is open."""
    page = await world.client.list_page(world.requests.resource)
    widgets = [each for each in page.items if each["spec"]["resource"]["resource"] == "widgets"]
    return all({"Failed", "Succeeded"} & conditions(each).keys() for each in widgets)


async def _is_narrowed(world: SmallWorld) -> bool:
    return await world.persisted() == [HASH]


async def test_refused_by_admission() -> None:
    """By patches, the object that a plug-in refuses fails by its name and all others are done; a
    dry run names it before. The server's own rewrite asks nobody."""
    plugin = Plugin("w007")
    async with world_of(COUNT, plugin) as world:
        found: list[ObjectFailure] = []
        done = await dry_run(
            world.client,
            world.widgets,
            runtime=Runtime.system(),
            options=PatchOptions(page_objects=5),
            on_failure=found.append,
        )
        assert (done.scanned, done.accepted, done.refused) == (COUNT, COUNT - 1, 1)
        assert [(each.name, each.reason) for each in found] == [("w007", "Forbidden")]
        assert await world.versions() == {V1: COUNT}

        outcome = await world.run(await world.request("by-patches"), is_patching=True)
        assert (outcome.ending, outcome.failed) == (RunEnd.FAILED, 1)
        request = await world.latest("by-patches")
        assert conditions(request)["Failed"] == ("True", "ObjectsFailed")
        [named] = request["status"]["failedObjects"]
        assert (named["namespace"], named["name"]) == ("default", "w007")
        assert "not that one" in named["message"]
        assert await world.versions() == {V2: COUNT - 1, V1: 1}

        asked = len([each for each in plugin.asked if each.name == "w007"])
        outcome = await world.run(await world.request("by-rewrite"))
        assert outcome.ending is RunEnd.SUCCEEDED
        assert await world.versions() == {V2: COUNT}
        assert len([each for each in plugin.asked if each.name == "w007"]) == asked


async def test_admission_relents() -> None:
    """When the plug-in lets the object pass, the next try by patches completes."""
    plugin = Plugin("w003")
    async with world_of(COUNT, plugin) as world:
        outcome = await world.run(await world.request("one"), is_patching=True)
        assert outcome.ending is RunEnd.FAILED
        plugin.refused = ""
        outcome = await world.run(await world.request("two"), is_patching=True)
        assert outcome.ending is RunEnd.SUCCEEDED
        assert await world.versions() == {V2: COUNT}
