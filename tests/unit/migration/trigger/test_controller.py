"""The trigger on real restow servers: several releases on one audited store, simulated time.

The tests play the migrator: they let a server rewrite each object, twice, and set the migration to
succeeded and verified. At the end of each test the store is audited: no object is stored in a
version that the StorageState does not list.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from restow.aio import SeededRandomness
from restow.apimachinery.names import GroupVersionKind, GroupVersionResource
from restow.apimachinery.status import Conflict, NotFound
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.resources import STATES
from restow.client import ApiClient, Object
from restow.migration.migration_objects import MIGRATION_APIS, marks_of, phase_of, resource_of
from restow.migration.migration_values import MigrationPhase
from restow.migration.names import PROOF_ANNOTATION
from restow.migration.overview_reader import migrations_seen
from restow.migration.records import record_of
from restow.migration.trigger.options import TriggerOptions, TriggerSource
from tests.unit.migration.trigger.fake_kubernetes import proof_for
from tests.unit.migration.trigger.real_servers import Cluster, Connection, open_cluster
from tests.unit.migration.trigger.stage import Stage
from tests.unit.storageversion.world import GROUP

WIDGETS = GroupVersionResource(GROUP, "v1", "widgets")
NAME = f"widgets.{GROUP}"
V1, V2 = (
    storage_version_hash(GroupVersionKind(GROUP, version, "Widget")) for version in ("v1", "v2")
)


class Play(Stage):
    """A cluster, its controllers, and a client that reads and migrates."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.clock)
        self.cluster = cluster

    @property
    def client(self) -> ApiClient:
        """A client of any running server."""
        server = next(iter(self.cluster.servers.values()))
        return server.client(seed="person")

    async def run(self, work: Any) -> Any:
        return await self.clock.run_until_done(work, seconds_max=60)

    async def state(self) -> Object | None:
        try:
            return await self.client.get(STATES, NAME)
        except NotFound:
            return None

    async def persisted(self) -> list[str]:
        names = {V1: "v1", V2: "v2"}
        found = (await self.state() or {}).get("status", {})
        return [names.get(each, each) for each in found.get("persistedStorageVersionHashes", ())]

    async def requests(self, *phases: MigrationPhase) -> list[Object]:
        wanted = phases or (MigrationPhase.PENDING, MigrationPhase.RUNNING)
        return [
            each
            async for each in self.client.items(MIGRATION_APIS[0])
            if resource_of(each) == WIDGETS.group_resource and phase_of(each) in wanted
        ]

    async def is_persisted(self, *hashes: str) -> bool:
        return await self.persisted() == list(hashes)

    async def has_migration(self) -> bool:
        return bool(await self.requests())

    async def has_no_migration(self) -> bool:
        return not await self.requests()

    async def write(self, server: str, name: str) -> None:
        client = self.cluster.servers[server].client()
        body = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Widget",
            "metadata": {"name": name, "namespace": "ns"},
        }
        await client.create(WIDGETS, body)

    async def migrate(self, server: str) -> int:
        """Runs the requested migrations through one server and returns how many ended."""
        client, ended = self.cluster.servers[server].client(seed="migrator"), 0
        for request in await self.requests():
            name = request["metadata"]["name"]
            try:
                for _ in range(2):  # the second pass finds nothing to rewrite
                    await client.create(MIGRATION_APIS[0], {}, name=name, subresource="rewrite")
            except (NotFound, Conflict):
                continue  # the migration was deleted, or the servers no longer agree
            ended += await _succeed(client, request)
        return ended


