"""The informer: objects of a resource in memory, across drops of its watch cache."""

from __future__ import annotations

from typing import Any

from restow.registry.store_informer import StoreInformer
from restow.storage.interface import Key, Put, Transaction
from restow.storage.memory import MemoryStorage
from tests.unit.controllers.world import World, open_world


class Listener:
    """Records the calls of a listener."""

    def __init__(self, world: World) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.batches = 0
        self.following = StoreInformer(
            world.store,
            world.kind("ConfigMap"),
            world.runtime,
            on_object=self._note,
            on_changed=self._count,
        )

    def _note(self, path: str, obj: dict[str, Any] | None) -> None:
        if obj is None:
            del self.objects[path]
        else:
            self.objects[path] = obj

    def _count(self) -> None:
        self.batches += 1

    def data(self) -> dict[str, Any]:
        return {path: obj.get("data") for path, obj in self.objects.items()}


async def test_initial_objects_additions_and_deletions() -> None:
    """The listener is called for all objects at the start, then once for each change."""
    async with open_world() as world:
        await world.create("ConfigMap", "a", "default", data={"k": "1"})
        mind = Listener(world)
        await mind.following.start()
        assert (mind.data(), mind.batches) == ({"default/a": {"k": "1"}}, 1)
        await world.create("ConfigMap", "b", "default", data={"k": "2"})
        await world.delete("ConfigMap", "default/a")
        await mind.following.freshen()
        assert mind.data() == {"default/b": {"k": "2"}}
        batches = mind.batches
        await world.create("Secret", "other", "default")
        await mind.following.freshen()
        assert mind.batches == batches
        await mind.following.close()


async def test_a_cache_that_is_given_up() -> None:
    """Objects are kept; the next cache is followed, and only differences are reported."""
    async with open_world() as world:
        await world.create("ConfigMap", "a", "default", data={"k": "1"})
        mind = Listener(world)
        await mind.following.start()
        world.store.reload(world.kind("ConfigMap").root)
        assert mind.data() == {"default/a": {"k": "1"}}
        await world.create("ConfigMap", "b", "default", data={"k": "2"})
        await mind.following.freshen()
        while "default/b" not in mind.objects:
            await world.clock.sleep(0)
        assert mind.batches == 2
        await world.delete("ConfigMap", "default/a")
        await mind.following.freshen()
        assert mind.data() == {"default/b": {"k": "2"}}
        await mind.following.close()


async def test_unreadable_values_keep_the_last_object() -> None:
    """An unreadable value does not remove its object from memory."""
    storage = MemoryStorage()
    async with open_world(storage) as world:
        await world.create("ConfigMap", "a", "default", data={"k": "1"})
        mind = Listener(world)
        await mind.following.start()
        key = world.kind("ConfigMap").key_of("default/a")
        await storage.commit(Transaction(writes=(Put(Key(key), b"damaged"),)))
        await world.caches.freshen()
        assert mind.data() == {"default/a": {"k": "1"}}
        world.store.reload(world.kind("ConfigMap").root)
        await world.store.loaded(world.kind("ConfigMap"))
        assert mind.data() == {"default/a": {"k": "1"}}
        await mind.following.close()
