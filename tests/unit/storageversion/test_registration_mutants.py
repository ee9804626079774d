"""Mutants, each without one rule of registration, are detected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from restow.registry.resource import Resource
from restow.storage.interface import Delete, Transaction
from restow.storageversion import registrar
from restow.storageversion.object_codec import state_key
from restow.storageversion.registrar import Registrar
from tests.scenarios.crds import GADGETS, KIND, Gadgets
from tests.support.storageversion_audit import PromiseBroken
from tests.unit.storageversion.late_reads import SOON_SECONDS, one
from tests.unit.storageversion.test_location import TRY_SECONDS, add_cluster_scoped, create
from tests.unit.storageversion.world import World, open_world

Mutate = Callable[[pytest.MonkeyPatch], None]
Play = Callable[[World, Path], Awaitable[None]]


def _ignores_locations_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server registers concurrently with others that store the objects elsewhere."""
    monkeypatch.setattr(Registrar, "_check_understood", lambda *_: None)


def _ignores_misplaced_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server registers despite values that it cannot find by name."""
    monkeypatch.setattr(registrar, "_check_placed", lambda *_: None)


def _scans_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A root is scanned only once per process."""
    check_stored, scanned = Registrar._check_stored, set[tuple[int, str]]()

    async def check_once(self: Registrar, resource: Resource, listed: tuple[str, ...]) -> None:
        if (id(self), resource.root) not in scanned:
            await check_stored(self, resource, listed)
            scanned.add((id(self), resource.root))

    monkeypatch.setattr(Registrar, "_check_stored", check_once)


async def _mix_scopes(world: World, directory: Path) -> None:
    add_cluster_scoped(world, directory)
    first = await world.started("x+1")
    second = world.server("x+1 cluster")
    with suppress(TimeoutError):
        await world.run(second.start(), seconds_max=TRY_SECONDS)
    await create(world, first, "a")


async def _change_scope(world: World, directory: Path) -> None:
    add_cluster_scoped(world, directory)
    first = await world.started("x+1")
    await create(world, first, "a")
    await world.run(first.stop())
    second = world.server("x+1 cluster")
    with suppress(TimeoutError):
        await world.run(second.start(), seconds_max=TRY_SECONDS)


async def _recreate_definition(world: World, _directory: Path) -> None:
    server, gadgets = await one(world), Gadgets(world.storage)
    await gadgets.create(["v1"])
    await world.clock.advance(SOON_SECONDS)
    await world.run(server.write("a", kind=KIND))
    await gadgets.remove_by_force()
    await world.clock.advance(SOON_SECONDS)
    await world.storage.commit(Transaction((), (Delete(state_key(GADGETS)),)))
    await gadgets.create(["v2"])
    await world.clock.advance(SOON_SECONDS)


@pytest.mark.parametrize(
    ("mutate", "play", "promise"),
    [
        (_ignores_locations_of_others, _mix_scopes, "L1"),
        (_ignores_misplaced_values, _change_scope, "L1"),
        (_scans_once, _recreate_definition, "C3"),
    ],
)
async def test_mutants_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutate: Mutate, play: Play, promise: str
) -> None:
    """A scenario without violations on the real implementation has one without the rule."""
    async with open_world(tmp_path) as world:
        await play(world, tmp_path)
    mutate(monkeypatch)
    world = World(tmp_path)
    try:
        with suppress(PromiseBroken):
            await play(world, tmp_path)
        assert any(broken.startswith(promise) for broken in world.storage.broken)
    finally:
        for server in world.servers:
            await server.kill()
        await world.storage.close()
