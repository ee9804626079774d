"""Custom resources of servers that are behind, that lose their identity, or that leave.

In simulated time, on an audited store: each commit is checked against what coordination promises,
so a test that ends well has also broken no promise.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from restow.apimachinery.status_error import StatusError
from restow.registry.custom.crds import ROOT
from restow.registry.custom.custom_resource import custom_resource
from restow.storage.interface import (
    Delete,
    Transaction,
)
from restow.storage.memory import MemoryStorage
from restow.storageversion.custom_resources import STALE
from restow.storageversion.errors import NotSettled
from restow.storageversion.identity import ServerId, server_key
from restow.storageversion.object_codec import report_key
from restow.storageversion.records import encoder_key
from tests.scenarios.crds import (
    GADGETS,
    KEY,
    KIND,
    PLURAL,
    Gadgets,
)
from tests.unit.storageversion.late_reads import (
    LEASE_SECONDS,
    MODES,
    SOON_SECONDS,
    Failing,
    answers,
    encoders,
    entries,
    hosted,
    lose_identity,
    one,
    two,
    versions,
    written,
)
from tests.unit.storageversion.world import GROUP, open_world


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_that_does_not_know_the_newest_definitions_withdraws(
    tmp_path: Path, mode: str
) -> None:
    """After its lease time it writes no custom resource, says why, and the others need not wait
    for it: they go on to the new version alone. When it knows again, it is back."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        fine, stale = servers
        stale.line.hold(ROOT)
        await gadgets.store_in("v2")
        await world.clock.advance(2 * LEASE_SECONDS)
        with pytest.raises(StatusError) as refused:
            await world.run(stale.write("a", kind=KIND))
        assert refused.value.code == 503
        assert STALE in str(refused.value)
        assert [entry.server_id for entry in await entries(world)] == [fine.id]
        assert written(fine) == "v2"
        await world.run(fine.write("a", kind=KIND))
        assert await world.stored("a", KIND) == "v2"
        await world.run(stale.write("w"))  # all others it writes as before
        stale.line.let_go(ROOT)
        await world.clock.advance(LEASE_SECONDS)
        assert [written(server) for server in servers] == ["v2", "v2"]
        assert len(await entries(world)) == 2
        await world.run(stale.write("b", kind=KIND))
        assert await world.stored("b", KIND) == "v2"


async def test_what_was_defined_while_a_server_did_not_know_is_served_later(tmp_path: Path) -> None:
    """The watch brings it before the server may trust in the watch again: it is not forgotten."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world), Gadgets(world.storage)
        server.line.hold(ROOT)
        await world.clock.advance(2 * LEASE_SECONDS)
        await gadgets.create(["v1"])
        server.line.let_go(ROOT)
        await world.clock.advance(LEASE_SECONDS)
        assert written(server) == "v1"


@pytest.mark.parametrize("mode", MODES)
async def test_a_new_identity_registers_custom_resources_too(tmp_path: Path, mode: str) -> None:
    """A server whose key was removed joins anew; its gadgets are reported under the new id alone,
    and are written."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await lose_identity(world, servers[0])
        assert {entry.server_id for entry in await entries(world)} == {s.id for s in servers}
        await world.run(servers[0].write("a", kind=KIND))


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_definition_that_changes_while_a_server_joins_anew(
    tmp_path: Path, mode: str
) -> None:
    """Its old resource cannot be registered any more, and the new one is: it is written."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        for number in range(2, 12):
            await world.storage.commit(Transaction((), (Delete(server_key(ServerId(server.id))),)))
            renewing = asyncio.ensure_future(server.coordinator._renew())
            for _ in range(number):  # each time a little later
                await asyncio.sleep(0)
            await gadgets.store_in(f"v{number}")
            await world.run(renewing)
            await world.clock.advance(LEASE_SECONDS)
            assert written(server) == f"v{number}"
            await world.run(server.write(f"o{number}", kind=KIND))
            assert await world.stored(f"o{number}", KIND) == f"v{number}"


async def test_a_registration_that_failed_under_a_new_identity_is_tried_again(
    tmp_path: Path,
) -> None:
    """The store fails while gadgets are registered anew: they do not stay closed for ever."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        failing = Failing(server, report_key(GADGETS))
        await world.storage.commit(Transaction((), (Delete(server_key(ServerId(server.id))),)))
        await world.clock.advance(LEASE_SECONDS)
        assert failing.failed
        failing.is_over = True
        await world.clock.advance(2 * LEASE_SECONDS)
        assert written(server) == "v1"
        await world.run(server.write("a", kind=KIND))


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_removed_encoder_key_is_repaired(tmp_path: Path, mode: str) -> None:
    """Somebody has removed the entry of a server that lives: its next write finds out, reports it
    anew, and succeeds."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        key = encoder_key(ServerId(server.id), GADGETS)
        await MemoryStorage.commit(world.storage, Transaction((), (Delete(key),)))
        await world.run(server.write("a", kind=KIND))
        assert await world.stored("a", KIND) == "v1"
        assert len(await encoders(world)) == 1


async def test_a_server_that_waits_for_another_goes_on_as_soon_as_it_has_said_so(
    tmp_path: Path,
) -> None:
    """It need not ask again and again: the other's report wakes it."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        servers[1].line.hold(ROOT)
        await gadgets.store_in("v2")
        await world.clock.advance(SOON_SECONDS + 0.01)
        servers[1].line.let_go(ROOT)
        await world.clock.settle()  # no time passes
        assert [written(server) for server in servers] == ["v2", "v2"]


