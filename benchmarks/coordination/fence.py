"""CPU time of a write with the fence, compared to the same write without it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from benchmarks.rounds import Comparison, measure_both
from restow.aio import Runtime
from restow.kinds.releases import shipped_release
from restow.registry.caches import Caches
from restow.registry.catalog import release_catalog
from restow.registry.encoding import FixedPolicy
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.storage.interface import Storage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.membership import MembershipOptions

WRITERS = 16
NAMESPACE = "default"
DATA = {f"field-{number}": "x" * 30 for number in range(20)}


@dataclass(frozen=True, slots=True)
class Stores:
    """One store, written in two ways."""

    fenced: ResourceStore
    plain: ResourceStore
    widgets: Resource


async def measure(storage: Storage, *, rounds: int, each: int) -> Comparison:
    """Microseconds of CPU for one update, with the fence and without."""
    async with _opened(storage) as stores:
        for number in range(WRITERS):
            obj = {"metadata": {"name": f"w{number}", "namespace": NAMESPACE}, "spec": DATA}
            await stores.fenced.create(stores.widgets, "v1", obj, namespace=NAMESPACE)
        for store in (stores.fenced, stores.plain):
            await _write(store, stores.widgets, each=each)  # warm-up
        return await measure_both(
            lambda: _write(stores.fenced, stores.widgets, each=each),
            lambda: _write(stores.plain, stores.widgets, each=each),
            rounds=rounds,
        )


@asynccontextmanager
async def _opened(storage: Storage) -> AsyncIterator[Stores]:
    runtime = Runtime.system()
    catalog = release_catalog(shipped_release("x+1"))
    options = CoordinatorOptions(membership=MembershipOptions(host="bench"))
    coordinator = Coordinator(storage, catalog, runtime, options)
    caches = Caches(storage, runtime)
    await caches.start()
    await coordinator.start()
    widgets = catalog.of_kind("example.com", "Widget")
    assert widgets is not None
    try:
        yield Stores(
            ResourceStore(storage, caches, coordinator.policy, runtime),
            ResourceStore(storage, caches, FixedPolicy(), runtime),
            widgets,
        )
    finally:
        await coordinator.close()
        await caches.close()


async def _write(store: ResourceStore, widgets: Resource, *, each: int) -> float:
    """Microseconds of CPU, of all threads, for one update."""

    async def write(writer: int) -> None:
        for number in range(each):
            change = _counting(number)
            await store.update(widgets, "v1", f"{NAMESPACE}/w{writer}", change, is_patch=True)

    begin = time.process_time()
    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
    return (time.process_time() - begin) / (WRITERS * each) * 1e6


def _counting(number: int) -> Callable[[Object], Object]:
    """Return an update function that always changes the object."""
    return lambda obj: {**obj, "status": {"count": f"{time.monotonic_ns()}-{number}"}}
