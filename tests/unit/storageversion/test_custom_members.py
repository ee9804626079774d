"""Custom resources of servers that lag behind, lose their identity, or leave.

In simulated time, on an audited store: each commit is checked against the invariants of
coordination, so a test that passes has violated none.
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
    FailingCommits,
    encoders,
    entries,
    hosted,
    lose_identity,
    one,
    states_by_server,
    two,
    versions,
    written,
)
from tests.unit.storageversion.world import GROUP, open_world


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_without_the_newest_crds_withdraws(tmp_path: Path, mode: str) -> None:
    """After its lease duration it writes no custom resource and reports the reason, and the others
    change to
    the new version without it. When it has caught up, it registers again."""
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
        await world.run(stale.write("w"))  # writes of other resources continue
        stale.line.let_go(ROOT)
        await world.clock.advance(LEASE_SECONDS)
        assert [written(server) for server in servers] == ["v2", "v2"]
        assert len(await entries(world)) == 2
        await world.run(stale.write("b", kind=KIND))
        assert await world.stored("b", KIND) == "v2"


async def test_a_crd_created_while_a_server_lagged_is_served_later(tmp_path: Path) -> None:
    """The watch delivers it before the server trusts the watch again: it is not lost."""
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
    """A server whose key was removed joins again; its gadgets are reported under the new ID only,
    and
    are written."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await lose_identity(world, servers[0])
        assert {entry.server_id for entry in await entries(world)} == {s.id for s in servers}
        await world.run(servers[0].write("a", kind=KIND))


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_crd_that_changes_while_a_server_rejoins(tmp_path: Path, mode: str) -> None:
    """Its old resource can no longer be registered, the new one is, and is written."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        for number in range(2, 12):
            await world.storage.commit(Transaction((), (Delete(server_key(ServerId(server.id))),)))
            renewing = asyncio.ensure_future(server.coordinator._renew())
            for _ in range(number):  # a little later each time
                await asyncio.sleep(0)
            await gadgets.store_in(f"v{number}")
            await world.run(renewing)
            await world.clock.advance(LEASE_SECONDS)
            assert written(server) == f"v{number}"
            await world.run(server.write(f"o{number}", kind=KIND))
            assert await world.stored(f"o{number}", KIND) == f"v{number}"


async def test_a_failed_registration_under_a_new_identity_is_retried(
    tmp_path: Path,
) -> None:
    """The store fails while gadgets are registered again: they are opened later."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        failing = FailingCommits(server, report_key(GADGETS))
        await world.storage.commit(Transaction((), (Delete(server_key(ServerId(server.id))),)))
        await world.clock.advance(LEASE_SECONDS)
        assert failing.failed
        failing.is_over = True
        await world.clock.advance(2 * LEASE_SECONDS)
        assert written(server) == "v1"
        await world.run(server.write("a", kind=KIND))


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_removed_encoder_key_is_repaired(tmp_path: Path, mode: str) -> None:
    """The encoder key of a running server was removed: its next write detects it, registers again
    and
    succeeds."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        key = encoder_key(ServerId(server.id), GADGETS)
        await MemoryStorage.commit(world.storage, Transaction((), (Delete(key),)))
        await world.run(server.write("a", kind=KIND))
        assert await world.stored("a", KIND) == "v1"
        assert len(await encoders(world)) == 1


async def test_a_waiting_server_continues_as_soon_as_the_other_reports(
    tmp_path: Path,
) -> None:
    """It does not poll: the other server's report wakes it."""
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


async def test_a_server_that_stops_removes_its_entries(tmp_path: Path) -> None:
    """The remaining servers agree, and no entry of the stopped one remains."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(servers[0].stop())
        assert [entry.server_id for entry in await entries(world)] == [servers[1].id]
        assert len(await encoders(world)) == 1


async def test_a_server_in_mode_off_hosts_without_a_report(tmp_path: Path) -> None:
    """In mode off a server serves, follows and writes CRDs, and reports nothing."""
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


async def test_served_by_all_waits_for_running_servers(tmp_path: Path) -> None:
    """A server that has not observed a CRD delays it until it has, or has expired."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world), Gadgets(world.storage)
        servers[1].line.hold(ROOT)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        uid = (await gadgets.now()).uid
        assert states_by_server(servers, uid)["served"] == [False, False]
        await servers[1].kill()
        await world.clock.advance(LEASE_SECONDS + SOON_SECONDS)
        assert states_by_server(servers[:1], uid)["served"] == [True]
        assert states_by_server(servers[:1], "another")["served"] == [False]


async def test_a_waiting_controller_is_woken(tmp_path: Path) -> None:
    """A controller that waits for all servers is called when their state may have changed."""
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


async def test_resources_with_and_without_a_crd_do_not_mix(tmp_path: Path) -> None:
    """A server that has the resource without a CRD does not register concurrently with servers that
    have it
    from one, nor vice versa: their objects may differ."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, "report"), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        resource = next(r for r in servers[0].catalog if r.kind.kind == KIND)
        unmanaged = await world.started("x+1")
        with pytest.raises(NotSettled, match="from a CustomResourceDefinition"):
            await world.run(
                unmanaged.coordinator.registrar.register(replace(resource, origin=None))
            )
        registration = servers[0].coordinator.custom_registration
        assert not registration.hosted_otherwise(GROUP, PLURAL)


async def test_a_resource_with_a_crd_does_not_register_beside_one_without(tmp_path: Path) -> None:
    """A server does not register a custom resource while another server, such as an aggregated one,
    reports the same resource without a CRD: it waits, and names that server."""
    async with open_world(tmp_path) as elsewhere:
        gadgets = Gadgets(elsewhere.storage)
        await gadgets.create(["v1"])
        resource = custom_resource(await gadgets.now())
    async with open_world(tmp_path) as world:
        server, other = await world.started("x+1"), await world.started("x+1")
        await world.run(other.coordinator.registrar.register(replace(resource, origin=None)))
        with pytest.raises(NotSettled, match=f"{other.id} serve .* without a CRD"):
            await world.run(server.coordinator.registrar.register(resource))


async def test_a_voter_that_stops_does_not_move_the_selection_of_a_deleted_crd(
    tmp_path: Path,
) -> None:
    """The CRD is deleted, and no server has observed it. The only vote for the selected version
    goes with
    its server, but the others do not change to another version: no CRD has it. (The store is
    audited:
    C4, by seed 1000979 of the simulator.)"""
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
    """The remaining vote is for a version that is no longer in storedVersions: no server writes it.
    When its server has observed the current CRD, it votes for that."""
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
async def test_after_the_blocking_vote_is_gone_the_others_move_the_selection(
    tmp_path: Path, mode: str, is_killed: bool
) -> None:
    """They register again, under the current CRD, without a change of it."""
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
