"""Checks of a rewrite, applied to the real one, which passes, and to mutants, which fail."""

from __future__ import annotations

import asyncio
import random

import orjson
import pytest

from restow.registry.store import DeleteOptions
from restow.registry.stored_bytes import encode
from restow.storage.interface import Delete, Key, Put, Span, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.records import encoder_key
from restow.storageversion.rewrite_plan import Aborted
from tests.unit.storageversion.rewrite_world import (
    NAME,
    ROOT,
    V1,
    V2,
    Rewriting,
    fill,
    key_of,
    put_raw,
    widget,
)
from tests.unit.storageversion.world import GROUP

UNDECODABLE = {
    "garbage": b"\x00k8s",
    "truncated": widget("truncated")[:-9],
    "truncated-in-target": widget("t", V2)[:-9],
    "no-text": widget("no-text").replace(b"uid-", b"\xff\xfe"),
    "other-kind": encode({"metadata": {"name": "k"}}, V1, "Gadget"),
    "unknown-version": widget("u", f"{GROUP}/v9"),
}


async def check_failures(it: Rewriting) -> None:
    await fill(it.world, 3)
    for name, value in UNDECODABLE.items():
        await put_raw(it.world, key_of(name), value)
    page = await it.page()
    assert (page.scanned, page.rewritten) == (9, 3)
    assert {key: bool(reason) for key, reason in page.failed} == {
        key_of(name): True for name in UNDECODABLE
    }
    for name, value in UNDECODABLE.items():
        item = await it.world.storage.get(Key(key_of(name)))
        assert item is not None
        assert item.value == value


async def check_fence(it: Rewriting) -> None:
    """The encoder key is removed while commits are in flight: none of them succeeds."""
    await fill(it.world, 20)
    gone = asyncio.Event()

    async def take_away(_: Transaction) -> None:
        if not gone.is_set():
            gone.set()
            key = encoder_key(it.server.coordinator.membership.id, NAME)
            await MemoryStorage.commit(it.world.storage, Transaction(writes=(Delete(key),)))

    it.line.before = take_away
    with pytest.raises(Aborted, match="may no longer write"):
        await it.page()
    assert await it.versions() == {V1: 20}


async def check_selection(it: Rewriting) -> None:
    """Another version is selected while commits are in flight: none of them succeeds."""
    await fill(it.world, 20)

    async def select(_: Transaction) -> None:
        put = Put(Key(f"/restow/selected/{NAME}"), V1.encode())
        await MemoryStorage.commit(it.world.storage, Transaction(writes=(put,)))

    it.line.before = select
    with pytest.raises(Aborted):
        await it.page()
    assert await it.versions() == {V1: 20}


async def check_conflict(it: Rewriting) -> None:
    """A writer without a fence writes the old version meanwhile: a changed object is not
    necessarily
    rewritten."""
    await fill(it.world, 4)
    touched: set[str] = set()

    async def touch(transaction: Transaction) -> None:
        key = transaction.writes[0].key
        name = key.rpartition("/")[2]
        if key not in touched:
            touched.add(key)
            version = V2 if name == "w002" else V1
            if name == "w003":
                await MemoryStorage.commit(it.world.storage, Transaction(writes=(Delete(key),)))
            else:
                await put_raw(it.world, key, widget(name, version, spec={"count": 9}))

    it.line.before = touch
    page = await it.page()
    assert (page.rewritten, page.settled, page.failed) == (2, 2, [])
    assert await it.versions() == {V2: 3}
    for name in ("w000", "w001", "w002"):
        item = await it.world.storage.get(Key(key_of(name)))
        assert item is not None
        assert orjson.loads(item.value)["spec"] == {"count": 9}


async def check_concurrent(it: Rewriting, seed: int) -> None:
    """Objects are changed, deleted and recreated through another server during passes."""
    world, chance = it.world, random.Random(seed)
    other = await world.started("x+2")
    await fill(world, 12)
    it.line.chance = random.Random(seed + 1)
    expected: dict[str, int | None] = {f"w{number:03d}": 0 for number in range(12)}

    async def use(name: str) -> None:
        for step in range(1, 5):
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            if expected[name] is not None and chance.random() < 0.3:
                await other.store.delete(other.resource(), "v2", f"ns/{name}", DeleteOptions())
                expected[name] = None
            else:
                await other.write(name, spec={"count": step})
                expected[name] = step

    async def rewrite_twice() -> None:
        for _ in range(2):
            start: str | None = ""
            while start is not None:
                page = await it.rewriter.rewrite_page(
                    it.resource, target_version=V2, start_key=start, limit=5
                )
                assert page.failed == []
                start = page.next_key

    async def run_all() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(rewrite_twice())
            for name in expected:
                group.create_task(use(name))

    await world.run(run_all())
    it.line.chance = None
    found = (await world.storage.range(Span.of_prefix(ROOT))).items
    assert {
        item.key.rpartition("/")[2]: orjson.loads(item.value)["spec"]["count"] for item in found
    } == {name: count for name, count in expected.items() if count is not None}
    assert set(await it.versions()) <= {V2}
