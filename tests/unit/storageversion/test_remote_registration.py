"""Servers with a store of their own: the main servers are told before anything is written."""

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

GONE_SECONDS = 20
"""After so long a server that does not renew its key was taken out."""


async def test_a_server_reports_before_it_writes_and_goes_without_a_trace(tmp_path: Path) -> None:
    """The main servers agree on what it says, and forget it with the server."""
    async with open_remote_world(tmp_path) as world:
        server, _ = await world.started("x+1")
        await world.run(server.write("a"))
        assert await world.said() == {server.id: V1}
        report = await world.report()
        assert report.entries[0].store == world.store_id
        assert (report.common_version, (await world.epoch()).version) == (V1, V1)
        await world.run(server.stop())
        assert await world.said() == {}
        assert (await world.epoch()).agreement is None


async def test_two_releases_disagree_and_agree_again(tmp_path: Path) -> None:
    """An upgrade, server by server, is what the main servers see, and each write fits to it."""
    async with open_remote_world(tmp_path) as world:
        old, _ = await world.started("x+1")
        new, _ = await world.started("x+2")
        await world.run(old.write("a"))
        await world.run(new.write("b"))
        assert (await world.report()).common_version is None
        await world.run(old.stop())
        await world.run(new.write("a"))
        assert (await world.report()).common_version == V2
        assert world.storage.judged == 3


async def test_without_the_main_servers_nothing_is_opened(tmp_path: Path) -> None:
    """A server that cannot report is not registered and writes nothing; later it does both."""
    async with open_remote_world(tmp_path) as world:
        server, way = world.aggregated("x+1")
        way.is_down = True
        starting = asyncio.ensure_future(server.start())
        await world.clock.advance(30)
        assert not server.coordinator.completed
        with pytest.raises(StatusError, match="the main servers are down"):
            await world.run(server.write("a"))
        assert await world.encoder(server) is None
        way.is_down = False
        await world.run(starting)
        await world.run(server.write("a"))
        assert await world.said() == {server.id: V1}


async def test_what_is_open_stays_open_without_the_main_servers(tmp_path: Path) -> None:
    """The main servers may be away for long: their entry stands, so writes go on."""
    async with open_remote_world(tmp_path) as world:
        server, way = await world.started("x+1")
        way.is_down = True
        await world.clock.advance(120)
        await world.run(server.write("a"))
        assert server.coordinator.completed


async def test_a_lost_answer_is_asked_for_again(tmp_path: Path) -> None:
    """Whether a report was taken is not known: nothing is open until it is said again."""
    async with open_remote_world(tmp_path) as world:
        server, way = world.aggregated("x+1")
        way.loses_answers = True
        starting = asyncio.ensure_future(server.start())
        await world.clock.advance(5)
        assert await world.said() == {server.id: V1}
        held = await world.encoder(server)
        assert held is not None
        assert "held" in held
        way.loses_answers = False
        await world.run(starting)
        await world.run(server.write("a"))


async def test_a_server_that_was_taken_out_before_it_opened_does_not_open(tmp_path: Path) -> None:
    """Paused between report and open, collected by its peer: it must join and report anew."""
    async with open_remote_world(tmp_path) as world:
        peer, _ = await world.started("x+2")
        server, way = world.aggregated("x+1")
        way.is_slow.clear()
        starting = asyncio.ensure_future(server.start())
        await world.clock.advance(1)
        assert way.reported.is_set()
        first = server.id
        server.line.pause()
        way.is_slow.set()
        await world.clock.advance(GONE_SECONDS)
        assert await world.said() == {peer.id: V2}
        assert (await world.epoch()).version == V2
        server.line.wake()
        await world.run(starting)
        assert server.id != first
        await world.run(server.write("a"))
        assert await world.said() == {peer.id: V2, server.id: V1}


async def test_a_dead_servers_entry_stays_until_its_peer_has_collected_it(tmp_path: Path) -> None:
    """A killed server may still have writes on their way: only the own store tells that none can
    land any more."""
    async with open_remote_world(tmp_path) as world:
        dead, _ = await world.started("x+1")
        peer, _ = await world.started("x+2")
        await dead.kill()
        await world.clock.advance(5)
        assert set(await world.said()) == {dead.id, peer.id}
        await world.clock.advance(GONE_SECONDS)
        assert await world.said() == {peer.id: V2}


