"""`migration.k8s.io/v1alpha1`: StorageState, the versions a resource may be stored in."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = [
    "API_VERSION",
    "GROUP",
    "STORAGE_STATE",
    "UNKNOWN_HASH",
    "GroupResourceRef",
    "StorageState",
    "StorageStateSpec",
    "StorageStateStatus",
    "StorageVersionHash",
    "persisted_hashes",
]

GROUP: Final = "migration.k8s.io"
API_VERSION: Final = f"{GROUP}/v1alpha1"
STORAGE_STATE: Final = "StorageState"
# KEP-2343 4.6: a value of the list
UNKNOWN_HASH: Final = "Unknown"
"""Element of the persisted hashes: objects may be stored in any version (KEP-2343)."""


def persisted_hashes(found: object) -> tuple[str, ...]:
    """Return the persisted hashes in the status of a StorageState, without duplicates.

    The default is "Unknown": an empty or missing list, or an element that is no hash, means that
    objects may be stored in any version.
    """
    listed = found if isinstance(found, list) else []
    hashes = [each if isinstance(each, str) and each else UNKNOWN_HASH for each in listed]
    # KEP-2343 4.8: an empty or missing list means Unknown
    return tuple(dict.fromkeys(hashes)) or (UNKNOWN_HASH,)


class GroupResourceRef(msgspec.Struct, kw_only=True):
    group: str = ""
    resource: str = ""


class StorageStateSpec(msgspec.Struct, kw_only=True):
    # KEP-2343 4.3: the resource
    resource: GroupResourceRef = msgspec.field(default_factory=GroupResourceRef)


class StorageVersionHash(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The report of one of several controllers: the hash of its API server that it observed
    last."""

    reporter_id: str = msgspec.field(name="reporterID", default="")
    # KEP-2343 4.29: the hash that one reporter has observed, and the time
    current_storage_version_hash: str = msgspec.field(name="currentStorageVersionHash", default="")
    last_heartbeat_time: str | None = msgspec.field(name="lastHeartbeatTime", default=None)


class StorageStateStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    # KEP-2343 4.4: the hashes of versions that may be stored
    persisted_storage_version_hashes: list[str] = msgspec.field(
        name="persistedStorageVersionHashes", default_factory=list
    )
    persisted_encryption_keys: list[str] = msgspec.field(
        name="persistedEncryptionKeys", default_factory=list
    )
    """Not in Kubernetes. Empty: nothing is encrypted."""
    # KEP-2343 4.5: the hash that is written now, and when it was last checked
    current_storage_version_hash: str = msgspec.field(name="currentStorageVersionHash", default="")
    last_heartbeat_time: str | None = msgspec.field(name="lastHeartbeatTime", default=None)
    # KEP-2343 4.26: the hash of each server
    current_storage_version_hashes: list[StorageVersionHash] = msgspec.field(
        name="currentStorageVersionHashes", default_factory=list
    )


class StorageState(msgspec.Struct, kw_only=True):
    metadata: dict[str, Any]
    spec: StorageStateSpec = msgspec.field(default_factory=StorageStateSpec)
    status: StorageStateStatus = msgspec.field(default_factory=StorageStateStatus)
