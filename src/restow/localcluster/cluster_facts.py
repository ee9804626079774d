"""Facts about the servers of a cluster, read through the API as any client can.

Identity leases have the address and release of each server, StorageVersions the version that it
writes of each resource. Not here: persisted versions, and conclusions (`step_check`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from restow.apimachinery.names import GroupResource
from restow.apis.coordination_v1 import Lease
from restow.apis.internal_v1alpha1 import StorageVersion, resource_of_name
from restow.apis.names import (
    ADDRESS_ANNOTATION,
    IDENTITY_LABEL,
    IDENTITY_LABEL_VALUE,
    LEASE_NAMESPACE,
    RELEASE_ANNOTATION,
)
from restow.apis.resources import LEASES, STORAGE_VERSIONS
from restow.client import ApiClient, ListOptions
from restow.kinds.releases import Release

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFacts:
    """The encoding versions of one resource."""

    common_version: str | None = None
    """The version that all servers write; None if they disagree."""
    encodings: Mapping[str, str]
    """The version that each server writes, by server id."""


@dataclass(frozen=True, slots=True)
class ServerMember:
    """A server, from its lease."""

    server_id: str
    address: str
    release: str


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All facts, read at about the same time."""

    members: tuple[ServerMember, ...] = ()
    resources: dict[GroupResource, ResourceFacts] = field(default_factory=dict)

    def member_at(self, port: int | None) -> ServerMember | None:
        """The server at a port of this machine.

        If several leases have the port, the server that has reported the most resources.
        """
        found = [each for each in self.members if each.address.endswith(f":{port}")]
        return max(found, key=lambda each: len(self.reports_of(each)), default=None)

    def reports_of(self, member: ServerMember) -> dict[GroupResource, str]:
        """The version of each resource that a server writes."""
        return {
            name: facts.encodings[member.server_id]
            for name, facts in self.resources.items()
            if member.server_id in facts.encodings
        }

    def has_reported(self, port: int | None, release: Release) -> bool:
        """Whether the server at a port runs the release, and has reported all its resources."""
        wanted = {name for name in self.resources if release.resource(name.group, name.resource)}
        return any(
            wanted <= self.reports_of(member).keys()
            for member in self.members
            if member.address.endswith(f":{port}") and member.release == release.name
        )


async def read_world(client: ApiClient) -> ClusterFacts:
    """Read the facts from a server. Raises ClientError, StatusError."""
    selector = ListOptions(label_selector=f"{IDENTITY_LABEL}={IDENTITY_LABEL_VALUE}")
    leases = [
        _typed(each, Lease)
        async for each in client.items(LEASES, namespace=LEASE_NAMESPACE, options=selector)
    ]
    reports = [_typed(each, StorageVersion) async for each in client.items(STORAGE_VERSIONS)]
    return ClusterFacts(
        tuple(_member(lease) for lease in leases),
        {resource_of_name(str(each.metadata.get("name", ""))): _facts(each) for each in reports},
    )


def _facts(report: StorageVersion) -> ResourceFacts:
    entries = report.status.storage_versions
    return ResourceFacts(
        common_version=report.status.common_encoding_version,
        encodings={each.api_server_id: each.encoding_version for each in entries},
    )


def _member(lease: Lease) -> ServerMember:
    annotations: dict[str, Any] = lease.metadata.get("annotations") or {}
    return ServerMember(
        server_id=str(lease.metadata.get("name", "")),
        address=str(annotations.get(ADDRESS_ANNOTATION, "")),
        release=str(annotations.get(RELEASE_ANNOTATION, "")),
    )


def _typed(found: dict[str, Any], kind: type[T]) -> T:
    return msgspec.convert(found, type=kind)
