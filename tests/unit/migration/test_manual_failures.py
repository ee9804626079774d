"""A manual migration reports every failure, whether it ran here or in a controller elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.client import lease_elector
from restow.client.transport import ClientRequest
from restow.migration.event_sinks import NO_RECORDER
from restow.migration.manual import ManualMigrationOptions, ManualOutcome
from restow.migration.metrics import ControllerMetrics
from restow.migration.migrator.controller import MigratorController
from restow.migration.migrator.engine import Engine
from restow.migration.migrator.jobs import RunListener
from restow.migration.migrator.options import EngineOptions, MigratorOptions
from restow.migration.names import MIGRATOR_LEASE
from tests.unit.migration.by_hand import OPTIONS, migrate, requests
from tests.unit.migration.migrator.world import QUICK, World

BAD = 120
"""More than the server names in one reply, and more than a status holds."""


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = await World.begin(12)
    await made.create("namespaces", {"metadata": {"name": "kube-system"}})
    for number in range(BAD):
        await made.plant_raw(f"bad{number:03d}", b"no object")
    yield made
    await made.end()


@pytest.mark.parametrize("is_led", [False, True], ids=["here", "elsewhere"])
async def test_every_failure_is_named(world: World, is_led: bool) -> None:
    """The caller receives all names, whether the migration ran here or in a controller
    elsewhere."""
    names: list[str] = []
    listener = RunListener(failed=lambda failure: names.append(failure.name))
    options = ManualMigrationOptions(engine=EngineOptions(retry_backoff=QUICK.retry_backoff))
    if not is_led:
        result = await migrate(world, options, listener=listener)
    else:
        runtime = Runtime.system()
        elector = lease_elector(
            world.client, namespace="kube-system", name=MIGRATOR_LEASE, identity="elsewhere"
        )
        controller = MigratorController(
            world.client,
            runtime=runtime,
            options=MigratorOptions(engine=options.engine),
            recorder=NO_RECORDER,
            metrics=ControllerMetrics(runtime.clock),
        )
        async with elector.leading(), runtime.tasks("controllers") as tasks:
            tasks.spawn("migrator", controller.run())
            result = await migrate(world, OPTIONS, listener=listener)
    assert (result.verdict, result.failed) == (ManualOutcome.FAILED, BAD)
    assert sorted(names) == [f"bad{number:03d}" for number in range(BAD)]


async def test_failed_by_another_process(world: World) -> None:
    """A migration that another process fails before it starts here is not reported as a success."""
    is_ended = False

    async def before(sent: ClientRequest) -> int:
        nonlocal is_ended
        name = sent.target.rpartition("/storageversionmigrations/")[2]
        if sent.method == "GET" and name.startswith("widgets") and not is_ended:
            is_ended = True
            (request,) = await requests(world)
            place = world.requests.resource
            await Engine(world.client).fail(request, place, reason="Test", message="no luck")
        return 0

    world.faults.before = before
    result = await migrate(world)
    assert is_ended
    assert (result.verdict, result.message) == (ManualOutcome.FAILED, "no luck")
