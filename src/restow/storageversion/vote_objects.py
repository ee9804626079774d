"""Codec of votes, which are stored as API objects, and an index of their keys.

A vote is named `<group>.<version>.<resource>` after the version selected when it was created, and
keeps that name. So it is found by an index, not by its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from restow.apimachinery.names import GroupVersion
from restow.apis import internal_vote_v1alpha1 as wire
from restow.registry.stored_bytes import encode
from restow.storage.errors import StoreDamaged
from restow.storage.interface import Item, Key
from restow.storageversion.identity import ServerId
from restow.storageversion.mirror import Mirror
from restow.storageversion.object_codec import root_of
from restow.storageversion.records import CORE_GROUP, resource_of_name
from restow.storageversion.voting import Candidate, Vote

VOTES_PREFIX: Final = root_of(wire.GROUP, wire.KIND)


@dataclass(frozen=True, slots=True)
class StoredVote:
    """A vote with the metadata of its object."""

    vote: Vote
    metadata: Mapping[str, Any] = field(default_factory=dict)


class VoteIndex:
    """Index of the key of each resource's vote."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._keys: dict[str, Key] = {}
        mirror.changed.subscribe(self._note)

    def find(self, name: str) -> Item | None:
        key = self._keys.get(name)
        return None if key is None else self._mirror.get(key)

    def names(self) -> list[str]:
        return list(self._keys)

    def _note(self, key: Key, item: Item | None) -> None:
        if not key.startswith(VOTES_PREFIX):
            return
        name = name_of_vote(key)
        if item is not None:
            self._keys[name] = key
        elif self._keys.get(name) == key:
            del self._keys[name]


def name_of_vote(key: Key) -> str:
    """Return the name of the resource that a vote belongs to."""
    group, _, resource = key.removeprefix(VOTES_PREFIX).rpartition(".")
    return f"{group.rpartition('.')[0]}.{resource}"


def vote_key(name: str, selected: str) -> Key:
    """Return the key of a new vote with this first selected version."""
    group, resource = resource_of_name(name)
    version = GroupVersion.parse(selected).version
    # KEP-1201 0.2: named <group>.<version>.<resource> after the first selected version
    return Key(f"{VOTES_PREFIX}{group or CORE_GROUP}.{version}.{resource}")


def decode_vote(item: Item) -> StoredVote:
    try:
        found = msgspec.json.decode(item.value, type=wire.StorageVersionVote)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"{item.key} holds no StorageVersionVote: {error}") from error
    candidates = tuple(
        Candidate(ServerId(candidate.api_server_id), candidate.preferred_version)
        for candidate in found.candidate_versions
    )
    return StoredVote(Vote(found.selected_version, candidates), found.metadata)


def encode_vote(stored: StoredVote) -> bytes:
    found = wire.StorageVersionVote(
        metadata=dict(stored.metadata),
        selected_version=stored.vote.selected,
        candidate_versions=[
            wire.VersionCandidate(
                api_server_id=candidate.server_id, preferred_version=candidate.preferred
            )
            for candidate in stored.vote.candidates
        ],
    )
    return encode(msgspec.to_builtins(found), wire.API_VERSION, wire.KIND)
