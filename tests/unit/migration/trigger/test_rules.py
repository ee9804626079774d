"""Single rules of the trigger: eligibility, reading, records, and concurrent controllers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from restow.apimachinery.names import GroupResource, GroupVersionKind, GroupVersionResource
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.internal_v1alpha1 import (
    ServerStorageVersion,
    StorageVersion,
    StorageVersionCondition,
    StorageVersionStatus,
)
from restow.apis.names import LOOSE_ANNOTATION
from restow.migration.migration_values import (
    MigrationPhase,
    MigrationRecord,
    MigrationRef,
    MigrationSeen,
)
from restow.migration.records import NAME_LENGTH_MAX, annotations_of, name_of, record_of
from restow.migration.trigger.actions import CreateMigration, Narrow, UpdateState, Wait
from restow.migration.trigger.decide import decide
from restow.migration.trigger.eligibility import DiscoveredVersion, eligible, why_not
from restow.migration.trigger.hashes import is_stale
from restow.migration.trigger.readings import LOOSE_SECONDS_MAX, reading_of
from restow.migration.trigger.values import (
    UNKNOWN,
    DiscoveryReading,
    HashReport,
    LocalReading,
    Memory,
    Now,
    Settings,
    Sighting,
    StateSeen,
    StateStatus,
    StorageVersionReading,
    TriggerView,
)
from tests.unit.migration.trigger.world import RESOURCE, START, Controller, World

RECORD = MigrationRecord(
    target="h1", state_uid="u", change="3", epoch="4", storage_version="v/epoch/4"
)
NOW = Now(50_000.0, START + timedelta(seconds=50_000))
CRUD = frozenset({"list", "update", "get"})


def found(group: str, version: str, name: str, verbs: frozenset[str] = CRUD) -> DiscoveredVersion:
    return DiscoveredVersion(
        name=GroupVersionResource(group, version, name), kind="Kind", verbs=verbs, hash="h"
    )


@pytest.mark.parametrize(
    ("discovered", "why"),
    [
        (found("apps", "v1", "deployments"), ""),
        (found("", "v1", "events"), ""),
        (found("events.k8s.io", "v1", "events"), ""),
        (found("apps", "v1", "deployments/status"), "it is a subresource"),
        (found("", "v1", "bindings", frozenset({"create"})), "it has no verb list, update"),
        (found("x", "v1", "logs", frozenset({"list", "create"})), "it has no verb update"),
        (found("x", "v1", "sinks", frozenset({"update"})), "it has no verb list"),
    ],
)
def test_listable_and_updatable_resources_are_eligible(
    discovered: DiscoveredVersion, why: str
) -> None:
    """Subresources are not eligible; events are."""
    assert why_not(discovered) == why
    assert bool(eligible([discovered], {})) is not bool(why)


def test_each_resource_is_taken_once() -> None:
    """In the preferred version of its group, or the first in discovery."""
    shown = [
        found("apps", "v1beta1", "deployments"),
        found("apps", "v1", "deployments"),
        found("apps", "v1beta2", "deployments"),
        found("x", "v2", "things"),
        found("x", "v1", "things"),
    ]
    chosen = eligible(shown, {"apps": "v1", "x": "v3"})
    assert {str(name): each.name.version for name, each in chosen.items()} == {
        "deployments.apps": "v1",
        "things.x": "v2",
    }


def test_objects_served_by_two_groups_are_migrated_once() -> None:
    """Through the group in whose version they are stored, whatever the order."""
    stored = storage_version_hash(GroupVersionKind("", "v1", "Event"))
    shown = [
        DiscoveredVersion(
            name=GroupVersionResource(group, "v1", "events"),
            kind="Event",
            verbs=frozenset({"list", "update"}),
            hash=stored,
        )
        for group in ("events.k8s.io", "")
    ]
    assert list(map(str, eligible(shown, {}))) == ["events"]
    assert list(map(str, eligible(reversed(shown), {}))) == ["events"]
    assert len(eligible([found("a", "v1", "things"), found("b", "v1", "things")], {})) == 1
    unsaid = [replace(each, hash="") for each in shown]
    assert len(eligible(unsaid, {})) == 2


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("", 0.0),
        ('{"s1": 30, "s2": 60.5}', 60.5),
        ("{}", 0.0),
        ("nonsense", LOOSE_SECONDS_MAX),
        ('{"s1": "x"}', LOOSE_SECONDS_MAX),
        ("[1]", LOOSE_SECONDS_MAX),
    ],
)
def test_servers_report_the_loose_mode(said: str, seconds: float) -> None:
    """The longest bound counts, and an unreadable one counts as the maximum."""
    version = version_of("apps/v1", common="apps/v1")
    version.metadata["annotations"][LOOSE_ANNOTATION] = said
    assert reading_of(version, kind="Deployment", follows=True).loose_seconds == seconds


def version_of(*encodings: str, common: str | None, keys: str = "") -> StorageVersion:
    conditions = [StorageVersionCondition(type="AllEncryptionKeysEqual", status=keys)]
    return StorageVersion(
        metadata={
            "uid": "u",
            "resourceVersion": "12",
            "annotations": {"coordination.restow.dev/epoch": "7"},
        },
        status=StorageVersionStatus(
            storage_versions=[ServerStorageVersion(encoding_version=each) for each in encodings],
            common_encoding_version=common,
            conditions=conditions if keys else [],
        ),
    )


def hash_of(version: str) -> str:
    return storage_version_hash(GroupVersionKind("apps", version, "Deployment"))


def test_a_storage_version_is_read_as_hashes() -> None:
    """UID, epoch, common version and all encoding versions, including intermediate ones."""
    now = version_of("apps/v1", "apps/v1", common="apps/v1")
    before = version_of("apps/v1", "apps/v2", common=None)
    reading = reading_of(now, kind="Deployment", passed=[before], follows=True)
    assert reading == StorageVersionReading(
        uid="u",
        resource_version="12",
        epoch="7",
        common=hash_of("v1"),
        written=frozenset({hash_of("v1"), hash_of("v2")}),
        follows=True,
    )
    gone = reading_of(None, kind="Deployment", passed=[before], follows=True)
    assert (gone.uid, gone.common, gone.written) == ("", "", reading.written)


@pytest.mark.parametrize("wrong", ["", "no/such/version"])
def test_a_malformed_version_may_be_any(wrong: str) -> None:
    """A malformed entry means no agreement, and the written versions are unknown."""
    reading = reading_of(
        version_of("apps/v1", wrong, common=wrong), kind="Deployment", follows=True
    )
    assert (reading.common, reading.written) == ("", frozenset({hash_of("v1"), UNKNOWN}))


@pytest.mark.parametrize(("keys", "agrees"), [("", True), ("True", True), ("False", False)])
def test_servers_with_different_keys_do_not_agree(keys: str, agrees: bool) -> None:
    """A common version alone is no agreement."""
    reading = reading_of(
        version_of("apps/v1", common="apps/v1", keys=keys), kind="Deployment", follows=True
    )
    assert bool(reading.common) is agrees


def test_the_mark_is_uid_and_epoch_or_uid_and_resource_version() -> None:
    """A server entry that is added and removed without changing the agreement keeps the epoch's
    mark."""
    reading = StorageVersionReading(uid="u", resource_version="5", epoch="2")
    assert reading.mark == replace(reading, resource_version="6").mark
    assert reading.mark != replace(reading, epoch="3").mark
    assert reading.mark != replace(reading, uid="w").mark
    bare = replace(reading, epoch="")
    assert bare.mark != replace(bare, resource_version="6").mark
    assert bare.mark != replace(bare, uid="w").mark


def test_a_record_round_trips_as_annotations() -> None:
    """A record that lacks a field is not ours."""
    annotations = annotations_of(RECORD)
    assert record_of(annotations) == RECORD
    for name in annotations:
        rest = {key: value for key, value in annotations.items() if key != name}
        assert record_of(rest) is None


def test_the_name_of_a_migration_encodes_its_purpose() -> None:
    """Equal purposes have equal names, others differ, and the length is bounded."""
    resource = GroupResource("example.org", "widgets")
    name = name_of(resource, RECORD)
    assert name.startswith("widgets.example.org-")
    assert name == name_of(resource, replace(RECORD))
    changed = ("target", "state_uid", "change", "epoch", "storage_version")
    names = {name_of(resource, replace(RECORD, **{each: "else"})) for each in changed}
    assert len(names | {name}) == len(changed) + 1
    assert len(name_of(GroupResource("g" * 250, "widgets"), RECORD)) <= NAME_LENGTH_MAX


# Concurrent controllers.


@pytest.mark.parametrize("source", ["storageversion", "discovery"])
def test_two_controllers_in_step_create_one_migration_and_narrow_once(source: str) -> None:
    """Both read the same and act alternately: one is rejected each time, and nothing is done
    twice."""
    world = World(source=source, kept=False)
    world.serve("s0", "h1")
    world.objects = {"a": "h0"}
    pair = [Controller(name, world, "s0") for name in ("c0", "c1")]
    created = narrowed = 0
    for _ in range(60):
        for controller in pair:
            controller.step()
        created = sum(isinstance(each, CreateMigration) for each in world.log)
        narrowed = sum(isinstance(each, Narrow) for each in world.log)
        if created:
            world.rewrite("s0", all_of_it=True)
    assert (created, narrowed) == (1, 1)
    assert world.state is not None
    assert world.state.status.persisted == ("h1",)


def test_a_late_migration_of_a_paused_controller_never_counts() -> None:
    """By discovery: a migration created while another version is written succeeds, and proves
    nothing.

    Conditional updates of the state alone would not detect this: the creation of a migration cannot
    be
    conditional on the state. Its record does.
    """
    world = World(source="discovery", kept=False)
    world.serve("s0", "h1")
    world.objects = {"a": "h0", "b": "h0"}
    active, paused = (Controller(name, world, "s0") for name in ("c0", "c1"))
    active.step()
    while world.state is None:
        active.step()
    while not any(isinstance(each, CreateMigration) for each in paused.todo):
        paused.step()  # now it is paused, before it creates a migration for h1
    world.serve("s0", "h2")
    active.cycle()
    world.rewrite("s0")
    paused.step()
    assert "h1" in world.open
    world.rewrite("s0", all_of_it=True)  # as h2, whatever the migration's target
    world.serve("s0", "h1")
    active.cycle()
    assert world.state.status.persisted == (UNKNOWN, "h2", "h1")
    assert world.open == ["h1"]


# Rejected updates.


@pytest.mark.parametrize("source", ["storageversion", "discovery", "discovery-ha"])
def test_a_hash_is_pending_until_the_state_has_it(source: str) -> None:
    """Its update is rejected, and then the server is rolled back: the hash is recorded
    nevertheless."""
    world = World(source=source, kept=False)
    world.serve("s0", "h1")
    controller = Controller("c0", world, "s0")
    world.controllers["c0"] = controller
    while world.state is None or world.state.status.persisted != ("h1",):
        controller.cycle()
        world.rewrite("s0", all_of_it=True)
        world.seconds += 310.0
    controller.cycle()
    world.serve("s0", "h2")
    for _ in range(4):
        controller.step()
    world.state = replace(world.state, resource_version=world.fresh())
    controller.step()
    assert world.state.status.persisted == ("h1",)
    world.serve("s0", "h1")
    controller.cycle()
    assert "h2" in world.state.status.persisted


def test_a_controller_starts_only_after_a_stale_state_is_reset() -> None:
    """The reset is rejected: the controller is still starting, with the limit for a start."""
    world = World(source="discovery", kept=False)
    world.serve("s0", "h1")
    controller = Controller("c0", world, "s0")
    controller.cycle()
    world.rewrite("s0", all_of_it=True)
    controller.cycle()
    controller.crash()
    world.seconds += 900.0
    for _ in range(4):
        controller.step()
    assert world.state is not None
    world.state = replace(world.state, resource_version=world.fresh())
    controller.step()
    assert world.state.status.persisted == ("h1",)
    controller.cycle()
    assert world.state.status.persisted == (UNKNOWN,)


@pytest.mark.parametrize(
    ("minutes", "is_valid"), [(-0.5, True), (-5, False), (9.9, True), (10.1, False)]
)
def test_a_heartbeat_is_valid_for_a_period_and_not_from_the_future(
    minutes: float, is_valid: bool
) -> None:
    """At the start; a time in the future comes from a wrong clock."""
    heartbeat = NOW.wall - timedelta(minutes=minutes)
    assert is_stale(heartbeat, None, now=NOW, settings=Settings()) is not is_valid


def test_inconsistent_readings_are_repeated() -> None:
    """State and StorageVersion have different epochs: neither is acted on."""
    record = MigrationRecord(
        target="h1", state_uid="state", change="", epoch="5", storage_version="v/epoch/4"
    )
    done = MigrationSeen(
        ref=MigrationRef("api", "m", "m-uid"), phase=MigrationPhase.SUCCEEDED, record=record
    )
    status = StateStatus(persisted=("h0", "h1"), current="h1", heartbeat=NOW.wall)
    view = TriggerView(
        resource=RESOURCE,
        state=StateSeen(uid="state", resource_version="7", status=status, epoch="5"),
        migrations=(done,),
        reading=StorageVersionReading(
            uid="v", epoch="4", common="h1", written=frozenset({"h1"}), follows=True
        ),
    )
    (action,) = decide(view, None, now=NOW, settings=Settings()).actions
    assert isinstance(action, Wait)
    assert "different moments" in action.reason


# Rules of reports that the scenarios do not cover.


def reports_view(
    *,
    you_minutes: float = 1,
    persisted: tuple[str, ...] = (UNKNOWN, "h1"),
    found: tuple[MigrationSeen, ...] = (),
) -> TriggerView:
    beats = {"me": NOW.wall, "you": NOW.wall - timedelta(minutes=you_minutes)}
    reports = tuple(
        HashReport(reporter_id=name, hash="h1", heartbeat=beat) for name, beat in beats.items()
    )
    status = StateStatus(persisted=persisted, current="h9", heartbeat=NOW.wall, reports=reports)
    return TriggerView(
        resource=RESOURCE,
        state=StateSeen(uid="state", resource_version="7", status=status, change="3"),
        migrations=found,
        reading=LocalReading(reporter_id="me", hash="h1", is_leader=True),
    )


def remembered(view: TriggerView, *, since_minutes: float, you_seen_minutes: float) -> Memory:
    assert view.state is not None
    me, you = view.state.status.reports
    return Memory(
        key="state 3  h1",
        since_seconds=NOW.seconds - 60 * since_minutes,
        sightings=(
            Sighting("me", me.heartbeat, NOW.seconds),
            Sighting("you", you.heartbeat, NOW.seconds - 60 * you_seen_minutes),
        ),
        watched=frozenset({"me"}),
    )


@pytest.mark.parametrize(
    ("since_minutes", "you_minutes", "you_seen_minutes", "starts"),
    [
        (10, 1, 1, True),
        (9.9, 1, 1, False),  # less than a whole period of agreement
        (20, 10, 1, False),  # expired by the reporter's clock
        (20, 1, 10, False),  # expired by our clock, although not by the reporter's
        (20, 9.9, 9.9, True),
    ],
)
def test_a_migration_starts_after_a_whole_period_with_reports_of_all(
    since_minutes: float, you_minutes: float, you_seen_minutes: float, starts: bool
) -> None:
    """By reports: the agreement held, and every heartbeat is younger than a period on both
    clocks."""
    view = reports_view(you_minutes=you_minutes)
    memory = remembered(view, since_minutes=since_minutes, you_seen_minutes=you_seen_minutes)
    actions = decide(view, memory, now=NOW, settings=Settings()).actions
    assert any(isinstance(each, CreateMigration) for each in actions) is starts


@pytest.mark.parametrize(
    ("finished_minutes", "known_minutes", "you_minutes", "you_seen_minutes", "narrows"),
    [
        (5, 5, 1, 1, True),
        (5, 1, 1, 2, False),  # its heartbeat was read before the end
        (0.5, 5, 1, 1, False),  # its heartbeat precedes the end
        (5, 5, 1, 5, False),
        (30, 30, 15, 15, False),  # it has reported since, and has expired again
    ],
)
def test_a_success_counts_after_reports_of_all_servers(
    finished_minutes: float,
    known_minutes: float,
    you_minutes: float,
    you_seen_minutes: float,
    narrows: bool,
) -> None:
    """By reports: what a server did since its last report is unknown."""
    record = MigrationRecord(target="h1", state_uid="state", change="3")
    done = MigrationSeen(
        ref=MigrationRef("api", "m", "m-uid"),
        phase=MigrationPhase.SUCCEEDED,
        record=record,
        finished_at=NOW.wall - timedelta(minutes=finished_minutes),
    )
    view = reports_view(you_minutes=you_minutes, found=(done,))
    memory = replace(
        remembered(view, since_minutes=60, you_seen_minutes=you_seen_minutes),
        succeeded=("m-uid", NOW.seconds - 60 * known_minutes),
    )
    actions = decide(view, memory, now=NOW, settings=Settings()).actions
    narrowed = [each.status.persisted for each in actions if isinstance(each, Narrow)]
    assert narrowed == ([("h1",)] if narrows else [])


@pytest.mark.parametrize(
    ("finished_minutes", "tries"), [(11, True), (9, False), (-0.5, False), (-60 * 24 * 365, True)]
)
def test_a_failure_is_retried(finished_minutes: float, tries: bool) -> None:
    """After the retry period; an end time from a wrong clock causes no longer wait."""
    record = MigrationRecord(target="h1", state_uid="state", change="3")
    failed = MigrationSeen(
        ref=MigrationRef("api", "m", "m-uid"),
        phase=MigrationPhase.FAILED,
        record=record,
        finished_at=NOW.wall - timedelta(minutes=finished_minutes),
    )
    status = StateStatus(persisted=(UNKNOWN,), current="h1", heartbeat=NOW.wall)
    view = TriggerView(
        resource=RESOURCE,
        state=StateSeen(uid="state", resource_version="9", status=status, change="3"),
        migrations=(failed,),
        reading=DiscoveryReading(hash="h1"),
    )
    actions = decide(view, Memory(), now=NOW, settings=Settings()).actions
    assert any(isinstance(each, CreateMigration) for each in actions) is tries


@pytest.mark.parametrize(
    ("own_minutes", "others_minutes", "forgets"),
    [(11, 1, True), (9, 11, False), (None, 11, True), (None, 9, False)],
)
def test_an_unobserved_state_is_reset(
    own_minutes: float | None, others_minutes: float, forgets: bool
) -> None:
    """By reports: the own server while this controller was down, or all while all were down."""
    beats = {"you": others_minutes, "it": 30.0}
    if own_minutes is not None:
        beats["me"] = own_minutes
    reports = tuple(
        HashReport(reporter_id=name, hash="h1", heartbeat=NOW.wall - timedelta(minutes=age))
        for name, age in beats.items()
    )
    view = reports_view(persisted=("h1",))
    assert view.state is not None
    status = replace(view.state.status, reports=reports)
    view = replace(view, state=replace(view.state, status=status))
    actions, memory = decide(view, None, now=NOW, settings=Settings())
    (update,) = [each for each in actions if isinstance(each, UpdateState)]
    assert (UNKNOWN in update.status.persisted) is forgets
    assert update.change == ("7" if forgets else None)
    assert (memory is None) is forgets  # the start is complete only after the reset


def test_a_new_leader_waits_a_whole_period() -> None:
    """Without memory it has not observed an agreement."""
    first = decide(reports_view(), None, now=NOW, settings=Settings())
    assert not any(isinstance(each, CreateMigration) for each in first.actions)
    later = Now(NOW.seconds + 1, NOW.wall)
    second = decide(reports_view(), first.memory, now=later, settings=Settings())
    assert not any(isinstance(each, CreateMigration) for each in second.actions)
