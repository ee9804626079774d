"""Runs manual migrations in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from restow.client import DiscoveredResources
from restow.migration.manual import ManualMigration, ManualMigrationOptions, ManualResult
from restow.migration.migrator.jobs import RunListener
from tests.unit.migration.migrator.world import QUICK, World

OPTIONS = ManualMigrationOptions(engine=QUICK)


async def migrate(
    world: World,
    options: ManualMigrationOptions = OPTIONS,
    *,
    found: DiscoveredResources | None = None,
    on_migration: Callable[[Any], None] = lambda _: None,
    listener: RunListener | None = None,
) -> ManualResult:
    found = found or await world.client.discover()
    async with ManualMigration(world.client, found, bulk=world.client, options=options) as by_hand:
        return await by_hand.migrate(world.widgets, on_migration=on_migration, listener=listener)


async def requests(world: World) -> list[Any]:
    return [each async for each in world.client.items(world.requests.resource)]
