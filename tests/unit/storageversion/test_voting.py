"""Voting on the storage version: the scenarios and risks of KEP-1201, and the fence."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.version_hash import storage_version_hash
from restow.storage.interface import Delete, Key, Outcome, Put, Refused, Span, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.changes import MirrorView
from restow.storageversion.encoding_table import OLDER_WRITES_SECONDS
from restow.storageversion.errors import ModeRefused
from restow.storageversion.identity import SERVERS_PREFIX
from restow.storageversion.object_codec import state_key
from restow.storageversion.raw_scan import version_of
from restow.storageversion.records import SELECTED_PREFIX, name_of, selected_key
from restow.storageversion.vote_objects import VOTES_PREFIX, decode_vote
from restow.storageversion.voting import Vote
from tests.unit.storageversion.late_reads import DelayedCommits
from tests.unit.storageversion.world import GROUP, RELEASES, World, open_world

V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
LEASE_SECONDS = 15
PREFERRED = {release: f"{GROUP}/{storage}" for release, (_, storage) in RELEASES.items()}
WIDGETS_ROOT = f"/registry/{GROUP}/widgets/"


class Published:
    """Compares each written widget with the versions that the StorageVersion has at that time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._commit = world.storage.commit
        self.checked: list[str] = []
        self.wrong: list[str] = []
        world.storage.commit = self.commit  # type: ignore[method-assign]

    async def commit(self, transaction: Transaction) -> Outcome:
        for write in transaction.writes:
            if isinstance(write, Put) and write.key.startswith(WIDGETS_ROOT):
                version = version_of(write.value)
                report, epoch = await self._world.report(), await self._world.epoch()
                assert report is not None
                possible = {each for entry in report.entries for each in entry.written}
                agreed = {None, version}
                is_true = {report.common_version, epoch.version} <= agreed and version in possible
                (self.checked if is_true else self.wrong).append(write.key)
        return await self._commit(transaction)


async def vote(world: World) -> Vote:
    found = (await world.storage.range(Span.of_prefix(VOTES_PREFIX))).items
    (item,) = [item for item in found if item.key.endswith(".widgets")]
    return decode_vote(item).vote


async def versions(world: World) -> set[str]:
    report = await world.report()
    assert report is not None
    return {entry.encoding_version for entry in report.entries}


async def test_a_rolling_upgrade_keeps_the_selection_until_the_last_server(tmp_path: Path) -> None:
    """Scenario 2: while one old server runs, all write v1; when it stops, all change to v2 at once,
    and the
    name of the object is kept."""
    async with open_world(tmp_path) as world:
        old = [await world.started("x+1", mode="strict") for _ in range(2)]
        assert (await vote(world)).selected == V1
        first = await world.started("x+2", mode="strict")
        await world.run(first.write("a"))
        assert (await world.stored("a"), await versions(world)) == ("v1", {V1})
        await world.run(old[0].stop())
        second = await world.started("x+2", mode="strict")
        assert ((await vote(world)).selected, await world.common()) == (V1, V1)
        epoch = (await world.epoch()).epoch
        await world.run(old[1].stop())
        await world.clock.advance(1)
        assert ((await vote(world)).selected, await world.common()) == (V2, V2)
        assert (await world.epoch()).epoch == epoch + 1
        for server in (first, second):
            await world.run(server.write(server.name))
            assert await world.stored(server.name) == "v2"
        found = (await world.storage.range(Span.of_prefix(VOTES_PREFIX))).items
        assert f"{VOTES_PREFIX}{GROUP}.v1.widgets" in {item.key for item in found}


async def test_a_server_with_a_lagging_watch_votes(tmp_path: Path) -> None:
    """A server that registers is a member, although its watch has not delivered its record: a
    member without
    a vote would block every selection permanently."""
    async with open_world(tmp_path) as world:
        old = await world.started("x+1", mode="strict")
        new = world.server("x+2", mode="strict")
        new.line.hold(SERVERS_PREFIX)
        await world.run(new.start())
        assert {each.server_id for each in (await vote(world)).candidates} == {old.id, new.id}
        new.line.let_go(SERVERS_PREFIX)
        await world.run(old.stop())
        await world.clock.advance(1)
        assert (await vote(world)).selected == V2


