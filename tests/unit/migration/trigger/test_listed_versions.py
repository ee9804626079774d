"""What the trigger does about versions that only the definition of a custom resource lists."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from restow.apimachinery.names import GroupVersionResource
from restow.migration.migration_values import (
    MigrationPhase,
    MigrationRecord,
    MigrationRef,
    MigrationSeen,
)
from restow.migration.trigger.actions import CreateMigration, DeleteMigration, Narrow, Wait
from restow.migration.trigger.by_storage_version import decide_by_storage_version
from restow.migration.trigger.values import (
    Now,
    Settings,
    StateSeen,
    StateStatus,
    StorageVersionReading,
    TriggerView,
)

WALL = datetime(2030, 1, 1, tzinfo=UTC)
LONG_AGO = WALL - timedelta(days=1)
READING = StorageVersionReading(
    uid="sv", resource_version="7", epoch="1", common="new", written=frozenset({"new"})
)
STATE = StateSeen(
    uid="st",
    resource_version="5",
    epoch="1",
    status=StateStatus(persisted=("new",), current="new", heartbeat=WALL),
)
DONE = MigrationSeen(
    ref=MigrationRef("v1", "m", "u"),
    phase=MigrationPhase.SUCCEEDED,
    record=MigrationRecord(
        target="new", state_uid="st", change="", epoch="1", storage_version=READING.mark
    ),
    finished_at=LONG_AGO,
)
VIEW = TriggerView(
    resource=GroupVersionResource("example.com", "v1", "gadgets"),
    state=STATE,
    migrations=(DONE,),
    reading=READING,
    lists_more=True,
)


def actions(view: TriggerView) -> list[type]:
    found = decide_by_storage_version(view, READING, None, now=Now(0.0, WALL), settings=Settings())
    return [type(each) for each in found.actions]


def test_what_only_the_definition_lists_is_migrated_once_more() -> None:
    """A version that was stored for a moment and taken back, before any server wrote it, stands in
    the definition alone: a new request, in the place of the old one, has it taken out."""
    assert actions(VIEW) == [DeleteMigration, CreateMigration]
    assert actions(replace(VIEW, migrations=())) == [CreateMigration]


def test_nothing_is_done_without_a_reason() -> None:
    """What all say is left alone, and one request is enough."""
    assert CreateMigration not in actions(replace(VIEW, lists_more=False))
    running = replace(DONE, phase=MigrationPhase.RUNNING, finished_at=None)
    assert CreateMigration not in actions(replace(VIEW, migrations=(running,)))


@pytest.mark.parametrize("phase", [MigrationPhase.SUCCEEDED, MigrationPhase.FAILED])
def test_it_is_not_tried_all_the_time(phase: MigrationPhase) -> None:
    """If somebody lists it again and again, a request is made once in the time of retries."""
    lately = replace(DONE, phase=phase, finished_at=WALL - timedelta(seconds=1))
    assert actions(replace(VIEW, migrations=(lately,))) == [Wait]


def test_a_success_still_narrows() -> None:
    """What a definition lists has no say in what the state is narrowed by."""
    wider = replace(STATE, status=replace(STATE.status, persisted=("old", "new")))
    assert actions(replace(VIEW, state=wider)) == [Narrow]
