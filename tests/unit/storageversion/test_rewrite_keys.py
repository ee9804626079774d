"""Rewrites under another encryption key, and values that a rewrite must not encrypt."""

from __future__ import annotations

from pathlib import Path

import orjson

from restow.registry.stored_bytes import encode
from restow.storage.interface import SEALED_PREFIX, Key, Put, Transaction
from restow.storageversion.rewrite import Rewriter
from tests.unit.storageversion.named_keys import NamedKeys, key_id_of, open_any, seal
from tests.unit.storageversion.rewrite_world import ROOT, V1
from tests.unit.storageversion.world import World, open_world


def _stored(name: str) -> bytes:
    return encode({"metadata": {"name": name, "namespace": "ns"}}, V1, "Widget")


async def _plant(world: World, name: str, value: bytes) -> Key:
    key = Key(f"{ROOT}ns/{name}")
    world.storage.planted.add(key)
    await super(type(world.storage), world.storage).commit(Transaction((), (Put(key, value),)))
    return key


async def test_values_under_another_key_are_rewritten(tmp_path: Path) -> None:
    """A page encrypts values under another key again, keeps values under the current key, and names
    those
    that it cannot decrypt. An unencrypted value that is not accepted is not encrypted by the page:
    otherwise a value planted in the store would be served."""
    async with open_world(tmp_path) as world:
        server = await world.started("x+1", keys=NamedKeys(["k2", "k1"]))
        await world.run(server.write("right"))
        old = await _plant(world, "old", seal(key_id_of("k1"), _stored("old")))
        unknown = await _plant(world, "unknown", seal(key_id_of("k9"), _stored("unknown")))
        plain = await _plant(world, "plain", _stored("plain"))
        rewriter = Rewriter(server.store, server.coordinator.policy, world.clock)
        page = await world.run(rewriter.rewrite_page(server.resource(), target_version=V1))
        assert (page.scanned, page.rewritten, page.skipped) == (4, 1, 1)
        assert {failure.key for failure in page.failed} == {unknown, plain}
        item = await world.storage.get(old)
        assert item is not None
        assert open_any(item.value) == (_stored("old"), key_id_of("k2"))
        kept = await world.storage.get(plain)
        assert kept is not None
        assert kept.value == _stored("plain")


async def test_an_update_without_changes_moves_to_the_current_key(tmp_path: Path) -> None:
    """Only the store knows the key of an object: an unchanged object is written once more, with the
    same
    content."""
    async with open_world(tmp_path) as world:
        keys = NamedKeys(["k1"])
        server = await world.started("x+1", keys=keys)
        await world.run(server.write("a", colour="red"))
        keys.change(["k2", "k1"])
        await world.clock.advance(1)
        first = await world.storage.get(Key(f"{ROOT}ns/a"))
        await world.run(server.write("a"))
        second = await world.storage.get(Key(f"{ROOT}ns/a"))
        await world.run(server.write("a"))
        third = await world.storage.get(Key(f"{ROOT}ns/a"))
        assert first is not None
        assert second is not None
        assert second == third
        assert second.revision > first.revision
        assert second.value.startswith(SEALED_PREFIX)
        assert open_any(second.value) == (open_any(first.value).value, key_id_of("k2"))
        assert orjson.loads(open_any(second.value).value)["colour"] == "red"
