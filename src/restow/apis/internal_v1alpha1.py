"""`internal.apiserver.k8s.io/v1alpha1`: StorageVersion, the encoding version of each server."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from restow.apimachinery.names import GroupResource

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "ServerStorageVersion",
    "StorageVersion",
    "StorageVersionCondition",
    "StorageVersionStatus",
    "name_of",
    "resource_of_name",
]

GROUP: Final = "internal.apiserver.k8s.io"
# KEP-2339 3.4: the API of StorageVersions
API_VERSION: Final = f"{GROUP}/v1alpha1"
KIND: Final = "StorageVersion"

_CORE: Final = "core"
"""The core group in the name of an object."""


def name_of(resource: GroupResource) -> str:
    """The name of a resource's StorageVersion: `<group>.<resource>`."""
    # KEP-2339 3.5: named <group>.<resource>, one for each resource
    return f"{resource.group or _CORE}.{resource.resource}"


def resource_of_name(name: str) -> GroupResource:
    group, _, resource = name.rpartition(".")
    return GroupResource("" if group == _CORE else group, resource)


class ServerStorageVersion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The entry of one server."""

    api_server_id: str = msgspec.field(name="apiServerID", default="")
    encoding_version: str = msgspec.field(name="encodingVersion", default="")
    decodable_versions: list[str] = msgspec.field(name="decodableVersions", default_factory=list)
    served_versions: list[str] = msgspec.field(name="servedVersions", default_factory=list)


class StorageVersionCondition(msgspec.Struct, kw_only=True):
    type: str
    status: str
    # KEP-2339 3.15: time, reason and message
    last_transition_time: str | None = msgspec.field(name="lastTransitionTime", default=None)
    reason: str = ""
    message: str = ""
    observed_generation: int | msgspec.UnsetType = msgspec.field(
        name="observedGeneration", default=msgspec.UNSET
    )


class StorageVersionStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    # KEP-2339 3.7: the entries, one per server
    storage_versions: list[ServerStorageVersion] = msgspec.field(
        name="storageVersions", default_factory=list
    )
    common_encoding_version: str | None = msgspec.field(name="commonEncodingVersion", default=None)
    # KEP-2339 3.10: the conditions, one per type
    conditions: list[StorageVersionCondition] = msgspec.field(default_factory=list)


class StorageVersion(msgspec.Struct, kw_only=True):
    metadata: dict[str, Any]
    # KEP-2339 3.6: an empty spec
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: StorageVersionStatus = msgspec.field(default_factory=StorageVersionStatus)
