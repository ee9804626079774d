"""Which migrations prove, to a trigger that starts on servers without an epoch, that it missed
nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from restow.apimachinery.names import GroupVersionResource
from restow.migration.migration_values import (
    MigrationPhase,
    MigrationRecord,
    MigrationRef,
    MigrationSeen,
)
from restow.migration.trigger.actions import UpdateState
from restow.migration.trigger.by_storage_version import decide_by_storage_version
from restow.migration.trigger.values import (
    UNKNOWN,
    Now,
    Settings,
    StateSeen,
    StateStatus,
    StorageVersionReading,
    TriggerView,
)

WALL = datetime(2030, 1, 1, tzinfo=UTC)
READING = StorageVersionReading(
    uid="sv", resource_version="7", common="new", written=frozenset({"new"})
)
STATE = StateSeen(
    uid="st",
    resource_version="5",
    status=StateStatus(persisted=("new",), current="new", heartbeat=WALL),
)


@pytest.mark.parametrize("phase", list(MigrationPhase))
def test_only_a_success_proves_that_no_change_was_missed(phase: MigrationPhase) -> None:
    """A pending or running migration, which any client can create, does not hide missed changes."""
    record = MigrationRecord(target="new", state_uid="st", change="", storage_version=READING.mark)
    request = MigrationSeen(ref=MigrationRef("v1", "m", "u"), phase=phase, record=record)
    view = TriggerView(
        resource=GroupVersionResource("example.com", "v1", "widgets"),
        state=STATE,
        migrations=(request,),
        reading=READING,
    )
    found = decide_by_storage_version(view, READING, None, now=Now(0.0, WALL), settings=Settings())
    written = [each for each in found.actions if isinstance(each, UpdateState)]
    is_unknown = any(UNKNOWN in each.status.persisted for each in written)
    assert is_unknown is (phase is not MigrationPhase.SUCCEEDED)
