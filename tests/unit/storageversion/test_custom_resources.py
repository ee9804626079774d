"""Custom resources of coordinating servers: registered before served, in one step.

In simulated time, on an audited store: each commit is checked against the invariants of
coordination, so a test that passes has violated none.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from restow.registry.custom.crds import ROOT
from restow.registry.custom.custom_resource import custom_resource
from restow.storageversion.object_codec import report_key
from tests.scenarios.crds import (
    GADGETS,
    KIND,
    Gadgets,
    api_version,
)
from tests.unit.storageversion.late_reads import (
    MODES,
    OLDER_WRITES_SECONDS,
    SOON_SECONDS,
    STEPS,
    DelayedCommits,
    check_understanding,
    entries,
    gadget,
    hosted,
    is_stored,
    lose_identity,
    one,
    own_entry,
    revisions,
    two,
    versions,
    written,
)
from tests.unit.storageversion.world import GROUP, open_world


@pytest.mark.parametrize("mode", MODES)
async def test_a_definition_is_registered_and_hosted_in_one_step(tmp_path: Path, mode: str) -> None:
    """When the catalog hosts the resource, the table has its encoding, and the entry is stored. At
    no
    iteration of the event loop is one visible without the other."""
    async with open_world(tmp_path) as world:
        server = await one(world, mode)
        changes: list[tuple[str | None, bool]] = []
        observed: set[tuple[bool, bool]] = set()
        server.catalog.changed.subscribe(
            lambda _group: changes.append((written(server), is_stored(world, report_key(GADGETS))))
        )
        gadgets, late = Gadgets(world.storage), DelayedCommits(server, to=report_key(GADGETS))
        await gadgets.create(["v1"])
        same_root = custom_resource(await gadgets.now())
        await world.clock.settle()
        assert late.held == 1
        assert server.coordinator.table.find(same_root) is None
        assert hosted(server) is None
        late.go()
        for _ in range(STEPS):
            is_open = server.coordinator.table.find(same_root) is not None
            observed.add((hosted(server) is not None, is_open))
            await asyncio.sleep(0)
        assert changes == [("v1", True)]
        assert observed == {(False, False), (True, True)}
        assert await versions(world) == ["v1"]


@pytest.mark.parametrize("mode", MODES)
async def test_another_definition_replaces_the_resource_in_one_step(
    tmp_path: Path, mode: str
) -> None:
    """At each iteration of the event loop the written version is one of the resource in the
    catalog, and
    finally the storage version of the CRD."""
    async with open_world(tmp_path) as world:
        server = await one(world, mode)
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        before = gadget(server)
        await gadgets.store_in("v2")
        seen: set[tuple[bool, str | None]] = set()
        for _ in range(STEPS):
            seen.add((gadget(server) is before, written(server)))
            await asyncio.sleep(0)
        assert seen == {(True, "v1"), (False, "v2")}
        assert before.origin is not None
        assert before.origin.is_replaced


async def test_a_crd_that_exists_at_the_start_is_served(tmp_path: Path) -> None:
    """A started server serves all existing CRDs."""
    async with open_world(tmp_path) as world:
        await Gadgets(world.storage).create(["v1"])
        server = await one(world)
        assert written(server) == "v1"


async def test_a_resource_of_the_release_is_never_replaced(tmp_path: Path) -> None:
    """A CRD for widgets changes nothing on a server whose release has them."""
    async with open_world(tmp_path) as world:
        server = await one(world)
        own = server.resource()
        await Gadgets(world.storage).create(["v7"], plural="widgets")
        await world.clock.advance(SOON_SECONDS)
        assert server.resource() is own
        report = await world.report()
        assert report is not None
        assert [entry.encoding_version for entry in report.entries] == [f"{GROUP}/v1"]
        await world.run(server.write("a"))
        assert await world.stored("a") == "v1"


# Changes of the CRD.


@pytest.mark.parametrize("mode", MODES)
async def test_the_stored_version_changes_on_all_servers(tmp_path: Path, mode: str) -> None:
    """Both versions are known: all servers soon write the new one, report it, and agree."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v1", "v1"]
        await gadgets.store_in("v2")
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v2", "v2"]
        for server in servers:
            await world.run(server.write(server.name, kind=KIND))
            assert await world.stored(server.name, KIND) == "v2"
        await world.clock.advance(OLDER_WRITES_SECONDS if mode == "loose" else 0)
        assert await versions(world) == ["v2", "v2"]
        assert await world.common(KIND) == api_version("v2")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("slow", [0, 1])