async def test_an_entry_stays_while_writes_could_match_the_encoder_key(tmp_path: Path) -> None:
    """The server key goes first; until the encoder key has gone too, a late write may commit."""
    async with open_remote_world(tmp_path) as world:
        dead, _ = await world.started("x+1")
        peer, _ = await world.started("x+2")
        await dead.kill()
        gone = Delete(server_key(ServerId(dead.id)))
        await MemoryStorage.commit(world.storage, Transaction((), (gone,)))
        assert peer.coordinator.reconciler is not None
        await peer.coordinator.reconciler.remove_expired()  # before the collector comes
        assert await world.encoder(dead) is not None
        assert set(await world.said()) == {dead.id, peer.id}
        await world.clock.advance(2)
        assert await world.said() == {peer.id: V2}


async def test_nothing_is_written_while_a_change_is_reported(tmp_path: Path) -> None:
    """Between the report of another version and the answer, writes wait: none commits in the old
    version, nor in the new one."""
    async with open_remote_world(tmp_path) as world:
        server, way = await world.started("x+1")
        await world.run(server.write("a"))
        other = world.own.catalogs["x+2"].of_kind(GROUP, "Widget")
        assert other is not None
        way.is_slow.clear()
        changing = asyncio.ensure_future(server.coordinator.registrar.register(other))
        await world.clock.advance(1)
        assert await world.said() == {server.id: V2}
        writing = asyncio.ensure_future(server.write("b"))
        await world.clock.advance(2)
        assert not writing.done()
        way.is_slow.set()
        await world.run(changing)
        await world.run(writing)
        assert await world.own.stored("b") == "v2"


async def test_an_old_write_does_not_land_while_its_version_comes_back(tmp_path: Path) -> None:
    """Sent in v1, delayed beyond the change to v2 and the hold for v1: the main servers say v2."""
    async with open_remote_world(tmp_path) as world:
        server, way = await world.started("x+1")
        old = server.coordinator.table.encoding(server.resource())
        other = world.own.catalogs["x+2"].of_kind(GROUP, "Widget")
        assert other is not None
        await world.run(server.coordinator.registrar.register(other))
        way.keeps = True
        with pytest.raises(NotReported):
            await world.run(server.coordinator.registrar.register(server.resource()))
        assert await world.said() == {server.id: V2}
        value = encode({"metadata": {"name": "late", "namespace": "ns"}}, V1, "Widget")
        late = Transaction(old.guards, (Put(server.resource().key_of("ns/late"), value),))
        assert isinstance(await world.storage.commit(late), Refused)
        way.keeps = False
        await world.clock.advance(5)
        assert await world.said() == {server.id: V1}


async def test_a_change_that_cannot_be_reported_closes_nothing(tmp_path: Path) -> None:
    """While the main servers are away, what is open stays as it is."""
    async with open_remote_world(tmp_path) as world:
        server, way = await world.started("x+1")
        other = world.own.catalogs["x+2"].of_kind(GROUP, "Widget")
        assert other is not None
        way.is_down = True
        with pytest.raises(NotReported, match="the main servers are down"):
            await world.run(server.coordinator.registrar.register(other))
        await world.run(server.write("a"))
        assert await world.own.stored("a") == "v1"


async def test_the_last_server_is_taken_out_by_the_next(tmp_path: Path) -> None:
    """Nobody was left to do it; whoever comes next on that store does."""
    async with open_remote_world(tmp_path) as world:
        dead, _ = await world.started("x+1")
        await dead.kill()
        await world.clock.advance(60)
        assert await world.said() == {dead.id: V1}
        server, _ = await world.started("x+2")
        await world.clock.advance(GONE_SECONDS)
        assert await world.said() == {server.id: V2}


async def test_a_server_that_stops_without_the_main_servers_is_taken_out_later(
    tmp_path: Path,
) -> None:
    """The peer that finds its keys gone withdraws what it has said."""
    async with open_remote_world(tmp_path) as world:
        server, way = await world.started("x+1")
        peer, _ = await world.started("x+2")
        way.is_down = True
        await world.run(server.stop())
        await world.clock.advance(35)
        assert await world.said() == {peer.id: V2}


async def test_a_late_report_changes_nothing(tmp_path: Path) -> None:
    """A report that arrives after a newer one is refused, or the main servers would believe it."""
    async with open_remote_world(tmp_path) as world:
        server, way = world.aggregated("x+1")
        way.keeps = True
        starting = asyncio.ensure_future(server.start())
        await world.clock.advance(1)
        assert way.late
        way.keeps = False
        await world.run(starting)
        known = (await world.report()).entries
        met = await way.deliver_late()
        assert "has reported a newer entry" in str(met[0])
        assert (await world.report()).entries == known
        await world.run(server.write("a"))


