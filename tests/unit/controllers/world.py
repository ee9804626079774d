"""Parts of one server on a store in memory (or any other), with simulated time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import orjson

from restow.aio import Runtime, SimulatedClock, WorkQueue
from restow.apimachinery.status import Conflict
from restow.controllers.object_keys import working_version
from restow.controllers.objects_watch import ChangeObserver, ObjectsWatch
from restow.registry.caches import Caches
from restow.registry.catalog import Catalog, builtin_catalog
from restow.registry.encoding import FixedPolicy
from restow.registry.resource import Resource
from restow.registry.store import DeleteOptions, ResourceStore
from restow.storage.interface import (
    Delete,
    Key,
    Outcome,
    Storage,
    Transaction,
    Watch,
    Write,
)
from restow.storage.memory import MemoryStorage

Object = dict[str, Any]

catalog = cache(builtin_catalog)


class InterruptedStorage(MemoryStorage):
    """A store in which another change happens just before a key is deleted, once."""

    def __init__(self) -> None:
        super().__init__()
        self.interruptions: dict[Key, Callable[[], Awaitable[object]]] = {}

    async def commit(self, transaction: Transaction) -> Outcome:
        for write in transaction.writes:
            interrupt = self.interruptions.pop(write.key, None) if _deletes(write) else None
            if interrupt is not None:
                await interrupt()
        return await super().commit(transaction)


def _deletes(write: Write) -> bool:
    return isinstance(write, Delete)


class World:
    """A store of objects, with helpers for tests."""

    def __init__(self, storage: Storage, clock: SimulatedClock, *, seed: int = 1) -> None:
        self.storage = storage
        self.clock = clock
        self.runtime = Runtime.simulated(seed, clock=clock)
        self.catalog: Catalog = builtin_catalog()  # of its own: custom resources come and go
        self.caches = Caches(storage, self.runtime)
        self.store = ResourceStore(storage, self.caches, FixedPolicy(), self.runtime)

    def kind(self, name: str, group: str = "") -> Resource:
        resource = self.catalog.of_kind(group, name)
        assert resource is not None
        return resource

    async def create(
        self, kind: str, name: str, namespace: str = "", *, group: str = "", **fields: Any
    ) -> Object:
        """Create an object; `metadata` among the fields is merged into its metadata."""
        resource = self.kind(kind, group)
        metadata = {"name": name, **fields.pop("metadata", {})}
        obj = {"metadata": metadata, **fields}
        version = working_version(resource)
        written = await self.store.create(resource, version, obj, namespace=namespace)
        return dict(orjson.loads(written.body))

    async def delete(
        self, kind: str, path: str, *, group: str = "", requested: DeleteOptions | None = None
    ) -> None:
        resource = self.kind(kind, group)
        await self.store.delete(
            resource, working_version(resource), path, requested or DeleteOptions()
        )

    async def get(self, kind: str, path: str, *, group: str = "") -> Object | None:
        item = await self.storage.get(self.kind(kind, group).key_of(path))
        return None if item is None else dict(orjson.loads(item.value))

    async def has(self, kind: str, path: str, *, group: str = "") -> bool:
        return await self.get(kind, path, group=group) is not None

    async def edit(
        self,
        kind: str,
        path: str,
        change: Callable[[Object], None],
        *,
        group: str = "",
        subresource: str = "",
    ) -> None:
        def changed(obj: Object) -> Object:
            change(obj)
            return obj

        resource = self.kind(kind, group)
        version = working_version(resource)
        await self.store.update(
            resource, version, path, changed, subresource=subresource, is_patch=True
        )

    async def observe(self, observer: ChangeObserver) -> Observed:
        watch = ObjectsWatch(self.storage, self.runtime, [observer])
        return Observed(self, watch, await watch.begin())


class Observed:
    """An observer whose events and queue the test processes step by step."""

    def __init__(self, world: World, objects: ObjectsWatch, watch: Watch) -> None:
        self._world = world
        self._objects = objects
        self._watch = watch

    async def catch_up(self) -> None:
        """Pass all pending changes to the observer."""
        revision = await self._world.storage.revision()
        self._watch.expect(revision)
        async for batch in self._watch:
            self._objects.dispatch(batch)
            if batch.revision >= revision:
                return

    async def settle(
        self, queue: WorkQueue[str], reconcile: Callable[[str], Awaitable[float | None]]
    ) -> None:
        """Pass changes and process the queue until no work is left."""
        await self.catch_up()
        while len(queue):
            key = await queue.get()
            try:
                again_seconds = await reconcile(key)
                if again_seconds is not None:
                    queue.add_after(key, again_seconds)
            except Conflict:
                queue.add(key)  # as `run_worker` does, only at once
            finally:
                queue.done(key)
            await self.catch_up()

    async def close(self) -> None:
        await self._watch.close()


@asynccontextmanager
async def open_world(
    storage: Storage | None = None, clock: SimulatedClock | None = None, *, seed: int = 1
) -> AsyncIterator[World]:
    """Open a world on this store, or on a new one."""
    world = World(storage or MemoryStorage(), clock or SimulatedClock(), seed=seed)
    await world.caches.start()
    try:
        yield world
    finally:
        await world.caches.close()
        if storage is None:
            await world.storage.close()
