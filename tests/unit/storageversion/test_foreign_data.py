"""Servers that do not participate, and values in the store that cannot be decoded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.version_hash import storage_version_hash
from restow.request.protobuf_messages import message_of
from restow.storage.interface import Delete, Key, Put, Span, Transaction, Write
from restow.storage.memory import MemoryStorage
from restow.storageversion.identity import SERVERS_PREFIX
from restow.storageversion.object_codec import LEASES_PREFIX, REPORTS_PREFIX, report_key, state_key
from restow.storageversion.records import EPOCHS_PREFIX, epoch_key, selected_key
from restow.storageversion.rules import UNKNOWN_HASH
from tests.unit.storageversion.world import GROUP, World, open_world

V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
NAME = f"{GROUP}.widgets"
LEASE_SECONDS = 15


async def plant(world: World, *writes: Write) -> None:
    """Writes to the store directly."""
    await MemoryStorage.commit(world.storage, Transaction((), writes))


def in_protobuf(value: bytes) -> bytes:
    """Encodes a built-in object as kube-apiserver stores it by default."""
    message = message_of(value)
    assert message is not None
    return message


def foreign_lease(seconds: int) -> bytes:
    """Returns the lease of a real kube-apiserver."""
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    return orjson.dumps(
        {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": "k", "namespace": "kube-system", "labels": labels},
            "spec": {"leaseDurationSeconds": seconds},
        }
    )


@pytest.mark.parametrize("form", ["json", "protobuf"])
async def test_a_foreign_server_ends_the_agreement_until_its_lease_expires(
    tmp_path: Path, form: str
) -> None:
    """Its lease is observed by the watch, and removed when it was not renewed for its duration. A
    real
    kube-apiserver stores it in protobuf."""
    lease = foreign_lease(60)
    if form == "protobuf":
        lease = in_protobuf(lease)
    async with open_world(tmp_path) as world:
        await world.started("x+1")
        await world.clock.advance(5)
        await plant(world, Put(Key(f"{LEASES_PREFIX}k"), lease))
        await world.clock.advance(1)
        report = await world.report()
        assert report is not None
        assert (report.common_version, report.conditions[0].reason) == (None, "UnfencedServer")
        await world.clock.advance(70)
        assert await world.common() == V1
        assert await world.storage.get(Key(f"{LEASES_PREFIX}k")) is None


async def test_registration_reads_the_versions_of_values_in_protobuf(tmp_path: Path) -> None:
    """A built-in kind stored by kube-apiserver in a known version is registered and read; one in an
    unknown version prevents its registration."""
    config_map = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}
    deployment = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "a"}}
    unknown = in_protobuf(orjson.dumps(deployment)).replace(b"apps/v1", b"apps/v9")
    async with open_world(tmp_path) as world:
        configured, deployed = Key("/registry/configmaps/ns/a"), Key("/registry/deployments/ns/a")
        world.storage.planted |= {configured, deployed}
        await plant(
            world,
            Put(configured, in_protobuf(orjson.dumps(config_map))),
            Put(deployed, unknown),
        )
        server = world.server("x+1")
        with pytest.raises(TimeoutError):
            await world.run(server.start(), seconds_max=10)
        table = server.coordinator.table
        config_maps, deployments = (
            server.catalog.named(group, plural)
            for group, plural in (("", "configmaps"), ("apps", "deployments"))
        )
        assert config_maps is not None
        assert deployments is not None
        assert table.find(config_maps) is not None
        assert "1 in apps/v9" in (table.pending(deployments) or "")


async def test_versions_stored_by_a_server_that_does_not_report_are_unknown(tmp_path: Path) -> None:
    """A narrowed state becomes unknown while a server writes without a report, so a server that
    cannot
    decode the values scans, and does not register."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        new = await world.started("x+2")
        await world.run(new.write("a"))
        item = await world.storage.get(state_key(NAME))
        assert item is not None
        state = orjson.loads(item.value)
        state["status"]["persistedStorageVersionHashes"] = [
            storage_version_hash(GroupVersionKind.of(V2, "Widget"))
        ]
        await plant(world, Put(item.key, orjson.dumps(state)))
        await world.clock.advance(1)
        unreporting = await world.started("x+1", mode="off", may_change_mode=True)
        await world.run(unreporting.write("b"))
        assert await world.stored("b") == "v1"
        assert UNKNOWN_HASH in (await world.state()).persisted
        await world.run(unreporting.stop())
        await world.run(new.stop())
        with pytest.raises(TimeoutError):
            await world.run(world.server("x+3").start(), seconds_max=10)