async def test_a_version_that_is_new_and_stored_at_once(
    tmp_path: Path, mode: str, slow: int
) -> None:
    """No entry ever encodes a version that another entry cannot decode, although one server
    observes the
    change later, and no server is blocked."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        servers[slow].line.hold(ROOT)
        await gadgets.store_in("v2")
        await world.clock.advance(SOON_SECONDS)
        ahead = servers[1 - slow]
        assert written(ahead) == "v1", "the other cannot read v2 yet"
        assert api_version("v2") in (await own_entry(world, ahead)).decodable_versions
        await world.run(ahead.write("a", kind=KIND))
        assert await world.stored("a", KIND) == "v1"
        servers[slow].line.let_go(ROOT)
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v2", "v2"]
        await world.clock.advance(OLDER_WRITES_SECONDS if mode == "loose" else 0)
        assert await world.common(KIND) == api_version("v2")
        check_understanding(world)


async def test_versions_change_repeatedly_on_three_servers(tmp_path: Path) -> None:
    """A new version each time, and the previous one is removed after verification: all servers
    follow."""
    async with open_world(tmp_path) as world:
        servers = [await one(world) for _ in range(3)]
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1"])
        for number in range(2, 6):
            await world.clock.advance(SOON_SECONDS)
            await world.run(servers[number % 3].write("a", kind=KIND, number=number))
            await gadgets.store_in(f"v{number}")
            await world.clock.advance(SOON_SECONDS)
            assert not await gadgets.trim(), "an object is still stored in the old version"
            await world.run(servers[number % 3].write("a", kind=KIND, number=-number))
            assert await world.stored("a", KIND) == f"v{number}"
            assert await gadgets.trim()
            await gadgets.drop(f"v{number - 1}")
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v5"] * 3
        assert {e.decodable_versions for e in await entries(world)} == {(api_version("v5"),)}
        check_understanding(world)


async def test_a_status_change_registers_nothing(tmp_path: Path) -> None:
    """The resource stays the same, and nothing is written."""
    async with open_world(tmp_path) as world:
        server = await one(world)
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        before, reported = gadget(server), await revisions(world)
        noted = await gadgets.note()
        await world.clock.advance(SOON_SECONDS)
        assert gadget(server) is before
        assert before.origin is not None
        assert before.origin.revision == noted
        assert await revisions(world) == reported
        await gadgets.store_in("v2")
        await world.clock.advance(SOON_SECONDS)
        assert written(server) == "v2"


async def test_a_status_change_does_not_prevent_a_registration_under_a_new_identity(
    tmp_path: Path,
) -> None:
    """The registration is guarded by the newest revision of an equivalent CRD."""
    async with open_world(tmp_path) as world:
        server = await one(world)
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await gadgets.note()
        await world.clock.advance(SOON_SECONDS)
        await lose_identity(world, server)
        assert written(server) == "v1"
        assert [entry.server_id for entry in await entries(world)] == [server.id]


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_write_planned_in_the_old_version_commits_in_the_new(
    tmp_path: Path, mode: str
) -> None:
    """It is in flight when the storage version changes: its fence fails, and it is encoded again.
    The
    client gets neither a conflict nor an error."""
    async with open_world(tmp_path) as world:
        server = await one(world, mode)
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(server.write("a", kind=KIND))
        late = DelayedCommits(server)
        creating = asyncio.ensure_future(server.write("b", kind=KIND))
        updating = asyncio.ensure_future(server.write("a", kind=KIND, changed=True))
        await world.clock.settle()
        assert late.held == 2
        await gadgets.store_in("v2")
        await world.clock.advance(SOON_SECONDS)
        assert written(server) == "v2"
        late.go()
        assert (await world.run(creating)).created
        await world.run(updating)
        assert [await world.stored(name, KIND) for name in ("a", "b")] == ["v2", "v2"]


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_registration_of_an_old_crd_does_not_commit(tmp_path: Path, mode: str) -> None:
    """A server starts to register v2 and hangs. Meanwhile the CRD changes back to v1 and removes
    v2, which
    the other server observes. The registration is rejected, and v1 is written."""
    async with open_world(tmp_path) as world:
        gadgets = Gadgets(world.storage)
        server = await one(world, mode)
        late = DelayedCommits(server, to=report_key(GADGETS))
        await gadgets.create(["v2", "v1"])
        await world.clock.settle()
        assert late.held == 1
        await gadgets.store_in("v1")

        def edit(obj: dict[str, Any]) -> None:
            obj["status"]["storedVersions"] = ["v1"]  # v2 was never written

        await gadgets.change(edit)
        await gadgets.drop("v2")
        late.go()
        seen: set[str | None] = set()
        for _ in range(40):
            seen.add(None if hosted(server) is None else written(server))
            await world.clock.advance(SOON_SECONDS / 40)
        assert seen == {None, "v1"}
        await world.run(server.write("a", kind=KIND))
        assert await world.stored("a", KIND) == "v1"
