"""The rewrite of stored objects into the agreed version: a pass, and its failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.registry.caches import Caches
from restow.registry.catalog import builtin_catalog
from restow.registry.encoding import FixedPolicy
from restow.registry.store import ResourceStore
from restow.registry.stored_bytes import encode
from restow.storage.interface import Event, Key, Put, Revision, Span, Storage, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion import rewrite, rewrite_page
from restow.storageversion.rewrite import Rewriter
from tests.support.storageversion_audit import stored_versions
from tests.unit.storageversion.rewrite_checks import check_failures
from tests.unit.storageversion.rewrite_world import (
    ROOT,
    V2,
    Rewriting,
    fill,
    key_of,
    put_raw,
    rewriting,
    widget,
)


async def history(storage: Storage) -> list[Event]:
    """Returns all changes of the objects."""
    revision = await storage.revision()
    watch = storage.watch(Span.of_prefix(ROOT), after=Revision(1))
    watch.expect(revision)
    events: list[Event] = []
    async for batch in watch:
        events += batch.events
        if batch.revision >= revision:
            break
    await watch.close()
    return events


@pytest.mark.parametrize("mode", ["report", "strict", "loose"])
async def test_a_pass_leaves_nothing_in_another_version(tmp_path: Path, mode: str) -> None:
    """Stale objects are rewritten, others left unchanged; a second pass verifies it."""
    async with rewriting(tmp_path, mode=mode) as it:
        it.world.storage.is_fenced = mode != "loose"
        await fill(it.world, 40)
        for number in range(7):
            await put_raw(it.world, key_of(f"new{number}"), widget(f"new{number}", V2))
        before = await it.world.storage.revision()
        page = await it.page()
        assert (page.scanned, page.rewritten, page.skipped, page.settled) == (47, 40, 7, 0)
        assert (page.next_key, page.failed) == (None, [])
        assert (page.revision, page.epoch) == (before, (await it.world.epoch()).epoch)
        assert page.report_uid
        assert await it.versions() == {V2: 47}
        assert await it.world.storage.revision() == before + 40  # one revision each
        again = await it.page()
        assert (again.scanned, again.rewritten, again.skipped) == (47, 0, 47)
        assert await it.world.storage.revision() == before + 40


async def test_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, by bytes, by time: every object is visited once, and another server can
    continue."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 30)
        pages = await it.whole(limit=7)
        assert [page.scanned for page in pages] == [7, 7, 7, 7, 2]
        assert await it.versions() == {V2: 30}
        await fill(it.world, 30)
        monkeypatch.setattr(rewrite_page, "READ_ITEMS_FIRST", 4)
        assert [page.scanned for page in await it.whole(bytes_max=100)] == [4] * 7 + [2]
        assert await it.versions() == {V2: 30}
        await fill(it.world, 30)
        monkeypatch.setattr(rewrite, "SECONDS_MAX", 0.0)
        first = await it.page()
        assert (first.scanned, first.next_key) == (1, key_of("w001"))
        other = Rewriting(it.world, await it.world.started("x+2"))  # the first has crashed
        while first.next_key is not None:
            first = await other.page(start_key=first.next_key, epoch=first.epoch)
        assert await it.versions() == {V2: 30}


async def test_large_values_are_read_in_small_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of objects per read depends on their size."""
    async with rewriting(tmp_path) as it:
        monkeypatch.setattr(rewrite_page, "READ_ITEMS_FIRST", 2)
        monkeypatch.setattr(rewrite_page, "READ_BYTES", 300)
        await fill(it.world, 12)
        assert (await it.page()).scanned == 12
        reads = [step for step in it.line.trace if step.startswith(f"range {ROOT}")]
        assert 4 <= len(reads) <= 12
        assert all(step.endswith("at None") for step in reads)  # each at the current revision


