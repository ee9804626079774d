"""The rules for StorageVersions (KEP-2339): migrate when all servers agree, abort otherwise.

Servers agree on a version and an encryption key: a changed key is treated like a changed version.

Where servers keep an epoch they also write the state in the same transaction as the agreement, so
the state includes every earlier change. Elsewhere (real Kubernetes) the trigger itself records what
any server writes, the whole StorageVersion replaces the epoch, and a change that may have been
missed makes the persisted versions unknown.

Not here: watching StorageVersions.
"""

from __future__ import annotations

from dataclasses import replace

from restow.migration.encryption_keys import PLAIN
from restow.migration.migration_values import MigrationPhase, MigrationRecord
from restow.migration.trigger.actions import (
    Action,
    CreateState,
    Nothing,
    Precondition,
    TriggerDecision,
    UpdateState,
    Wait,
)
from restow.migration.trigger.hashes import appended, keys_appended, uncovered
from restow.migration.trigger.migration_rules import (
    OBJECTS_FAILED,
    cancel,
    census_gate,
    loose_gate,
    migration_actions,
    owed_by_failures,
    with_heartbeat,
    with_key,
)
from restow.migration.trigger.values import (
    LOOK_AGAIN_SECONDS,
    REQUEST_SECONDS_MAX,
    UNKNOWN,
    Memory,
    Now,
    Settings,
    StateSeen,
    StateStatus,
    StorageVersionReading,
    TriggerView,
)


def decide_by_storage_version(
    view: TriggerView,
    reading: StorageVersionReading,
    memory: Memory | None,
    *,
    now: Now,
    settings: Settings,
) -> TriggerDecision:
    if reading.loose_seconds:
        # KEP-1201 0.22: after a change wait for the bound of the servers, and for their requests
        wait_seconds = reading.loose_seconds + REQUEST_SECONDS_MAX
        settings = replace(
            settings, loose_wait_seconds=max(wait_seconds, settings.loose_wait_seconds or 0.0)
        )
    state = view.state
    persisted = () if state is None else state.status.persisted
    owed = reading.written | owed_by_failures(view)
    owed |= frozenset() if memory is None else memory.owed
    if not persisted or _has_gap(view, reading, memory):
        owed |= {UNKNOWN}
    owed = uncovered(persisted, owed)
    memory = replace(
        with_key(memory, f"{reading.mark} {reading.common}", now), mark=reading.mark, owed=owed
    )
    if state is None and not reading.uid:
        # The resource was deleted: its state is deleted with it, and must not be created again.
        reason = "no server reports it"
        return TriggerDecision((*cancel(view.migrations, reason), Nothing(reason=reason)), memory)
    if state is None:
        return TriggerDecision(tuple(_begin(view, reading, now)), memory)
    actions = _react(view, state, reading, memory, now=now, settings=settings)
    return TriggerDecision(tuple(actions), memory)


def _has_gap(view: TriggerView, reading: StorageVersionReading, memory: Memory | None) -> bool:
    """Whether servers may have written versions that were not recorded.

    For a new controller, a successful migration shows which StorageVersion was accounted for. A
    migration that was only created is no evidence: any user may create one.
    """
    if reading.epoch or (not reading.uid and view.state is not None and view.state.epoch):
        return False  # The servers themselves record what they write.
    if memory is not None:
        return memory.mark != reading.mark and not reading.follows
    proven = (each.record for each in view.migrations if each.phase is MigrationPhase.SUCCEEDED)
    return reading.mark not in {each.storage_version for each in proven if each is not None}


def _begin(view: TriggerView, reading: StorageVersionReading, now: Now) -> list[Action]:
    reason = "the persisted versions are not known yet"
    status = StateStatus(
        persisted=appended((UNKNOWN,), reading.written),
        keys=keys_appended(PLAIN, reading.keys),
        current=reading.common,
        heartbeat=now.wall,
    )
    create = CreateState(resource=view.resource.group_resource, status=status, reason=reason)
    return [*cancel(view.migrations, reason), create]


def _react(
    view: TriggerView,
    state: StateSeen,
    reading: StorageVersionReading,
    memory: Memory,
    *,
    now: Now,
    settings: Settings,
) -> list[Action]:
    if reading.epoch and state.epoch not in ("", reading.epoch) and reading.common:
        return [
            Wait(
                until_seconds=now.seconds + LOOK_AGAIN_SECONDS,
                reason="state and storage version were read at different moments",
            )
        ]
    stopped: list[Action] = []
    # KEP-2339 3.43: without a common version abort all migrations
    if not reading.common:
        stopped = cancel(view.migrations, "servers do not agree on a version")
    is_moved = bool(reading.common) and state.status.current != reading.common
    if is_moved or memory.owed or not reading.keys <= set(state.status.keys):
        return [*(stopped or _overtaken(view, reading)), _record(view, state, reading, memory, now)]
    if not reading.common:
        idle = [*stopped, Nothing(reason="servers do not agree on a version")]
        if not reading.uid:
            return idle  # Nothing was read that a heartbeat could confirm.
        return with_heartbeat(idle, view, state, now=now, settings=settings)
    wanted = MigrationRecord(
        target=reading.common,
        state_uid=state.uid,
        change=state.change,
        epoch=state.epoch,
        storage_version=reading.mark,
    )
    since = memory.since_seconds
    found = migration_actions(
        view,
        state,
        wanted,
        start=loose_gate(since, now=now, settings=settings),
        narrow=census_gate(view, reading.common, since, settings=settings),
        now=now,
        settings=settings,
        key=reading.key,
    )
    return with_heartbeat(found, view, state, now=now, settings=settings)


def _overtaken(view: TriggerView, reading: StorageVersionReading) -> list[Action]:
    found = [
        each
        for each in view.migrations
        if each.record is None
        or (each.record.storage_version, each.record.target) != (reading.mark, reading.common)
    ]
    return cancel(found, "the servers' agreement has changed")


def _record(
    view: TriggerView, state: StateSeen, reading: StorageVersionReading, memory: Memory, now: Now
) -> UpdateState:
    """Record written versions, agreement and heartbeat in one update."""
    reason = "servers write in a version that the state does not list"
    if not reading.keys <= set(state.status.keys):
        reason = "servers write with an encryption key that the state does not list"
    if UNKNOWN in memory.owed:
        reason = "servers may have written in other versions that were not recorded"
        if owed_by_failures(view):
            reason = OBJECTS_FAILED
    return UpdateState(
        resource=view.resource.group_resource,
        precondition=Precondition.of(state),
        status=replace(
            state.status,
            persisted=appended(
                state.status.persisted,
                memory.owed | ({reading.common} if reading.common else frozenset()),
            ),
            keys=keys_appended(state.status.keys, reading.keys),
            current=reading.common or state.status.current,
            heartbeat=now.wall if reading.uid else state.status.heartbeat,
        ),
        reason=reason,
    )
