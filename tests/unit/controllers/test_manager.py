"""All controllers together: servers that start, work, crash and stop."""

import asyncio
from pathlib import Path

import pytest

from restow.aio import Runtime, SimulatedClock
from restow.controllers import (
    ControllerManager,
    ControllerManagerOptions,
    CrdControllerOptions,
    EndpointAddress,
    ProxyTrust,
)
from restow.controllers.crds import Wake
from restow.storage.errors import Unavailable
from restow.storage.interface import Item, Key, Put, Revision, Span, Transaction
from restow.storage.memory import MemoryStorage
from restow.storage.sqlite import open_sqlite
from tests.unit.controllers.custom import (
    GROUP,
    conditions,
    define,
    host,
    is_defined,
    make,
    undefine,
)
from tests.unit.controllers.world import World, open_world


def controller_manager(world: World, name: str, *, address_of: str = "") -> ControllerManager:
    address = EndpointAddress(f"10.0.0.{ord(address_of or name)}", 6443)
    options = ControllerManagerOptions(server_id=name, address=address, certificates="CA")
    return ControllerManager(world.storage, world.store, world.catalog, world.runtime, options)


async def test_a_server_does_it_all() -> None:
    """From an empty store: namespaces, accounts, the service; then a deletion with dependents."""
    async with open_world() as world:
        keeping = controller_manager(world, "a")
        await keeping.start()
        await world.clock.advance(2)
        assert keeping.is_leading
        assert await world.has("ServiceAccount", "kube-system/default")
        assert await world.has("Endpoints", "default/kubernetes")

        await world.create("Namespace", "n")
        owner = await world.create("ConfigMap", "owner", "n")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
        reference["uid"] = owner["metadata"]["uid"]
        await world.create("Secret", "s", "n", metadata={"ownerReferences": [reference]})
        await world.delete("ConfigMap", "n/owner")
        await world.clock.advance(1)
        assert not await world.has("Secret", "n/s")
        await world.delete("Namespace", "n")
        await world.clock.advance(1)
        assert not await world.has("Namespace", "n")
        assert not await world.has("ServiceAccount", "n/default")
        await keeping.close()
        assert not keeping.is_leading


async def test_renewed_authorities_reach_namespaces() -> None:
    """Reloaded CA certificates are in each namespace after the next resync."""
    async with open_world() as world:
        keeping = controller_manager(world, "a")
        await keeping.start()
        await world.clock.advance(2)
        path = "default/kube-root-ca.crt"
        found = await world.get("ConfigMap", path)
        assert found is not None
        assert found["data"] == {"ca.crt": "CA"}
        keeping.take_certificates("NEW", ProxyTrust(client_ca_pem=""))
        await world.clock.advance(301)
        found = await world.get("ConfigMap", path)
        assert found is not None
        assert found["data"] == {"ca.crt": "NEW"}
        await keeping.close()


async def test_definitions_live_and_die() -> None:
    """Names, establishment by all servers, deletion with instances; no listener remains.

    A listener simulates the server that hosts accepted CRDs.
    """
    async with open_world() as world:
        served: set[str] = set()
        told: list[Wake | None] = []
        options = CrdControllerOptions(
            served_by_all=lambda _group, _plural, uid: uid in served, wake=told.append
        )
        keeping = ControllerManager(
            world.storage,
            world.store,
            world.catalog,
            world.runtime,
            ControllerManagerOptions(server_id="a"),
            definitions=options,
        )
        await keeping.start()
        name = await define(world, "widgets", "Widget")
        await world.clock.advance(1)
        assert (await conditions(world, name))["Established"] == ("False", "Installing")
        resource = await host(world, name)
        assert resource.origin is not None
        served.add(resource.origin.uid)
        wake = told[-1]
        assert wake is not None
        wake(GROUP, "widgets")
        await world.clock.advance(0)
        assert (await conditions(world, name))["Established"][0] == "True"

        await world.create("Namespace", "n")
        owner = await make(world, "owner", "n")
        reference = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "name": "owner"}
        reference["uid"] = owner["metadata"]["uid"]
        await world.create("Secret", "s", "n", metadata={"ownerReferences": [reference]})
        await undefine(world, name)
        await world.clock.advance(2)
        assert not await is_defined(world, name)
        assert not await world.has("Widget", "n/owner", group=GROUP)
        assert not await world.has("Secret", "n/s")
        await keeping.close()
        assert told[-1] is None
        assert list(world.catalog.changed) == []


async def test_many_definitions_at_once_cost_the_same_each() -> None:
    """Many CRDs in one group: each is created, accepted and established in three writes, and one
    more for the APIService of the group."""
    async with open_world() as world:
        keeping = controller_manager(world, "a")
        await keeping.start()
        await world.clock.advance(1)
        before = await world.storage.revision()
        names = [await define(world, f"w{number}s", f"W{number}") for number in range(150)]
        await world.clock.advance(0.1)
        assert await world.storage.revision() - before == 3 * len(names) + 1
        assert (await conditions(world, names[-1]))["Established"][0] == "True"
        for name in names:
            await undefine(world, name)
        await world.clock.advance(0.1)
        assert not any([await is_defined(world, name) for name in names])
        await keeping.close()


