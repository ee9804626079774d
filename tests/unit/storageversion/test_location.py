"""Where objects are stored: servers whose releases give a kind different scopes do not mix.

A namespaced object is stored at `<root>/<namespace>/<name>`, a cluster-scoped one at
`<root>/<name>`: a server with the other scope cannot get, change or delete it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.apimachinery.status_error import StatusError
from restow.apis.names import LOCATIONS_ANNOTATION
from restow.kinds.releases import load_release
from restow.registry.catalog import release_catalog
from restow.storage.interface import Delete, Key, Put, Transaction
from restow.storageversion.object_codec import report_key, state_key
from restow.storageversion.records import decode_epoch, encode_epoch, epoch_key
from restow.storageversion.rules import UNKNOWN_HASH
from tests.unit.storageversion.late_reads import MODES
from tests.unit.storageversion.world import GROUP, Server, World, open_world, write_release

NAME = f"{GROUP}.widgets"
ROOT = f"/registry/{GROUP}/widgets/"
LOCATIONS = {"x+1": f"{ROOT}{{namespace}}/{{name}}", "x+1 cluster": f"{ROOT}{{name}}"}
KEYS = {"x+1": f"{ROOT}ns/a", "x+1 cluster": f"{ROOT}a"}
PAIRS = [("x+1", "x+1 cluster"), ("x+1 cluster", "x+1")]
TRY_SECONDS = 10.0


def add_cluster_scoped(world: World, directory: Path) -> None:
    """A release like x+1 in which widgets are cluster-scoped."""
    path = write_release(directory / "cluster.yaml", "x+1", scope="Cluster")
    world.catalogs["x+1 cluster"] = release_catalog(load_release(path))


async def create(world: World, server: Server, name: str) -> None:
    resource = server.resource()
    namespace = "ns" if resource.kind.namespaced else ""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    version = resource.served[0]
    obj: dict[str, Any] = {"metadata": metadata}
    await world.run(server.store.create(resource, version, obj, namespace=namespace))


async def refused(world: World, release: str, mode: str) -> Server:
    """Returns a server that starts and does not become ready."""
    server = world.server(release, mode=mode)
    with pytest.raises(TimeoutError):
        await world.run(server.start(), seconds_max=TRY_SECONDS)
    with pytest.raises(StatusError) as error:
        await create(world, server, "b")
    assert error.value.code == 503
    return server


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_servers_with_different_scopes_do_not_register_concurrently(
    tmp_path: Path, mode: str, first: str, second: str
) -> None:
    """The second one reports both locations. After the first one has stopped, the second one finds
    the
    objects stored meanwhile; it registers when none remains."""
    async with open_world(tmp_path) as world:
        add_cluster_scoped(world, tmp_path)
        world.storage.is_fenced = mode != "loose"
        one = await world.started(first, mode=mode)
        two = await refused(world, second, mode)
        why = two.coordinator.pending(two.resource()) or ""
        assert f"{one.id} stores widgets.{GROUP} at {LOCATIONS[first]}" in why
        assert LOCATIONS[second] in why
        await create(world, one, "a")
        await world.run(one.stop())
        await world.clock.advance(TRY_SECONDS)
        assert KEYS[first] in (two.coordinator.pending(two.resource()) or "")
        world.storage.is_fenced = False
        await world.storage.commit(Transaction((), (Delete(Key(KEYS[first])),)))
        await world.clock.advance(TRY_SECONDS)
        assert two.coordinator.completed
        await create(world, two, "a")
        assert await world.storage.get(Key(KEYS[second])) is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("is_verified", [True, False])
async def test_a_server_that_starts_alone_finds_objects_of_the_other_scope(
    tmp_path: Path, mode: str, first: str, second: str, is_verified: bool
) -> None:
    """It does not register, and names the objects, also if the StorageState lists exactly one
    version,
    as after a verified migration. A server with the right scope starts normally."""
    async with open_world(tmp_path) as world:
        add_cluster_scoped(world, tmp_path)
        world.storage.is_fenced = mode != "loose"
        one = await world.started(first, mode=mode)
        await create(world, one, "a")
        if is_verified:
            await narrow(world)
        await world.run(one.stop())
        two = await refused(world, second, mode)
        why = two.coordinator.pending(two.resource()) or ""
        assert "has 1 values under keys of another scope" in why
        assert KEYS[first] in why
        assert LOCATIONS[second] in why
        await two.kill()
        three = await world.started(first, mode=mode)
        await create(world, three, "b")


async def test_a_verified_resource_is_not_scanned_when_its_location_is_known(
    tmp_path: Path,
) -> None:
    """The recorded location makes the scan unnecessary: a value that only a scan finds is not
    found."""
    async with open_world(tmp_path) as world:
        one = await world.started("x+1")
        await create(world, one, "a")
        await narrow(world)
        await world.run(one.stop())
        await plant(world, f"{ROOT}misplaced")
        two = await world.started("x+1")
        assert two.coordinator.completed


@pytest.mark.parametrize("second", LOCATIONS)
async def test_entries_of_earlier_releases_have_no_location(tmp_path: Path, second: str) -> None:
    """They are assumed to be those of this server. As no location is recorded, the store is
    scanned: a
    server with the same scope registers, one with another does not."""
    async with open_world(tmp_path) as world:
        add_cluster_scoped(world, tmp_path)
        one = await world.started("x+1")
        await create(world, one, "a")
        await narrow(world)
        await forget_locations(world)
        if second == "x+1":
            two = await world.started(second)
            await create(world, two, "b")
            assert (await world.epoch()).location == LOCATIONS[second]
        else:
            two = await refused(world, second, "report")
            assert KEYS["x+1"] in (two.coordinator.pending(two.resource()) or "")


async def plant(world: World, key: str) -> None:
    """Writes an object to the store directly."""
    world.storage.planted.add(Key(key))
    world.storage.is_fenced = False
    value = b'{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"planted"}}'
    await world.storage.commit(Transaction((), (Put(Key(key), value),)))


async def narrow(world: World) -> None:
    """Sets the StorageState as after a verified migration."""
    item = await world.storage.get(state_key(NAME))
    assert item is not None
    state = orjson.loads(item.value)
    hashes = state["status"]["persistedStorageVersionHashes"]
    state["status"]["persistedStorageVersionHashes"] = [h for h in hashes if h != UNKNOWN_HASH]
    await world.storage.commit(Transaction((), (Put(item.key, orjson.dumps(state)),)))
    await world.clock.settle()


async def forget_locations(world: World) -> None:
    """Rewrites entries and epoch as servers without locations wrote them."""
    report = await world.storage.get(report_key(NAME))
    epoch = await world.storage.get(epoch_key(NAME))
    assert report is not None
    assert epoch is not None
    obj, record = orjson.loads(report.value), decode_epoch(epoch.value)
    del obj["metadata"]["annotations"][LOCATIONS_ANNOTATION]
    old = encode_epoch(type(record)(epoch=record.epoch, kind=record.kind, version=record.version))
    writes = (Put(report.key, orjson.dumps(obj)), Put(epoch.key, old))
    await world.storage.commit(Transaction((), writes))
    await world.clock.settle()
