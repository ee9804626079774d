"""A StorageState without persisted hashes: objects may be stored in any version."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.storage.interface import Delete, Put, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.object_codec import state_key
from restow.storageversion.rules import UNKNOWN_HASH
from tests.unit.storageversion.world import GROUP, World, open_world

V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
NAME = f"{GROUP}.widgets"
EMPTY: tuple[object, ...] = (
    {},
    {"persistedStorageVersionHashes": []},
    {"persistedStorageVersionHashes": None},
    None,
)


async def recreate_state(world: World, status: object) -> None:
    """Deletes the StorageState and creates it again, as `kubectl create` does: without a status."""
    item = await world.storage.get(state_key(NAME))
    assert item is not None
    state = orjson.loads(item.value)
    state["metadata"] = {"name": f"widgets.{GROUP}", "uid": "made-by-hand"}
    state["status"] = status
    await MemoryStorage.commit(world.storage, Transaction((), (Delete(item.key),)))
    await MemoryStorage.commit(
        world.storage, Transaction((), (Put(item.key, orjson.dumps(state)),))
    )
    await world.clock.advance(1)


@pytest.mark.parametrize("status", EMPTY, ids=str)
async def test_a_state_without_hashes_is_unknown(tmp_path: Path, status: object) -> None:
    """The next registration adds "Unknown"; the store is scanned, and a release that cannot decode
    the
    stored objects does not become ready."""
    async with open_world(tmp_path) as world:
        old = await world.started("x+1")
        await world.run(old.write("a"))
        assert await world.stored("a") == "v1"
        await world.run(old.stop())
        await recreate_state(world, status)
        assert (await world.state()).persisted == (UNKNOWN_HASH,)
        between = await world.started("x+2")
        assert (await world.state()).persisted == (
            UNKNOWN_HASH,
            storage_version_hash(GroupVersionKind.of(V2, "Widget")),
        )
        await world.run(between.stop())
        with pytest.raises(TimeoutError):
            await world.run(world.server("x+3").start(), seconds_max=10)


async def test_a_server_that_joins_again_scans_again(tmp_path: Path) -> None:
    """The results of an earlier incarnation do not cover later writes."""
    async with open_world(tmp_path) as world:
        older = await world.started("x")
        older.line.pause()
        await world.clock.advance(20)
        newer = await world.started("x+2")
        await world.run(newer.write("a"))
        assert await world.stored("a") == "v2"
        await world.run(newer.stop())
        await recreate_state(world, {})
        older.line.wake()
        await world.clock.advance(30)
        assert not older.coordinator.completed
        assert "cannot read (1 in example.com/v2)" in str(
            older.coordinator.pending(older.resource())
        )