async def test_another_server_goes_on_when_one_stops_or_dies() -> None:
    """Another server takes over the controllers, after a clean stop and after a crash."""
    clock, storage = SimulatedClock(), MemoryStorage()
    async with (
        open_world(storage, clock) as one,
        open_world(storage, clock, seed=2) as two,
        open_world(storage, clock, seed=3) as three,
    ):
        first, second, third = (
            controller_manager(world, name)
            for world, name in ((one, "a"), (two, "b"), (three, "c"))
        )
        for each in (first, second, third):
            await each.start()
            await clock.advance(1)
        assert [each.is_leading for each in (first, second, third)] == [True, False, False]
        await first.close()
        await clock.advance(8)
        assert second.is_leading != third.is_leading
        holder, other = (second, third) if second.is_leading else (third, second)
        await holder._tasks.close()  # releases the lock, but its address stays: a crash
        await clock.advance(30)
        assert other.is_leading
        found = await one.get("Endpoints", "default/kubernetes")
        assert found is not None
        assert len(found["subsets"][0]["addresses"]) == 1
        await other.close()


async def test_trouble_with_the_store_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """While the store is unavailable, controllers wait and retry, and then continue."""

    class Troubled(MemoryStorage):
        fails = False

        async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
            if self.fails:
                raise Unavailable("no response")
            return await super().get(key, revision=revision)

    storage, clock = Troubled(), SimulatedClock()
    async with open_world(storage, clock) as world:
        keeping = controller_manager(world, "a")
        await keeping.start()
        await clock.advance(1)
        storage.fails = True
        await world.create("Namespace", "n")
        await clock.advance(120)
        assert not await MemoryStorage.get(storage, Key("/registry/serviceaccounts/n/default"))
        storage.fails = False
        await clock.advance(120)
        assert await world.has("ServiceAccount", "n/default")
        assert "no response" in caplog.text
        await keeping.close()


async def test_history_is_compacted_and_idle_work_is_small() -> None:
    """An idle hour costs a bounded number of revisions, and history is compacted."""
    async with open_world() as world:
        keeping = controller_manager(world, "a")
        await keeping.start()
        await world.clock.advance(10)
        before = await world.storage.revision()
        await world.clock.advance(3600)
        after = await world.storage.revision()
        assert after - before <= 2 * 3600 / 5 + 10
        assert isinstance(world.storage, MemoryStorage)
        assert len(world.storage._log) <= 2 * 700 / 5
        await keeping.close()


async def test_it_works_on_sqlite_in_real_time(tmp_path: Path) -> None:
    """The same on SQLite, whose responses take a moment."""
    from restow.registry.caches import Caches
    from restow.registry.encoding import FixedPolicy
    from restow.registry.store import DeleteOptions, ResourceStore
    from tests.unit.controllers.world import catalog

    runtime = Runtime.system()
    storage = await open_sqlite(tmp_path / "store.db", runtime)
    caches = Caches(storage, runtime)
    await caches.start()
    store = ResourceStore(storage, caches, FixedPolicy(), runtime)
    options = ControllerManagerOptions(server_id="a", address=EndpointAddress("10.0.0.1", 6443))
    keeping = ControllerManager(storage, store, catalog(), runtime, options)
    await keeping.start()
    namespaces = catalog().of_kind("", "Namespace")
    config_maps = catalog().of_kind("", "ConfigMap")
    assert namespaces is not None
    assert config_maps is not None
    await store.create(namespaces, "v1", {"metadata": {"name": "n"}}, namespace="")
    for number in range(20):
        obj = {"metadata": {"name": f"c{number}"}}
        await store.create(config_maps, "v1", obj, namespace="n")
    await store.delete(namespaces, "v1", "n", DeleteOptions())
    watch = storage.watch(Span.of_key(namespaces.key_of("n")), after=Revision(1))
    async with asyncio.timeout(10):
        async for batch in watch:
            if batch.events[-1].value is None:
                break
    await watch.close()
    assert (await store.read(config_maps)).count("n/") == 0
    await keeping.close()
    assert await storage.get(Key("/restow/turns/housekeeping")) is None
    await caches.close()
    await storage.close()


async def test_a_server_that_comes_back_need_not_wait_for_itself() -> None:
    """A server with the address of a killed one takes its lock at once; others wait."""
    storage, clock = MemoryStorage(), SimulatedClock()
    async with open_world(storage, clock) as one, open_world(storage, clock, seed=2) as two:
        killed = controller_manager(one, "a")
        await killed.start()
        await clock.advance(1)
        assert killed.is_leading
        lock = await storage.get(Key("/restow/turns/housekeeping"))
        address = await storage.get(Key("/restow/addresses/a"))
        assert lock is not None
        assert address is not None
        await killed.close()
        # As if it had crashed before it released them.
        left = (Put(lock.key, lock.value), Put(address.key, address.value))
        await storage.commit(Transaction((), left))

        other, again = controller_manager(two, "b"), controller_manager(one, "c", address_of="a")
        await other.start()
        await clock.advance(1)
        assert not other.is_leading
        await again.start()
        await clock.advance(1)
        assert again.is_leading
        assert not other.is_leading
        await again.close()
        await other.close()
