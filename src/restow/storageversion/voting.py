"""The rules of the vote, pure: which version is selected, and when that changes.

A *ballot* holds the version that was selected and each server's candidate. It changes only when all
servers that take part want the same. A server that is on its way up holds a change back, since it
may want something else; one that writes without having voted does so too.

Not here: in which transaction a ballot changes (`registration_planner`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from restow.storageversion.identity import ServerId, ServerRecord
from restow.storageversion.rules import StorageVersionEntry


class Candidate(NamedTuple):
    """What one server would like to write."""

    server_id: ServerId
    preferred: str


@dataclass(frozen=True, slots=True)
class Vote:
    """The vote on one resource."""

    selected: str
    candidates: tuple[Candidate, ...] = ()


Members = Mapping[ServerId, ServerRecord | None]
"""The servers that live; None stands for one that cannot be understood."""


def with_candidate(vote: Vote, candidate: Candidate) -> Vote:
    """The ballot with this candidate in place of its server's earlier one, or at the end."""
    others = vote.candidates
    if any(other.server_id == candidate.server_id for other in others):
        found = tuple(candidate if o.server_id == candidate.server_id else o for o in others)
    else:
        found = (*others, candidate)
    return replace(vote, candidates=found)


def drop_stale_candidates(vote: Vote, members: Collection[ServerId]) -> Vote:
    """The ballot without the candidates of servers that are gone."""
    found = tuple(candidate for candidate in vote.candidates if candidate.server_id in members)
    return replace(vote, candidates=found)


def counted(vote: Vote, members: Members, entries: Iterable[StorageVersionEntry]) -> Vote:
    """The ballot with the version selected that follows from its candidates."""
    wanted = {candidate.preferred for candidate in vote.candidates}
    voters = {candidate.server_id for candidate in vote.candidates}
    if len(wanted) != 1 or holding_back(voters, members, entries):
        return vote
    return replace(vote, selected=wanted.pop())


def holding_back(
    voters: Collection[ServerId], members: Members, entries: Iterable[StorageVersionEntry]
) -> list[ServerId]:
    """The servers because of which a selection does not change: on their way, or without a vote."""
    writers = {entry.server_id for entry in entries}
    return [
        server_id
        for server_id, record in members.items()
        if server_id not in voters
        and (record is None or not record.settled or server_id in writers or record.mode == "off")
    ]


def first_selection(
    preferred: str, own: ServerId, members: Members, entries: Iterable[StorageVersionEntry]
) -> str | None:
    """What the first voter selects among servers that do not vote; None: it must wait.

    They write what they like, so it may only be what all of them have reported. One that has
    reported nothing, and might write all the same, is to be waited for.
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
    return versions.pop() if len(versions) == 1 else None


def is_voter(record: ServerRecord | None) -> bool:
    return record is not None and record.mode in ("strict", "loose")
