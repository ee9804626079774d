"""The known documents of remote APIs, and the position of their groups in discovery.

Pure values. Not here: fetching them (`documents`), and building documents from them
(`restow.endpoints.discovery`, `restow.endpoints.openapi_paths`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from restow.aggregator.interface import RemoteApi
from restow.aio.events import EventChannel
from restow.apimachinery.names import version_priority
from restow.kinds.builtin import api_service_priorities
from restow.openapi import Document, ForeignSpec

_FIRST_GROUP: Final = "apiregistration.k8s.io"
"""Reserved names: the groups that define where other groups are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteVersion:
    """One remote API and its last known documents."""

    api: RemoteApi
    is_fresh: bool = False
    """Whether its server was reachable and has responded."""
    resources: bytes = b""
    """The entries of its resource list in aggregated discovery, without brackets."""
    v3: Document | None = None
    v2: ForeignSpec | None = None


class Remotes(Protocol):
    """All remote APIs with their documents."""

    discovery_changed: EventChannel[[str]]
    """Called with a group when its discovery content has changed."""
    openapi_changed: EventChannel[[]]
    """Called when OpenAPI documents were added, removed or changed."""

    def versions(self) -> Iterable[RemoteVersion]:
        """Each API once, in order of priority."""

    def version(self, group: str, version: str) -> RemoteVersion | None:
        """The API of a group version, or None."""


class NoRemotes:
    """Implementation for a server without aggregation."""

    def __init__(self) -> None:
        self.discovery_changed: EventChannel[[str]] = EventChannel()
        self.openapi_changed: EventChannel[[]] = EventChannel()

    def versions(self) -> Iterable[RemoteVersion]:
        return ()

    def version(self, _group: str, _version: str) -> RemoteVersion | None:
        return None


class GroupMember(NamedTuple):
    """A version in a group."""

    version: str
    remote: RemoteVersion | None = None
    """None: it is served by this server."""


def merged_groups(
    local: Mapping[str, Sequence[str]], remotes: Iterable[RemoteVersion]
) -> dict[str, tuple[GroupMember, ...]]:
    """Return the groups in the order of discovery, each with its versions, the preferred one first.

    A group version that this server serves itself is not also listed as remote.
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