async def test_nothing_but_the_version_changes(tmp_path: Path) -> None:
    """Managed fields, unknown fields, deletion timestamps, and even the notation of numbers are
    kept."""
    rest = (
        b'"name":"a","namespace":"ns","uid":"u","generation":7,"finalizers":["example.com/hold"],'
        b'"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0,'
        b'"managedFields":[{"manager":"m","apiVersion":"example.com/v1","fieldsV1":{"f:a":{}}}]},'
        b'"spec":{"n":1.10,"big":123456789012345678901234567890,"e":1e2,"null":null},'
        b'"x-unknown":{"apiVersion":"example.com/v1","kind":"K"}}\n'
    )
    head = b'{"kind":"Widget","apiVersion":"example.com/v%d","metadata":{'
    async with rewriting(tmp_path) as it:
        created = await put_raw(it.world, key_of("a"), head % 1 + rest)
        page = await it.page()
        assert page.rewritten == 1
        item = await it.world.storage.get(Key(key_of("a")))
        assert item is not None
        assert item.value == head % 2 + rest
        assert item.created == created
        [_, event] = await history(it.world.storage)
        assert event.previous is not None  # so that watchers see a change, not a new object


async def test_values_of_other_writers_are_normalized(tmp_path: Path) -> None:
    """Fields in another order, duplicated, or with a resource version: read as clients read
    them."""
    values = {
        "order": b'{"metadata":{"name":"order"},"spec":1,"apiVersion":"example.com/v1",'
        b'"kind":"Widget"}',
        "twice": b'{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"twice"},'
        b'"spec":1,"apiVersion":"example.com/v1","apiVersion":"example.com/v1"}',
        "version": b'{"kind":"Widget","apiVersion":"example.com/v1",'
        b'"metadata":{"name":"version","resourceVersion":"3"},"spec":1}',
    }
    async with rewriting(tmp_path) as it:
        for name, value in values.items():
            await put_raw(it.world, key_of(name), value)
        assert (await it.page()).rewritten == 3
        for name in values:
            item = await it.world.storage.get(Key(key_of(name)))
            assert item is not None
            found = orjson.loads(item.value)
            assert found["apiVersion"] == V2
            assert (found["metadata"], found["spec"]) == ({"name": name}, 1)


async def test_a_conversion_that_changes_shape() -> None:
    """A built-in kind is converted, and clients read the same object as before."""
    storage, runtime, catalog = MemoryStorage(), Runtime.simulated(1), builtin_catalog()
    resource = catalog.of_kind("autoscaling", "HorizontalPodAutoscaler")
    assert resource is not None
    caches = Caches(storage, runtime)
    await caches.start()
    store = ResourceStore(storage, caches, FixedPolicy(), runtime)
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 80,
    }
    old = encode(
        {"metadata": {"name": "h", "namespace": "ns", "uid": "u"}, "spec": spec},
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
    )
    key = resource.key_of("ns/h")
    await storage.commit(Transaction(writes=(Put(key, old),)))

    async def seen(version: str) -> Any:
        entry = (await store.read(resource)).get("ns/h")
        assert entry is not None
        obj = store.object_of(resource, entry, version)
        del obj["metadata"]["resourceVersion"]
        return obj

    before = [await seen("autoscaling/v1"), await seen("autoscaling/v2")]
    rewriter = Rewriter(store, FixedPolicy(), runtime.clock)
    page = await rewriter.rewrite_page(resource, target_version=rewriter.target(resource))
    assert (page.rewritten, page.failed) == (1, [])
    assert (page.epoch, page.report_uid) == (0, "")  # there was never an agreement
    assert await stored_versions(storage, resource.root) == {"autoscaling/v2": 1}
    assert [await seen("autoscaling/v1"), await seen("autoscaling/v2")] == before
    await caches.close()
    await storage.close()


async def test_an_unreadable_object_fails_by_name(tmp_path: Path) -> None:
    """It is kept unchanged; the others are rewritten."""
    async with rewriting(tmp_path) as it:
        await check_failures(it)


async def test_an_object_that_always_changes_fails_by_name(tmp_path: Path) -> None:
    """Retries for an object that a writer without a fence changes before each of them are
    bounded."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 2)

        async def write_again(transaction: Transaction) -> None:
            if transaction.writes[0].key == key_of("w001"):
                await put_raw(it.world, key_of("w001"), widget("w001"))

        it.line.before = write_again
        page = await it.page()
        assert (page.rewritten, page.settled) == (1, 0)
        assert [(key, "8 times" in reason) for key, reason in page.failed] == [
            (key_of("w001"), True)
        ]
