"""The end of custom resources: closed on all servers, then removed, possibly recreated.

In simulated time, on an audited store: each commit is checked against the invariants of
coordination, so a test that passes has violated none.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.apimachinery.status_error import StatusError
from restow.registry.custom.crds import ROOT
from restow.registry.store import DeleteOptions
from restow.storage.interface import (
    Delete,
    Key,
    Put,
    Refused,
    Span,
    Transaction,
)
from restow.storageversion.garbage_collector import COLLECT_INTERVAL_SECONDS
from restow.storageversion.object_codec import report_key, state_key
from restow.storageversion.rules import UNKNOWN_HASH
from restow.storageversion.vote_objects import VOTES_PREFIX
from tests.scenarios.crds import (
    GADGETS,
    GADGETS_ROOT,
    KEY,
    KIND,
    PLURAL,
    Gadgets,
)
from tests.unit.storageversion.late_reads import (
    LEASE_SECONDS,
    MODES,
    SOON_SECONDS,
    DelayedCommits,
    FailingCommits,
    encoders,
    end,
    entries,
    gadget,
    hosted,
    is_stored,
    lose_identity,
    one,
    states_by_server,
    two,
    written,
)
from tests.unit.storageversion.world import GROUP, open_world


@pytest.mark.parametrize("mode", MODES)
async def test_a_removed_crd_leaves_nothing(tmp_path: Path, mode: str) -> None:
    """No server serves it; entries, encoder keys, StorageVersion, StorageState and the vote are
    removed."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        assert is_stored(world, state_key(GADGETS))
        await end(world, gadgets)
        assert [hosted(server) for server in servers] == [None, None]
        assert await world.report(KIND) is None
        assert await encoders(world) == []
        assert await world.storage.get(state_key(GADGETS)) is None
        votes = (await world.storage.range(Span.of_prefix(VOTES_PREFIX))).items
        assert [item.key for item in votes if item.key.endswith(f".{PLURAL}")] == []
        with pytest.raises(StatusError) as refused:
            await world.run(servers[0].write("a", kind=KIND))
        assert refused.value.code == 404


@pytest.mark.parametrize("mode", MODES)
async def test_the_state_is_removed_after_expired_servers(tmp_path: Path, mode: str) -> None:
    """A server is killed before the CRD is removed: when its entry is collected, the others also
    remove
    the StorageState."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        await servers[1].kill()
        await gadgets.remove()
        await world.clock.advance(SOON_SECONDS)
        assert [entry.server_id for entry in await entries(world)] == [servers[1].id]
        await world.clock.advance(2 * LEASE_SECONDS)
        assert await world.report(KIND) is None
        assert await world.storage.get(state_key(GADGETS)) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("versions_then", [["v3"], ["v1"], ["v2", "v1"]])
async def test_a_recreated_crd(tmp_path: Path, mode: str, versions_then: list[str]) -> None:
    """It may have other versions. All servers serve it as if there had been none before."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(servers[0].write("a", kind=KIND))
        await world.run(servers[0].store.delete(gadget(servers[0]), "v1", "ns/a", DeleteOptions()))
        await end(world, gadgets)
        await gadgets.create(versions_then)
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == [versions_then[0]] * 2
        for server in servers:
            await world.run(server.write(server.name, kind=KIND))
            assert await world.stored(server.name, KIND) == versions_then[0]
        uid = (await gadgets.now()).uid
        assert {entry.definition for entry in await entries(world)} == {uid}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_definition_removed_by_force_is_scanned_when_it_is_recreated(
    tmp_path: Path, mode: str, is_seen: bool
) -> None:
    """A CRD whose finalizers were patched away leaves its objects behind. A CRD of the same name
    that cannot read them is not registered by any server, and the StorageState says Unknown. It is
    served when it has the version in which they are stored. `is_seen`: the servers see that the
    first one is gone before the second one exists."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(servers[0].write("a", kind=KIND))
        await gadgets.remove_by_force()
        if is_seen:
            await world.clock.advance(SOON_SECONDS)
            assert UNKNOWN_HASH in (await world.state(KIND)).persisted
        await gadgets.create(["v2"])
        await world.clock.advance(LEASE_SECONDS)
        assert [hosted(server) for server in servers] == [None, None]
        assert await world.report(KIND) is None
        assert UNKNOWN_HASH in (await world.state(KIND)).persisted
        await gadgets.add("v1")
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v2", "v2"]
        await world.run(servers[1].write("a", kind=KIND))
        assert await world.stored("a", KIND) == "v2"


@pytest.mark.parametrize("mode", MODES)
async def test_a_recreated_definition_is_scanned_also_without_a_state(
    tmp_path: Path, mode: str
) -> None:
    """The CRD is removed by force and its StorageState deleted: a server that has scanned for the
    first
    CRD scans again for the second one, and does not register."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(servers[0].write("a", kind=KIND))
        await gadgets.remove_by_force()
        await world.clock.advance(SOON_SECONDS)
        await world.storage.commit(Transaction((), (Delete(state_key(GADGETS)),)))
        await gadgets.create(["v2"])
        await world.clock.advance(SOON_SECONDS)
        assert [hosted(server) for server in servers] == [None, None]


