"""What the trigger may do. Each action says why, in words that become events and log lines.

Actions are done in their order; when one is refused, the rest are dropped, everything is read
again and decided again. A decision writes to the state at most once.

Not here: how they are done.
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
    """The object that was read, unchanged."""

    uid: str
    resource_version: str

    @classmethod
    def of(cls, state: StateSeen) -> Precondition:
        return cls(state.uid, state.resource_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateState:
    """Only if there is none."""

    resource: GroupResource
    status: StateStatus
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateState:
    """Only if it is as it was read.

    A change mark is an annotation, and an update of a status writes no annotations, so it is
    written first: if the status does not follow, requests made before do not count, which is safe.
    """

    resource: GroupResource
    precondition: Precondition
    status: StateStatus
    change: str | None = None
    """The new change mark; None leaves the old one."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow:
    """Everything is stored as the request's target: only if the state is as it was read."""

    resource: GroupResource
    precondition: Precondition
    status: StateStatus
    migration: MigrationRef
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMigration:
    """Only if there is none of this name, which is the same for all who ask for the same."""

    resource: GroupVersionResource
    name: str
    record: MigrationRecord
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMigration:
    """Only this one, by its uid. Not by its resource version: the migrator changes it all the time,
    and however far it is, it must end."""

    ref: MigrationRef
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Decide again then, or earlier if something changes."""

    until_seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Decide again when something changes, or at the next poll."""

    reason: str


Action = CreateState | UpdateState | Narrow | CreateMigration | DeleteMigration | Wait | Nothing


class TriggerDecision(NamedTuple):
    """What to do, and what to remember: the memory holds whether or not the actions succeed."""

    actions: tuple[Action, ...]
    memory: Memory | None
