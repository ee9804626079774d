"""The values that `restow status` shows of a cluster.

Not here: how they are read (`overview`, `overview_reader`), and how they are printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from restow.apimachinery.names import GroupResource
from restow.apis.names import IDENTITY_LABEL_VALUE
from restow.migration.migration_values import MigrationPhase
from restow.migration.overview_keys import KeysSeen
from restow.migration.readability import Unread
from restow.migration.store_scan import StoreScan


class ResourceStatus(StrEnum):
    """The storage status of a resource."""

    OK = "ok"
    """Every raw value is in the current version and encryption key, and can be listed. On clusters
    whose servers do not scan the store, this is according to the StorageState."""
    UNREADABLE = "unreadable"
    """The store holds values that the server cannot read."""
    MIGRATING = "migrating"
    TO_MIGRATE = "to migrate"
    """Objects are, or may be, stored in other versions or under other encryption keys, and no
    migration is running."""
    DISAGREEING = "disagreeing"
    """Servers write it in different versions, or with different encryption keys."""
    UNKNOWN = "unknown"
    """The persisted versions are not tracked."""
    LEFT_ALONE = "left alone"
    """An aggregated server stores it, and does not report its storage versions (any more)."""
    GONE = "gone"
    """It has a StorageState, and no server serves it."""


@dataclass(frozen=True, slots=True)
class Hash:
    """A hash of a storage version, and the version that it stands for, if that is known."""

    hash: str
    version: str = ""

    def __str__(self) -> str:
        return self.version or self.hash

    @property
    def words(self) -> str:
        """The version; for places where a hash would not help, since it is not known."""
        return self.version or "(unknown version)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSeen:
    """The storage status of one resource."""

    resource: str
    written: Hash
    """The encoding version; empty if servers do not agree, or do not report it."""
    persisted: tuple[Hash, ...] = ()
    heartbeat: datetime | None = None
    servers: tuple[tuple[str, str], ...] = ()
    """Each server that reports, and its encoding version."""
    is_reported: bool = False
    """Whether servers report their encoding versions."""
    components: tuple[str, ...] = ()
    """Components of the aggregated servers that write it, by their leases."""
    stores: tuple[str, ...] = ()
    """The own stores of aggregated servers that keep it; empty: it is in the cluster's."""
    prefixes: tuple[str, ...] = ()
    """The key prefixes at which servers store it; empty: they do not report them."""
    keys: KeysSeen | None = None
    """The encryption keys; None: no server encrypts it."""
    verdict: ResourceStatus = ResourceStatus.UNKNOWN
    remark: str = ""
    """The reason why the status is worse than the StorageState indicates, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRow:
    """A migration."""

    name: str
    api_version: str
    resource: str
    phase: str
    """Pending, Running, Paused, Succeeded or Failed."""
    is_proven: bool
    message: str
    progress: dict[str, Any]
    failed_objects: list[dict[str, Any]]
    created: datetime | None
    finished: datetime | None
    is_superseded: bool = False
    """It failed, and a later migration of the resource succeeded."""

    @property
    def is_open(self) -> bool:
        return self.phase not in (MigrationPhase.SUCCEEDED.value, MigrationPhase.FAILED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSeen:
    """An API server, by its identity lease."""

    id: str
    host: str
    renewed: datetime | None
    is_live: bool
    """By the local clock, which may be wrong."""
    component: str = IDENTITY_LABEL_VALUE
    """The component of the server, such as `kube-apiserver`."""

    @property
    def is_aggregated(self) -> bool:
        return self.component != IDENTITY_LABEL_VALUE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSeen:
    """The leader of a controller."""

    name: str
    namespace: str
    holder: str
    renewed: datetime | None
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSeen:
    """The scan of the raw values of the store."""

    is_expected: bool = False
    """Whether servers of this cluster support scans."""
    scan: StoreScan | None = None
    namespaced: Mapping[GroupResource, bool] = field(default_factory=dict)
    """The scope of each resource."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """All that `restow status` shows."""

    server: str
    moment: datetime
    resources: list[ResourceSeen] = field(default_factory=list)
    migrations: list[MigrationRow] = field(default_factory=list)
    servers: list[ServerSeen] = field(default_factory=list)
    leaders: list[LeaderSeen] = field(default_factory=list)
    stored: StoredSeen = field(default_factory=StoredSeen)
    unread: list[Unread] = field(default_factory=list)
    """Resources that could not be listed."""
    notes: list[str] = field(default_factory=list)
    """Descriptions of the data that could not be read, with remedies."""
    missing: list[str] = field(default_factory=list)
    """Those of the notes that are about data which the server has, and which could not be read,
    such as a list that the user may not read."""

    @property
    def is_partial(self) -> bool:
        """Whether data of the cluster is missing, so that more may be wrong than what is shown."""
        is_unscanned = self.stored.is_expected and self.stored.scan is None
        return (
            bool(self.missing) or is_unscanned or any(not each.is_damaged for each in self.unread)
        )


def agreement_of(resource: ResourceSeen) -> str:
    """Summarize the servers' versions: `3 agree`, or `2 apps/v1, 1 apps/v1beta1`; with the names of
    aggregated components: `2 agree (aggregated-example-com)`."""
    if not resource.is_reported:
        return "–"
    remarks = [*resource.components, *(["own store"] if resource.stores else [])]
    return _counts_of(resource) + (f" ({', '.join(remarks)})" if remarks else "")


def _counts_of(resource: ResourceSeen) -> str:
    counts = Counter(version for _, version in resource.servers)
    if (
        len(counts) == 1
        and resource.verdict is ResourceStatus.DISAGREEING
        and resource.keys is not None
    ):
        return "keys differ"
    if len(counts) == 1:
        many = len(resource.servers)
        return f"{many} agree{'s' * (many == 1)}"
    return ", ".join(f"{count} {version}" for version, count in sorted(counts.items()))