async def test_a_server_with_a_new_identity_scans_again(tmp_path: Path) -> None:
    """Values stored while a server was no member prevent it from registering again."""
    async with open_world(tmp_path) as world:
        server = await one(world)
        await world.run(server.write("a"))
        assert server.coordinator.table.find(server.resource()) is not None
        key = Key(f"/registry/{GROUP}/widgets/ns/planted")
        world.storage.is_fenced = False
        world.storage.planted.add(key)
        value = b'{"kind":"Widget","apiVersion":"example.com/v9","metadata":{"name":"planted"}}'
        await world.storage.commit(Transaction((), (Put(key, value),)))
        await lose_identity(world, server)
        assert server.coordinator.table.find(server.resource()) is None
        assert "1 in example.com/v9" in (server.coordinator.pending(server.resource()) or "")


async def test_objects_of_another_kind_prevent_registration(
    tmp_path: Path,
) -> None:
    """A CRD that was removed by force is recreated with the same versions and another kind: no
    server can
    read the stored objects, so none registers."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(server.write("a", kind=KIND))
        await gadgets.remove_by_force()
        await world.clock.advance(SOON_SECONDS)
        await gadgets.create(["v1"], kind="Gizmo")
        await world.clock.advance(SOON_SECONDS)
        assert hosted(server) is None


async def test_the_state_of_a_definition_removed_by_force_goes_with_its_last_object(
    tmp_path: Path,
) -> None:
    """The StorageState is kept while objects without an owner are stored, and then removed by the
    garbage collector."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(server.write("a", kind=KIND))
        await gadgets.remove_by_force()
        await world.clock.advance(2 * COLLECT_INTERVAL_SECONDS)
        assert (await world.state(KIND)).persisted[0] == UNKNOWN_HASH
        world.storage.is_fenced = False
        await world.storage.commit(Transaction((), (Delete(Key(f"{GADGETS_ROOT}ns/a")),)))
        await world.clock.advance(2 * COLLECT_INTERVAL_SECONDS)
        assert await world.storage.get(state_key(GADGETS)) is None


@pytest.mark.parametrize("mode", ["report", "strict"])
@pytest.mark.parametrize("slow", [0, 1])
async def test_a_recreated_crd_while_others_report_the_old_one(
    tmp_path: Path, mode: str, slow: int
) -> None:
    """The new CRD stores v2 and also has v1, which the old one stored. A server that has not
    observed the
    deletion does not cause others to write v1, which was never stored under the new CRD."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        servers[slow].line.hold(ROOT)
        await gadgets.remove()
        await gadgets.create(["v2", "v1"])
        await world.clock.advance(SOON_SECONDS)
        with pytest.raises(StatusError) as refused:
            await world.run(servers[1 - slow].write("a", kind=KIND))
        assert refused.value.code == 404, "it is served before the other has observed the end"
        servers[slow].line.let_go(ROOT)
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v2", "v2"]
        await world.run(servers[slow].write("b", kind=KIND))
        assert await world.stored("b", KIND) == "v2"


@pytest.mark.parametrize("mode", MODES)
async def test_a_crd_recreated_before_any_server_observes_the_deletion(
    tmp_path: Path, mode: str
) -> None:
    """All servers observe the new CRD at once, and none waits for the old entries of others."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        await gadgets.remove()
        await gadgets.create(["v2"])
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v2", "v2"]
        uid = (await gadgets.now()).uid
        assert [entry.definition for entry in await entries(world)] == [uid, uid]


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_an_own_entry_of_the_old_crd_is_replaced(tmp_path: Path, mode: str) -> None:
    """A server could not withdraw its entry for the old CRD, whose versions the new one lacks: it
    is
    replaced by the entry for the new one."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        failing = FailingCommits(server, report_key(GADGETS))
        await gadgets.remove()
        await world.clock.advance(0.01)
        assert failing.failed
        await gadgets.create(["v2"])
        await world.clock.advance(0.01)
        failing.is_over = True
        await world.clock.advance(SOON_SECONDS)
        assert written(server) == "v2"


@pytest.mark.parametrize("mode", MODES)
async def test_rejected_names_stop_serving_and_keep_the_state(tmp_path: Path, mode: str) -> None:
    """A CRD that loses its names is no longer served; its persisted versions are kept, as its
    objects
    still exist. With accepted names it is served again."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(servers[0].write("a", kind=KIND))
        accepted = (await world.storage.get(KEY)).value  # type: ignore[union-attr]
        await gadgets.refuse_names()
        await world.clock.advance(SOON_SECONDS)
        assert [hosted(server) for server in servers] == [None, None]
        assert (await world.report(KIND), await encoders(world)) == (None, [])
        assert await world.storage.get(state_key(GADGETS)) is not None
        await gadgets.change(lambda obj: obj.update(orjson.loads(accepted)))
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v1", "v1"]


