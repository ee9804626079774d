"""The actions of the trigger. Each has a reason, which appears in events and log lines.

Actions run in order; when a write is rejected, the rest is dropped, and everything is read and
decided again. A decision writes to the state at most once.

Not here: their execution (`executor`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.migration.migration_values import MigrationRecord, MigrationRef
from restow.migration.trigger.values import (
    Memory,
    StateSeen,
    StateStatus,
)


class Precondition(NamedTuple):
    """Identity and resource version of the object that was read."""

    uid: str
    resource_version: str

    @classmethod
    def of(cls, state: StateSeen) -> Precondition:
        return cls(state.uid, state.resource_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateState:
    """Create the StorageState, if it does not exist."""

    resource: GroupResource
    status: StateStatus
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateState:
    """Update the StorageState, if it is unchanged.

    A change mark is an annotation, and an update of a status writes no annotations, so it is
    written first: if the status update fails, earlier migrations do not count, which is safe.
    """

    resource: GroupResource
    precondition: Precondition
    status: StateStatus
    change: str | None = None
    """The new change mark; None keeps the current one."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow:
    """Reduce the persisted hashes to the migration's target, if the state is unchanged."""

    resource: GroupResource
    precondition: Precondition
    status: StateStatus
    migration: MigrationRef
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMigration:
    """Create a migration. Its name depends on its record only, so equal ones are created once."""

    resource: GroupVersionResource
    name: str
    record: MigrationRecord
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMigration:
    """Delete a migration, by uid. Not by resource version: the migrator updates it all the time,
    and it must be deleted at any progress."""

    ref: MigrationRef
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Decide again at this time, or earlier if something changes."""

    until_seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Decide again when something changes, or at the next poll."""

    reason: str


Action = CreateState | UpdateState | Narrow | CreateMigration | DeleteMigration | Wait | Nothing


class TriggerDecision(NamedTuple):
    """The actions, and the new memory, which is kept whether or not the actions succeed."""

    actions: tuple[Action, ...]
    memory: Memory | None