async def test_a_write_during_a_change_of_the_selection_is_encoded_again(tmp_path: Path) -> None:
    """The client gets neither a conflict nor an error; the object is stored in the new version."""
    async with open_world(tmp_path) as world:
        old = await world.started("x+1", mode="strict")
        new = await world.started("x+2", mode="strict")
        new.line.pause()
        late = asyncio.ensure_future(new.write("late"))
        await world.clock.settle()
        other = await world.started("x+2", mode="strict")
        await world.run(old.stop())
        await world.clock.advance(2)
        assert (await vote(world)).selected == V2
        new.line.wake()
        assert (await world.run(late)).created
        assert await world.stored("late") == "v2"
        assert other.coordinator.completed


async def test_a_temporary_downgrade_of_one_does_not_change_the_selection(tmp_path: Path) -> None:
    """The selected version is kept while one server votes for another."""
    async with open_world(tmp_path) as world:
        await world.started("x+2", mode="strict")
        leaving = await world.started("x+2", mode="strict")
        await world.run(leaving.stop())
        downgraded = await world.started("x+1", mode="strict")
        assert (await vote(world)).selected == V2
        await world.run(downgraded.write("a"))
        assert (await world.stored("a"), await world.common()) == ("v2", V2)


async def test_the_expiry_of_the_last_dissenter_changes_the_selection(tmp_path: Path) -> None:
    """The garbage collector counts the votes again."""
    async with open_world(tmp_path) as world:
        dissenter = await world.started("x+1", mode="strict")
        await world.started("x+2", mode="strict")
        await dissenter.kill()
        await world.clock.advance(LEASE_SECONDS + 2)
        assert ((await vote(world)).selected, await world.common()) == (V2, V2)


async def test_a_skipped_release_is_rejected(tmp_path: Path) -> None:
    """Risk 1a: a server that does not know the selected version never writes another one
    instead."""
    async with open_world(tmp_path) as world:
        await world.started("x", mode="strict")
        skipping = world.server("x+3", mode="strict")
        with pytest.raises(TimeoutError):
            await world.run(skipping.start(), seconds_max=10)
        assert not skipping.coordinator.completed
        assert "cannot" in (skipping.coordinator.pending(skipping.resource()) or "")
        with pytest.raises(StatusError) as refused:
            await world.run(skipping.write("a"))
        assert refused.value.code == 503
        assert (await vote(world)).selected == V1


async def test_a_server_that_cannot_decode_stored_data_does_not_register(tmp_path: Path) -> None:
    """Risk 1b: after the skipped release no server remains that can decode it; the new server
    reports that."""
    async with open_world(tmp_path) as world:
        old = await world.started("x", mode="strict")
        await world.run(old.write("a"))
        await world.run(old.stop())
        skipping = world.server("x+3", mode="strict")
        with pytest.raises(TimeoutError):
            await world.run(skipping.start(), seconds_max=10)
        assert "cannot read" in (skipping.coordinator.pending(skipping.resource()) or "")


async def test_all_releases_of_the_table_in_sequence(tmp_path: Path) -> None:
    """From x to x+3 and back as far as possible: at any time all servers write the same version."""
    async with open_world(tmp_path) as world:
        servers = [await world.started("x", mode="strict") for _ in range(2)]
        for release, expected in [("x+1", V1), ("x+2", V2), ("x+1", V1), ("x+2", V2)]:
            for position in range(2):
                await world.run(servers[position].stop())
                servers[position] = await world.started(release, mode="strict")
                await world.run(servers[position].write(f"{release}.{position}".replace("+", "")))
                assert len(await versions(world)) == 1
            await world.clock.advance(1)
            assert (await vote(world)).selected == expected


async def test_the_first_voter_selects_the_version_of_reporting_servers(
    tmp_path: Path,
) -> None:
    """Scenario 1 made safe: it does not select its own preference, and nothing changes while a
    server that
    does not vote runs."""
    async with open_world(tmp_path) as world:
        reporting = await world.started("x+1")
        with pytest.raises(ModeRefused, match="change-coordination-mode"):
            await world.run(world.server("x+2", mode="strict").start())
        voter = await world.started("x+2", mode="strict", may_change_mode=True)
        assert (await vote(world)).selected == V1
        await world.run(voter.write("a"))
        assert await world.stored("a") == "v1"
        assert await world.common() is None  # Modes do not mix silently.
        await world.run(reporting.stop())
        await world.clock.advance(1)
        assert ((await vote(world)).selected, await world.common()) == (V2, V2)