async def test_a_late_report_of_a_dead_server_is_taken_out_again(tmp_path: Path) -> None:
    """It says too much for a while, never too little."""
    async with open_remote_world(tmp_path) as world:
        peer, _ = await world.started("x+2")
        dead, way = world.aggregated("x+1")
        way.keeps = True
        starting = asyncio.ensure_future(dead.start())
        await world.clock.advance(1)
        starting.cancel()
        await dead.kill()
        await world.clock.advance(GONE_SECONDS)
        assert await way.deliver_late() == []
        assert set(await world.said()) == {peer.id, dead.id}
        await world.clock.advance(35)
        assert await world.said() == {peer.id: V2}


async def test_what_the_main_servers_have_lost_is_reported_again(tmp_path: Path) -> None:
    """Their object was removed behind everybody's back: the server closes, reports and opens."""
    async with open_remote_world(tmp_path) as world:
        server, _ = await world.started("x+1")
        gone = Delete(Key(f"/registry/storageversions/{NAME}"))
        await MemoryStorage.commit(world.main.storage, Transaction((), (gone,)))
        assert await world.said() == {}
        await world.clock.advance(40)
        assert await world.said() == {server.id: V1}
        assert server.coordinator.completed
        await world.run(server.write("a"))


async def test_a_store_is_forgotten_by_name_only(tmp_path: Path) -> None:
    """Only what servers of that very store have said goes; one that runs all the same notices, and
    says it again before it writes on."""
    async with open_remote_world(tmp_path) as world:
        server, way = await world.started("x+1")
        assert await forget_store(way, [NAME], store="0" * 32) == 0
        assert await world.said() == {server.id: V1}
        assert await forget_store(way, [NAME], store=world.store_id) == 1
        assert await world.said() == {}
        await world.clock.advance(RECONCILE_SECONDS + 10)
        assert await world.said() == {server.id: V1}
        await server.write("written")


async def test_a_server_that_lost_its_key_reports_under_its_new_id(tmp_path: Path) -> None:
    """What it has said under the old one is taken out when its encoder key is gone."""
    async with open_remote_world(tmp_path) as world:
        server, _ = await world.started("x+1")
        peer, _ = await world.started("x+1")
        first = server.id
        server.line.pause()
        await world.clock.advance(GONE_SECONDS)
        assert first not in await world.said()
        server.line.wake()
        await world.run(server.write("a"))
        await world.clock.advance(1)
        assert await world.said() == {server.id: V1, peer.id: V1}


async def test_what_a_main_server_hosts_is_not_reported_by_others(tmp_path: Path) -> None:
    """Two stores, one name: the servers with the other store stay closed, and say why."""
    async with open_remote_world(tmp_path) as world:
        remote = Remote(
            main=world.way(), store=world.store_id, is_reported=lambda each: each.group == GROUP
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


async def test_a_main_server_does_not_host_what_others_report(tmp_path: Path) -> None:
    """Its registration waits, visibly, until they are gone."""
    async with open_remote_world(tmp_path) as world:
        server, _ = await world.started("x+1")
        widgets = Server(world.main, "widgets", world.own.catalogs["x+1"])
        world.main.servers.append(widgets)
        starting = asyncio.ensure_future(widgets.start())
        await world.clock.advance(10)
        pending = widgets.coordinator.pending(widgets.resource())
        assert pending is not None
        assert "their own store" in pending
        assert set(await world.said()) == {server.id}
        starting.cancel()


@pytest.mark.parametrize("mode", ["strict", "loose", "off"])
async def test_it_coordinates_in_one_mode_only(tmp_path: Path, mode: str) -> None:
    """A vote would move entries that the main servers do not hear of in time."""
    async with open_remote_world(tmp_path) as world:
        membership = MembershipOptions(host="h", mode=mode)  # type: ignore[arg-type]
        remote = Remote(main=world.way(), store=world.store_id)
        with pytest.raises(ModeRefused, match="must report to the main servers"):
            Coordinator(
                world.storage,
                world.own.catalogs["x"],
                Runtime.simulated("m", clock=world.clock),
                CoordinatorOptions(membership=membership),
                remote=remote,
            )


async def test_a_store_has_one_id() -> None:
    """All servers on it find the same; one that would not report does not come beside them."""
    storage, runtime = MemoryStorage(), Runtime.simulated("s")
    await check_not_reported(storage)
    found = [await ensure_store_id(storage, runtime) for _ in range(2)]
    assert found[0] == found[1]
    with pytest.raises(OpenRefused, match="report to the main servers"):
        await check_not_reported(storage)
    await storage.close()
