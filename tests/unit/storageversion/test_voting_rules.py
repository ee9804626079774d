"""The rules of voting against reference implementations, written from KEP-1201 alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from restow.storageversion.identity import Mode, ServerId, ServerRecord
from restow.storageversion.rules import StorageVersionEntry
from restow.storageversion.voting import (
    Candidate,
    Vote,
    counted,
    drop_stale_candidates,
    first_selection,
    holding_back,
    with_candidate,
)

IDS = [ServerId(f"s{number}") for number in range(4)]
MODES: list[Mode] = ["report", "strict", "loose", "off"]

ids = st.sampled_from(IDS)
versions = st.sampled_from(["v1", "v2"])
records = st.builds(
    lambda mode, settled: ServerRecord(
        incarnation="i", component="c", host="h", mode=mode, lease_seconds=15, settled=settled
    ),
    st.sampled_from(MODES),
    st.booleans(),
)
members_of = st.dictionaries(ids, st.none() | records)
candidates = st.lists(
    st.builds(Candidate, ids, versions), max_size=4, unique_by=lambda candidate: candidate[0]
)
votes = st.builds(Vote, versions, candidates.map(tuple))
entry_lists = st.lists(
    st.builds(
        lambda server_id, version: StorageVersionEntry(
            server_id=server_id, encoding_version=version, decodable_versions=(version,)
        ),
        ids,
        versions,
    ),
    max_size=4,
    unique_by=lambda entry: entry.server_id,
)


def naive_holds_back(
    server_id: ServerId,
    record: ServerRecord | None,
    given_vote: Vote,
    entries: list[StorageVersionEntry],
) -> bool:
    """A server without a vote that may prefer, or write, another version."""
    for candidate in given_vote.candidates:
        if candidate.server_id == server_id:
            return False
    if record is None:
        return True  # from another release: unknown
    for entry in entries:
        if entry.server_id == server_id:
            return True  # it writes, and does not vote
    if record.mode == "off":
        return True  # it may write any version
    return not record.settled  # it is starting


@given(votes, members_of, entry_lists)
def test_a_selection_changes_only_when_all_want_the_same(
    given_vote: Vote,
    members: dict[ServerId, ServerRecord | None],
    entries: list[StorageVersionEntry],
) -> None:
    """One other preference, or one server without a vote, keeps the selection."""
    blockers = [
        server_id
        for server_id, record in members.items()
        if naive_holds_back(server_id, record, given_vote, entries)
    ]
    voters = [candidate.server_id for candidate in given_vote.candidates]
    assert sorted(holding_back(voters, members, entries)) == sorted(blockers)
    requested = [candidate.preferred for candidate in given_vote.candidates]
    expected = given_vote.selected
    if requested and requested.count(requested[0]) == len(requested) and not blockers:
        expected = requested[0]
    after = counted(given_vote, members, entries)
    assert after.selected == expected
    assert after.candidates == given_vote.candidates


@given(votes, st.builds(Candidate, ids, versions), st.sets(ids))
def test_each_member_has_one_vote(
    given_vote: Vote, vote: Candidate, members: set[ServerId]
) -> None:
    """A later vote replaces the earlier one; only votes of servers that are not members are
    removed."""
    voted = with_candidate(given_vote, vote)
    assert voted.selected == given_vote.selected
    assert [c for c in voted.candidates if c.server_id == vote.server_id] == [vote]
    others = [c for c in given_vote.candidates if c.server_id != vote.server_id]
    assert [c for c in voted.candidates if c.server_id != vote.server_id] == others
    left = drop_stale_candidates(voted, members)
    assert left.selected == given_vote.selected
    assert list(left.candidates) == [c for c in voted.candidates if c.server_id in members]


@given(versions, ids, members_of, entry_lists)
def test_the_first_voter_selects_the_version_of_the_others(
    preferred: str,
    own: ServerId,
    members: dict[ServerId, ServerRecord | None],
    entries: list[StorageVersionEntry],
) -> None:
    """Its own preference only if no other server can be writing; the version of all others, if they
    agree;
    and nothing while a server may write an unknown version."""
    reports = {entry.server_id: entry.encoding_version for entry in entries}
    seen = set()
    must_wait = False
    for server_id, record in members.items():
        if server_id == own:
            continue
        if server_id in reports:
            seen.add(reports[server_id])
        elif (
            record is None
            or record.mode == "off"
            or (record.mode == "report" and not record.settled)
        ):
            must_wait = True
    expected: str | None = preferred
    if must_wait or len(seen) > 1:
        expected = None
    elif len(seen) == 1:
        expected = seen.pop()
    assert first_selection(preferred, own, members, entries) == expected


@given(votes, members_of, entry_lists)
def test_counting_twice_changes_nothing(
    given_vote: Vote,
    members: dict[ServerId, ServerRecord | None],
    entries: list[StorageVersionEntry],
) -> None:
    """The result does not depend on how often the votes are counted."""
    once = counted(given_vote, members, entries)
    assert counted(once, members, entries) == once