async def test_the_first_voter_waits_for_servers_that_report_nothing(tmp_path: Path) -> None:
    """Without reports their encoding versions are unknown: only force helps."""
    async with open_world(tmp_path) as world:
        unfenced = world.server("x+1", mode="off")
        await world.run(unfenced.start())
        waiting = world.server("x+2", mode="strict", may_change_mode=True)
        with pytest.raises(TimeoutError):
            await world.run(waiting.start(), seconds_max=5)
        await waiting.kill()
        forced = await world.started("x+2", mode="strict", may_change_mode=True, may_force=True)
        assert forced.coordinator.completed
        assert (await vote(world)).selected == V2


async def test_votes_are_removed_with_the_last_voter(tmp_path: Path) -> None:
    """No key of a vote without voters remains."""
    async with open_world(tmp_path) as world:
        server = await world.started("x+1", mode="strict")
        await world.run(server.stop())
        for prefix in (VOTES_PREFIX, SELECTED_PREFIX):
            assert await world.storage.count(Span.of_prefix(prefix)) == 0


async def test_discovery_changes_together_with_the_encoder(tmp_path: Path) -> None:
    """When the table is switched, subscribers that compute hashes are called first."""
    async with open_world(tmp_path) as world:
        old, new = [await world.started(release, mode="strict") for release in ("x+1", "x+2")]
        seen: list[str] = []
        coordinator = new.coordinator
        coordinator.table.switched.subscribe(
            lambda: seen.append(coordinator.version_of(new.resource()))
        )
        await world.run(old.stop())
        await world.clock.advance(1)
        assert seen == [V2]


async def test_a_server_that_may_not_write_shows_the_selected_version(tmp_path: Path) -> None:
    """Discovery of a server that does not know the selected version has the hash of that version,
    not of its
    preferred one; it follows later selections."""
    async with open_world(tmp_path) as world:
        old = await world.started("x", mode="strict")
        skipping = world.server("x+3", mode="strict")
        shown: list[str] = []
        coordinator, resource = skipping.coordinator, skipping.resource()
        coordinator.table.switched.subscribe(lambda: shown.append(coordinator.version_of(resource)))
        with pytest.raises(TimeoutError):
            await world.run(skipping.start(), seconds_max=10)
        assert coordinator.version_of(resource) == V1
        await world.run(old.stop())
        await world.clock.advance(10)
        assert (await vote(world)).selected == V2
        assert coordinator.version_of(resource) == V2
        assert shown[-1] == V2


async def test_discovery_follows_the_removal_of_the_selected_version(tmp_path: Path) -> None:
    """The cached hash of a resource that may not be written is also updated when the record of the
    selected version is deleted."""
    async with open_world(tmp_path) as world:
        await world.started("x", mode="strict")
        skipping = world.server("x+3", mode="strict")
        shown: list[str] = []
        coordinator, resource = skipping.coordinator, skipping.resource()
        coordinator.table.switched.subscribe(lambda: shown.append(coordinator.version_of(resource)))
        with pytest.raises(TimeoutError):
            await world.run(skipping.start(), seconds_max=10)
        assert coordinator.version_of(resource) == V1
        selected = selected_key(name_of(resource.kind.group_resource))
        await MemoryStorage.commit(world.storage, Transaction(writes=(Delete(selected),)))
        await world.clock.advance(0.1)
        assert coordinator.version_of(resource) == V2
        assert shown[-1] == V2


async def test_a_loose_server_without_contact_to_the_store_stops_writing(tmp_path: Path) -> None:
    """It fails closed if it cannot prove that it is up to date within the bound."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        server = await world.started("x+1", mode="loose", loose_bound_seconds=60)
        await world.clock.advance(120)
        await world.run(server.write("a"))
        server.line.pause()
        await world.clock.advance(61)
        server.line.wake()
        with pytest.raises(StatusError, match="may have changed") as refused:
            server.coordinator.table.encoding(server.resource())
        assert refused.value.code == 503
        await world.clock.advance(10)
        await world.run(server.write("b"))


async def test_loose_servers_follow_the_selection_within_the_bound(tmp_path: Path) -> None:
    """They change version by the watch, and update their entries after older writes have ended."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        old = await world.started("x+1", mode="loose")
        new = await world.started("x+2", mode="loose")
        await world.run(old.stop())
        await world.clock.advance(1)
        await world.run(new.write("a"))
        assert (await world.stored("a"), await versions(world)) == ("v2", {V1})
        assert (
            storage_version_hash(GroupVersionKind.of(V2, "Widget"))
            in (await world.state()).persisted
        )
        await world.clock.advance(60)
        assert (await versions(world), await world.common()) == ({V2}, V2)


