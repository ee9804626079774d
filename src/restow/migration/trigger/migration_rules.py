"""Rules about migration requests: which count, when one is made, made again, ended, believed.

A request counts only if its record is what would be recorded now. That is all that stands between
a controller that acts on what it read an hour ago and the persisted hashes: creating a request
cannot be conditional on the state, but a request that was made for another state never counts.

Not here: what must be recorded, and when it may begin (each source has its own rules).
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
    """Whether something may be done: open when there is no reason against it."""

    reason: str = ""
    until_seconds: float | None = None
    """When it opens by itself, if it does."""

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
    """End all that have not ended, whoever made them."""
    return [DeleteMigration(ref=each.ref, reason=reason) for each in migrations if each.is_open]


def with_key(memory: Memory | None, key: str, now: Now) -> Memory:
    """The memory, with the moment since when it has been this key."""
    if memory is not None and memory.key == key:
        return memory
    return replace(memory or Memory(), key=key, since_seconds=now.seconds)


def loose_gate(since_seconds: float, *, now: Now, settings: Settings) -> MigrationGate:
    """In loose mode, writes in the old version may arrive for a while after a change."""
    if settings.loose_wait_seconds is None:
        return OPEN
    until = since_seconds + settings.loose_wait_seconds
    if now.seconds >= until:
        return OPEN
    return MigrationGate("loose mode: servers may still write as before the last change", until)


def census_gate(
    view: TriggerView, target: str, since_seconds: float, *, settings: Settings
) -> MigrationGate:
    """In loose mode, nothing is believed but a census that began after the wait."""
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
    """The first that is closed."""
    return next((gate for gate in gates if not gate.is_open), OPEN)


def work_off(
    view: TriggerView, state: StateSeen, wanted: MigrationRecord, *, start: MigrationGate, narrow:
    MigrationGate, now: Now, settings: Settings, key: str | None = None,
) -> list[Action]:  # fmt: skip
    """What to do about requests when the servers agree on the record's target.

    `key` is the encryption key that they agree on. A source that shows no keys has none: then the
    persisted ones stay as they are.
    """
    actions: list[Action] = [
        DeleteMigration(ref=each.ref, reason="it was made for what is no longer so")
        for each in view.migrations
        if each.is_open and each.record is not None and each.record != wanted
    ]
    keys = state.status.keys if key is None else (key,)
    is_narrowed = (state.status.persisted, state.status.keys) == ((wanted.target,), keys)
    if is_narrowed and not view.lists_more:
        return actions or [Nothing(reason="all objects are stored in the current version")]
    counting = {each.phase: each for each in view.migrations if each.record == wanted}
    if MigrationPhase.SUCCEEDED in counting and is_narrowed:
        # It was done before the definition listed more; another has that taken back.
        again = _retry_gate(
            counting[MigrationPhase.SUCCEEDED], "the migration", now=now, settings=settings
        )
        start = first(again, start)
    elif MigrationPhase.SUCCEEDED in counting:
        if narrow.is_open:
            success = counting[MigrationPhase.SUCCEEDED]
            return [
                *actions,
                _narrow(view, state, success, target=wanted.target, keys=keys, now=now),
            ]
        return [*actions, narrow.action()]
    if any(phase in counting for phase in (MigrationPhase.PENDING, MigrationPhase.RUNNING)):
        return [*actions, Nothing(reason="a migration is on its way")]
    if MigrationPhase.FAILED in counting:
        why = "the migration has failed and"
        retry = _retry_gate(counting[MigrationPhase.FAILED], why, now=now, settings=settings)
        start = first(retry, start)
    if not start.is_open:
        return [*actions, start.action()]
    return [*actions, *_launch(view, state, wanted)]


def counted_success(view: TriggerView, wanted: MigrationRecord) -> MigrationSeen | None:
    """The request that counts and has succeeded."""
    found = (each for each in view.migrations if each.record == wanted)
    return next((each for each in found if each.phase is MigrationPhase.SUCCEEDED), None)


def has_failed_last(migrations: Iterable[MigrationSeen]) -> bool:
    """Whether the migration that ended last has failed because of its objects."""
    ended = [each for each in migrations if not each.is_open]
    last = max(ended, key=_end, default=None)
    return last is not None and last.has_failed_objects


def _end(migration: MigrationSeen) -> tuple[datetime, bool]:
    """Of two that ended in the same second, the failed one is taken for the later."""
    return migration.finished_at or _LONG_AGO, migration.has_failed_objects


def owed_by_failures(view: TriggerView) -> frozenset[str]:
    """What must be in the state because objects could not be rewritten: they may be in any version.

    Servers that verify migrations record it themselves, in order with what else they record.
    """
    if view.state is not None and view.state.is_verified_by_servers:
        return frozenset()
    return frozenset({UNKNOWN}) if has_failed_last(view.migrations) else frozenset()


def _launch(view: TriggerView, state: StateSeen, wanted: MigrationRecord) -> list[Action]:
    """One new request, in the place of all of ours that have ended."""
    resource = view.resource.group_resource
    is_by_version = state.status.persisted != (wanted.target,)
    other = "in other versions" if is_by_version else "under other encryption keys"
    reason = f"objects may be stored {other} than the current one"
    if view.lists_more and not is_by_version:
        reason = "the definition lists versions as stored that nothing may be stored in"
    return [
        *(
            DeleteMigration(ref=each.ref, reason="another takes its place")
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
    """Versions and keys in one: a record of half of it would be of no state that ever was."""
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
    # A moment far in the future was written by a wrong clock: nobody waits for it.
    if not 0 < left <= settings.retry_seconds + settings.skew_seconds:
        return OPEN
    return MigrationGate(f"{why} is tried again later", now.seconds + left)


def with_heartbeat(
    actions: list[Action], view: TriggerView, state: StateSeen, *, now: Now, settings: Settings
) -> list[Action]:
    """The actions, and a heartbeat if it is time and the state is not written anyway."""
    if any(isinstance(each, UpdateState | Narrow) for each in actions):
        return actions
    if not is_due(state.status.heartbeat, now=now, settings=settings):
        return actions
    beat = UpdateState(
        resource=view.resource.group_resource,
        precondition=Precondition.of(state),
        status=replace(state.status, heartbeat=now.wall),
        reason="heartbeat",
    )
    return [*(each for each in actions if not isinstance(each, Wait | Nothing)), beat]
