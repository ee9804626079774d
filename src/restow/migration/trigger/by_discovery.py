"""The rules for the hash in discovery (KEP-2343), for clusters with one server.

The order is: delete the open migrations, record the change in one update, read everything again,
and only then create a migration. (The proposal creates the migration before the update. If it
finishes in between, it counts for a hash that it was not created for.)

Not here: reading discovery.
"""

from __future__ import annotations

from dataclasses import replace

from restow.migration.migration_values import MigrationRecord
from restow.migration.trigger.actions import (
    Action,
    CreateState,
    Nothing,
    Precondition,
    TriggerDecision,
    UpdateState,
)
from restow.migration.trigger.hashes import appended, is_stale, uncovered
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
    UNKNOWN,
    DiscoveryReading,
    Memory,
    Now,
    Settings,
    StateSeen,
    StateStatus,
    TriggerView,
)


def decide_by_discovery(
    view: TriggerView,
    reading: DiscoveryReading,
    memory: Memory | None,
    *,
    now: Now,
    settings: Settings,
) -> TriggerDecision:
    state, shown = view.state, reading.hash
    if not shown:
        # No heartbeat either: nothing was confirmed.
        return TriggerDecision((Nothing(reason="discovery shows no hash"),), memory)
    # KEP-2343 4.19, 4.20: without a state, begin as after the installation
    if state is None:
        return TriggerDecision(tuple(_begin(view, shown, now)), memory)
    # KEP-2343 4.21: after a short absence the state is still valid
    if is_stale(state.status.heartbeat, memory, now=now, settings=settings):
        # The memory stays until this is written: a new controller decides the same.
        return TriggerDecision(tuple(_forget(view, state, shown, now)), memory)
    seen = owed_by_failures(view) | (memory.owed if memory else frozenset()) | {shown}
    owed = uncovered(state.status.persisted, seen)
    key = f"{state.uid} {state.change} {state.epoch} {shown}"
    memory = replace(with_key(memory, key, now), owed=owed)
    # KEP-2343 4.22, 4.23: an upgrade and a downgrade append the hash that is shown
    if state.status.current != shown or owed:
        return TriggerDecision(tuple(_record_change(view, state, shown, memory, now)), memory)
    since = memory.since_seconds
    actions = migration_actions(
        view,
        state,
        MigrationRecord(target=shown, state_uid=state.uid, change=state.change, epoch=state.epoch),
        start=loose_gate(since, now=now, settings=settings),
        narrow=census_gate(view, shown, since, settings=settings),
        now=now,
        settings=settings,
    )
    return TriggerDecision(
        tuple(with_heartbeat(actions, view, state, now=now, settings=settings)), memory
    )


def _begin(view: TriggerView, shown: str, now: Now) -> list[Action]:
    reason = "the persisted versions are not known yet"
    # KEP-2343 4.12: the new state lists Unknown and the hash that discovery shows
    status = StateStatus(persisted=(UNKNOWN,), current=shown, heartbeat=now.wall)
    create = CreateState(resource=view.resource.group_resource, status=status, reason=reason)
    # KEP-2343 4.11: delete ongoing migrations of the resource
    return [*cancel(view.migrations, reason), create]


def _forget(view: TriggerView, state: StateSeen, shown: str, now: Now) -> list[Action]:
    """Reset the state with an update: between a delete and a create a crash could lose it."""
    reason = "the state was not confirmed for too long, so changes may have been missed"
    # KEP-2343 4.17: a stale state is reset to Unknown, in place
    update = UpdateState(
        resource=view.resource.group_resource,
        precondition=Precondition.of(state),
        status=StateStatus(
            persisted=(UNKNOWN,), keys=state.status.keys, current=shown, heartbeat=now.wall
        ),
        change=state.resource_version,
        reason=reason,
    )
    return [*cancel(view.migrations, reason), update]


def _record_change(
    view: TriggerView, state: StateSeen, shown: str, memory: Memory, now: Now
) -> list[Action]:
    """Delete open migrations; update current hash, appended hash and heartbeat at once."""
    reason = OBJECTS_FAILED if owed_by_failures(view) else "the storage version has changed"
    status = StateStatus(
        persisted=appended(state.status.persisted, memory.owed | {shown}),
        keys=state.status.keys,
        current=shown,
        heartbeat=now.wall,
    )
    # KEP-2343 4.5: what discovery shows, and when it was checked
    # KEP-2343 4.14: heartbeat, current hash and appended hash in one update
    update = UpdateState(
        resource=view.resource.group_resource,
        precondition=Precondition.of(state),
        status=status,
        change=state.resource_version,
        reason=reason,
    )
    return [*cancel(view.migrations, reason), update]