@pytest.mark.parametrize("mode", MODES)
async def test_closing(tmp_path: Path, mode: str) -> None:
    """When a CRD is being deleted, each server records it in its encoder key and rejects creates;
    the
    CRD is closed when all servers have done so."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(servers[0].write("a", kind=KIND))
        uid = (await gadgets.now()).uid
        assert states_by_server(servers, uid) == {"served": [True, True], "closed": [False, False]}
        servers[1].line.hold(ROOT)
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        assert states_by_server(servers, uid)["closed"] == [False, False]
        assert sorted(bool(each["closing"]) for each in await encoders(world)) == [False, True]
        servers[1].line.let_go(ROOT)
        await world.clock.advance(SOON_SECONDS)
        assert [each["closing"] for each in await encoders(world)] == [True, True]
        assert states_by_server(servers, uid)["closed"] == [True, True]
        assert states_by_server(servers, "another")["closed"] == [False, False]
        for server in servers:
            with pytest.raises(StatusError) as refused:
                await world.run(server.write("b", kind=KIND))
            assert refused.value.code == 403
            await world.run(server.write("a", kind=KIND, by=server.name))


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_create_in_flight_does_not_commit_after_closing(tmp_path: Path, mode: str) -> None:
    """After all servers have closed, no object is created: the fence rejects requests sent
    before."""
    async with open_world(tmp_path) as world:
        server = await one(world, mode)
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        late = DelayedCommits(server)
        creating = asyncio.ensure_future(server.write("b", kind=KIND))
        await world.clock.settle()
        assert late.held == 1
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        assert states_by_server([server], (await gadgets.now()).uid)["closed"] == [True]
        late.go()
        with pytest.raises(StatusError) as refused:
            await world.run(creating)
        assert refused.value.code == 403
        assert await gadgets.instances() == []


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_write_for_an_older_crd_does_not_commit_under_a_newer_one(
    tmp_path: Path, mode: str
) -> None:
    """The CRD is recreated with the same version while a create for the first one is in flight: the
    second
    one does not have the object."""
    async with open_world(tmp_path) as world:
        server = await one(world, mode)
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        sent = {"metadata": {"name": "b", "namespace": "ns"}}
        planner = server.store._planner
        plan = planner.plan_create(gadget(server), "v1", sent, "ns", None, None)
        encoding = server.coordinator.table.encoding(gadget(server))
        transaction = Transaction((plan.guard, *encoding.guards), (plan.write(encoding),))
        await end(world, gadgets)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        assert written(server) == "v1"
        assert isinstance(await world.storage.commit(transaction), Refused)
        assert await gadgets.instances() == []


async def test_a_state_created_too_late_is_removed(tmp_path: Path) -> None:
    """A StorageState created by a client that has not observed the deletion of the CRD is
    removed."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        state = await world.storage.get(state_key(GADGETS))
        assert state is not None
        await end(world, gadgets)
        assert hosted(server) is None
        await world.storage.commit(Transaction((), (Put(state.key, state.value),)))
        await world.clock.advance(COLLECT_INTERVAL_SECONDS + SOON_SECONDS)
        assert await world.storage.get(state_key(GADGETS)) is None


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_versions_removed_from_a_crd_block_no_server(tmp_path: Path, mode: str) -> None:
    """v1 was removed from storedVersions and from the CRD while both servers still write it: both
    stop, and
    continue in v2; the CRD can be deleted."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        for server in servers:
            server.line.hold(ROOT)
        await gadgets.store_in("v2")

        def edit(obj: dict[str, Any]) -> None:
            obj["status"]["storedVersions"] = ["v2"]

        await gadgets.change(edit)
        await gadgets.drop("v1")
        for server in servers:
            server.line.let_go(ROOT)
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v2", "v2"]
        await world.run(servers[0].write("a", kind=KIND))
        assert await world.stored("a", KIND) == "v2"
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        assert states_by_server(servers, (await gadgets.now()).uid)["closed"] == [True, True]


async def test_unreadable_objects_do_not_block_the_deletion_of_a_crd(tmp_path: Path) -> None:
    """An object is stored in a version that was removed from the CRD: the CRD is not served that
    way, but it
    is closed when it is deleted."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world), Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(server.write("a", kind=KIND))
        await gadgets.store_in("v2")
        await world.clock.advance(SOON_SECONDS)
        before = gadget(server)

        def edit(obj: dict[str, Any]) -> None:
            obj["status"]["storedVersions"] = ["v2"]
            obj["spec"]["versions"] = [v for v in obj["spec"]["versions"] if v["name"] == "v2"]

        await gadgets.change(edit)
        await world.clock.advance(SOON_SECONDS)
        assert gadget(server) is before, "it is served as it is defined now"
        assert world.storage.broken == []
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        uid = (await gadgets.now()).uid
        assert server.coordinator.custom_registration.closed_by_all(GROUP, PLURAL, uid)
        # The unreadable object is the only expected violation.
        assert {each.partition(":")[0] for each in world.storage.broken} <= {"C3"}
        world.storage.broken.clear()
