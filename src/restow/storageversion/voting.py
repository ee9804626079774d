"""The rules of the vote as pure functions: which version is selected, and when it changes.

A *vote* holds the selected version and each server's candidate version. The selection changes only
when the candidates of all participating servers are equal. A starting server prevents a change,
since its candidate may differ; so does a server that writes without having voted.

Not here: in which transaction a vote changes (`registration_planner`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from restow.storageversion.identity import ServerId, ServerRecord
from restow.storageversion.rules import StorageVersionEntry


class Candidate(NamedTuple):
    """The version that one server prefers to write."""

    server_id: ServerId
    preferred: str


@dataclass(frozen=True, slots=True)
class Vote:
    """The vote on one resource."""

    selected: str
    candidates: tuple[Candidate, ...] = ()


Members = Mapping[ServerId, ServerRecord | None]
"""The participating servers; None stands for one with an unreadable record."""


def with_candidate(vote: Vote, candidate: Candidate) -> Vote:
    """Return the vote with this candidate in place of its server's earlier one, or at the end."""
    others = vote.candidates
    # KEP-1201 0.8: one candidate per server
    if any(other.server_id == candidate.server_id for other in others):
        found = tuple(candidate if o.server_id == candidate.server_id else o for o in others)
    else:
        found = (*others, candidate)
    return replace(vote, candidates=found)


def drop_stale_candidates(vote: Vote, members: Collection[ServerId]) -> Vote:
    """Return the vote without the candidates of servers that do not participate any more."""
    # KEP-1201 0.9: drop candidates of servers that do not participate
    found = tuple(candidate for candidate in vote.candidates if candidate.server_id in members)
    return replace(vote, candidates=found)


def counted(vote: Vote, members: Members, entries: Iterable[StorageVersionEntry]) -> Vote:
    """Return the vote with the selected version that follows from its candidates."""
    preferred = {candidate.preferred for candidate in vote.candidates}
    voters = {candidate.server_id for candidate in vote.candidates}
    # KEP-1201 0.15: an older server keeps the old selection
    # KEP-1201 0.31: a temporary downgrade changes no selection
    if len(preferred) != 1 or holding_back(voters, members, entries):
        return vote
    # KEP-1201 0.10: all vote for one version, so select it
    return replace(vote, selected=preferred.pop())


def holding_back(
    voters: Collection[ServerId], members: Members, entries: Iterable[StorageVersionEntry]
) -> list[ServerId]:
    """Return the servers that prevent a change of the selection: starting, or without a vote."""
    writers = {entry.server_id for entry in entries}
    return [
        server_id
        for server_id, record in members.items()
        if server_id not in voters
        # KEP-1201 0.10: a server without a vote counts while it may write the resource
        and (record is None or not record.settled or server_id in writers or record.mode == "off")
    ]


def first_selection(
    preferred: str, own: ServerId, members: Members, entries: Iterable[StorageVersionEntry]
) -> str | None:
    """Return the version that the first voter selects while non-voters run; None: it must wait.

    Non-voters write the version that they prefer, so it can only be the one that all of them have
    reported. The voter waits for a server that has no entry and may still write.
    """
    others = {server_id: record for server_id, record in members.items() if server_id != own}
    reported = {entry.server_id: entry.encoding_version for entry in entries}
    reported.pop(own, None)
    for server_id, record in others.items():
        may_write_unseen = record is None or record.mode == "off" or not record.settled
        if server_id not in reported and may_write_unseen and not is_voter(record):
            return None
    versions = {version for server_id, version in reported.items() if server_id in others}
    if not versions:
        return preferred
    # KEP-1201 0.14: while servers run that do not vote, select the version that they write
    return versions.pop() if len(versions) == 1 else None


def is_voter(record: ServerRecord | None) -> bool:
    return record is not None and record.mode in ("strict", "loose")
