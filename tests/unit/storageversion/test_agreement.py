"""Servers on one store: registration, the fence, garbage collection, and what clients observe."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.version_hash import storage_version_hash
from restow.registry.catalog import Catalog
from restow.storage.interface import Delete, Put, Span, Transaction
from restow.storageversion.identity import SERVERS_PREFIX, server_key
from restow.storageversion.object_codec import state_key
from restow.storageversion.records import ENCODERS_PREFIX, name_of
from restow.storageversion.rules import UNKNOWN_HASH
from tests.unit.storageversion.world import GROUP, Server, World, open_world

V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
V2_HASH = storage_version_hash(GroupVersionKind.of(V2, "Widget"))
LEASE_SECONDS = 15


async def test_a_server_reports_before_it_writes(tmp_path: Path) -> None:
    """Writes are rejected until the entry is stored; afterwards objects have the reported
    version."""
    async with open_world(tmp_path) as world:
        server = world.server("x+1")
        await server.caches.start()
        with pytest.raises(StatusError, match="wait for storage version registration") as refused:
            await world.run(server.write("early"))
        assert refused.value.code == 503
        await world.run(server.coordinator.start())
        await world.run(server.write("late"))
        report = await world.report()
        assert report is not None
        assert [(e.server_id, e.encoding_version) for e in report.entries] == [(server.id, V1)]
        assert report.entries[0].decodable_versions == (V1, V2)
        assert (await world.common(), await world.stored("late")) == (V1, "v1")
        state = await world.state()
        assert state.persisted[0] == UNKNOWN_HASH
        assert state.current in state.persisted


async def test_servers_of_two_releases_do_not_agree_until_one_stops(tmp_path: Path) -> None:
    """During an upgrade there is no common version; it returns when the last old server stops, and
    the
    epoch has changed."""
    async with open_world(tmp_path) as world:
        old = await world.started("x+1")
        assert (await world.epoch()).epoch == 1
        new = await world.started("x+2")
        assert await world.common() is None
        assert (await world.epoch()).agreement is None
        await world.run(old.write("a"))
        await world.run(new.write("b"))
        assert (await world.stored("a"), await world.stored("b")) == ("v1", "v2")
        await world.run(old.stop())
        assert await world.common() == V2
        assert (await world.epoch()).epoch == 3
        assert len((await world.state()).persisted) == 3


async def test_a_registration_keeps_fields_of_controllers_in_the_state(tmp_path: Path) -> None:
    """Reports, heartbeat, labels and annotations of controllers are kept at every change."""
    async with open_world(tmp_path) as world:
        await world.started("x+1")
        key = state_key(f"{GROUP}.widgets")
        item = await world.storage.get(key)
        assert item is not None
        state = orjson.loads(item.value)
        reports = [{"reporterID": "c", "currentStorageVersionHash": "h", "lastHeartbeatTime": "t"}]
        state["status"] |= {"currentStorageVersionHashes": reports, "lastHeartbeatTime": "then"}
        state["metadata"]["labels"] = {"a": "b"}
        state["metadata"]["annotations"]["trigger.restow.dev/change"] = "3"
        await world.storage.commit(Transaction(writes=(Put(key, orjson.dumps(state) + b"\n"),)))
        await world.started("x+2")
        item = await world.storage.get(key)
        assert item is not None
        after = orjson.loads(item.value)
        assert len(after["status"]["persistedStorageVersionHashes"]) == 3
        assert after["status"]["currentStorageVersionHashes"] == reports
        assert after["status"]["lastHeartbeatTime"] == "then"
        assert after["metadata"]["labels"] == {"a": "b"}
        assert after["metadata"]["annotations"]["trigger.restow.dev/change"] == "3"


async def test_a_server_that_agrees_does_not_change_the_epoch(tmp_path: Path) -> None:
    """Another server with the same version does not change the epoch."""
    async with open_world(tmp_path) as world:
        await world.started("x+1")
        for _ in range(3):
            other = await world.started("x")
            report = await world.report()
            assert report is not None
            assert len(report.entries) == 2
            await world.run(other.stop())
        assert (await world.epoch()).epoch == 1


async def test_expired_servers_are_collected_after_the_lease_duration(tmp_path: Path) -> None:
    """The entries and keys of a killed server are removed within two seconds after its lease has
    expired,
    not earlier, and the others agree again."""
    async with open_world(tmp_path, kinds=("Widget", "Gadget")) as world:
        victim, *_ = [await world.started(release) for release in ("x+1", "x+2", "x+2")]
        await victim.kill()
        await world.clock.advance(LEASE_SECONDS - 6)
        assert await world.common() is None
        await world.clock.advance(8)
        assert (await world.common(), await world.common("Gadget")) == (V2, V2)
        keys = [item.key for item in (await world.storage.range(Span.of_prefix("/restow/"))).items]
        assert not [key for key in keys if victim.id in key]


async def test_any_killed_server_is_collected_by_the_others(tmp_path: Path) -> None:
    """Also if the killed server led the garbage collection."""
    async with open_world(tmp_path) as world:
        servers = [await world.started("x+1") for _ in range(3)]
        await world.clock.advance(30)
        while len(servers) > 1:
            servers.sort(key=lambda server: server.id)
            await servers.pop(0).kill()
            await world.clock.advance(LEASE_SECONDS + 2)
            report = await world.report()
            assert report is not None
            assert {e.server_id for e in report.entries} == {server.id for server in servers}


async def test_a_paused_server_writes_nothing_in_the_old_version(tmp_path: Path) -> None:
    """A write that was encoded before a pause longer than the lease is rejected; the server takes a
    new
    identity, and its next write is registered."""
    async with open_world(tmp_path) as world:
        paused, _ = await world.started("x+1"), await world.started("x+2")
        first_id = paused.id
        paused.line.pause()
        late = asyncio.ensure_future(paused.create("late"))
        await world.clock.advance(LEASE_SECONDS + 2)
        assert await world.common() == V2
        paused.line.wake()
        written = await world.run(late)
        assert written.created
        assert paused.id != first_id
        report = await world.report()
        assert report is not None
        assert paused.id in {entry.server_id for entry in report.entries}
        assert await world.common() is None  # It writes v1 again, and reports it.


async def test_a_removed_encoder_key_is_repaired(tmp_path: Path) -> None:
    """The write that detects it is retried and succeeds."""
    async with open_world(tmp_path) as world:
        server = await world.started("x+1")
        found = (await world.storage.range(Span.of_prefix(ENCODERS_PREFIX))).items
        (item,) = [item for item in found if item.key.endswith("widgets")]
        await super(type(world.storage), world.storage).commit(Transaction((), (Delete(item.key),)))
        assert (await world.run(server.write("a"))).created
        assert server.coordinator.table.fence_failures == 1


async def test_a_server_that_cannot_read_stored_versions_never_writes(tmp_path: Path) -> None:
    """Downgrade by two releases: v2 is stored, the old server decodes only v1, and reports the
    reason."""
    async with open_world(tmp_path) as world:
        new = await world.started("x+3")
        await world.run(new.write("a"))
        old = world.server("x")
        with pytest.raises(TimeoutError):
            await world.run(old.start(), seconds_max=20)
        assert not old.coordinator.completed
        pending = old.coordinator.pending(old.resource())
        assert pending is not None
        assert "cannot read" in pending
        assert await world.common() == V2


async def test_an_undecodable_persisted_version_is_reported_by_its_name(tmp_path: Path) -> None:
    """The reason names the version; the hash is in addition, and alone if the version is not
    known."""
    async with open_world(tmp_path) as world:
        new = await world.started("x+3")
        await world.run(new.write("a"))
        item = await world.storage.get(state_key(name_of(new.resource().kind.group_resource)))
        assert item is not None
        state = orjson.loads(item.value)
        state["status"]["persistedStorageVersionHashes"] = [V2_HASH, "bm90aGluZw=="]
        await world.storage.commit(Transaction((), (Put(item.key, orjson.dumps(state)),)))
        await world.run(new.stop())
        old = world.server("x")
        with pytest.raises(TimeoutError):
            await world.run(old.start(), seconds_max=20)
        assert old.coordinator.pending(old.resource()) == (
            "widgets.example.com may be stored in versions that this server cannot read:"
            f" {V2} (hash {V2_HASH}), bm90aGluZw==. Let a release that knows them migrate it"
        )


async def test_unknown_versions_are_resolved_by_a_scan(tmp_path: Path) -> None:
    """If the history is unknown, the raw values determine whether a server can register."""
    async with open_world(tmp_path) as world:
        resource = world.catalogs["x+1"].of_kind(GROUP, "Widget")
        assert resource is not None
        value = b'{"kind":"Widget","apiVersion":"%b","metadata":{"name":"a"}}\n' % V2.encode()
        planted = Transaction((), (Put(resource.key_of("ns/a"), value),))
        await super(type(world.storage), world.storage).commit(planted)
        with pytest.raises(TimeoutError):
            await world.run(world.server("x").start(), seconds_max=5)
        readable = await world.started("x+1")
        assert readable.coordinator.completed


async def test_five_servers_start_together_and_lose_no_entry(tmp_path: Path) -> None:
    """Every StorageVersion has an entry of every server, in any interleaving."""
    kinds = [f"Kind{letter}" for letter in "abcdefgh"]
    async with open_world(tmp_path, kinds=kinds) as world:
        servers = [world.server("x+1") for _ in range(5)]
        await world.run(asyncio.gather(*(server.start() for server in servers)))
        for kind in kinds:
            report = await world.report(kind)
            assert report is not None
            assert {e.server_id for e in report.entries} == {server.id for server in servers}


async def test_a_graceful_stop_leaves_only_the_history(tmp_path: Path) -> None:
    """Keys, leases and entries are removed; the epoch and the state are kept."""
    async with open_world(tmp_path) as world:
        server = await world.started("x+1")
        await world.run(server.write("a"))
        await world.run(server.stop())
        assert await world.report() is None
        for prefix in (SERVERS_PREFIX, ENCODERS_PREFIX, "/registry/leases/"):
            assert await world.storage.count(Span.of_prefix(prefix)) == 0
        assert (await world.epoch()).epoch == 2
        assert UNKNOWN_HASH in (await world.state()).persisted


async def test_a_live_server_is_never_collected(tmp_path: Path) -> None:
    """A server that renews its lease keeps its key and entries."""
    async with open_world(tmp_path) as world:
        servers = [await world.started("x+1") for _ in range(3)]
        ids = {server.id for server in servers}
        await world.clock.advance(300)
        assert {server.id for server in servers} == ids
        for server in servers:
            assert await world.storage.get(server_key(server.coordinator.membership.id))


async def _flap(world: World, server: Server) -> None:
    server.line.pause()
    await world.clock.advance(LEASE_SECONDS + 3)
    server.line.wake()
    await world.clock.advance(6)


async def test_a_server_that_flaps_gets_a_new_identity_each_time(tmp_path: Path) -> None:
    """It leaves and rejoins, without an effect on the agreement of the others."""
    async with open_world(tmp_path) as world:
        flapping, steady = await world.started("x+1"), await world.started("x+1")
        seen = {flapping.id}
        for _ in range(3):
            await _flap(world, flapping)
            assert flapping.coordinator.completed
            seen.add(flapping.id)
        assert len(seen) == 4
        assert steady.coordinator.completed
        assert (await world.epoch()).epoch == 1


async def test_entries_for_resources_no_longer_served_are_removed(tmp_path: Path) -> None:
    """An entry of a running server for a kind that it does not host is removed, whichever server
    leads."""
    async with open_world(tmp_path, kinds=("Widget", "Gadget")) as world:
        servers = [await world.started("x+1") for _ in range(2)]
        fewer = Catalog(r for r in servers[0].catalog if r.kind.kind != "Gadget")
        for server in servers:
            server.coordinator.collector._planner._hosted = {  # type: ignore[attr-defined]
                name_of(r.kind.group_resource) for r in fewer.persisted()
            }
        await world.clock.advance(40)
        report = await world.report("Widget")
        assert report is not None
        assert len(report.entries) == 2
        assert await world.report("Gadget") is None


async def test_a_closed_resource_keeps_its_last_written_version(tmp_path: Path) -> None:
    """While a server has no identity, discovery keeps the selected version instead of the release's
    preferred one."""
    async with open_world(tmp_path) as world:
        older = await world.started("x+1", mode="strict")
        server = await world.started("x+2", mode="strict")
        resource = server.resource()
        shown = server.coordinator.version_of(resource)
        assert shown == older.coordinator.version_of(older.resource()) == f"{GROUP}/v1"
        server.coordinator.table.close_all()
        assert server.coordinator.version_of(resource) == shown
