"""Servers with their own store: they report to the main servers before they write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.apimachinery.status_error import StatusError
from restow.registry.stored_bytes import encode
from restow.storage.errors import OpenRefused
from restow.storage.interface import Delete, Key, Put, Refused, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.errors import ModeRefused, NotReported
from restow.storageversion.identity import ServerId, server_key
from restow.storageversion.membership import MembershipOptions
from restow.storageversion.remote_reconciler import RECONCILE_SECONDS
from restow.storageversion.remote_registration import (
    Remote,
    check_not_reported,
    ensure_store_id,
    forget_store,
)
from tests.unit.storageversion.remote_world import (
    NAME,
    V1,
    V2,
    open_remote_world,
)
from tests.unit.storageversion.world import GROUP, Server

EXPIRED_SECONDS = 20
"""The time after which a server that does not renew its record is removed."""


async def test_a_server_reports_before_it_writes_and_withdraws_when_it_stops(
    tmp_path: Path,
) -> None:
    """The main servers agree on its entry, and remove it when it stops."""
    async with open_remote_world(tmp_path) as world:
        server, _ = await world.started("x+1")
        await world.run(server.write("a"))
        assert await world.encoding_versions() == {server.id: V1}
        report = await world.report()
        assert report.entries[0].store == world.store_id
        assert (report.common_version, (await world.epoch()).version) == (V1, V1)
        await world.run(server.stop())
        assert await world.encoding_versions() == {}
        assert (await world.epoch()).agreement is None


async def test_two_releases_disagree_and_agree_again(tmp_path: Path) -> None:
    """During a rolling upgrade, the main servers have the entries of both releases, and each write
    matches."""
    async with open_remote_world(tmp_path) as world:
        old, _ = await world.started("x+1")
        new, _ = await world.started("x+2")
        await world.run(old.write("a"))
        await world.run(new.write("b"))
        assert (await world.report()).common_version is None
        await world.run(old.stop())
        await world.run(new.write("a"))
        assert (await world.report()).common_version == V2
        assert world.storage.checked == 3


async def test_without_the_main_servers_no_resource_is_opened(tmp_path: Path) -> None:
    """A server that cannot report is not registered and writes nothing; later it does both."""
    async with open_remote_world(tmp_path) as world:
        server, connection = world.aggregated("x+1")
        connection.is_down = True
        starting = asyncio.ensure_future(server.start())
        await world.clock.advance(30)
        assert not server.coordinator.completed
        with pytest.raises(StatusError, match="the main servers are down"):
            await world.run(server.write("a"))
        assert await world.encoder(server) is None
        connection.is_down = False
        await world.run(starting)
        await world.run(server.write("a"))
        assert await world.encoding_versions() == {server.id: V1}


async def test_open_resources_stay_open_without_the_main_servers(tmp_path: Path) -> None:
    """The main servers may be unavailable for long: the entry remains valid, so writes continue."""
    async with open_remote_world(tmp_path) as world:
        server, connection = await world.started("x+1")
        connection.is_down = True
        await world.clock.advance(120)
        await world.run(server.write("a"))
        assert server.coordinator.completed


async def test_a_lost_reply_is_retried(tmp_path: Path) -> None:
    """If it is unknown whether a report was accepted, nothing is opened until it is repeated."""
    async with open_remote_world(tmp_path) as world:
        server, connection = world.aggregated("x+1")
        connection.loses_replies = True
        starting = asyncio.ensure_future(server.start())
        await world.clock.advance(5)
        assert await world.encoding_versions() == {server.id: V1}
        held = await world.encoder(server)
        assert held is not None
        assert "held" in held
        connection.loses_replies = False
        await world.run(starting)
        await world.run(server.write("a"))


async def test_a_server_that_expired_before_it_opened_does_not_open(tmp_path: Path) -> None:
    """Paused between report and opening, and collected by its peer: it must join and report
    again."""
    async with open_remote_world(tmp_path) as world:
        peer, _ = await world.started("x+2")
        server, connection = world.aggregated("x+1")
        connection.replies_flow.clear()
        starting = asyncio.ensure_future(server.start())
        await world.clock.advance(1)
        assert connection.reported.is_set()
        first = server.id
        server.line.pause()
        connection.replies_flow.set()
        await world.clock.advance(EXPIRED_SECONDS)
        assert await world.encoding_versions() == {peer.id: V2}
        assert (await world.epoch()).version == V2
        server.line.wake()
        await world.run(starting)
        assert server.id != first
        await world.run(server.write("a"))
        assert await world.encoding_versions() == {peer.id: V2, server.id: V1}


async def test_an_expired_servers_entry_stays_until_its_peer_has_collected_it(
    tmp_path: Path,
) -> None:
    """A killed server may still have writes in flight: only the own store shows that none can
    commit."""
    async with open_remote_world(tmp_path) as world:
        expired, _ = await world.started("x+1")
        peer, _ = await world.started("x+2")
        await expired.kill()
        await world.clock.advance(5)
        assert set(await world.encoding_versions()) == {expired.id, peer.id}
        await world.clock.advance(EXPIRED_SECONDS)
        assert await world.encoding_versions() == {peer.id: V2}


async def test_an_entry_stays_while_writes_could_match_the_encoder_key(tmp_path: Path) -> None:
    """The membership record is removed first; until the encoder key is removed, a late write may
    commit."""
    async with open_remote_world(tmp_path) as world:
        expired, _ = await world.started("x+1")
        peer, _ = await world.started("x+2")
        await expired.kill()
        gone = Delete(server_key(ServerId(expired.id)))
        await MemoryStorage.commit(world.storage, Transaction((), (gone,)))
        assert peer.coordinator.reconciler is not None
        await peer.coordinator.reconciler.remove_expired()  # before the garbage collector runs
        assert await world.encoder(expired) is not None
        assert set(await world.encoding_versions()) == {expired.id, peer.id}
        await world.clock.advance(2)
        assert await world.encoding_versions() == {peer.id: V2}


async def test_nothing_is_written_while_a_change_is_reported(tmp_path: Path) -> None:
    """Between the report of another version and its reply, writes wait: none commits in either
    version."""
    async with open_remote_world(tmp_path) as world:
        server, connection = await world.started("x+1")
        await world.run(server.write("a"))
        other = world.own.catalogs["x+2"].of_kind(GROUP, "Widget")
        assert other is not None
        connection.replies_flow.clear()
        changing = asyncio.ensure_future(server.coordinator.registrar.register(other))
        await world.clock.advance(1)
        assert await world.encoding_versions() == {server.id: V2}
        writing = asyncio.ensure_future(server.write("b"))
        await world.clock.advance(2)
        assert not writing.done()
        connection.replies_flow.set()
        await world.run(changing)
        await world.run(writing)
        assert await world.own.stored("b") == "v2"


async def test_an_old_write_does_not_commit_while_its_version_is_restored(tmp_path: Path) -> None:
    """Sent in v1, delayed beyond the change to v2 and the hold for v1: the main servers have v2."""
    async with open_remote_world(tmp_path) as world:
        server, connection = await world.started("x+1")
        old = server.coordinator.table.encoding(server.resource())
        other = world.own.catalogs["x+2"].of_kind(GROUP, "Widget")
        assert other is not None
        await world.run(server.coordinator.registrar.register(other))
        connection.delays_reports = True
        with pytest.raises(NotReported):
            await world.run(server.coordinator.registrar.register(server.resource()))
        assert await world.encoding_versions() == {server.id: V2}
        value = encode({"metadata": {"name": "late", "namespace": "ns"}}, V1, "Widget")
        late = Transaction(old.guards, (Put(server.resource().key_of("ns/late"), value),))
        assert isinstance(await world.storage.commit(late), Refused)
        connection.delays_reports = False
        await world.clock.advance(5)
        assert await world.encoding_versions() == {server.id: V1}


async def test_a_change_that_cannot_be_reported_closes_nothing(tmp_path: Path) -> None:
    """While the main servers are unavailable, open resources stay open."""
    async with open_remote_world(tmp_path) as world:
        server, connection = await world.started("x+1")
        other = world.own.catalogs["x+2"].of_kind(GROUP, "Widget")
        assert other is not None
        connection.is_down = True
        with pytest.raises(NotReported, match="the main servers are down"):
            await world.run(server.coordinator.registrar.register(other))
        await world.run(server.write("a"))
        assert await world.own.stored("a") == "v1"


async def test_the_last_server_is_collected_by_the_next(tmp_path: Path) -> None:
    """No server was left to do it; the next one on that store does."""
    async with open_remote_world(tmp_path) as world:
        expired, _ = await world.started("x+1")
        await expired.kill()
        await world.clock.advance(60)
        assert await world.encoding_versions() == {expired.id: V1}
        server, _ = await world.started("x+2")
        await world.clock.advance(EXPIRED_SECONDS)
        assert await world.encoding_versions() == {server.id: V2}


async def test_a_server_that_stops_without_the_main_servers_is_withdrawn_later(
    tmp_path: Path,
) -> None:
    """The peer that finds its keys removed withdraws its entry."""
    async with open_remote_world(tmp_path) as world:
        server, connection = await world.started("x+1")
        peer, _ = await world.started("x+2")
        connection.is_down = True
        await world.run(server.stop())
        await world.clock.advance(35)
        assert await world.encoding_versions() == {peer.id: V2}


async def test_a_late_report_changes_nothing(tmp_path: Path) -> None:
    """A report that arrives after a newer one is refused."""
    async with open_remote_world(tmp_path) as world:
        server, connection = world.aggregated("x+1")
        connection.delays_reports = True
        starting = asyncio.ensure_future(server.start())
        await world.clock.advance(1)
        assert connection.late
        connection.delays_reports = False
        await world.run(starting)
        known = (await world.report()).entries
        met = await connection.deliver_delayed()
        assert "has reported a newer entry" in str(met[0])
        assert (await world.report()).entries == known
        await world.run(server.write("a"))


async def test_a_late_report_of_an_expired_server_is_removed_again(tmp_path: Path) -> None:
    """Until then the main servers have too many entries, never too few."""
    async with open_remote_world(tmp_path) as world:
        peer, _ = await world.started("x+2")
        expired, connection = world.aggregated("x+1")
        connection.delays_reports = True
        starting = asyncio.ensure_future(expired.start())
        await world.clock.advance(1)
        starting.cancel()
        await expired.kill()
        await world.clock.advance(EXPIRED_SECONDS)
        assert await connection.deliver_delayed() == []
        assert set(await world.encoding_versions()) == {peer.id, expired.id}
        await world.clock.advance(35)
        assert await world.encoding_versions() == {peer.id: V2}


async def test_entries_that_the_main_servers_have_lost_are_reported_again(tmp_path: Path) -> None:
    """The object was removed from their store: the server closes, reports and opens."""
    async with open_remote_world(tmp_path) as world:
        server, _ = await world.started("x+1")
        gone = Delete(Key(f"/registry/storageversions/{NAME}"))
        await MemoryStorage.commit(world.main.storage, Transaction((), (gone,)))
        assert await world.encoding_versions() == {}
        await world.clock.advance(40)
        assert await world.encoding_versions() == {server.id: V1}
        assert server.coordinator.completed
        await world.run(server.write("a"))


async def test_a_store_is_forgotten_by_name_only(tmp_path: Path) -> None:
    """Only entries of servers with this store are removed; a server that still runs detects it, and
    reports again before it continues to write."""
    async with open_remote_world(tmp_path) as world:
        server, connection = await world.started("x+1")
        assert await forget_store(connection, [NAME], store="0" * 32) == 0
        assert await world.encoding_versions() == {server.id: V1}
        assert await forget_store(connection, [NAME], store=world.store_id) == 1
        assert await world.encoding_versions() == {}
        await world.clock.advance(RECONCILE_SECONDS + 10)
        assert await world.encoding_versions() == {server.id: V1}
        await server.write("written")


async def test_a_server_that_lost_its_key_reports_under_its_new_id(tmp_path: Path) -> None:
    """The entry under the old ID is removed when its encoder key is removed."""
    async with open_remote_world(tmp_path) as world:
        server, _ = await world.started("x+1")
        peer, _ = await world.started("x+1")
        first = server.id
        server.line.pause()
        late = asyncio.ensure_future(server.create("a"))
        await world.clock.advance(EXPIRED_SECONDS)
        assert first not in await world.encoding_versions()
        server.line.wake()
        await world.run(late)
        await world.clock.advance(1)
        assert await world.encoding_versions() == {server.id: V1, peer.id: V1}


async def test_resources_of_a_main_server_are_not_reported_by_others(tmp_path: Path) -> None:
    """Two stores, one name: the servers with the other store stay closed, and report the reason."""
    async with open_remote_world(tmp_path) as world:
        remote = Remote(
            main=world.connection(),
            store=world.store_id,
            is_reported=lambda each: each.group == GROUP,
        )
        gadgets = Server(world.own, "gadgets", world.main.catalogs["x+2"], remote=remote)
        world.own.servers.append(gadgets)
        starting = asyncio.ensure_future(gadgets.start())
        await world.clock.advance(10)
        assert not gadgets.coordinator.completed
        pending = gadgets.coordinator.pending(gadgets.resource("Gadget"))
        assert pending is not None
        assert "in the store of the cluster" in pending
        starting.cancel()


async def test_a_main_server_does_not_host_resources_of_others(tmp_path: Path) -> None:
    """Its registration waits, with a reason, until they are gone."""
    async with open_remote_world(tmp_path) as world:
        server, _ = await world.started("x+1")
        widgets = Server(world.main, "widgets", world.own.catalogs["x+1"])
        world.main.servers.append(widgets)
        starting = asyncio.ensure_future(widgets.start())
        await world.clock.advance(10)
        pending = widgets.coordinator.pending(widgets.resource())
        assert pending is not None
        assert "their own store" in pending
        assert set(await world.encoding_versions()) == {server.id}
        starting.cancel()


@pytest.mark.parametrize("mode", ["strict", "loose", "off"])
async def test_it_supports_one_mode_only(tmp_path: Path, mode: str) -> None:
    """A vote would change entries without informing the main servers in time."""
    async with open_remote_world(tmp_path) as world:
        membership = MembershipOptions(host="h", mode=mode)  # type: ignore[arg-type]
        remote = Remote(main=world.connection(), store=world.store_id)
        with pytest.raises(ModeRefused, match="must report to the main servers"):
            Coordinator(
                world.storage,
                world.own.catalogs["x"],
                Runtime.simulated("m", clock=world.clock),
                CoordinatorOptions(membership=membership),
                remote=remote,
            )


async def test_a_store_has_one_id() -> None:
    """All servers on it use the same ID; a server that would not report cannot join them."""
    storage, runtime = MemoryStorage(), Runtime.simulated("s")
    await check_not_reported(storage)
    found = [await ensure_store_id(storage, runtime) for _ in range(2)]
    assert found[0] == found[1]
    with pytest.raises(OpenRefused, match="report to the main servers"):
        await check_not_reported(storage)
    await storage.close()
