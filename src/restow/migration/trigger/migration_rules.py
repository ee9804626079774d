"""Rules on migrations: which ones count, and when one is created, retried, deleted or accepted.

A migration counts only if its record equals the current one. Only this protects the persisted
hashes from a controller that acts on an hour-old read: creating a migration cannot be conditional
on the state, but a migration that was created for another state never counts.

Not here: which versions are recorded, and when a migration may start (each source has its own
rules).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from restow.migration.migration_values import MigrationPhase, MigrationRecord, MigrationSeen
from restow.migration.records import name_of
from restow.migration.trigger.actions import (
    Action,
    CreateMigration,
    DeleteMigration,
    Narrow,
    Nothing,
    Precondition,
    UpdateState,
    Wait,
)
from restow.migration.trigger.hashes import is_due
from restow.migration.trigger.values import (
    UNKNOWN,
    Memory,
    Now,
    Settings,
    StateSeen,
    TriggerView,
)


class MigrationGate(NamedTuple):
    """A condition for an action: open if there is no reason against it."""

    reason: str = ""
    until_seconds: float | None = None
    """The time at which the gate opens without a change, if it does."""

    @property
    def is_open(self) -> bool:
        return not self.reason

    def action(self) -> Action:
        if self.until_seconds is None:
            return Nothing(reason=self.reason)
        return Wait(until_seconds=self.until_seconds, reason=self.reason)


OPEN: Final = MigrationGate()
OBJECTS_FAILED: Final = "objects could not be rewritten, so they may be in any version"
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def cancel(migrations: Iterable[MigrationSeen], reason: str) -> list[Action]:
    """Delete all open migrations, of any client."""
    return [DeleteMigration(ref=each.ref, reason=reason) for each in migrations if each.is_open]


def with_key(memory: Memory | None, key: str, now: Now) -> Memory:
    """Return the memory with this key, and the time since when it has had the key."""
    if memory is not None and memory.key == key:
        return memory
    return replace(memory or Memory(), key=key, since_seconds=now.seconds)


def loose_gate(since_seconds: float, *, now: Now, settings: Settings) -> MigrationGate:
    """Open after the wait of loose mode, in which writes in the old version may still arrive."""
    if settings.loose_wait_seconds is None:
        return OPEN
    # KEP-1201 0.22: loose: start only after the wait
    until = since_seconds + settings.loose_wait_seconds
    if now.seconds >= until:
        return OPEN
    return MigrationGate("loose mode: servers may still write as before the last change", until)


def census_gate(
    view: TriggerView, target: str, since_seconds: float, *, settings: Settings
) -> MigrationGate:
    """Open, in loose mode, with the evidence of a census that started after the wait."""
    if settings.loose_wait_seconds is None:
        return OPEN
    if view.census is None:
        return MigrationGate(
            "loose mode: the migration is complete but not proven, there is no census"
        )
    if view.census.begun_seconds < since_seconds + settings.loose_wait_seconds:
        return MigrationGate("loose mode: the census began too soon after the last change")
    if not view.census.found <= {target}:
        return MigrationGate("loose mode: the census has found objects in other versions")
    return OPEN


def first(*gates: MigrationGate) -> MigrationGate:
    """Return the first closed gate, or an open one."""
    return next((gate for gate in gates if not gate.is_open), OPEN)


def migration_actions(
    view: TriggerView, state: StateSeen, wanted: MigrationRecord, *, start: MigrationGate, narrow:
    MigrationGate, now: Now, settings: Settings, key: str | None = None,
) -> list[Action]:  # fmt: skip
    """Return the actions on migrations while the servers agree on the record's target.

    `key` is the encryption key that they agree on. A source without keys passes None: then the
    persisted keys stay unchanged.
    """
    actions: list[Action] = [
        DeleteMigration(ref=each.ref, reason="it was created for an earlier agreement or state")
        for each in view.migrations
        if each.is_open and each.record is not None and each.record != wanted
    ]
    keys = state.status.keys if key is None else (key,)
    # KEP-2339 3.42: migrate when the common version is not the only persisted one
    # KEP-2343 4.36: migrate when the persisted hashes list Unknown or several versions
    is_narrowed = (state.status.persisted, state.status.keys) == ((wanted.target,), keys)
    if is_narrowed and not view.lists_more:
        return actions or [Nothing(reason="all objects are stored in the current version")]
    counting = {each.phase: each for each in view.migrations if each.record == wanted}
    if MigrationPhase.SUCCEEDED in counting and is_narrowed:
        # It ended before the CRD listed more versions; another migration removes those.
        again = _retry_gate(
            counting[MigrationPhase.SUCCEEDED], "the migration", now=now, settings=settings
        )
        start = first(again, start)
    elif MigrationPhase.SUCCEEDED in counting:
        # KEP-2343 4.16: a migration with this record has succeeded: narrow to its target
        if narrow.is_open:
            success = counting[MigrationPhase.SUCCEEDED]
            return [
                *actions,
                _narrow(view, state, success, target=wanted.target, keys=keys, now=now),
            ]
        return [*actions, narrow.action()]
    if any(phase in counting for phase in (MigrationPhase.PENDING, MigrationPhase.RUNNING)):
        return [*actions, Nothing(reason="a migration is in progress")]
    if MigrationPhase.FAILED in counting:
        why = "the migration has failed and"
        retry = _retry_gate(counting[MigrationPhase.FAILED], why, now=now, settings=settings)
        start = first(retry, start)
    if not start.is_open:
        return [*actions, start.action()]
    return [*actions, *_launch(view, state, wanted)]


def counted_success(view: TriggerView, wanted: MigrationRecord) -> MigrationSeen | None:
    """The successful migration with this record."""
    found = (each for each in view.migrations if each.record == wanted)
    return next((each for each in found if each.phase is MigrationPhase.SUCCEEDED), None)


def has_failed_last(migrations: Iterable[MigrationSeen]) -> bool:
    """Whether the migration that ended last failed because of its objects."""
    ended = [each for each in migrations if not each.is_open]
    last = max(ended, key=_end, default=None)
    return last is not None and last.has_failed_objects


def _end(migration: MigrationSeen) -> tuple[datetime, bool]:
    """Sort key: of two that ended in the same second, the failed one counts as the later."""
    return migration.finished_at or _LONG_AGO, migration.has_failed_objects


def owed_by_failures(view: TriggerView) -> frozenset[str]:
    """The hashes that must be in the state after failures: such objects may be in any version.

    Servers that verify migrations record this themselves.
    """
    if view.state is not None and view.state.is_verified_by_servers:
        return frozenset()
    return frozenset({UNKNOWN}) if has_failed_last(view.migrations) else frozenset()


def _launch(view: TriggerView, state: StateSeen, wanted: MigrationRecord) -> list[Action]:
    """Create a migration, and delete the trigger's migrations that have ended."""
    resource = view.resource.group_resource
    is_by_version = state.status.persisted != (wanted.target,)
    other = "in other versions" if is_by_version else "under other encryption keys"
    reason = f"objects may be stored {other} than the current one"
    if view.lists_more and not is_by_version:
        reason = "status.storedVersions of the CRD lists versions that no object is stored in"
    return [
        *(
            DeleteMigration(ref=each.ref, reason="a new migration replaces it")
            for each in view.migrations
            if not each.is_open and each.record is not None
        ),
        CreateMigration(
            resource=view.resource,
            name=name_of(resource, wanted),
            record=wanted,
            reason=reason,
        ),
    ]


