"""Complete migrations on servers in this process: admission refusals and rollbacks.

Here a point of a migration can be hit exactly: before its n-th page. The store checks the
invariants of coordination at every commit.
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
from restow.migration.event_sinks import NO_RECORDER
from restow.migration.metrics import ControllerMetrics
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
    """The kinds of coordination, the migrated kind, and migrations: nothing else is to migrate."""
    catalog = catalog_of(release)
    kept = [r for r in catalog if r.kind.pinned or r.group in GROUPS or r.plural == "namespaces"]
    return Catalog(kept, name=catalog.name)


def audited() -> AuditedStorage:
    return AuditedStorage([small_catalog("x+1"), small_catalog("x+2")])


@dataclass(slots=True)
class SmallCluster(World):
    """A cluster with few kinds, whose store checks coordination, and whose servers call a
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
        """For writing objects as an older release did."""
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
async def cluster_of(count: int, *plugins: Admission) -> AsyncIterator[SmallCluster]:
    cluster = SmallCluster(plugins=plugins)
    try:
        with cluster.unfenced():
            await cluster._begin(count)
        yield cluster
        cluster.check()
    finally:
        await cluster.end()


@asynccontextmanager
async def controllers(cluster: SmallCluster) -> AsyncIterator[Faulty]:
    """Runs trigger and migrator, with the migrator's client for its server."""
    runtime = Runtime.system()
    faults = Faulty(HttpTransport(config_of(cluster.members[0]), clock=runtime.clock))
    bulk = ApiClient(faults, runtime=runtime)
    cluster.clients.append(bulk)
    trigger = TriggerController(cluster.client, runtime=runtime, settings=TriggerOptions())
    migrator = MigratorController(
        bulk,
        runtime=runtime,
        options=PLENTY,
        recorder=NO_RECORDER,
        metrics=ControllerMetrics(runtime.clock),
    )
    async with runtime.tasks("controllers") as tasks:
        tasks.spawn("trigger", trigger.run())
        tasks.spawn("migrator", migrator.run())
        yield faults


@pytest.mark.parametrize("seed", range(ROLLBACKS))
async def test_rollback_at_a_random_page(seed: int) -> None:
    """A server of the older release starts before any page of either pass: rewriting stops, the
    migration is deleted, no hash is dropped; after it leaves, everything is migrated again."""
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

    async with cluster_of(COUNT) as cluster, controllers(cluster) as faults:
        faults.before = before
        await until(is_reached.is_set)
        old = await cluster.join("x+1")
        left = (await cluster.versions()).get(V1, 0)
        is_joined.set()
        await until(lambda: _is_over(cluster))
        assert (await cluster.versions()).get(V1, 0) == left, f"seed {seed}: page {point}"
        assert storage_version_hash(GroupVersionKind.of(V1, "Widget")) in await cluster.persisted()
        await old.leave()
        await until(lambda: _is_narrowed(cluster))
        assert await cluster.versions() == {V2: COUNT}


async def _is_over(cluster: SmallCluster) -> bool:
    """Returns whether no migration is open."""
    page = await cluster.client.list_page(cluster.requests.resource)
    widgets = [each for each in page.items if each["spec"]["resource"]["resource"] == "widgets"]
    return all({"Failed", "Succeeded"} & conditions(each).keys() for each in widgets)


async def _is_narrowed(cluster: SmallCluster) -> bool:
    return await cluster.persisted() == [HASH]


async def test_refused_by_admission() -> None:
    """With patches, an object that the plug-in refuses fails by name and all others are
    migrated; a dry run reports it before. The server's own rewrite calls no plug-ins."""
    plugin = Plugin("w007")
    async with cluster_of(COUNT, plugin) as cluster:
        found: list[ObjectFailure] = []
        done = await dry_run(
            cluster.client,
            cluster.widgets,
            runtime=Runtime.system(),
            options=PatchOptions(page_objects=5),
            on_failure=found.append,
        )
        assert (done.scanned, done.accepted, done.refused) == (COUNT, COUNT - 1, 1)
        assert [(each.name, each.reason) for each in found] == [("w007", "Forbidden")]
        assert await cluster.versions() == {V1: COUNT}

        outcome = await cluster.run(await cluster.request("by-patches"), is_patching=True)
        assert (outcome.ending, outcome.failed) == (RunEnd.FAILED, 1)
        request = await cluster.latest("by-patches")
        assert conditions(request)["Failed"] == ("True", "ObjectsFailed")
        [named] = request["status"]["failedObjects"]
        assert (named["namespace"], named["name"]) == ("default", "w007")
        assert "not that one" in named["message"]
        assert await cluster.versions() == {V2: COUNT - 1, V1: 1}

        asked = len([each for each in plugin.asked if each.name == "w007"])
        outcome = await cluster.run(await cluster.request("by-rewrite"))
        assert outcome.ending is RunEnd.SUCCEEDED
        assert await cluster.versions() == {V2: COUNT}
        assert len([each for each in plugin.asked if each.name == "w007"]) == asked


async def test_admission_allows_the_object_later() -> None:
    """When the plug-in allows the object, the next attempt with patches completes."""
    plugin = Plugin("w003")
    async with cluster_of(COUNT, plugin) as cluster:
        outcome = await cluster.run(await cluster.request("one"), is_patching=True)
        assert outcome.ending is RunEnd.FAILED
        plugin.refused = ""
        outcome = await cluster.run(await cluster.request("two"), is_patching=True)
        assert outcome.ending is RunEnd.SUCCEEDED
        assert await cluster.versions() == {V2: COUNT}
