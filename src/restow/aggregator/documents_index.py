"""What is known of remote APIs' documents, and where their groups stand among ours.

Pure values. Not here: how they are got (`documents`), and how documents are made of them
(`restow.endpoints.discovery`, `restow.endpoints.openapi_paths`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from restow.aggregator.interface import RemoteApi
from restow.apimachinery.names import version_priority
from restow.kinds.builtin import api_service_priorities
from restow.openapi import Document, ForeignSpec

_FIRST_GROUP: Final = "apiregistration.k8s.io"
"""No other group may take the names of those that say where groups are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteVersion:
    """One remote API and its documents, as last seen."""

    api: RemoteApi
    is_fresh: bool = False
    """Whether its server could be asked and has answered."""
    resources: bytes = b""
    """The members of its list in aggregated discovery, without brackets."""
    v3: Document | None = None
    v2: ForeignSpec | None = None


class Remotes(Protocol):
    """All remote APIs with their documents."""

    discovery_listeners: list[Callable[[str], None]]
    """Told of a group in which something has changed that discovery shows."""
    openapi_listeners: list[Callable[[], None]]
    """Told when OpenAPI documents have come, gone or changed."""

    def versions(self) -> Iterable[RemoteVersion]:
        """Each API once, in order of priority."""

    def version(self, group: str, version: str) -> RemoteVersion | None:
        """One of them."""


class NoRemotes:
    """For a server that aggregates nothing."""

    def __init__(self) -> None:
        self.discovery_listeners: list[Callable[[str], None]] = []
        self.openapi_listeners: list[Callable[[], None]] = []

    def versions(self) -> Iterable[RemoteVersion]:
        return ()

    def version(self, _group: str, _version: str) -> RemoteVersion | None:
        return None


class GroupMember(NamedTuple):
    """A version in a group."""

    version: str
    remote: RemoteVersion | None = None
    """None: it is served here."""


def merged_groups(
    local: Mapping[str, Sequence[str]], remotes: Iterable[RemoteVersion]
) -> dict[str, tuple[GroupMember, ...]]:
    """Groups in the order of discovery, each with its versions, the preferred first.

    What is served here in a version is not also served elsewhere.
    """
    merged = {group: [GroupMember(version) for version in local[group]] for group in local}
    priorities: dict[str, int] = {}
    for remote in remotes:
        api = remote.api
        if api.version in local.get(api.group, ()):
            continue
        merged.setdefault(api.group, []).append(GroupMember(api.version, remote))
        priorities[api.group] = max(priorities.get(api.group, 0), api.group_priority)
    if not priorities:
        return {group: tuple(members) for group, members in merged.items()}

    def order(group: str) -> tuple[bool, int, str]:
        own = api_service_priorities(group, local[group][0])[0] if group in local else 0
        return group != _FIRST_GROUP, -max(own, priorities.get(group, 0)), group

    for group in priorities:
        merged[group].sort(key=lambda member: _version_order(group, member))
    return {group: tuple(merged[group]) for group in sorted(merged, key=order)}


def _version_order(group: str, member: GroupMember) -> tuple[int, tuple[int, int, int, str]]:
    if member.remote is not None:
        priority = member.remote.api.version_priority
    else:
        priority = api_service_priorities(group, member.version)[1]
    return -priority, version_priority(member.version)
