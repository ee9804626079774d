"""Custom resources of servers that coordinate: registered before they are served, and never apart.

In simulated time, on an audited store: each commit is checked against what coordination promises,
so a test that ends well has also broken no promise.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.coordination.ballots import BALLOTS_PREFIX
from restow.coordination.custom import STALE
from restow.coordination.identity import ServerId, server_key
from restow.coordination.records import ENCODERS_PREFIX
from restow.coordination.rules import Entry
from restow.coordination.wire import decode_report, report_key, state_key
from restow.machinery.status_error import StatusError
from restow.resources.custom.definitions import ROOT
from restow.resources.custom.hosting import custom_resource
from restow.resources.definition import Resource
from restow.resources.store import DeleteWish
from restow.storage.errors import Unavailable
from restow.storage.interface import (
    Delete,
    Item,
    Key,
    Outcome,
    Refused,
    Revision,
    Span,
    Transaction,
)
from tests.scenarios.custom_definitions import (
    GADGETS,
    GADGETS_ROOT,
    KEY,
    KIND,
    PLURAL,
    Gadgets,
    api_version,
)
from tests.unit.coordination.world import GROUP, Line, Server, World, open_world

MODES = ["report", "strict", "loose"]
LEASE_SECONDS = 15.0
SOON_SECONDS = 2.0
"""Within so long a definition is followed everywhere, when nothing is wrong."""
STEPS = 300
"""Of the loop, within which a definition is followed when nothing is slow."""
OLDER_WRITES_SECONDS = 35.0
"""After so long also a server without a fence has said what it writes."""


async def one(world: World, mode: str = "report") -> Server:
    world.storage.is_fenced = mode not in ("loose", "off")
    server = await world.started("x+1", mode=mode, custom=True)
    assert isinstance(server, Server)
    return server


async def two(world: World, mode: str = "report") -> list[Server]:
    return [await one(world, mode) for _ in range(2)]


def hosted(server: Server) -> Resource | None:
    return server.catalog.named(GROUP, PLURAL)


def gadget(server: Server) -> Resource:
    found = hosted(server)
    assert found is not None, f"{server.name} does not host it"
    return found


def written(server: Server) -> str | None:
    """The version in which a server writes gadgets; None: it does not."""
    found = server.coordinator.table.find(gadget(server))
    return None if found is None else found.api_version.rpartition("/")[2]


async def entries(world: World) -> tuple[Entry, ...]:
    report = await world.report(KIND)
    return () if report is None else report.entries


async def versions(world: World) -> list[str]:
    return [entry.encoding_version.rpartition("/")[2] for entry in await entries(world)]


async def own_entry(world: World, server: Server) -> Entry:
    (found,) = [entry for entry in await entries(world) if entry.server_id == server.id]
    return found


async def revisions(world: World) -> list[Revision]:
    """When entry, encoder key and state were written last."""
    found = (await world.storage.range(Span.of_prefix(ENCODERS_PREFIX))).items
    items = [
        await world.storage.get(report_key(GADGETS)),
        await world.storage.get(state_key(GADGETS)),
    ]
    return [item.revision for item in (*found, *items) if item is not None]


def is_stored(world: World, key: Key) -> bool:
    """Whether a key was ever written."""
    return any(event.key == key for entry in world.storage._log for event in entry.events)


def check_understanding(world: World) -> None:
    """No entry has ever encoded what another entry could not decode."""
    for logged in world.storage._log:
        for event in logged.events:
            if event.key != report_key(GADGETS) or event.value is None:
                continue
            item = Item(event.key, event.value, event.revision, event.created)
            found = decode_report(item).report.entries
            for entry in found:
                for other in found:
                    assert entry.encoding_version in other.decodable_versions, found


def answers(servers: list[Server], uid: str) -> dict[str, list[bool]]:
    """What each server says of all."""
    asked = [server.coordinator.custom_registration for server in servers]
    return {
        "served": [each.served_by_all(GROUP, PLURAL, uid) for each in asked],
        "closed": [each.closed_by_all(GROUP, PLURAL, uid) for each in asked],
    }


async def end(world: World, gadgets: Gadgets) -> None:
    """Delete the definition, whose instances are gone, as its finalizer would let it go."""
    await gadgets.delete()
    await world.clock.advance(SOON_SECONDS)
    await gadgets.remove()
    await world.clock.advance(SOON_SECONDS)


async def lose_identity(world: World, server: Server) -> None:
    """Have somebody take a server for dead; returns when it has noticed and joined anew."""
    lost = server.id
    await world.storage.commit(Transaction((), (Delete(server_key(ServerId(lost))),)))
    is_loose = server.coordinator.membership.options.mode == "loose"
    await world.clock.advance(LEASE_SECONDS + (OLDER_WRITES_SECONDS if is_loose else 0))
    assert server.id != lost


class Wrapped(Line):
    """The way of a server to the store, with something in between."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.line._storage)
        server.line._storage = self


