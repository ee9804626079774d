"""Manual migrations on real servers: with and without controllers, skipped, forced, paused,
cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest_asyncio

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionResource
from restow.apis.resources import STATES, STORAGE_VERSIONS
from restow.client import DiscoveredResources, lease_elector
from restow.migration.event_sinks import NO_RECORDER
from restow.migration.manual import ManualMigration, ManualOutcome
from restow.migration.metrics import ControllerMetrics
from restow.migration.migration_objects import MIGRATION_APIS, marks_of, phase_of
from restow.migration.migration_values import MigrationPhase, MigrationRecord
from restow.migration.migrator.controller import MigratorController
from restow.migration.migrator.engine import Engine
from restow.migration.migrator.jobs import RunListener
from restow.migration.migrator.options import MigratorOptions
from restow.migration.names import (
    MIGRATOR_LEASE,
    PAUSED_ANNOTATION,
    REASON_OBJECTS_FAILED,
    TRIGGER_LEASE,
)
from restow.migration.records import annotations_of, record_of
from restow.storage.interface import Key
from tests.unit.migration.by_hand import OPTIONS, migrate, requests
from tests.unit.migration.migrator.world import QUICK, ROOT, V1, V2, WIDGETS, World, is_rewrite

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
STATE = "widgets.example.com"


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = await World.begin(12)
    await made.create("namespaces", {"metadata": {"name": "kube-system"}})
    yield made
    await made.end()


async def persisted(world: World) -> list[str]:
    state = await world.client.get(STATES, STATE)
    return list(state["status"]["persistedStorageVersionHashes"])


def without(found: DiscoveredResources, *names: GroupVersionResource) -> DiscoveredResources:
    """Returns the discovery of a server without these resources."""
    return replace(found, resources=tuple(r for r in found.resources if r.resource not in names))


async def test_without_controllers(world: World) -> None:
    """Without controllers the migration runs here, including the update of the StorageState; the
    next run is skipped."""
    assert len(await persisted(world)) > 1
    result = await migrate(world)
    assert (result.verdict, result.objects, result.rewritten) == (ManualOutcome.SUCCEEDED, 12, 12)
    assert await world.versions() == {V2: 12}
    assert len(await persisted(world)) == 1
    (request,) = await requests(world)
    assert record_of(marks_of(request)) is not None
    again = await migrate(world)
    assert again.verdict is ManualOutcome.SKIPPED
    assert V2 in again.message
    assert len(await requests(world)) == 1


async def test_forced(world: World) -> None:
    """With force, an up-to-date resource is migrated again, and no object is rewritten."""
    await migrate(world)
    result = await migrate(world, replace(OPTIONS, is_forced=True))
    assert (result.verdict, result.objects, result.rewritten) == (ManualOutcome.SUCCEEDED, 12, 0)


async def test_a_failed_migration_is_retried_at_once(world: World) -> None:
    """A failed migration can be run again without waiting for the trigger's retry."""
    await world.plant_raw("bad", b"no object")
    names: list[str] = []
    listener = RunListener(failed=lambda failure: names.append(failure.name))
    result = await migrate(world, listener=listener)
    assert (result.verdict, result.failed, names) == (ManualOutcome.FAILED, 1, ["bad"])
    assert "bad" in result.message
    whole = await world.storage.get(Key(f"{ROOT}default/w000"))
    assert whole is not None
    await world.plant_raw("bad", whole.value.replace(b"w000", b"bad"))
    result = await migrate(world)
    assert result.verdict is ManualOutcome.SUCCEEDED, result
    assert await world.versions() == {V2: 13}


async def test_a_failed_resource_is_not_skipped(world: World) -> None:
    """A value written to the store by another program is found by the scan: the resource is not
    skipped,
    although an earlier migration was verified, and its StorageState becomes unknown."""
    await migrate(world)
    assert len(await persisted(world)) == 1
    await world.plant_raw("bad", b"no object")
    found = await migrate(world)
    assert (found.verdict, found.failed) == (ManualOutcome.FAILED, 1)
    assert (await persisted(world))[0] == "Unknown"
    again = await migrate(world)
    assert (again.verdict, again.failed) == (ManualOutcome.FAILED, 1)


async def test_a_recorded_success_does_not_outweigh_a_failure(world: World) -> None:
    """The StorageState has one hash, as on a cluster whose servers record no failures, but the last
    migration failed on some objects, so the resource is migrated again."""
    await migrate(world)
    request, place = await world.request("by-hand"), world.requests.resource
    await Engine(world.client).fail(request, place, reason=REASON_OBJECTS_FAILED, message="bad")
    assert len(await persisted(world)) == 1
    result = await migrate(world)
    assert (result.verdict, result.objects) == (ManualOutcome.SUCCEEDED, 12)


