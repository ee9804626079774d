"""`kube-apiserver.internal.k8s.io/v1alpha1`: StorageVersion, the vote on a resource's version."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "StorageVersionVote",
    "VersionCandidate",
]

GROUP: Final = "kube-apiserver.internal.k8s.io"
# KEP-1201 0.1: the API of the votes
API_VERSION: Final = f"{GROUP}/v1alpha1"
KIND: Final = "StorageVersion"


class VersionCandidate(msgspec.Struct, kw_only=True, frozen=True):
    """The candidate of one server."""

    # KEP-1201 0.3: the server and the version that it prefers
    api_server_id: str = msgspec.field(name="apiServerID", default="")
    preferred_version: str = msgspec.field(name="preferredVersion", default="")


class StorageVersionVote(msgspec.Struct, kw_only=True):
    metadata: dict[str, Any]
    # KEP-1201 0.3: the selected version, and each server's candidate
    selected_version: str = msgspec.field(name="selectedVersion", default="")
    candidate_versions: list[VersionCandidate] = msgspec.field(
        name="candidateVersions", default_factory=list
    )