class Late(Wrapped):
    """Holds the commits of a server that write under a prefix, until they are let go."""

    def __init__(self, server: Server, *, to: str = GADGETS_ROOT) -> None:
        super().__init__(server)
        self._to = to
        self._going = asyncio.Event()
        self.held = 0

    async def commit(self, transaction: Transaction) -> Outcome:
        if not self._going.is_set() and _writes(transaction, self._to):
            self.held += 1
            await self._going.wait()
        return await self._storage.commit(transaction)

    def go(self) -> None:
        self._going.set()


class Failing(Wrapped):
    """Fails the commits of a server that write one key, until it is over."""

    def __init__(self, server: Server, key: str) -> None:
        super().__init__(server)
        self._key = key
        self.is_over = False
        self.failed = 0

    async def commit(self, transaction: Transaction) -> Outcome:
        if not self.is_over and _writes(transaction, self._key):
            self.failed += 1
            raise Unavailable("no answer")
        return await self._storage.commit(transaction)


def _writes(transaction: Transaction, prefix: str) -> bool:
    return any(write.key.startswith(prefix) for write in transaction.writes)


async def encoders(world: World) -> list[dict[str, object]]:
    """What the encoder keys of gadgets say."""
    found = (await world.storage.range(Span.of_prefix(ENCODERS_PREFIX))).items
    return [orjson.loads(item.value) for item in found if item.key.endswith(f"/{GADGETS}")]


# Coming.


@pytest.mark.parametrize("mode", MODES)
async def test_a_definition_is_registered_and_hosted_in_one_step(tmp_path: Path, mode: str) -> None:
    """When the catalogue says that it is hosted the table says how it is written, and the entry is
    stored already. Whoever looks at every step of the loop never sees one without the other."""
    async with open_world(tmp_path) as world:
        server = await one(world, mode)
        told: list[tuple[str | None, bool]] = []
        looks: set[tuple[bool, bool]] = set()
        server.catalog.listeners.append(
            lambda _group: told.append((written(server), is_stored(world, report_key(GADGETS))))
        )
        gadgets, late = Gadgets(world.storage), Late(server, to=report_key(GADGETS))
        await gadgets.create(["v1"])
        same_root = custom_resource(await gadgets.now())
        await world.clock.settle()
        assert late.held == 1
        assert server.coordinator.table.find(same_root) is None
        assert hosted(server) is None
        late.go()
        for _ in range(STEPS):
            is_open = server.coordinator.table.find(same_root) is not None
            looks.add((hosted(server) is not None, is_open))
            await asyncio.sleep(0)
        assert told == [("v1", True)]
        assert looks == {(False, False), (True, True)}
        assert await versions(world) == ["v1"]


@pytest.mark.parametrize("mode", MODES)
async def test_another_definition_replaces_the_resource_in_one_step(
    tmp_path: Path, mode: str
) -> None:
    """At every step of the loop the version that is written is one that the resource in the
    catalogue knows, and afterwards the one that its definition wants."""
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


async def test_what_is_defined_at_the_start_is_served_when_it_ends(tmp_path: Path) -> None:
    """A server that has started serves all that was defined before."""
    async with open_world(tmp_path) as world:
        await Gadgets(world.storage).create(["v1"])
        server = await one(world)
        assert written(server) == "v1"


async def test_a_name_that_the_release_hosts_is_never_replaced(tmp_path: Path) -> None:
    """A definition of widgets changes nothing for a server whose release knows them."""
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