@pytest.mark.parametrize(("first", "second"), [("x+1", "x+2"), ("x+2", "x+1")])
async def test_loose_servers_publish_no_version_while_writes_in_another_may_commit(
    tmp_path: Path, first: str, second: str
) -> None:
    """From a change of the selection until earlier writes have ended there is no common version,
    and the
    entry has both versions. Each write that commits, also late, has a version that is published as
    possible at that time."""
    old_version, new_version = PREFERRED[first], PREFERRED[second]
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        leaving = await world.started(first, mode="loose")
        staying = await world.started(second, mode="loose")
        published = Published(world)
        await world.run(staying.write("a"))
        late = DelayedCommits(staying, to=WIDGETS_ROOT)
        sent = asyncio.create_task(staying.write("b"))
        await world.clock.settle()
        await world.run(leaving.stop())
        await world.clock.advance(1)
        assert (await vote(world)).selected == new_version
        assert await world.common() is None
        (entry,) = (await world.report()).entries  # type: ignore[union-attr]
        assert entry.written == (old_version, new_version)
        await world.clock.advance(OLDER_WRITES_SECONDS - 2)
        assert await world.common() is None
        late.go()
        await world.run(sent)
        await world.run(staying.write("c"))
        assert [await world.stored(name) for name in "abc"] == [
            each.rpartition("/")[2] for each in (old_version, old_version, new_version)
        ]
        await world.clock.advance(3)
        assert await world.common() == new_version
        (entry,) = (await world.report()).entries  # type: ignore[union-attr]
        assert entry.written == (new_version,)
        await world.run(staying.write("d"))
        assert published.wrong == []
        assert len(published.checked) == 4


async def test_a_loose_server_that_switches_back_lists_both_versions_until_both_have_ended(
    tmp_path: Path,
) -> None:
    """The selection changes to v2 and back while writes may be in flight."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        old = await world.started("x+1", mode="loose")
        new = await world.started("x+2", mode="loose")
        await world.run(old.stop())
        await world.clock.advance(10)
        back = await world.started("x+1", mode="loose")
        await world.run(new.stop())
        assert (await vote(world)).selected == V1
        for _ in range(4):
            await world.clock.advance(10)
            (entry,) = (await world.report()).entries  # type: ignore[union-attr]
            assert entry.server_id == back.id
            table = back.coordinator.table
            assert {*table.still_written(back.resource())} <= {*entry.written}
        assert await world.common() == V1


async def test_a_loose_selection_that_moves_back_and_forth_touches_the_state(
    tmp_path: Path,
) -> None:
    """A client that read the state before a change of the selection cannot narrow it afterwards,
    although
    its content is the same again."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        old = await world.started("x+1", mode="loose")
        await world.started("x+2", mode="loose")
        await world.run(old.stop())
        await world.clock.advance(60)
        key = state_key(f"{GROUP}.widgets")
        before = await world.storage.get(key)
        back = await world.started("x+1", mode="loose")
        (newer,) = [s for s in world.servers if s.coordinator.completed and s is not back]
        await world.run(newer.stop())
        await world.clock.advance(1)
        after = await world.storage.get(key)
        assert (await vote(world)).selected == V1
        assert before is not None
        assert after is not None
        assert after.revision > before.revision


async def test_of_two_concurrent_starts_in_different_modes_one_is_refused(tmp_path: Path) -> None:
    """The server that joins second detects the first, and leaves."""
    async with open_world(tmp_path) as world:
        starts = [world.server("x+1", mode=mode).start() for mode in ("report", "strict")]
        found = await world.run(asyncio.gather(*starts, return_exceptions=True))
        assert sorted(type(each).__name__ for each in found) == ["ModeRefused", "NoneType"]
        await world.clock.advance(1)
        assert await world.storage.count(Span.of_prefix(SERVERS_PREFIX)) == 1


async def test_an_update_computed_before_the_modes_changed_is_rejected(tmp_path: Path) -> None:
    """A server that is about to agree while one without a fence joins is rejected by its guards."""
    async with open_world(tmp_path) as world:
        first = await world.started("x+1")
        view = MirrorView.of(first.coordinator.mirror, f"{GROUP}.widgets")
        unfenced = world.server("x+1", mode="off", may_change_mode=True)
        await unfenced.caches.start()
        await world.run(unfenced.coordinator.join())
        harmless = Put(Key("/restow/test"), b"")
        outcome = await world.storage.commit(Transaction(tuple(view.guards()), (harmless,)))
        assert isinstance(outcome, Refused)
        await world.clock.advance(1)
        assert await world.common() is None
