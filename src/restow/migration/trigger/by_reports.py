"""The rules for the hash of each server (KEP-2343's extension for HA).

Every controller reports the hash of its local server in the state, or the leader alone reports
those of all servers, in one update. Only the leader creates migrations: when all reports have been
identical for a whole period, and every reporter was active within it. It deletes them as soon as
reports differ, and accepts a success only after every reporter has reported again.

A reporter is silent if this controller has seen no new heartbeat of it for too long: wall clocks
alone are not reliable. A new controller waits until it has observed for long enough.

Not here: leader election.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from restow.migration.migration_values import MigrationRecord, MigrationSeen
from restow.migration.trigger.actions import (
    Action,
    CreateState,
    Nothing,
    Precondition,
    TriggerDecision,
    UpdateState,
)
from restow.migration.trigger.hashes import age_seconds, appended, is_due, is_stale
from restow.migration.trigger.migration_rules import (
    OPEN,
    MigrationGate,
    cancel,
    census_gate,
    counted_success,
    first,
    loose_gate,
    migration_actions,
    owed_by_failures,
    with_key,
)
from restow.migration.trigger.values import (
    UNKNOWN,
    HashReport,
    LocalReading,
    Memory,
    Now,
    ServerHash,
    ServersReading,
    Settings,
    Sighting,
    StateSeen,
    StateStatus,
    TriggerView,
)

OWN_HEARTBEATS_MAX: Final = 64
"""Limit of own heartbeats in the memory: more than several reconciliations write."""

ReportedReading = LocalReading | ServersReading


def agreed_hash(reports: Iterable[HashReport]) -> str:
    """The hash that all report; empty if they differ, or if there are no reports."""
    found = {each.hash for each in reports}
    return found.pop() if len(found) == 1 else ""


class DuplicateReporter(Exception):
    """Another process writes reports under the id of this controller."""


def decide_by_reports(
    view: TriggerView,
    reading: ReportedReading,
    memory: Memory | None,
    *,
    now: Now,
    settings: Settings,
) -> TriggerDecision:
    """Decide for this source. Raises DuplicateReporter."""
    if isinstance(reading, ServersReading) or not reading.is_sole:
        return _decide(view, reading, memory, now=now, settings=settings)
    own = _report_of(view.state, reading.reporter_id)
    said = () if memory is None else memory.said
    if own is not None and said and own.heartbeat not in said:
        raise DuplicateReporter(
            f"another process reports as {reading.reporter_id}: its report is of"
            f" {own.heartbeat.isoformat()}, and this process did not write it; stop one of them"
        )
    actions, memory = _decide(view, reading, memory, now=now, settings=settings)
    if memory is not None:
        # A new controller accepts an existing report: it may have written it before a restart.
        said = said or (() if own is None else (own.heartbeat,))
        if any(isinstance(each, CreateState | UpdateState) for each in actions):
            said = (*said, now.wall)[-OWN_HEARTBEATS_MAX:]
        memory = replace(memory, said=said)
    return TriggerDecision(actions, memory)


def _report_of(state: StateSeen | None, reporter_id: str) -> HashReport | None:
    reports = () if state is None else state.status.reports
    return next((each for each in reports if each.reporter_id == reporter_id), None)


def _decide(
    view: TriggerView,
    reading: ReportedReading,
    memory: Memory | None,
    *,
    now: Now,
    settings: Settings,
) -> TriggerDecision:
    state = view.state
    shown = tuple(each for each in reading.servers if each.hash)
    if not shown:
        return TriggerDecision((Nothing(reason="no reported server shows a hash"),), memory)
    if state is None:
        return TriggerDecision(tuple(_begin(view, reading, shown, now)), memory)
    if any(_was_unwatched(state, each, memory, now=now, settings=settings) for each in shown):
        # The memory stays until this is written: a new controller decides the same.
        update = _forget(view, state, shown, now)
        return TriggerDecision((*_stop_if_leading(view, reading, update), update), memory)
    memory = _remember(view, state, shown, memory, now)
    report = _report(view, state, shown, memory, now=now, settings=settings)
    if report is not None:
        return TriggerDecision((*_stop_if_leading(view, reading, report), report), memory)
    # KEP-2343 4.34: only the leader reacts
    if not reading.is_leader:
        return TriggerDecision((Nothing(reason="only the leader creates migrations"),), memory)
    return TriggerDecision(tuple(_react(view, state, memory, now=now, settings=settings)), memory)


# Rules for every controller.


def _reports_of(shown: tuple[ServerHash, ...], now: Now) -> tuple[HashReport, ...]:
    return tuple(
        HashReport(reporter_id=each.reporter_id, hash=each.hash, heartbeat=now.wall)
        for each in shown
    )


def _begin(
    view: TriggerView, reading: ReportedReading, shown: tuple[ServerHash, ...], now: Now
) -> list[Action]:
    reason = "the persisted versions are not known yet"
    status = StateStatus(
        persisted=appended((UNKNOWN,), {each.hash for each in shown}),
        current=shown[0].hash,
        heartbeat=now.wall,
        reports=_reports_of(shown, now),
    )
    create = CreateState(resource=view.resource.group_resource, status=status, reason=reason)
    return [*(cancel(view.migrations, reason) if reading.is_leader else ()), create]


def _was_unwatched(
    state: StateSeen, shown: ServerHash, memory: Memory | None, *, now: Now, settings: Settings
) -> bool:
    """Whether this server, or all servers, may have had changes that were not recorded."""
    if memory is not None and shown.reporter_id not in memory.watched:
        memory = None  # This server was not read before.
    reports, own = state.status.reports, _report_of(state, shown.reporter_id)
    if own is not None:
        return is_stale(own.heartbeat, memory, now=now, settings=settings)
    beats = [each.heartbeat for each in reports]
    newest = max(beats) if beats else state.status.heartbeat
    return is_stale(newest, memory, now=now, settings=settings)


def _remember(
    view: TriggerView,
    state: StateSeen,
    shown: tuple[ServerHash, ...],
    memory: Memory | None,
    now: Now,
) -> Memory:
    status = state.status
    agreed = agreed_hash(status.reports)
    hashes = {each.hash for each in shown}
    owed = (memory.owed if memory else frozenset()) | hashes | owed_by_failures(view)
    memory = with_key(memory, f"{state.uid} {state.change} {state.epoch} {agreed}", now)
    known = {(each.reporter_id, each.heartbeat): each for each in memory.sightings}
    sightings = tuple(
        known.get(
            (each.reporter_id, each.heartbeat),
            Sighting(each.reporter_id, each.heartbeat, now.seconds),
        )
        for each in status.reports
    )
    success = counted_success(view, _wanted(state, agreed))
    succeeded = memory.succeeded
    if success is None:
        succeeded = None
    elif succeeded is None or succeeded[0] != success.ref.uid:
        succeeded = (success.ref.uid, now.seconds)
    return replace(
        memory,
        owed=owed - frozenset(status.persisted),
        sightings=sightings,
        watched=memory.watched | {each.reporter_id for each in shown},
        succeeded=succeeded,
    )


def _report(
    view: TriggerView,
    state: StateSeen,
    shown: tuple[ServerHash, ...],
    memory: Memory,
    *,
    now: Now,
    settings: Settings,
) -> UpdateState | None:
    """One update, if due: own reports, owed hashes, and removal of silent reporters."""
    status = state.status
    said = {each.reporter_id: each for each in _reports_of(shown, now)}
    # KEP-2343 4.32: remove reporters that are silent for three periods
    silent = {
        each.reporter_id
        for each in memory.sightings
        if now.seconds - each.seen_seconds > settings.silence_seconds_max
    } - said.keys()
    known = {each.reporter_id: each for each in status.reports}
    is_due_now = any(
        each.reporter_id not in known
        or known[each.reporter_id].hash != each.hash
        or is_due(known[each.reporter_id].heartbeat, now=now, settings=settings)
        for each in shown
    )
    if not is_due_now and not silent and not memory.owed:
        return None
    kept = {name: each for name, each in known.items() if name not in silent}
    # KEP-2343 4.26, 4.31: update or create the own element
    reports = tuple({**kept, **said}.values())
    # KEP-2343 4.30: append the hash of the local server
    persisted = appended(status.persisted, memory.owed)
    agreed = agreed_hash(reports)
    is_changed = agreed != agreed_hash(status.reports) or persisted != status.persisted
    return UpdateState(
        resource=view.resource.group_resource,
        precondition=Precondition.of(state),
        status=StateStatus(
            persisted=persisted,
            keys=status.keys,
            current=agreed or status.current,
            heartbeat=now.wall,
            reports=reports,
        ),
        change=state.resource_version if is_changed else None,
        reason="the hashes that servers report have changed" if is_changed else "heartbeat",
    )


def _forget(
    view: TriggerView, state: StateSeen, shown: tuple[ServerHash, ...], now: Now
) -> UpdateState:
    names = {each.reporter_id for each in shown}
    others = (e for e in state.status.reports if e.reporter_id not in names)
    reports = (*others, *_reports_of(shown, now))
    return UpdateState(
        resource=view.resource.group_resource,
        precondition=Precondition.of(state),
        status=StateStatus(
            persisted=appended((UNKNOWN,), {each.hash for each in shown}),
            keys=state.status.keys,
            current=agreed_hash(reports) or state.status.current,
            heartbeat=now.wall,
            reports=reports,
        ),
        change=state.resource_version,
        reason="the state was not confirmed for too long, so changes may have been missed",
    )


# Rules for the leader.


def _stop_if_leading(
    view: TriggerView, reading: ReportedReading, update: UpdateState
) -> list[Action]:
    """Delete open migrations, if this is the leader, before its own report is written."""
    if not reading.is_leader or update.change is None:
        return []
    return cancel(view.migrations, update.reason)


def _react(
    view: TriggerView, state: StateSeen, memory: Memory, *, now: Now, settings: Settings
) -> list[Action]:
    agreed = agreed_hash(state.status.reports)
    if not agreed:
        reason = "reporters do not agree on a hash"
        # KEP-2343 4.35: cancel migrations when hashes are not identical
        return [*cancel(view.migrations, reason), Nothing(reason=reason)]
    wanted = _wanted(state, agreed)
    since = memory.since_seconds
    spoken = _active_gate(state, memory, now=now, settings=settings)
    success = counted_success(view, wanted)
    start = first(
        loose_gate(since, now=now, settings=settings),
        _hold_gate(since, now=now, settings=settings),
        spoken,
    )
    # KEP-2343 4.39: a success counts when all reporters have reported since
    narrow = first(
        spoken,
        OPEN if success is None else _confirmed_gate(state, memory, success),
        census_gate(view, agreed, since, settings=settings),
    )
    return migration_actions(
        view, state, wanted, start=start, narrow=narrow, now=now, settings=settings
    )


def _wanted(state: StateSeen, agreed: str) -> MigrationRecord:
    return MigrationRecord(
        target=agreed, state_uid=state.uid, change=state.change, epoch=state.epoch
    )


def _hold_gate(since_seconds: float, *, now: Now, settings: Settings) -> MigrationGate:
    until = since_seconds + settings.hold_seconds
    # KEP-2343 4.38: identical for a whole period
    if now.seconds >= until:
        return OPEN
    return MigrationGate("reporters have not agreed for a whole polling period yet", until)


def _active_gate(
    state: StateSeen, memory: Memory, *, now: Now, settings: Settings
) -> MigrationGate:
    """Open when every reporter was active less than a period ago, by its clock and by this one.

    Less, not at most: a reporter that agreed for a whole period and was active within it has
    reported twice.
    """
    seen = {each.reporter_id: each.seen_seconds for each in memory.sightings}
    # KEP-2343 4.37: every heartbeat is younger than a period
    for each in state.status.reports:
        age = max(age_seconds(each.heartbeat, now), now.seconds - seen[each.reporter_id])
        if age >= settings.poll_seconds:
            return MigrationGate(f"reporter {each.reporter_id} was not active within a period")
    return OPEN


def _confirmed_gate(state: StateSeen, memory: Memory, success: MigrationSeen) -> MigrationGate:
    """Open when every reporter has read its server since the migration succeeded."""
    seen = {each.reporter_id: each.seen_seconds for each in memory.sightings}
    assert memory.succeeded is not None
    for each in state.status.reports:
        is_later = success.finished_at is None or each.heartbeat > success.finished_at
        if not is_later or seen[each.reporter_id] <= memory.succeeded[1]:
            return MigrationGate(
                f"reporter {each.reporter_id} has not reported since the migration ended"
            )
    return OPEN
