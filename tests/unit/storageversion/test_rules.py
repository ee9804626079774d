"""The rules of agreement against reference implementations, written from the specification
alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from restow.storageversion.identity import Mode, ServerId
from restow.storageversion.rules import (
    KEYS_EQUAL,
    UNKNOWN_HASH,
    VERSIONS_EQUAL,
    Agreement,
    AgreementCondition,
    Obstacle,
    PersistedVersions,
    StorageVersionEntries,
    StorageVersionEntry,
    agreement_of,
    common_version,
    obstacle_to,
    report_after,
    state_after,
    undecodable,
    with_entry,
    without,
)

IDS = [ServerId(f"s{number}") for number in range(4)]
MODES: list[Mode] = ["report", "strict", "loose", "off"]

ids = st.sampled_from(IDS)
entry_values = st.builds(
    lambda server_id, version, key_id: StorageVersionEntry(
        server_id=server_id,
        encoding_version=version,
        decodable_versions=("v1", "v2"),
        key_id=key_id,
    ),
    ids,
    st.sampled_from(["v1", "v2"]),
    st.sampled_from(["", "", "k1", "k2"]),
)
entry_lists = st.lists(entry_values, max_size=4, unique_by=lambda entry: entry.server_id).map(tuple)
obstacles = st.sampled_from([None, None, None, Obstacle("UnfencedServer", "somebody")])
steps = st.lists(st.tuples(st.none() | entry_values, ids, obstacles), max_size=12)


# Reference implementations.

Seen = tuple[str, str | None, str]
"""Status, agreed value, time of the last change."""


def naive_common(entries: tuple[StorageVersionEntry, ...]) -> str | None:
    """The shared encodingVersion, if there is at least one entry and all are equal."""
    if not entries:
        return None
    for one in entries:
        for other in entries:
            if one.encoding_version != other.encoding_version:
                return None
    return entries[0].encoding_version


def naive_agreement(
    entries: tuple[StorageVersionEntry, ...], obstacle: Obstacle | None
) -> Agreement | None:
    """Version and encryption key of all servers; None if there is an obstacle."""
    if obstacle is not None or not entries:
        return None
    for entry in entries:
        if entry.encoding_version != entries[0].encoding_version:
            return None
        if entry.key_id != entries[0].key_id:
            return None
    return Agreement(entries[0].encoding_version, entries[0].key_id)


def naive_since(old: Seen | None, now: tuple[str, str | None], at: str) -> str:
    """The time changes with the status, or if one agreed value replaces another."""
    if old is None:
        return at
    status, value, since = old
    if status != now[0]:
        return at
    if value is not None and now[1] is not None and value != now[1]:
        return at
    return since


def find(report: StorageVersionEntries, kind: str) -> AgreementCondition | None:
    found = [condition for condition in report.conditions if condition.type == kind]
    assert len(found) <= 1
    return found[0] if found else None


def history(
    drawn: list[tuple[StorageVersionEntry | None, ServerId, Obstacle | None]],
) -> list[StorageVersionEntries]:
    """Returns the history of a StorageVersion: entries are added, changed and removed."""
    reports = [StorageVersionEntries()]
    for number, (entry, gone, obstacle) in enumerate(drawn):
        before = reports[-1]
        entries = without(before.entries, [gone]) if entry is None else (
            with_entry(before.entries, entry)
        )  # fmt: skip
        reports.append(report_after(before, entries, obstacle=obstacle, now=f"t{number}"))
    return reports


# Tests.


@given(entry_lists, obstacles)
def test_agreement_requires_equal_versions_and_keys(
    entries: tuple[StorageVersionEntry, ...], obstacle: Obstacle | None
) -> None:
    """The common version needs equal versions, the agreement equal versions and keys; no entries,
    no agreement."""
    assert common_version(entries) == naive_common(entries)
    assert agreement_of(entries, obstacle) == naive_agreement(entries, obstacle)


@given(st.lists(entry_values, max_size=8), st.sets(ids))
def test_a_server_has_at_most_one_entry(
    reported: list[StorageVersionEntry], gone: set[ServerId]
) -> None:
    """The last entry counts, at the position of the first; a removed server has none."""
    entries: tuple[StorageVersionEntry, ...] = ()
    for entry in reported:
        entries = with_entry(entries, entry)
    order = list(dict.fromkeys(entry.server_id for entry in reported))
    assert [entry.server_id for entry in entries] == order
    for entry in entries:
        assert entry == [other for other in reported if other.server_id == entry.server_id][-1]
    left = without(entries, gone)
    assert [e.server_id for e in left] == [server for server in order if server not in gone]


@given(steps)
def test_conditions_have_the_status_and_its_time(
    drawn: list[tuple[StorageVersionEntry | None, ServerId, Obstacle | None]],
) -> None:
    """Status, reason and message are those of the reference; the time changes if and only if the
    status
    or the agreed value does (G11)."""
    versions: Seen | None = None
    keys: Seen | None = None
    for number, report in enumerate(history(drawn)[1:]):
        obstacle = drawn[number][2]
        common = None if obstacle is not None else naive_common(report.entries)
        assert report.common_version == common
        status = "True" if common is not None else "False"
        versions = (status, common, naive_since(versions, (status, common), f"t{number}"))
        seen = find(report, VERSIONS_EQUAL)
        assert seen is not None
        assert (seen.status, seen.since) == (versions[0], versions[2])
        if common is not None:
            assert seen.reason == "CommonEncodingVersionSet"
            assert seen.message == "Common encoding version set"
        elif obstacle is not None:
            assert (seen.reason, seen.message) == tuple(obstacle)
        else:
            assert seen.reason == "CommonEncodingVersionUnset"
            assert seen.message == "Common encoding version unset"
        used = {entry.key_id for entry in report.entries}
        seen = find(report, KEYS_EQUAL)
        if not used - {""}:
            assert seen is None
            keys = None
            continue
        status = "True" if len(used) == 1 else "False"
        value = next(iter(used)) if len(used) == 1 else None
        keys = (status, value, naive_since(keys, (status, value), f"t{number}"))
        assert seen is not None
        assert (seen.status, seen.since) == (keys[0], keys[2])


@given(steps)
def test_an_unchanged_epoch_means_an_unchanged_agreement(
    drawn: list[tuple[StorageVersionEntry | None, ServerId, Obstacle | None]],
) -> None:
    """Between two times with the same epoch the agreement is constant, and every entry equals it;
    the epoch
    grows by one with each change of the agreement, and only then."""
    reports = history(drawn)
    for before, after in pairwise(reports):
        assert after.epoch - before.epoch == (1 if after.agreement != before.agreement else 0)
    for first, one in enumerate(reports):
        for last in range(first, len(reports)):
            if reports[last].epoch != one.epoch:
                continue
            for between in reports[first : last + 1]:
                assert between.agreement == one.agreement
                if one.agreement is not None:
                    assert {
                        (e.encoding_version, e.key_id) for e in between.entries
                    } == {tuple(one.agreement)}  # fmt: skip


@given(entry_lists, st.dictionaries(ids, st.sampled_from(MODES)), st.sets(st.sampled_from("ab")))
def test_unfenced_writers_and_mixed_modes_prevent_an_agreement(
    entries: tuple[StorageVersionEntry, ...], modes: dict[ServerId, Mode], unfenced: set[str]
) -> None:
    """Writers without a fence are named; all servers with entries must have the same mode."""
    unfenced_writers = sorted(
        [*unfenced, *(server for server, mode in modes.items() if mode == "off")]
    )
    mixed = {modes[entry.server_id] for entry in entries if entry.server_id in modes}
    found = obstacle_to(entries, modes, unfenced)
    if unfenced_writers:
        assert found is not None
        assert found.reason == "UnfencedServer"
        assert ", ".join(unfenced_writers) in found.message
    elif len(mixed) >= 2:
        assert found is not None
        assert found.reason == "MixedCoordinationModes"
    else:
        assert found is None


hashes = st.sampled_from(["h1", "h2", "h3"])
changes = st.lists(st.tuples(st.lists(hashes, max_size=3), st.none() | hashes), max_size=8)


@given(changes)
def test_persisted_hashes_only_grow(drawn: list[tuple[list[str], str | None]]) -> None:
    """A state starts as unknown, keeps its hashes, appends each new hash once, and keeps the last
    agreed one."""
    state: PersistedVersions | None = None
    expected, current = [UNKNOWN_HASH], ""
    for epoch, (written, agreed) in enumerate(drawn):
        after = state_after(state, written=written, agreed=agreed, epoch=epoch)
        for value in written:
            if value not in expected:
                expected.append(value)
        if agreed is not None:
            current = agreed
        assert (list(after.persisted), after.current, after.epoch) == (expected, current, epoch)
        assert state is None or set(state.persisted) <= set(after.persisted)
        state = after


@given(st.lists(hashes | st.just(UNKNOWN_HASH)), st.sets(hashes))
def test_unknown_does_not_count_as_undecodable(persisted: list[str], decodable: set[str]) -> None:
    """Only hashes that are listed and not decodable are named."""
    expected = []
    for value in persisted:
        if value == UNKNOWN_HASH:
            continue
        if value not in decodable:
            expected.append(value)
    assert undecodable(persisted, decodable) == expected


def test_the_observed_generation_of_a_condition_is_kept() -> None:
    """Another writer may have set it: an update keeps it."""
    entry = StorageVersionEntry(
        server_id=ServerId("a"), encoding_version="v1", decodable_versions=("v1",)
    )
    first = report_after(StorageVersionEntries(), (entry,), obstacle=None, now="then")
    (condition,) = first.conditions
    observed = replace(first, conditions=(replace(condition, observed_generation=4),))
    other = replace(entry, server_id=ServerId("b"), encoding_version="v2")
    second = report_after(observed, (entry, other), obstacle=None, now="now")
    assert [(each.status, each.observed_generation) for each in second.conditions] == [("False", 4)]
