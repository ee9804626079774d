"""The service `kubernetes` lists the live servers."""

from typing import Any

import pytest

from restow.aio import SimulatedClock
from restow.controllers.endpoints import EndpointsController
from restow.controllers.server_addresses import ADDRESSES_PREFIX, EndpointAddress, EndpointAddresses
from restow.storage.interface import Delete, Key, Put, Transaction
from restow.storage.memory import MemoryStorage
from tests.unit.controllers.world import World, open_world

DISCOVERY = "discovery.k8s.io"


def server(world: World, name: str, ip: str, port: int = 6443) -> EndpointsController:
    addresses = EndpointAddresses(
        world.storage, world.runtime, server_id=name, own=EndpointAddress(ip, port)
    )
    return EndpointsController(world.store, world.catalog, addresses)


async def subsets(world: World) -> list[Any]:
    found = await world.get("Endpoints", "default/kubernetes")
    assert found is not None
    return list(found.get("subsets") or [])


async def slices(world: World) -> dict[str, tuple[str, int, list[str]]]:
    cache = await world.store.read(world.kind("EndpointSlice", DISCOVERY))
    found = {}
    for path in cache.select("default/").keys:
        obj = await world.get("EndpointSlice", path, group=DISCOVERY)
        assert obj is not None
        ips = [each["addresses"][0] for each in obj["endpoints"]]
        found[path] = (obj["addressType"], obj["ports"][0]["port"], ips)
    return found


async def test_one_server_makes_the_three_objects() -> None:
    """Service, Endpoints and EndpointSlice are created, as in Kubernetes."""
    async with open_world() as world:
        await server(world, "a", "10.0.0.1").step()
        service = await world.get("Service", "default/kubernetes")
        assert service is not None
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["ipFamilies"] == ["IPv4"]
        assert service["spec"]["ipFamilyPolicy"] == "SingleStack"
        [port] = service["spec"]["ports"]
        assert (port["name"], port["port"], port["targetPort"]) == ("https", 443, 6443)
        assert await subsets(world) == [
            {
                "addresses": [{"ip": "10.0.0.1"}],
                "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
            }
        ]
        assert await slices(world) == {"default/kubernetes": ("IPv4", 6443, ["10.0.0.1"])}
        found = await world.get("EndpointSlice", "default/kubernetes", group=DISCOVERY)
        assert found is not None
        assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "kubernetes"


async def test_servers_come_and_go() -> None:
    """Each server adds itself; one that stops cleanly is removed at once."""
    async with open_world() as world:
        one, two = server(world, "a", "10.0.0.1"), server(world, "b", "10.0.0.2")
        await one.step()
        await two.step()
        assert await slices(world) == {
            "default/kubernetes": ("IPv4", 6443, ["10.0.0.1", "10.0.0.2"])
        }
        await one.withdraw()
        assert await slices(world) == {"default/kubernetes": ("IPv4", 6443, ["10.0.0.2"])}
        revision = await world.storage.revision()
        await two.step()
        assert await world.storage.revision() == revision + 1, "only the renewal is written"


async def test_servers_on_different_ports_and_families_have_slices_of_their_own() -> None:
    """Ports and families have separate slices, and unused slices are deleted."""
    async with open_world() as world:
        servers = [
            server(world, "a", "127.0.0.1", 7001),
            server(world, "b", "127.0.0.1", 7002),
            server(world, "c", "::1", 7001),
        ]
        for each in servers:
            await each.step()
        assert await slices(world) == {
            "default/kubernetes": ("IPv4", 7001, ["127.0.0.1"]),
            "default/kubernetes-ipv4-7002": ("IPv4", 7002, ["127.0.0.1"]),
            "default/kubernetes-ipv6-7001": ("IPv6", 7001, ["::1"]),
        }
        assert [each["ports"][0]["port"] for each in await subsets(world)] == [7001, 7002]
        await servers[0].withdraw()
        await servers[1].withdraw()
        for _ in range(2):
            await servers[2].step()
        assert await slices(world) == {"default/kubernetes": ("IPv6", 7001, ["::1"])}