async def test_a_trigger_in_another_process_may_retry(world: World) -> None:
    """With discovery only, a failed migration of the trigger is deleted so that it can create
    another."""
    found = without(await world.client.discover(), STORAGE_VERSIONS)
    record = MigrationRecord(target="t", state_uid="s", change="", epoch="", storage_version="")
    old = await world.request("old", annotations=annotations_of(record))
    await Engine(world.client).fail(old, world.requests.resource, reason="Test", message="failed")
    elector = lease_elector(
        world.client, namespace="kube-system", name=TRIGGER_LEASE, identity="elsewhere"
    )

    async def recreate_after_deletion() -> None:
        while await requests(world):  # noqa: ASYNC110  (there is no event for the deletion)
            await asyncio.sleep(0.01)
        await world.request("new")

    async with elector.leading(), asyncio.TaskGroup() as group:
        group.create_task(recreate_after_deletion())
        result = await migrate(world, found=found)
    assert result.verdict is ManualOutcome.SUCCEEDED, result
    assert [each["metadata"]["name"] for each in await requests(world)] == ["new"]


async def test_servers_that_do_not_agree(world: World) -> None:
    """No migration is created, and the message gives the reason."""
    await world.join("x+1")
    result = await migrate(world)
    assert result.verdict is ManualOutcome.NOT_AGREED
    assert "do not agree" in result.message
    assert await requests(world) == []


async def test_controllers_run_the_migration(world: World) -> None:
    """If a migrator leads elsewhere, the command only follows the migration and reports its
    result."""
    runtime = Runtime.system()
    elector = lease_elector(
        world.client, namespace="kube-system", name=MIGRATOR_LEASE, identity="elsewhere"
    )
    controller = MigratorController(
        world.client,
        runtime=runtime,
        options=MigratorOptions(engine=QUICK),
        recorder=NO_RECORDER,
        metrics=ControllerMetrics(runtime.clock),
    )
    shown: list[MigrationPhase] = []
    async with elector.leading(), runtime.tasks("test") as tasks:
        tasks.spawn("migrator", controller.run())
        result = await migrate(world, on_migration=lambda r: shown.append(phase_of(r)))
        await tasks.close()
    assert (result.verdict, result.objects, result.rewritten) == (ManualOutcome.SUCCEEDED, 12, 12)
    assert await world.versions() == {V2: 12}
    assert shown
    assert len(await persisted(world)) == 1


async def test_a_followed_migration_is_deleted(world: World) -> None:
    """A command that follows a migration reports that it was deleted."""
    elector = lease_elector(
        world.client, namespace="kube-system", name=MIGRATOR_LEASE, identity="elsewhere"
    )
    seen = asyncio.Event()
    async with elector.leading(), asyncio.TaskGroup() as group:
        task = group.create_task(migrate(world, on_migration=lambda _: seen.set()))
        await seen.wait()
        (request,) = await requests(world)
        await world.delete_request(request["metadata"]["name"])
    result = task.result()
    assert result.verdict is ManualOutcome.ABORTED
    assert "deleted" in result.message


async def test_paused_and_resumed(world: World) -> None:
    """A pause stops the migration between two pages; after it is resumed, the migration
    succeeds."""
    found = await world.client.discover()
    async with (
        ManualMigration(world.client, found, bulk=world.client, options=OPTIONS) as steering,
        asyncio.TaskGroup() as group,
    ):
        pages = 0

        async def before(request: Any) -> int:
            nonlocal pages
            if is_rewrite(request) and (pages := pages + 1) == 1:
                assert await steering.pause(WIDGETS, is_paused=True)
            return 0

        world.faults.before = before
        held = asyncio.Event()
        listener = RunListener(paused=held.set)
        task = group.create_task(migrate(world, listener=listener))
        await held.wait()
        assert (await world.versions())[V1] > 0
        (request,) = await requests(world)
        assert marks_of(request)[PAUSED_ANNOTATION] == "true"
        assert await steering.pause(WIDGETS, is_paused=False) == [request["metadata"]["name"]]
    assert task.result().verdict is ManualOutcome.SUCCEEDED
    assert await world.versions() == {V2: 12}


async def test_cancelled(world: World) -> None:
    """Migrations in progress are deleted; completed ones are kept."""
    await migrate(world)
    await world.request("another")
    found = await world.client.discover()
    async with ManualMigration(world.client, found, bulk=world.client, options=OPTIONS) as by_hand:
        assert await by_hand.cancel(WIDGETS) == ["another"]
        assert await by_hand.cancel(WIDGETS) == []
    assert len(await requests(world)) == 1


async def test_a_server_without_migration_apis(world: World) -> None:
    """Objects are migrated by patches, and a ConfigMap records the result, so that the next run is
    skipped."""
    found = without(await world.client.discover(), *MIGRATION_APIS, STATES)
    result = await migrate(world, found=found)
    assert (result.verdict, result.rewritten) == (ManualOutcome.SUCCEEDED, 12)
    assert await world.versions() == {V2: 12}
    noted = await world.client.get(CONFIG_MAPS, "restow-migrations", namespace="kube-system")
    assert list(noted["data"]) == [STATE]
    again = await migrate(world, found=found)
    assert again.verdict is ManualOutcome.SKIPPED
    assert "has not changed" in again.message


async def test_a_server_that_is_interrupted(world: World) -> None:
    """A migration that is interrupted by server errors resumes and succeeds."""
    failures = 0

    async def before(request: Any) -> int:
        nonlocal failures
        if is_rewrite(request) and failures < 30:
            failures += 1
            return 500
        return 0

    world.faults.before = before
    result = await migrate(world)
    assert result.verdict is ManualOutcome.SUCCEEDED, result
    assert failures == 30