async def test_a_server_without_a_fence_writes_only_while_it_is_a_member(tmp_path: Path) -> None:
    """After a pause in which the others agreed, it must rejoin, which ends the agreement, before
    its next
    write commits."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        await world.started("x+1")
        unreporting = await world.started("x+2", mode="off", may_change_mode=True)
        assert await world.common() is None
        unreporting.line.pause()
        late = asyncio.ensure_future(unreporting.create("late"))
        await world.clock.advance(LEASE_SECONDS + 3)
        assert await world.common() == V1
        unreporting.line.wake()
        await world.run(late)
        assert await world.stored("late") == "v2"
        assert await world.common() is None


async def test_a_rejoined_loose_server_waits_for_its_older_writes(tmp_path: Path) -> None:
    """It is not reported under a new identity before its writes under the old one have ended."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        await world.started("x+1", mode="loose")
        paused = await world.started("x+1", mode="loose")
        paused.line.pause()
        await world.clock.advance(LEASE_SECONDS + 3)
        paused.line.wake()
        await world.clock.advance(15)
        assert not paused.coordinator.completed
        await world.clock.advance(30)
        assert paused.coordinator.completed


@pytest.mark.parametrize("value", [b"not json", b"\xff\xfe", b"{}", b'{"epoch":"x"}', b"[]"])
@pytest.mark.parametrize(
    "key",
    [
        report_key("aaa.garbage"),
        Key(f"{EPOCHS_PREFIX}aaa.garbage"),
        state_key("aaa.garbage"),
        Key(f"{LEASES_PREFIX}aaa"),
        selected_key("core.secrets"),
        Key("/restow/encoders/aaa"),
    ],
)
async def test_malformed_values_in_the_store_stop_no_server(
    tmp_path: Path, key: Key, value: bytes
) -> None:
    """Servers start, continue, and collect expired servers nevertheless."""
    async with open_world(tmp_path) as world:
        first = await world.started("x+1", mode="strict")
        await plant(world, Put(key, value))
        await world.clock.advance(1)
        second = await world.started("x+1", mode="strict")
        await world.run(second.write("a"))
        victim, survivor = sorted([first, second], key=lambda server: server.id)
        await victim.kill()
        await world.clock.advance(LEASE_SECONDS + 35)
        report = await world.report()
        assert report is not None
        assert [entry.server_id for entry in report.entries] == [survivor.id]
        await world.run(survivor.write("b"))
        await plant(world, Delete(key))


async def test_a_server_with_an_unreadable_record_counts_until_it_expires(
    tmp_path: Path,
) -> None:
    """It may write any version, so there is no agreement; finally it is removed."""
    async with open_world(tmp_path) as world:
        await world.started("x+1")
        await plant(world, Put(Key(f"{SERVERS_PREFIX}aaa"), b"not json"))
        await world.clock.advance(1)
        assert await world.common() is None
        await world.clock.advance(70)
        assert await world.common() == V1


async def test_a_record_with_an_endless_lease_does_not_block_the_collection(
    tmp_path: Path,
) -> None:
    """An inactive server with the lowest ID is skipped."""
    async with open_world(tmp_path) as world:
        servers = [await world.started("x+1") for _ in range(2)]
        record = {
            "incarnation": "0",
            "component": "kube-apiserver",
            "host": "h",
            "mode": "report",
            "lease_seconds": 1e12,
        }
        await plant(world, Put(Key(f"{SERVERS_PREFIX}aaa"), orjson.dumps(record)))
        await servers[0].kill()
        await world.clock.advance(LEASE_SECONDS + 3)
        report = await world.report()
        assert report is not None
        assert [entry.server_id for entry in report.entries] == [servers[1].id]


async def test_an_empty_storage_version_created_by_a_client_is_removed(
    tmp_path: Path,
) -> None:
    """It is removed, and no epoch of an unknown kind remains."""
    async with open_world(tmp_path) as world:
        await world.started("x+1")
        empty = orjson.dumps(
            {
                "kind": "StorageVersion",
                "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
                "metadata": {"name": "example.com.gizmos"},
                "spec": {},
                "status": {},
            }
        )
        await plant(world, Put(report_key("example.com.gizmos"), empty))
        await world.clock.advance(1)
        found = (await world.storage.range(Span.of_prefix(REPORTS_PREFIX))).items
        assert "example.com.gizmos" not in {item.key.rpartition("/")[2] for item in found}
        assert await world.storage.get(epoch_key("example.com.gizmos")) is None


async def test_an_entry_with_an_invalid_version_blocks_only_its_resource(
    tmp_path: Path,
) -> None:
    """The server reports the reason, and opens all other resources."""
    async with open_world(tmp_path, kinds=("Widget", "Gadget")) as world:
        await world.started("x+1")
        item = await world.storage.get(report_key(NAME))
        assert item is not None
        value = item.value.replace(
            b'"encodingVersion":"example.com/v1"', b'"encodingVersion":"a/b/c"'
        )
        assert value != item.value
        await plant(world, Put(item.key, value))
        server = world.server("x+1")
        with pytest.raises(TimeoutError):
            await world.run(server.start(), seconds_max=5)
        await world.run(server.write("g", kind="Gadget"))
        with pytest.raises(StatusError):
            await world.run(server.write("w"))
        world.storage.broken.clear()  # The planted value itself violates the invariants.