# Changing.


@pytest.mark.parametrize("mode", MODES)
async def test_the_stored_version_changes_on_all_servers(tmp_path: Path, mode: str) -> None:
    """Both versions are known: soon all write the new one, report it, and agree on it."""
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
    """No entry ever encodes what another entry cannot decode, though one server hears of it later,
    and nobody gets stuck."""
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


async def test_versions_go_to_and_fro_between_three_servers(tmp_path: Path) -> None:
    """A new version each time, and the last one but one dropped with proof: all follow."""
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


async def test_a_note_in_the_status_registers_nothing(tmp_path: Path) -> None:
    """The resource stays the same one, and nothing is written about it."""
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


async def test_a_note_is_no_obstacle_to_a_registration_under_a_new_identity(tmp_path: Path) -> None:
    """The registration is guarded by the newest definition of the same meaning."""
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
async def test_a_write_that_was_planned_in_the_old_version_lands_in_the_new(
    tmp_path: Path, mode: str
) -> None:
    """It is on its way when the stored version changes: its fence fails, and it is written anew.
    The client sees neither a conflict nor an error."""
    async with open_world(tmp_path) as world:
        server = await one(world, mode)
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(server.write("a", kind=KIND))
        late = Late(server)
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
async def test_a_registration_of_an_old_definition_does_not_land(tmp_path: Path, mode: str) -> None:
    """A server begins to register v2 and hangs. Meanwhile the definition goes back to v1 and lists
    v2 no more, which the other server knows. What was sent is refused, and v1 is written."""
    async with open_world(tmp_path) as world:
        gadgets = Gadgets(world.storage)
        server = await one(world, mode)
        late = Late(server, to=report_key(GADGETS))
        await gadgets.create(["v2", "v1"])
        await world.clock.settle()
        assert late.held == 1
        await gadgets.store_in("v1")

        def edit(obj: dict[str, Any]) -> None:
            obj["status"]["storedVersions"] = ["v1"]  # nobody has ever written v2

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


# Going.


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_defined_no_more_leaves_nothing(tmp_path: Path, mode: str) -> None:
    """Nobody serves it; entries, encoder keys, StorageVersion and StorageState are gone, and so
    is the vote."""
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
        ballots = (await world.storage.range(Span.of_prefix(BALLOTS_PREFIX))).items
        assert [item.key for item in ballots if item.key.endswith(f".{PLURAL}")] == []
        with pytest.raises(StatusError) as refused:
            await world.run(servers[0].write("a", kind=KIND))
        assert refused.value.code == 404


