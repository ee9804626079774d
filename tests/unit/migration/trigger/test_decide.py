"""The trigger's rules against reference implementations, written from the KEPs as case tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from restow.migration.migration_values import (
    MigrationPhase,
    MigrationRecord,
    MigrationRef,
    MigrationSeen,
)
from restow.migration.records import name_of
from restow.migration.trigger.actions import (
    CreateMigration,
    CreateState,
    DeleteMigration,
    Narrow,
    Precondition,
    TriggerDecision,
    UpdateState,
)
from restow.migration.trigger.decide import decide
from restow.migration.trigger.values import (
    UNKNOWN,
    DiscoveryReading,
    HashReport,
    LocalReading,
    Memory,
    Now,
    Reading,
    Settings,
    Sighting,
    StateSeen,
    StateStatus,
    StorageVersionReading,
    TriggerView,
)
from tests.sizes import SIZES
from tests.unit.migration.trigger.world import RESOURCE, START

NOW = Now(100_000.0, START + timedelta(seconds=100_000))
SETTINGS = Settings()

# Mostly steady states, otherwise most examples would end at the first rule.
hashes = st.sampled_from(["h1", "h1", "h1", "h2"])
texts = st.sampled_from(["", "1", "1"])
minutes = st.sampled_from([1, 1, 1, 1, 4, 5, 6, 9, 10, 11, 19, 20, 21, 31, -5, 0])


def ago(minute: float) -> datetime:
    return NOW.wall - timedelta(minutes=minute)


statuses = st.builds(
    StateStatus,
    persisted=st.lists(st.sampled_from([UNKNOWN, "h1", "h2"]), unique=True).map(tuple),
    keys=st.sampled_from([("identity",), ("identity",), ("k1",), ("identity", "k1"), ("k2",)]),
    current=st.sampled_from(["h1", "h1", "h1", "h2", ""]),
    heartbeat=minutes.map(ago) | minutes.map(ago) | st.none(),
    reports=st.lists(
        st.builds(
            HashReport,
            reporter_id=st.sampled_from(["me", "you", "it"]),
            hash=hashes,
            heartbeat=minutes.map(ago),
        ),
        max_size=3,
        unique_by=lambda each: each.reporter_id,
    ).map(tuple),
)
seen_states = st.builds(
    StateSeen,
    uid=st.just("state"),
    resource_version=st.just("77"),
    status=statuses,
    epoch=texts,
    change=texts,
    is_verified_by_servers=st.booleans(),
)
states = seen_states | seen_states | seen_states | st.none()
versions = st.builds(
    StorageVersionReading,
    uid=st.sampled_from(["version", "version", "version", ""]),
    resource_version=st.sampled_from(["5", "5", "6"]),
    epoch=texts,
    common=st.sampled_from(["h1", "h1", "h1", "h2", ""]),
    written=st.frozensets(hashes),
    key=st.sampled_from(["identity", "identity", "k1", "k2"]),
    keys=st.sampled_from([frozenset[str](), frozenset[str](), frozenset({"k1"})]),
    follows=st.booleans(),
)
records = st.builds(
    MigrationRecord,
    target=hashes,
    state_uid=st.sampled_from(["state", "state", "state", "other"]),
    change=texts,
    epoch=texts,
    storage_version=st.sampled_from(["", "version/epoch/1", "version/version/5"]),
)


@st.composite
def migrations(draw: Any) -> tuple[MigrationSeen, ...]:
    found = []
    for number in range(draw(st.integers(0, 3))):
        phase = draw(st.sampled_from(MigrationPhase))
        ended = phase in (MigrationPhase.SUCCEEDED, MigrationPhase.FAILED)
        found.append(
            MigrationSeen(
                ref=MigrationRef("api", f"m{number}", f"uid{number}"),
                phase=phase,
                record=draw(st.none() | records),
                finished_at=draw(st.none() | minutes.map(ago)) if ended else None,
                has_failed_objects=phase is MigrationPhase.FAILED and draw(st.booleans()),
            )
        )
    return tuple(found)


memories = st.none() | st.builds(
    Memory,
    mark=st.sampled_from(["", "version/version/5"]),
    owed=st.sampled_from([frozenset[str](), frozenset({"h1"}), frozenset({UNKNOWN, "h2"})]),
)


class Outcome(NamedTuple):
    """The result of a decision."""

    deleted: set[str]
    status: StateStatus | None = None
    narrows: bool = False
    created: MigrationRecord | None = None


def outcome(decision: TriggerDecision) -> Outcome:
    written = [e for e in decision.actions if isinstance(e, CreateState | UpdateState | Narrow)]
    created = [e.record for e in decision.actions if isinstance(e, CreateMigration)]
    assert len(written) <= 1
    assert len(created) <= 1
    return Outcome(
        {e.ref.name for e in decision.actions if isinstance(e, DeleteMigration)},
        written[0].status if written else None,
        any(isinstance(e, Narrow) for e in written),
        created[0] if created else None,
    )


def seen(
    reading: Reading, state: StateSeen | None, found: tuple[MigrationSeen, ...]
) -> TriggerView:
    return TriggerView(resource=RESOURCE, state=state, migrations=found, reading=reading)


# Reference implementations.


def naive_append(persisted: tuple[str, ...], new: set[str]) -> tuple[str, ...]:
    result = list(persisted)
    if not result:
        result.append(UNKNOWN)
    for each in sorted(new):
        if each not in result:
            result.append(each)
    return tuple(result)


def naive_age(heartbeat: datetime | None) -> float | None:
    return None if heartbeat is None else (NOW.wall - heartbeat).total_seconds() / 60


def naive_stale(heartbeat: datetime | None, memory: Memory | None) -> bool:
    age = naive_age(heartbeat)
    if age is None:
        return True
    return age < -1 or age > (20 if memory else 10)


def naive_due(heartbeat: datetime | None) -> bool:
    age = naive_age(heartbeat)
    return age is None or age < 0 or age >= 5


def naive_failures(view: TriggerView) -> set[str]:
    """ "Unknown" if the last migration failed on objects, and no server records that."""
    ended = [each for each in view.migrations if not each.is_open]
    if not ended or (view.state is not None and view.state.is_verified_by_servers):
        return set()
    moments = [each.finished_at or ago(10**6) for each in ended]
    last = [each for each in ended if (each.finished_at or ago(10**6)) == max(moments)]
    return {UNKNOWN} if any(each.has_failed_objects for each in last) else set()


def naive_requests(
    state: StateSeen, found: tuple[MigrationSeen, ...], wanted: MigrationRecord, *, key: str = ""
) -> Outcome:  # with the heartbeat
    ours = [each for each in found if each.record is not None]
    deleted = {each.ref.name for each in ours if each.is_open and each.record != wanted}
    beat = None
    if naive_due(state.status.heartbeat):
        beat = replace(state.status, heartbeat=NOW.wall)
    keys = (key,) if key else state.status.keys  # a source without keys leaves them unchanged
    if state.status.persisted == (wanted.target,) and state.status.keys == keys:
        return Outcome(deleted, beat)
    counting = [each for each in ours if each.record == wanted]
    if any(each.phase is MigrationPhase.SUCCEEDED for each in counting):
        narrowed = replace(
            state.status,
            persisted=(wanted.target,),
            keys=keys,
            current=wanted.target,
            heartbeat=NOW.wall,
        )
        return Outcome(deleted, narrowed, narrows=True)
    if any(each.is_open for each in counting):
        return Outcome(deleted, beat)
    failed = [each for each in counting if each.phase is MigrationPhase.FAILED]
    if failed:
        age = naive_age(failed[-1].finished_at)
        if age is not None and age < 10:
            return Outcome(deleted, beat)
    deleted |= {each.ref.name for each in ours if not each.is_open}
    return Outcome(deleted, beat, created=wanted)


def naive_discovery(view: TriggerView, shown: str, memory: Memory | None) -> Outcome:
    state = view.state
    running = {each.ref.name for each in view.migrations if each.is_open}
    new = StateStatus(persisted=(UNKNOWN,), current=shown, heartbeat=NOW.wall)
    if not shown:
        return Outcome(set())
    if state is None:
        return Outcome(running, new)
    new = replace(new, keys=state.status.keys)
    if naive_stale(state.status.heartbeat, memory):
        return Outcome(running, new)
    persisted = state.status.persisted
    owed = {shown} | (set(memory.owed) if memory else set()) | naive_failures(view)
    if UNKNOWN in persisted:
        owed = set()
    if state.status.current != shown or owed - set(persisted):
        added = naive_append(persisted, (owed - set(persisted)) | {shown})
        return Outcome(running, replace(new, persisted=added))
    wanted = MigrationRecord(
        target=shown, state_uid=state.uid, change=state.change, epoch=state.epoch
    )
    return naive_requests(state, view.migrations, wanted)


def naive_storage_version(
    view: TriggerView, reading: StorageVersionReading, memory: Memory | None
) -> Outcome:
    state = view.state
    mark = ""
    if reading.uid:
        mark = f"{reading.uid}/version/{reading.resource_version}"
        if reading.epoch:
            mark = f"{reading.uid}/epoch/{reading.epoch}"
    running = {each.ref.name for each in view.migrations if each.is_open}
    if state is None and not reading.uid:
        return Outcome(running)
    if state is None:
        return Outcome(
            running,
            StateStatus(
                persisted=naive_append((UNKNOWN,), set(reading.written)),
                keys=("identity", *sorted(reading.keys)),
                current=reading.common,
                heartbeat=NOW.wall,
            ),
        )
    persisted = state.status.persisted
    owed = set(reading.written) | (set(memory.owed) if memory else set()) | naive_failures(view)
    keeps = reading.epoch or (not reading.uid and state.epoch)
    if memory is None:
        succeeded = [e for e in view.migrations if e.phase is MigrationPhase.SUCCEEDED]
        known = mark in {e.record.storage_version for e in succeeded if e.record}
    else:
        known = mark == memory.mark or reading.follows
    if not persisted or not (keeps or known):
        owed.add(UNKNOWN)
    owed -= set(persisted)
    if UNKNOWN in persisted:
        owed = set()
    common = reading.common
    if common and reading.epoch and state.epoch and state.epoch != reading.epoch:
        return Outcome(set())
    unlisted = [each for each in sorted(reading.keys) if each not in state.status.keys]
    if owed or unlisted or (common and state.status.current != common):
        if common:
            running = {
                each.ref.name
                for each in view.migrations
                if each.is_open
                and not (
                    each.record
                    and each.record.storage_version == mark
                    and each.record.target == common
                )
            }
        added = naive_append(persisted, owed | ({common} if common else set()))
        status = replace(
            state.status,
            persisted=added,
            keys=(*state.status.keys, *unlisted),
            current=common or state.status.current,
            # Without a StorageVersion there was no check that a heartbeat could confirm.
            heartbeat=NOW.wall if reading.uid else state.status.heartbeat,
        )
        return Outcome(running, status)
    if not common:
        beat = replace(state.status, heartbeat=NOW.wall)
        is_due = bool(reading.uid) and naive_due(state.status.heartbeat)
        return Outcome(running, beat if is_due else None)
    wanted = MigrationRecord(
        target=common,
        state_uid=state.uid,
        change=state.change,
        epoch=state.epoch,
        storage_version=mark,
    )
    return naive_requests(state, view.migrations, wanted, key=reading.key)


# Tests.


@settings(max_examples=2 * SIZES.hypothesis_examples)
@given(st.sampled_from(["h1", "h1", "h1", "h1", "h2", ""]), states, migrations(), memories)
def test_by_discovery(
    shown: str, state: StateSeen | None, found: tuple[MigrationSeen, ...], memory: Memory | None
) -> None:
    """Each case of the text of KEP-2343."""
    view = seen(DiscoveryReading(hash=shown), state, found)
    decision = decide(view, memory, now=NOW, settings=SETTINGS)
    assert outcome(decision) == naive_discovery(view, shown, memory)


@settings(max_examples=2 * SIZES.hypothesis_examples)
@given(versions, states, migrations(), memories)
def test_by_storage_version(
    reading: StorageVersionReading,
    state: StateSeen | None,
    found: tuple[MigrationSeen, ...],
    memory: Memory | None,
) -> None:
    """KEP-2339: start with the common version, abort without one or when the agreement has
    changed."""
    if not reading.uid:
        reading = StorageVersionReading(written=reading.written, follows=reading.follows)
    view = seen(reading, state, found)
    decision = decide(view, memory, now=NOW, settings=SETTINGS)
    assert outcome(decision) == naive_storage_version(view, reading, memory)


@settings(max_examples=2 * SIZES.hypothesis_examples)
@given(
    hashes,
    states,
    st.booleans(),
    migrations(),
    st.lists(minutes.filter(lambda age: age >= 0), min_size=3, max_size=3),
)
def test_every_controller_reports(
    own: str,
    state: StateSeen | None,
    is_leading: bool,
    found: tuple[MigrationSeen, ...],
    seen_ages: list[int],
) -> None:
    """KEP-2343 for HA: own hash and heartbeat, appended hash, expired reports removed, in one
    update."""
    reading = LocalReading(reporter_id="me", hash=own, is_leader=is_leading)
    said = HashReport(reporter_id="me", hash=own, heartbeat=NOW.wall)
    ages = dict(zip(["me", "you", "it"], seen_ages, strict=True))
    reports = () if state is None else state.status.reports
    memory = Memory(
        sightings=tuple(
            Sighting(e.reporter_id, e.heartbeat, NOW.seconds - 60 * ages[e.reporter_id])
            for e in reports
        ),
        watched=frozenset({"me"}),
    )
    view = seen(reading, state, found)
    decision = decide(view, memory, now=NOW, settings=SETTINGS)
    result = outcome(decision)
    others = [each for each in reports if each.reporter_id != "me"]
    mine = [each for each in reports if each.reporter_id == "me"]
    if state is None:
        assert result.status == StateStatus(
            persisted=(UNKNOWN, own), current=own, heartbeat=NOW.wall, reports=(said,)
        )
        return
    newest = max((e.heartbeat for e in others), default=state.status.heartbeat)
    if naive_stale(mine[0].heartbeat if mine else newest, memory):
        assert result.status is not None
        assert result.status.persisted == (UNKNOWN, own)
        assert set(result.status.reports) == {*others, said}
        return
    kept = [each for each in others if ages[each.reporter_id] <= 30]
    is_new = not mine or mine[0].hash != own or naive_due(mine[0].heartbeat)
    owed = {own} | naive_failures(view)
    if is_new or kept != others or owed - set(state.status.persisted):
        assert result.status is not None
        assert set(result.status.reports) == {*kept, said}
        assert result.status.persisted == naive_append(state.status.persisted, owed)
        assert not result.narrows
        assert result.created is None
        moved = {e.hash for e in reports}, {e.hash for e in result.status.reports}
        is_changed = moved[0] != moved[1] and not all(len(each) > 1 for each in moved)
        is_changed = is_changed or result.status.persisted != state.status.persisted
        (update,) = [e for e in decision.actions if isinstance(e, UpdateState)]
        assert update.change == ("77" if is_changed else None)
        stopped = {e.ref.name for e in found if e.is_open} if is_leading and is_changed else set()
        assert result.deleted == stopped
    elif not is_leading:
        assert result == Outcome(set())


@given(versions, states, migrations(), memories, st.booleans())
def test_every_update_is_conditional(
    reading: StorageVersionReading,
    state: StateSeen | None,
    found: tuple[MigrationSeen, ...],
    memory: Memory | None,
    by_discovery: bool,
) -> None:
    """Each update has the state that was read as precondition; a migration's name encodes its
    purpose."""
    source: Reading = DiscoveryReading(hash=reading.common) if by_discovery else reading
    for action in decide(seen(source, state, found), memory, now=NOW, settings=SETTINGS).actions:
        assert action.reason
        match action:
            case UpdateState() | Narrow():
                assert state is not None
                assert action.precondition == Precondition("state", "77")
                assert len(set(action.status.persisted)) == len(action.status.persisted)
            case CreateMigration():
                assert action.name == name_of(RESOURCE.group_resource, action.record)
            case DeleteMigration():
                assert action.ref in {each.ref for each in found}
            case _:
                pass


@given(st.sampled_from(["h1", "h2"]), states, migrations())
def test_a_recorded_change_has_a_new_mark(
    shown: str, state: StateSeen | None, found: tuple[MigrationSeen, ...]
) -> None:
    """By discovery: a migration created before a change never counts after it."""
    view = seen(DiscoveryReading(hash=shown), state, found)
    for action in decide(view, None, now=NOW, settings=SETTINGS).actions:
        if isinstance(action, UpdateState):
            assert state is not None
            is_beat = action.status == replace(state.status, heartbeat=NOW.wall)
            if not is_beat or action.reason != "heartbeat":
                assert action.change == state.resource_version
            else:
                assert action.change is None