async def _succeed(client: ApiClient, request: Object) -> bool:
    name, uid = request["metadata"]["name"], request["metadata"]["uid"]
    said = proof_for(request) if record_of(marks_of(request)) else '{"target": "?"}'
    proof = {"metadata": {"uid": uid, "annotations": {PROOF_ANNOTATION: said}}}
    done = {
        "type": "Succeeded",
        "status": "True",
        "lastUpdateTime": client.runtime.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    try:
        await client.patch(MIGRATION_APIS[0], name, proof)
        await client.patch(
            MIGRATION_APIS[0],
            name,
            {"metadata": {"uid": uid}, "status": {"conditions": [done]}},
            subresource="status",
        )
    except (NotFound, Conflict):
        return False  # the migration was deleted meanwhile
    return True


@asynccontextmanager
async def open_play(directory: Path, *, seed: int = 1) -> AsyncIterator[Play]:
    async with open_cluster(directory, seed=seed) as cluster:
        play = Play(cluster)
        try:
            yield play
            play.check()
        finally:
            await play.close()


async def test_a_first_start_ends_in_one_hash(tmp_path: Path) -> None:
    """An unknown resource is migrated once, and then one hash is persisted."""
    async with open_play(tmp_path) as play:
        await play.cluster.serve("s1", "x")
        await play.run(play.write("s1", "a"))
        play.begin(play.cluster.servers["s1"].client(), TriggerOptions())
        await play.until(play.has_migration)
        assert await play.run(play.persisted()) == ["Unknown", "v1"]
        assert await play.run(play.migrate("s1")) == 1
        await play.until(lambda: play.is_persisted("v1"))
        assert await play.run(play.has_no_migration())
        assert "MigrationRequested" in play.recorded.reasons("StorageVersionMigration")
        assert (NAME, "Narrow") not in play.recorded.done  # the server has narrowed it
        assert play.recorded.failures == []


async def test_a_success_without_verification_does_not_narrow(tmp_path: Path) -> None:
    """The success of another migrator alone does not narrow the persisted hashes."""
    async with open_play(tmp_path) as play:
        await play.cluster.serve("s1", "x")
        play.begin(play.cluster.servers["s1"].client(), TriggerOptions())
        await play.until(play.has_migration)
        (request,) = await play.run(play.requests())
        done = {"type": "Succeeded", "status": "True"}
        await play.run(
            play.client.patch(
                MIGRATION_APIS[0],
                request["metadata"]["name"],
                {"status": {"conditions": [done]}},
                subresource="status",
            )
        )
        await play.clock.advance(30)
        assert await play.run(play.persisted()) == ["Unknown", "v1"]


@pytest.mark.parametrize("is_exact", [False, True], ids=["by hand", "exact"])
@pytest.mark.parametrize("source", [TriggerSource.AUTO, TriggerSource.DISCOVERY])
async def test_a_forged_success_narrows_nothing(
    tmp_path: Path, source: TriggerSource, is_exact: bool
) -> None:
    """A client that may write migrations sets one to succeeded and verified: the StorageState is
    kept,
    the overview does not show it as verified, and another migration replaces it."""
    async with open_play(tmp_path) as play:
        await play.cluster.serve("s1", "x+1")
        for name in ("a", "b", "c"):
            await play.run(play.write("s1", name))
        await play.cluster.serve("s1", "x+2")
        play.begin(play.cluster.servers["s1"].client(), TriggerOptions(source=source))
        await play.until(play.has_migration)
        (forged,) = await play.run(play.requests())
        name, client = forged["metadata"]["name"], play.client
        said = proof_for(forged) if is_exact else "done by hand"
        marks = {"metadata": {"annotations": {PROOF_ANNOTATION: said}}}
        await play.run(client.patch(MIGRATION_APIS[0], name, marks))
        done = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
        await play.run(client.patch(MIGRATION_APIS[0], name, done, subresource="status"))
        seen = await play.run(client.get(MIGRATION_APIS[0], name))
        assert migrations_seen([seen], [await play.run(play.state())])[0].is_proven is False
        await play.clock.advance(30)
        assert await play.run(play.persisted()) == ["Unknown", "v1", "v2"]
        if is_exact:
            assert "MigrationNotVerified" in play.recorded.warnings
        else:
            # It waits for a migrator of restow, like the success of another migrator.
            await play.run(client.delete(MIGRATION_APIS[0], name))
        await play.until(play.has_migration)
        await play.run(play.migrate("s1"))
        await play.until(lambda: play.is_persisted("v2"))


async def test_a_rolling_upgrade_and_a_rollback(tmp_path: Path) -> None:
    """Disagreement cancels migrations, agreement starts them again, and a success for an outdated
    agreement has no effect."""
    async with open_play(tmp_path) as play:
        await play.cluster.serve("s1", "x+1")
        await play.cluster.serve("s2", "x+1")
        await play.run(play.write("s1", "a"))
        play.begin(play.cluster.servers["s2"].client(), TriggerOptions())
        await play.until(play.has_migration)
        await play.run(play.migrate("s1"))
        await play.until(lambda: play.is_persisted("v1"))
        # One server is upgraded: its version is persisted at once, and no migration starts.
        await play.cluster.serve("s1", "x+2")
        await play.run(play.write("s1", "b"))
        await play.until(lambda: play.is_persisted("v1", "v2"))
        await play.clock.advance(5)
        assert await play.run(play.has_no_migration())
        assert play.recorded.counts[1] == 1
        # The other is upgraded: agreement. The controller loses its server and connects to another.
        await play.end()
        await play.cluster.serve("s2", "x+2")
        play.begin(play.cluster.servers["s1"].client(), TriggerOptions())
        await play.until(play.has_migration)
        (first,) = await play.run(play.requests())
        # Rollback during the migration: it is cancelled, with a reason.
        await play.cluster.serve("s2", "x+1")
        await play.until(play.has_no_migration)
        cancelled = [
            text for _, reason, text in play.recorded.events if reason == "MigrationCancelled"
        ]
        assert any("do not agree" in each for each in cancelled)
        # Upgraded again: another migration is created, and only that one narrows.
        await play.cluster.serve("s2", "x+2")
        await play.until(play.has_migration)
        (second,) = await play.run(play.requests())
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert await play.run(play.persisted()) == ["v1", "v2"]
        await play.run(play.migrate("s2"))
        await play.until(lambda: play.is_persisted("v2"))


async def test_a_state_deleted_by_a_client_is_recreated(tmp_path: Path) -> None:
    """A migration created for the deleted StorageState does not count for the new one."""
    async with open_play(tmp_path) as play:
        await play.cluster.serve("s1", "x")
        play.begin(play.cluster.servers["s1"].client(), TriggerOptions())
        await play.until(play.has_migration)
        (first,) = await play.run(play.requests())
        await play.run(play.client.delete(STATES, NAME))
        await play.run(_succeed(play.client, first))

        async def has_new_migration() -> bool:
            uids = {each["metadata"]["uid"] for each in await play.requests()}
            return bool(uids - {first["metadata"]["uid"]})

        await play.until(has_new_migration)
        assert (await play.run(play.persisted()))[0] == "Unknown"
        await play.run(play.migrate("s1"))
        await play.until(lambda: play.is_persisted("v1"))


async def test_a_state_without_a_status_is_unknown(tmp_path: Path) -> None:
    """After a crash between the create and the status update, the persisted versions are
    unknown."""
    async with open_play(tmp_path) as play:
        await play.cluster.serve("s1", "x")
        client = play.client
        await play.run(client.delete(STATES, NAME))
        spec = {"resource": {"group": GROUP, "resource": "widgets"}}
        body = {"apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState"}
        await play.run(client.create(STATES, {**body, "metadata": {"name": NAME}, "spec": spec}))
        play.begin(play.cluster.servers["s1"].client(), TriggerOptions())
        await play.until(play.has_migration)
        assert (await play.run(play.persisted()))[0] == "Unknown"


async def test_migrations_of_others_end_with_the_agreement(tmp_path: Path) -> None:
    """No migration, by any creator, runs while servers disagree."""
    async with open_play(tmp_path) as play:
        await play.cluster.serve("s1", "x+1")
        play.begin(play.cluster.servers["s1"].client(), TriggerOptions())
        await play.until(play.has_migration)
        await play.run(play.migrate("s1"))
        await play.until(lambda: play.is_persisted("v1"))
        request = {
            "apiVersion": "migration.k8s.io/v1alpha1",
            "kind": "StorageVersionMigration",
            "metadata": {"name": "by-hand"},
            "spec": {"resource": {"group": GROUP, "version": "v1", "resource": "widgets"}},
        }
        await play.run(play.client.create(MIGRATION_APIS[0], request))
        await play.clock.advance(2)
        assert await play.run(play.has_migration())
        await play.cluster.serve("s2", "x+2")
        await play.until(play.has_no_migration)


class Storm:
    """Randomly fails calls, before or after they are carried out, and breaks streams."""

    def __init__(self, connection: Connection, seed: str) -> None:
        self._connection = connection
        self._randomness = SeededRandomness(seed)
        self.is_over = False
        self.count = 0
        connection.fault, connection.loses = self.fault, self.loses

    def fault(self, _method: str, _target: str) -> Exception | None:
        if self.is_over or self._randomness.randrange(4):
            return None
        self.count += 1
        self._connection.cut()
        return ConnectionResetError()

    def loses(self, _method: str, _target: str) -> bool:
        return not self.is_over and not self._randomness.randrange(6)


@pytest.mark.parametrize("seed", range(6))
async def test_two_controllers_in_a_storm_are_harmless(tmp_path: Path, seed: int) -> None:
    """Under random faults while servers change, the StorageState is always complete, and afterwards
    the
    migration completes."""
    async with open_play(tmp_path, seed=seed) as play:
        await play.cluster.serve("s1", "x+1")
        await play.cluster.serve("s2", "x+1")
        stable = play.cluster.servers["s2"]
        storms: list[Storm] = []

        def begin(name: str) -> None:
            connection = stable.connection()
            storms.append(Storm(connection, f"{seed}/{name}/{len(storms)}"))
            play.begin(
                stable.client(connection, seed=f"{seed}/{name}"), TriggerOptions(), name=name
            )

        begin("one")
        begin("two")
        randomness = SeededRandomness(f"{seed}/deeds")
        for number in range(8):
            await play.clock.advance(randomness.uniform(0, 4))
            release = ("x+1", "x+2")[randomness.randrange(2)]
            match randomness.randrange(4):
                case 0:
                    await play.cluster.serve("s1", release)
                case 1:
                    await play.run(play.write("s1", f"w{number}"))
                case 2:
                    await play.run(play.migrate(("s1", "s2")[randomness.randrange(2)]))
                case _:
                    name = ("one", "two")[randomness.randrange(2)]
                    await play.end(name)
                    begin(name)
        for storm in storms:
            storm.is_over = True
        assert any(storm.count for storm in storms)
        await play.cluster.serve("s1", "x+1")

        async def is_done() -> bool:
            await play.migrate("s1")
            return await play.persisted() == ["v1"]

        await play.until(is_done, seconds_max=300)


async def test_errors_of_the_api_are_retried(tmp_path: Path) -> None:
    """Many failed writes cause only a delay."""
    async with open_play(tmp_path) as play:
        server = await play.cluster.serve("s1", "x")
        connection = server.connection()
        calls = 0

        def fault(method: str, _target: str) -> Exception | None:
            nonlocal calls
            calls += method != "GET"
            return ConnectionResetError() if method != "GET" and calls < 40 else None

        connection.fault = fault
        play.begin(server.client(connection), TriggerOptions())
        await play.until(play.has_migration, seconds_max=600)
        await play.run(play.migrate("s1"))
        await play.until(lambda: play.is_persisted("v1"), seconds_max=600)
        assert NAME in play.recorded.failures


async def test_standbys_do_nothing(tmp_path: Path) -> None:
    """A controller acts only while it is the leader, and starts at once when it becomes leader."""
    is_leading = False
    async with open_play(tmp_path) as play:
        server = await play.cluster.serve("s1", "x")
        play.begin(server.client(), TriggerOptions(), is_leader=lambda: is_leading)
        await play.clock.advance(30)
        assert await play.run(play.has_no_migration())
        is_leading = True
        await play.until(play.has_migration, seconds_max=5)
        is_leading = False
        await play.clock.advance(2)
        for request in await play.run(play.requests()):
            await play.run(play.client.delete(MIGRATION_APIS[0], request["metadata"]["name"]))
        await play.clock.advance(30)
        assert await play.run(play.has_no_migration())


async def test_nothing_is_written_when_nothing_happens(tmp_path: Path) -> None:
    """An idle cluster gets heartbeats, and no other writes."""
    async with open_play(tmp_path) as play:
        server = await play.cluster.serve("s1", "x")
        connection = server.connection()
        play.begin(server.client(connection), TriggerOptions())
        await play.until(play.has_migration)
        await play.run(play.migrate("s1"))
        await play.until(lambda: play.is_persisted("v1"))
        await play.clock.advance(5)
        connection.calls.clear()
        await play.clock.advance(100)
        assert [each for each in connection.calls if each[0] != "GET"] == []
        await play.clock.advance(1_100)
        writes = [each for each in connection.calls if each[0] != "GET" and NAME in each[1]]
        assert 1 <= len(writes) <= 4
        assert {method for method, _ in writes} == {"PUT"}


async def test_reports_by_discovery_are_kept_by_the_servers(tmp_path: Path) -> None:
    """The extension for HA works on restow servers too, although they write the same
    StorageState."""
    async with open_play(tmp_path) as play:
        for name in ("s1", "s2"):
            server = await play.cluster.serve(name, "x+1")
            options = TriggerOptions(
                source=TriggerSource.DISCOVERY_HA, is_local=True, reporter_id=f"beside-{name}"
            )
            play.begin(server.client(), options, name=name, is_leader=lambda: False)

        async def reporters() -> list[str]:
            found = (await play.state() or {}).get("status", {})
            reports = found.get("currentStorageVersionHashes", [])
            return sorted(each["reporterID"] for each in reports)

        async def are_both() -> bool:
            return await reporters() == ["beside-s1", "beside-s2"]

        await play.until(are_both)
        # A server that writes another version adds its hash to the StorageState itself.
        await play.cluster.serve("s3", "x+2")
        assert V2 in (await play.run(play.state()))["status"]["persistedStorageVersionHashes"]
        assert await play.run(are_both())