@pytest.mark.parametrize("mode", MODES)
async def test_the_last_trace_goes_with_the_dead(tmp_path: Path, mode: str) -> None:
    """A server dies before the definition goes: when its entry is collected, the others see that
    also the state is gone."""
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
async def test_a_definition_made_anew_under_its_old_name(
    tmp_path: Path, mode: str, versions_then: list[str]
) -> None:
    """It may know other versions. All serve it as if there had never been one before."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1", "v2"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(servers[0].write("a", kind=KIND))
        await world.run(servers[0].store.delete(gadget(servers[0]), "v1", "ns/a", DeleteWish()))
        await end(world, gadgets)
        await gadgets.create(versions_then)
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == [versions_then[0]] * 2
        for server in servers:
            await world.run(server.write(server.name, kind=KIND))
            assert await world.stored(server.name, KIND) == versions_then[0]
        uid = (await gadgets.now()).uid
        assert {entry.definition for entry in await entries(world)} == {uid}


@pytest.mark.parametrize("mode", ["report", "strict"])
@pytest.mark.parametrize("slow", [0, 1])
async def test_a_definition_made_anew_while_others_report_the_old_one(
    tmp_path: Path, mode: str, slow: int
) -> None:
    """The new one stores v2 and also knows v1, which the old one stored. A server that has not
    heard of the end yet does not make anybody write v1, which was never stored in the new one."""
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
        with suppress(StatusError):
            await world.run(servers[1 - slow].write("a", kind=KIND))
        servers[slow].line.let_go(ROOT)
        await world.clock.advance(SOON_SECONDS)
        assert [written(server) for server in servers] == ["v2", "v2"]
        await world.run(servers[slow].write("b", kind=KIND))
        assert await world.stored("b", KIND) == "v2"


@pytest.mark.parametrize("mode", MODES)
async def test_a_definition_made_anew_before_anybody_has_heard_of_the_end(
    tmp_path: Path, mode: str
) -> None:
    """All hear of the new one at once: nobody waits for the others' old reports for ever."""
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
async def test_an_old_report_of_ones_own_is_no_obstacle(tmp_path: Path, mode: str) -> None:
    """A server could not take back what it had reported of an old definition, whose versions the
    new one does not know: it is replaced by what it reports of the new one."""
    async with open_world(tmp_path) as world:
        server, gadgets = await one(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        failing = Failing(server, report_key(GADGETS))
        await gadgets.remove()
        await world.clock.advance(0.01)
        assert failing.failed
        await gadgets.create(["v2"])
        await world.clock.advance(0.01)
        failing.is_over = True
        await world.clock.advance(SOON_SECONDS)
        assert written(server) == "v2"


@pytest.mark.parametrize("mode", MODES)
async def test_refused_names_end_the_service_and_keep_the_state(tmp_path: Path, mode: str) -> None:
    """A definition that loses its names is served no more; what may be stored is not forgotten,
    as its objects are still there. When it has names again, it is served again."""
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
    """When a definition is being deleted every server says so in its encoder key, and creates
    nothing; it is closed when all have, and it is not while one has not."""
    async with open_world(tmp_path) as world:
        servers, gadgets = await two(world, mode), Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        await world.run(servers[0].write("a", kind=KIND))
        uid = (await gadgets.now()).uid
        assert answers(servers, uid) == {"served": [True, True], "closed": [False, False]}
        servers[1].line.hold(ROOT)
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        assert answers(servers, uid)["closed"] == [False, False]
        assert sorted(bool(each["closing"]) for each in await encoders(world)) == [False, True]
        servers[1].line.let_go(ROOT)
        await world.clock.advance(SOON_SECONDS)
        assert [each["closing"] for each in await encoders(world)] == [True, True]
        assert answers(servers, uid)["closed"] == [True, True]
        assert answers(servers, "another")["closed"] == [False, False]
        for server in servers:
            with pytest.raises(StatusError) as refused:
                await world.run(server.write("b", kind=KIND))
            assert refused.value.code == 403
            await world.run(server.write("a", kind=KIND, by=server.name))


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_create_that_is_on_its_way_does_not_land_after_closing(
    tmp_path: Path, mode: str
) -> None:
    """Once all have closed, nothing new comes: what was sent before is refused by its fence."""
    async with open_world(tmp_path) as world:
        server = await one(world, mode)
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        late = Late(server)
        creating = asyncio.ensure_future(server.write("b", kind=KIND))
        await world.clock.settle()
        assert late.held == 1
        await gadgets.delete()
        await world.clock.advance(SOON_SECONDS)
        assert answers([server], (await gadgets.now()).uid)["closed"] == [True]
        late.go()
        with pytest.raises(StatusError) as refused:
            await world.run(creating)
        assert refused.value.code == 403
        assert await gadgets.instances() == []


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_a_write_for_an_older_definition_does_not_land_in_a_newer(
    tmp_path: Path, mode: str
) -> None:
    """The definition goes and comes back under its name, in the same version, while a create of
    the first is on its way: the second has no such object."""
    async with open_world(tmp_path) as world:
        server = await one(world, mode)
        gadgets = Gadgets(world.storage)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        plan = server.store._plan_create(
            gadget(server),
            "v1",
            {"metadata": {"name": "b", "namespace": "ns"}},
            namespace="ns",
            place=None,
        )
        encoding = server.coordinator.table.encoding(gadget(server))
        sent = Transaction((plan.guard, *encoding.guards), (plan.write(encoding),))
        await end(world, gadgets)
        await gadgets.create(["v1"])
        await world.clock.advance(SOON_SECONDS)
        assert written(server) == "v1"
        assert isinstance(await world.storage.commit(sent), Refused)
        assert await gadgets.instances() == []


# Being up to date, and being a member.


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