def _narrow(
    view: TriggerView,
    state: StateSeen,
    migration: MigrationSeen,
    *,
    target: str,
    keys: tuple[str, ...],
    now: Now,
) -> Narrow:
    """Narrow versions and keys in one update: half of it would be a state that never existed."""
    return Narrow(
        resource=view.resource.group_resource,
        precondition=Precondition.of(state),
        status=replace(
            state.status, persisted=(target,), keys=keys, current=target, heartbeat=now.wall
        ),
        migration=migration.ref,
        reason="the migration to the current version has succeeded, and nothing changed meanwhile",
    )


def _retry_gate(ended: MigrationSeen, why: str, *, now: Now, settings: Settings) -> MigrationGate:
    if ended.finished_at is None:
        return OPEN
    due = ended.finished_at + timedelta(seconds=settings.retry_seconds)
    left = (due - now.wall).total_seconds()
    # A time far in the future was written by a wrong clock: do not wait for it.
    if not 0 < left <= settings.retry_seconds + settings.skew_seconds:
        return OPEN
    return MigrationGate(f"{why} is retried later", now.seconds + left)


def with_heartbeat(
    actions: list[Action], view: TriggerView, state: StateSeen, *, now: Now, settings: Settings
) -> list[Action]:
    """Add a heartbeat to the actions if one is due and the state is not written anyway."""
    if any(isinstance(each, UpdateState | Narrow) for each in actions):
        return actions
    if not is_due(state.status.heartbeat, now=now, settings=settings):
        return actions
    # KEP-2343 4.13: when nothing has changed update only the heartbeat
    beat = UpdateState(
        resource=view.resource.group_resource,
        precondition=Precondition.of(state),
        status=replace(state.status, heartbeat=now.wall),
        reason="heartbeat",
    )
    return [*(each for each in actions if not isinstance(each, Wait | Nothing)), beat]
