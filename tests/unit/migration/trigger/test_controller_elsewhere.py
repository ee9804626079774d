"""The trigger on clusters that are not restow: discovery of one server and of several, and
StorageVersions without an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from restow.apimachinery import status
from restow.client import InProcessResponse, Object
from restow.migration.trigger.options import TriggerOptions, TriggerSource
from restow.migration.trigger.sources import SourceMissing
from restow.migration.trigger.values import Settings
from tests.unit.migration.trigger.fake_kubernetes import STATE, STORAGE_VERSION, Kubernetes
from tests.unit.migration.trigger.stage import open_stage

DISCOVERY = TriggerOptions(source=TriggerSource.DISCOVERY)
HA = TriggerOptions(source=TriggerSource.DISCOVERY_HA)
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.org"
MINUTE = 60.0


@pytest.mark.parametrize("options", [DISCOVERY, HA, TriggerOptions()], ids=lambda each: each.source)
async def test_resources_without_a_hash_are_left_alone(options: TriggerOptions) -> None:
    """For example of an aggregated server that does not report: no StorageState and no
    migration."""
    world = Kubernetes()
    world.server("s1", "")
    world.show_endpoints("s1")
    async with open_stage(world.clock) as stage:
        controller = stage.begin(world.client("s1"), options, connect_to=world.connect_to)
        await stage.until(lambda: bool(controller.resources))
        await world.clock.advance(25 * MINUTE)
        await world.clock.settle()
        stage.check()
        assert STATE not in world.objects
        assert world.open == []


async def test_the_life_cycle_of_a_storage_state_by_discovery() -> None:
    """The life cycle of a StorageState in KEP-2343, from installation to reset, on the real
    object."""
    world = Kubernetes()
    world.server("s1", "v1")
    async with open_stage(world.clock) as stage:
        # "Installed for the first time": the StorageState, unknown, and a migration.
        stage.begin(world.client("s1"), DISCOVERY)
        await stage.until(lambda: bool(world.open))
        assert world.persisted == ["Unknown"]
        assert "currentStorageVersionHashes" not in world.objects[STATE]["status"]
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"])
        # "Crashes, offline for less than 10 minutes": only the heartbeat changes.
        await stage.end()
        await world.clock.advance(9 * MINUTE)
        before = world.objects[STATE]["status"]["lastHeartbeatTime"]
        stage.begin(world.client("s1"), DISCOVERY)
        await stage.until(lambda: world.objects[STATE]["status"]["lastHeartbeatTime"] > before)
        assert (world.persisted, world.open) == (["v1"], [])
        # "Upgrades the cluster".
        world.server("s1", "v2")
        await stage.until(lambda: bool(world.open), seconds_max=11 * MINUTE)
        assert world.persisted == ["v1", "v2"]
        first = world.open
        # "Downgrades back": another migration is created, and each hash is listed once.
        world.server("s1", "v1")
        await stage.until(lambda: bool(world.open) and world.open != first, seconds_max=660)
        assert world.persisted == ["v1", "v2"]
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"])
        # "More than 10 minutes old": the persisted versions are unknown.
        await stage.end()
        await world.clock.advance(11 * MINUTE)
        stage.begin(world.client("s1"), DISCOVERY)
        await stage.until(lambda: bool(world.open))
        assert world.persisted == ["Unknown"]
        assert "StoredVersionsUnknown" in stage.recorded.warnings
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"])


async def test_case_1_with_three_servers() -> None:
    """Case 1 of KEP-2343, with one controller that polls all servers: the migration that a rollback
    interrupts is cancelled, and only a second complete one narrows."""
    world = Kubernetes()
    for name in ("s1", "s2", "s3"):
        world.server(name, "v1")
    world.show_endpoints("s1", "s2", "s3")
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), HA, connect_to=world.connect_to)
        await stage.until(lambda: bool(world.open), seconds_max=31 * MINUTE)
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"], seconds_max=11 * MINUTE)
        assert world.reported == ["v1", "v1", "v1"]
        world.server("s1", "v2")
        await stage.until(lambda: world.reported == ["v2", "v1", "v1"], seconds_max=11 * MINUTE)
        assert (world.persisted, world.open) == (["v1", "v2"], [])
        world.server("s2", "v2")
        await world.clock.advance(6 * MINUTE)
        world.server("s3", "v2")
        await stage.until(lambda: bool(world.open), seconds_max=31 * MINUTE)
        assert world.reported == ["v2", "v2", "v2"]
        world.server("s3", "v1")
        await stage.until(lambda: not world.open, seconds_max=11 * MINUTE)
        assert world.reported == ["v2", "v2", "v1"]
        assert world.persisted == ["v1", "v2"]
        world.server("s3", "v2")
        await stage.until(lambda: bool(world.open), seconds_max=31 * MINUTE)
        world.finish()
        await stage.until(lambda: world.persisted == ["v2"], seconds_max=11 * MINUTE)
        assert stage.recorded.reasons().count("StoredVersionsNarrowed") == 2


@pytest.mark.parametrize("options", [DISCOVERY, HA], ids=lambda each: each.source)
async def test_versions_listed_only_by_the_crd_are_migrated(options: TriggerOptions) -> None:
    """An observer without a request to migrate does not hide the request of another observer."""
    world = Kubernetes()
    world.groups["apiextensions.k8s.io/v1"] = [
        ("customresourcedefinitions", "CustomResourceDefinition")
    ]
    for name in ("s1", "s2"):
        world.server(name, "v1")
    world.show_endpoints("s1", "s2")
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), options, connect_to=world.connect_to)
        await stage.until(lambda: bool(world.open), seconds_max=31 * MINUTE)
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"], seconds_max=11 * MINUTE)
        assert world.open == []
        world.put(DEFINITION, {"status": {"storedVersions": ["v1", "v2"]}})
        await stage.until(lambda: bool(world.open), seconds_max=31 * MINUTE)
        assert world.persisted == ["v1"]


async def test_local_controllers_report_and_only_the_leader_reacts() -> None:
    """With a controller per server, each writes its own report; only the leader creates migrations,
    and
    another leader continues when it stops."""
    world = Kubernetes()
    leader = "s1"
    async with open_stage(world.clock) as stage:
        for name in ("s1", "s2", "s3"):
            world.server(name, "v1")
            options = TriggerOptions(
                source=TriggerSource.DISCOVERY_HA, is_local=True, reporter_id=f"controller-{name}"
            )
            stage.begin(
                world.client(name),
                options,
                name=name,
                is_leader=lambda name=name: name == leader,
            )
        await stage.until(lambda: STATE in world.objects and len(world.reported) == 3)
        await stage.until(lambda: bool(world.open), seconds_max=31 * MINUTE)
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"], seconds_max=11 * MINUTE)
        leader = "s2"
        await stage.end("s1")
        for name in ("s1", "s2", "s3"):
            world.server(name, "v2")
        await stage.until(lambda: world.reported.count("v2") == 2, seconds_max=11 * MINUTE)
        # The first controller has stopped: no migration starts until its report is removed.
        assert world.open == []
        await stage.until(lambda: bool(world.open), seconds_max=61 * MINUTE)
        assert world.reported == ["v2", "v2"]


async def test_two_reporters_with_one_id_are_rejected() -> None:
    """The reporter whose report was overwritten fails and stops writing, so that they do not
    overwrite
    each other repeatedly."""
    world = Kubernetes()
    async with open_stage(world.clock) as stage:
        for name in ("s1", "s2"):
            world.server(name, "v1" if name == "s1" else "v2")
            options = TriggerOptions(
                source=TriggerSource.DISCOVERY_HA, is_local=True, reporter_id="one"
            )
            stage.begin(world.client(name), options, name=name, is_leader=lambda: False)
            await world.clock.advance(7)
        await stage.until(lambda: bool(stage.recorded.failures), seconds_max=40 * MINUTE)
        shown = world.reported
        for _ in range(20):
            await world.clock.advance(3 * MINUTE)
            assert world.reported == shown
        # the hashes that both have read are persisted nevertheless
        assert {"v1", "v2"} <= {*world.persisted}


async def test_an_unavailable_server_delays_only_the_migration() -> None:
    """Reports of the other servers continue, and no migration starts until it is available."""
    world = Kubernetes()
    for name in ("s1", "s2"):
        world.server(name, "v1")
    world.show_endpoints("s1", "s2")
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s2"), HA, connect_to=world.connect_to)
        await stage.until(lambda: STATE in world.objects and len(world.reported) == 2)
        world.servers["s1"].is_down = True
        await world.clock.advance(15 * MINUTE)
        assert world.open == []
        beats = [
            each["lastHeartbeatTime"]
            for each in world.objects[STATE]["status"]["currentStorageVersionHashes"]
        ]
        assert beats[0] < beats[1]
        world.servers["s1"].is_down = False
        await stage.until(lambda: bool(world.open), seconds_max=31 * MINUTE)


async def test_slow_replies_of_several_servers_do_not_make_heartbeats_stale() -> None:
    """All servers are read concurrently and reported in one update, so a cycle over all resources
    ends
    well within the two periods after which a heartbeat is stale. Otherwise each cycle would find
    its
    own last heartbeat stale, set the state to "Unknown" and cancel the migration, endlessly (seeds
    900078 and 900164 of the simulator at commit 04310b9)."""
    world = Kubernetes()
    rules = Settings(poll_seconds=15, hold_seconds=15, retry_seconds=15)
    options = TriggerOptions(source=TriggerSource.DISCOVERY_HA, rules=rules)
    others = [(f"gadgets{number}", "Gadget") for number in range(14)]
    world.groups["example.org/v1"] += others
    for name in ("s1", "s2", "s3"):
        server = world.server(name, "v1")
        server.hashes = {plural: "h1" for plural, _ in others}
        server.delay_seconds = 0.4
    world.show_endpoints("s1", "s2", "s3")
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), options, connect_to=world.connect_to)
        await stage.until(lambda: bool(world.open), seconds_max=2 * MINUTE)
        await world.clock.advance(2 * MINUTE)  # the duration of a migration
        assert any(each.startswith("widgets") for each in world.open)
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"], seconds_max=MINUTE)
        assert "StoredVersionsUnknown" not in stage.recorded.reasons()


async def test_an_unavailable_server_is_not_covered_by_heartbeats_of_others() -> None:
    """All servers are reported in one update, but each has its own heartbeat: one that could not be
    read
    for two periods may have written any version, although the others were read throughout."""
    world = Kubernetes()
    for name in ("s1", "s2"):
        world.server(name, "v1")
    world.show_endpoints("s1", "s2")
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s2"), HA, connect_to=world.connect_to)
        await stage.until(
            lambda: STATE in world.objects and bool(world.open), seconds_max=31 * MINUTE
        )
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"], seconds_max=11 * MINUTE)
        world.servers["s1"].is_down = True
        await world.clock.advance(25 * MINUTE)
        assert world.persisted == ["v1"]
        world.servers["s1"].is_down = False
        await stage.until(lambda: world.persisted == ["Unknown", "v1"], seconds_max=5 * MINUTE)


async def test_auto_selects_the_best_source() -> None:
    """One server is polled, several are observed individually, and StorageVersions precede both."""
    options = TriggerOptions()
    one, many = Kubernetes(), Kubernetes()
    one.server("s1", "v1")
    one.show_endpoints("s1")
    for name in ("s1", "s2"):
        many.server(name, "v1")
    many.show_endpoints("s1", "s2")
    for world in (one, many):
        async with open_stage(world.clock) as stage:
            stage.begin(world.client("s1"), options, connect_to=world.connect_to)
            await stage.until(partial(world.objects.__contains__, STATE))
            await world.clock.advance(1)
    assert one.reported == []
    assert many.reported == ["v1", "v1"]
    reported = Kubernetes(storage_versions=True)
    reported.server("s1", "v1")
    reported.report("v1", "v2")
    async with open_stage(reported.clock) as stage:
        stage.begin(reported.client("s1"), options, connect_to=reported.connect_to)
        await stage.until(lambda: STATE in reported.objects)
        await reported.clock.advance(1)
        # They disagree; with discovery alone a migration would have started.
        assert (sorted(reported.persisted), reported.open) == (["Unknown", "v1", "v2"], [])


async def test_custom_resources_fall_back_to_discovery() -> None:
    """If StorageVersions are served but lack a resource, its hash in discovery is used."""
    world = Kubernetes(storage_versions=True)
    world.server("s1", "v1")
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), TriggerOptions())
        await stage.until(lambda: bool(world.open))
        assert world.persisted == ["Unknown"]


async def test_without_an_epoch_a_watched_change_is_appended() -> None:
    """The watch has delivered every state of the StorageVersion, so the persisted versions stay
    known,
    although one state was never read."""
    world = Kubernetes(storage_versions=True)
    world.server("s1", "v1")
    world.report("v1")
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), TriggerOptions())
        await stage.until(lambda: bool(world.open))
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"])
        for versions in (("v1", "v3"), ("v1", "v2"), ("v2", "v2")):
            world.report(*versions)
        await stage.until(lambda: bool(world.open))
        assert sorted(world.persisted) == ["v1", "v2", "v3"]
        assert stage.recorded.warnings == []
        world.finish()
        await stage.until(lambda: world.persisted == ["v2"])


async def test_without_an_epoch_a_gap_makes_everything_unknown() -> None:
    """If the watch broke and its resource version expired, changes were missed: the versions stored
    meanwhile are unknown."""
    world = Kubernetes(storage_versions=True)
    world.server("s1", "v1")
    world.report("v1")
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), TriggerOptions())
        await stage.until(lambda: bool(world.open))
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"])
        world.cut()
        world.report("v3")
        world.report("v1")
        world.compact()
        await stage.until(lambda: "Unknown" in world.persisted, seconds_max=120)
        assert stage.recorded.warnings == ["StoredVersionsUnknown"]
        await stage.until(lambda: bool(world.open))
        world.finish()
        await stage.until(lambda: world.persisted == ["v1"])


async def test_a_deleted_storage_version_is_no_agreement() -> None:
    """Without a StorageVersion no migration starts, and discovery is not used instead."""
    world = Kubernetes(storage_versions=True)
    world.server("s1", "v1")
    world.report("v1")
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), TriggerOptions())
        await stage.until(lambda: bool(world.open))
        world.remove(STORAGE_VERSION)
        await stage.until(lambda: not world.open)
        await world.clock.advance(5)
        assert world.open == []
        world.report("v1")
        await stage.until(lambda: bool(world.open))


async def test_a_failed_migration_is_retried_after_a_while() -> None:
    """It is retried neither at once nor never."""
    world = Kubernetes()
    world.server("s1", "v1")
    options = TriggerOptions(source=TriggerSource.DISCOVERY, rules=Settings(retry_seconds=120))
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), options)
        await stage.until(lambda: bool(world.open))
        world.finish("Failed")
        await world.clock.advance(100)
        assert world.open == []
        await stage.until(lambda: bool(world.open), seconds_max=60)


async def test_migrations_are_created_in_the_served_api() -> None:
    """On a server with the in-tree API only, migrations are created there, without a version."""
    world = Kubernetes()
    world.groups["storagemigration.k8s.io/v1"] = [world.groups["migration.k8s.io/v1alpha1"].pop()]
    world.server("s1", "v1")
    path = "/apis/storagemigration.k8s.io/v1/storageversionmigrations/"
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), DISCOVERY)
        await stage.until(lambda: any(each.startswith(path) for each in world.objects))
    (made,) = [each for name, each in world.objects.items() if name.startswith(path)]
    assert made["apiVersion"] == "storagemigration.k8s.io/v1"
    assert made["spec"] == {"resource": {"group": "example.org", "resource": "widgets"}}


async def test_missing_apis_are_reported() -> None:
    """Without the API of StorageStates, or without the requested source, the controller fails with
    the
    reason."""
    bare, wrong = Kubernetes(), Kubernetes()
    del bare.groups["migration.k8s.io/v1alpha1"]
    cases = (
        (bare, TriggerOptions(), "storagestates"),
        (wrong, TriggerOptions(source=TriggerSource.STORAGE_VERSION), "StorageVersionAPI"),
    )
    for world, options, text in cases:
        world.server("s1", "v1")
        async with open_stage(world.clock) as stage:
            controller = stage.begin(world.client("s1"), options)
            await stage.end()
            with pytest.raises(SourceMissing, match=text):
                await world.clock.run_until_done(controller.run())


async def test_errors_of_one_resource_do_not_stop_others() -> None:
    """A resource whose StorageState cannot be written is retried and counted; others continue."""
    world = Kubernetes()
    world.groups["example.org/v1"].append(("gadgets", "Gadget"))
    server = world.server("s1", "v1")
    handle = server.handle

    async def refusing(
        method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        if method == "POST" and b"gadgets" in body:
            return InProcessResponse(500, status.internal("no").to_bytes())
        return await handle(method, target, headers, body)

    server.hashes["gadgets"] = "abc="
    server.handle = refusing  # type: ignore[method-assign]
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), DISCOVERY)
        await stage.until(lambda: bool(world.open))
        await stage.until(lambda: stage.recorded.failures.count("gadgets.example.org") >= 3)
        assert set(stage.recorded.failures) == {"gadgets.example.org"}


async def test_an_unavailable_group_is_not_a_missing_one() -> None:
    """While discovery is incomplete the trigger does not start: it would create migrations in
    another API,
    from a weaker source, in addition to those that it cannot read."""
    world = Kubernetes(storage_versions=True)
    world.groups["storagemigration.k8s.io/v1"] = [
        ("storageversionmigrations", "StorageVersionMigration")
    ]
    server = world.server("s1", "v1")
    world.report("v1", "v2")
    for group in ("internal.apiserver.k8s.io", "migration.k8s.io"):
        server.hidden = group
        async with open_stage(world.clock) as stage:
            stage.begin(world.client("s1"), TriggerOptions())
            await world.clock.advance(30)
            assert STATE not in world.objects
            assert not any("storageversionmigrations/" in path for path in world.objects)
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), TriggerOptions())
        await world.clock.advance(30)
        server.hidden = ""
        await stage.until(lambda: STATE in world.objects, seconds_max=120)
        # Unavailable again, later: nothing changes.
        server.hidden = "migration.k8s.io"
        await world.clock.advance(15 * MINUTE)
        assert not any(path.startswith("/apis/storagemigration") for path in world.objects)
        stage.check()


async def test_endless_conflicting_writes_are_rate_limited() -> None:
    """A client that reverts every write at once causes a bounded number of writes."""
    world = Kubernetes()
    world.server("s1", "v1")
    put = world.put

    def reverting(path: str, value: Object, *, kind: str = "MODIFIED") -> Object:
        if path == STATE:
            value = {**value, "status": {}}
        return put(path, value, kind=kind)

    world.put = reverting  # type: ignore[method-assign]
    async with open_stage(world.clock) as stage:
        stage.begin(world.client("s1"), DISCOVERY)
        await world.clock.advance(30)
        writes = [each for each in world.sent if each.method != "GET"]
        assert 20 < len(writes) < 1_000
        world.put = put  # type: ignore[method-assign]
        await stage.until(lambda: bool(world.open))