async def test_a_server_that_stops_takes_its_entries_with_it(tmp_path: Path) -> None:
    """What is left agrees, and nothing of the one that has gone is left."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(servers[0].stop())
        assert [entry.server_id for entry in await entries(world)] == [servers[1].id]
        assert len(await encoders(world)) == 1


async def test_a_server_that_does_not_coordinate_hosts_without_a_report(tmp_path: Path) -> None:
    """Mode off: it serves and writes what is defined, follows it, and reports nothing."""
    async with open_world(tmp_path) as world:
        server, gadgets = (
            await one(world, "off"),
            Gadgets(world.storage),
        )
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(server.write("a", kind=KIND))
        assert await world.stored("a", KIND) == "v1"
        await gadgets.store_in("v2")
        await world.clock.advance(SOON_SECONDS)
        await world.run(server.write("b", kind=KIND))
        assert await world.stored("b", KIND) == "v2"
        assert (await world.report(KIND), await encoders(world)) == (None, [])
        assert server.coordinator.custom_registration.closed_by_all(GROUP, PLURAL, "any")
        await gadgets.refuse_names()
        await world.clock.advance(SOON_SECONDS)
        assert hosted(server) is None


async def test_served_by_all_waits_for_those_that_live(tmp_path: Path) -> None:
    """A server that has not heard of a definition holds it back until it has, or is dead."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world), Gadgets(world.storage)
        servers[1].line.hold(ROOT)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        uid = (await gadgets.now()).uid
        assert answers(servers, uid)["served"] == [False, False]
        await servers[1].kill()
        await world.clock.advance(LEASE_SECONDS + SOON_SECONDS)
        assert answers(servers[:1], uid)["served"] == [True]
        assert answers(servers[:1], "another")["served"] == [False]


async def test_a_waiting_controller_is_woken(tmp_path: Path) -> None:
    """Whoever asks what all have said is told when the answer may have changed."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world), Gadgets(world.storage)
        woken: list[tuple[str, str]] = []
        server.coordinator.custom_registration.wake(lambda *named: woken.append(named))
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        assert (GROUP, PLURAL) in woken
        server.coordinator.custom_registration.wake(None)
        woken.clear()
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        assert woken == []


async def test_what_is_defined_and_what_is_not_do_not_mix(tmp_path: Path) -> None:
    """A server that has a resource from no definition does not register it beside those that have
    it from one, nor they beside it: their objects need not be the same."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, "report"), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        resource = next(r for r in servers[0].catalog if r.kind.kind == KIND)
        stranger = await world.started("x+1")
        with pytest.raises(NotSettled, match="from a CustomResourceDefinition"):
            await world.run(stranger.coordinator.registrar.register(replace(resource, origin=None)))
        registration = servers[0].coordinator.custom_registration
        assert not registration.hosted_otherwise(GROUP, PLURAL)


