"""How the trigger handles versions that only the CRD lists."""

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


def test_a_version_listed_only_by_the_crd_is_migrated() -> None:
    """A version that was the storage version briefly, before any server wrote it, remains in the
    CRD's
    storedVersions: a new migration, which replaces the old one, removes it."""
    assert actions(VIEW) == [DeleteMigration, CreateMigration]
    assert actions(replace(VIEW, migrations=())) == [CreateMigration]


def test_nothing_is_done_without_a_reason() -> None:
    """If all agree, nothing is done, and one migration suffices."""
    assert CreateMigration not in actions(replace(VIEW, lists_more=False))
    running = replace(DONE, phase=MigrationPhase.RUNNING, finished_at=None)
    assert CreateMigration not in actions(replace(VIEW, migrations=(running,)))


@pytest.mark.parametrize("phase", [MigrationPhase.SUCCEEDED, MigrationPhase.FAILED])
def test_it_is_not_retried_continuously(phase: MigrationPhase) -> None:
    """If a client adds the version repeatedly, a migration is created once per retry period."""
    recent = replace(DONE, phase=phase, finished_at=WALL - timedelta(seconds=1))
    assert actions(replace(VIEW, migrations=(recent,))) == [Wait]


def test_a_success_still_narrows() -> None:
    """The versions listed by a CRD do not affect the narrowing of the StorageState."""
    wider = replace(STATE, status=replace(STATE.status, persisted=("old", "new")))
    assert actions(replace(VIEW, state=wider)) == [Narrow]