async def test_a_dead_server_is_dropped_after_the_duration() -> None:
    """A peer removes an address that was not renewed; a live server adds its address again."""
    clock, storage = SimulatedClock(), MemoryStorage()
    async with open_world(storage, clock) as world:
        dead, alive = server(world, "a", "10.0.0.1"), server(world, "b", "10.0.0.2")
        await dead.step()
        for _ in range(3):
            await alive.step()
            await clock.advance(4.9)
        assert len((await subsets(world))[0]["addresses"]) == 2
        await clock.advance(0.4)
        await alive.step()
        assert (await subsets(world))[0]["addresses"] == [{"ip": "10.0.0.2"}]
        await dead.step()
        assert len((await subsets(world))[0]["addresses"]) == 2, "the server was only paused"


async def test_changed_endpoints_are_restored() -> None:
    """Deleted or changed objects are restored; slices of other controllers are not changed."""
    async with open_world() as world:
        one = server(world, "a", "10.0.0.1")
        await one.step()
        await world.create(
            "EndpointSlice",
            "kubernetes-mine",
            "default",
            group=DISCOVERY,
            addressType="IPv4",
            endpoints=[],
            ports=[{"port": 1}],
        )
        await world.delete("Service", "default/kubernetes")
        await world.edit("Endpoints", "default/kubernetes", lambda obj: obj.update(subsets=[]))
        await world.delete("EndpointSlice", "default/kubernetes", group=DISCOVERY)
        await one.step()
        assert await world.has("Service", "default/kubernetes")
        assert len(await subsets(world)) == 1
        assert set(await slices(world)) == {"default/kubernetes", "default/kubernetes-mine"}


async def test_keys_that_say_nothing_are_removed() -> None:
    """A value that is not an address is removed and has no other effect."""
    async with open_world() as world:
        for number, value in enumerate((b"", b"[]", b'{"address":"x","port":1}')):
            key = Key(f"{ADDRESSES_PREFIX}bad{number}")
            await world.storage.commit(Transaction((), (Put(key, value),)))
        one = server(world, "a", "10.0.0.1")
        await one.step()
        assert len((await subsets(world))[0]["addresses"]) == 1
        assert await world.storage.get(Key(f"{ADDRESSES_PREFIX}bad1")) is None
        await world.storage.commit(Transaction((), (Delete(Key(f"{ADDRESSES_PREFIX}a")),)))
        await one.step()
        assert await world.storage.get(Key(f"{ADDRESSES_PREFIX}a")) is not None


def test_only_ip_addresses_can_be_published() -> None:
    """A host name is rejected when the server starts, not at the first write."""
    with pytest.raises(ValueError, match="not appear to be an IPv4 or IPv6 address"):
        _ = EndpointAddress("localhost", 1).family


async def test_labels_are_put_right() -> None:
    """Required labels are restored; additional labels stay."""
    async with open_world() as world:
        controller = server(world, "a", "10.0.0.1")
        await controller.step()
        for kind, group in (("Endpoints", ""), ("EndpointSlice", DISCOVERY)):
            await world.edit(
                kind,
                "default/kubernetes",
                lambda obj: obj["metadata"].update(labels={"mine": "too"}),
                group=group,
            )
        await controller.step()
        endpoints = await world.get("Endpoints", "default/kubernetes")
        found = await world.get("EndpointSlice", "default/kubernetes", group=DISCOVERY)
        assert endpoints is not None
        assert found is not None
        mine = {"mine": "too"}
        skipped = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        assert endpoints["metadata"]["labels"] == {**mine, **skipped}
        assert found["metadata"]["labels"] == {**mine, "kubernetes.io/service-name": "kubernetes"}