async def test_a_resource_with_a_crd_does_not_register_beside_one_without(tmp_path: Path) -> None:
    """A server does not register a custom resource while another server, such as an aggregated
    one, reports the same resource without a CRD: it waits, and names that server."""
    async with open_world(tmp_path) as elsewhere:
        gadgets = Gadgets(elsewhere.storage)
        await gadgets.create(["v1"])
        resource = custom_resource(await gadgets.now())
    async with open_world(tmp_path) as world:
        server, other = await world.started("x+1"), await world.started("x+1")
        await world.run(other.coordinator.registrar.register(replace(resource, origin=None)))
        with pytest.raises(NotSettled, match=f"{other.id} serve .* without a CRD"):
            await world.run(server.coordinator.registrar.register(resource))


async def test_a_voter_that_stops_does_not_move_the_selection_of_what_is_no_longer_defined(
    tmp_path: Path,
) -> None:
    """The CRD is deleted, and no server knows yet. The only vote for the selected version goes with
    its server, but the others are not told to write another version: nothing defines it. (The store
    is audited: C4, by seed 1000979 of the simulator.)"""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, "strict"), Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        left, stopping = servers
        stopping.line.hold(ROOT)
        await gadgets.store_in("v2")
        await world.clock.advance(SOON_SECONDS)
        assert await versions(world) == ["v1", "v1"]  # one vote for each
        left.line.hold(ROOT)
        await MemoryStorage.commit(world.storage, Transaction((), (Delete(KEY),)))
        await world.run(stopping.stop())
        await world.clock.advance(SOON_SECONDS)
        assert await versions(world) == ["v1"]
        left.line.let_go(ROOT)
        await world.clock.advance(SOON_SECONDS)
        assert await entries(world) == ()


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_vote_for_an_earlier_definition_does_not_move_the_selection(
    tmp_path: Path, is_killed: bool
) -> None:
    """The vote that is left is for a version that is not listed as stored any more: it is written
    by nobody. When its server has seen the CRD as it is now, it votes for that."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, "strict"), Gadgets(world.storage)
        await gadgets.create(["v2", "v1"])
        await world.clock.advance(SOON_SECONDS)
        left, leaving = servers
        leaving.line.hold(ROOT)
        await gadgets.store_in("v1")
        await world.clock.advance(SOON_SECONDS)
        left.line.hold(ROOT)
        await gadgets.store_in("v2")
        await gadgets.trim()
        assert (await gadgets.now()).stored_versions == ("v2",)
        await (leaving.kill() if is_killed else world.run(leaving.stop()))
        await world.clock.advance(LEASE_SECONDS - 2)
        left.line.let_go(ROOT)
        await world.clock.advance(LEASE_SECONDS)
        assert await versions(world) == ["v2"]
        assert written(left) == "v2"


@pytest.mark.parametrize("mode", ["strict", "loose"])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_when_the_vote_that_held_a_selection_back_is_gone_the_others_move_it(
    tmp_path: Path, mode: str, is_killed: bool
) -> None:
    """They register again, under the CRD as it is now, and need no change of it."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        left, leaving = servers
        leaving.line.hold(ROOT)
        await gadgets.store_in("v2")
        await world.clock.advance(SOON_SECONDS)
        assert written(left) == "v1"
        await (leaving.kill() if is_killed else world.run(leaving.stop()))
        await world.clock.advance(LEASE_SECONDS + 3 if is_killed else SOON_SECONDS)
        assert written(left) == "v2"
        await world.run(left.write("a", kind=KIND))
        assert await world.stored("a", KIND) == "v2"
