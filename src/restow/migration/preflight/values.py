"""Values of preflight: the state of a cluster, a target release, and the findings.

Versions are `apiVersion`s, such as `apps/v1`. A hash stands for a version of one kind, and can only
be resolved by hashing candidates: see `apimachinery.version_hash`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

from restow.apimachinery.names import GroupResource
from restow.apis.encryption_keys import IDENTITY
from restow.apis.migration_v1alpha1 import UNKNOWN_HASH
from restow.migration.store_scan import StoreScan

UNKNOWN: Final = UNKNOWN_HASH
"""Among persisted hashes it stands for every version."""
HEARTBEAT_SECONDS_MAX: Final = 1800.0
"""Three polling periods: an older StorageState may have missed changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResource:
    """A resource in a release."""

    kind: str
    """The kind of the stored objects."""
    storage: str
    """The storage version."""
    decodable: tuple[str, ...]
    """The versions that it can read, including the storage version."""
    prefix: str = ""
    """The prefix of its keys in the store: `/registry/example.com/widgets/`; empty: not known."""
    is_namespaced: bool | None = True
    """None: not known."""

    @property
    def location(self) -> str:
        """The form of its keys, as servers report it; empty: not known."""
        if not self.prefix or self.is_namespaced is None:
            return ""
        return self.prefix + ("{namespace}/{name}" if self.is_namespaced else "{name}")


ReadableKeys = Callable[[GroupResource], tuple[str, ...]]
"""The ids of the encryption keys with which a resource can be read."""


@dataclass(frozen=True, kw_only=True)
class TargetRelease:
    """The release that a cluster is to change to."""

    name: str
    resources: Mapping[GroupResource, TargetResource]
    kubernetes_minor: int | None = None
    """For a real Kubernetes release: N of 1.N. It may have resources that the table lacks."""
    readable_keys: ReadableKeys | None = None
    """From the encryption configuration of the target; None: not known."""
    keeps_keys: bool = False
    """Whether servers keep the encryption configuration that they run with now."""

    def at(self, prefix: str, resource: GroupResource | None) -> TargetResource | None:
        """The resource of the target at a prefix of keys."""
        if self.kubernetes_minor is not None:
            return None if resource is None else self.resources.get(resource)
        return self._by_prefix.get(prefix)

    @cached_property
    def _by_prefix(self) -> Mapping[str, TargetResource]:
        return {each.prefix: each for each in self.resources.values() if each.prefix}


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentServer:
    """A server that the supervisor manages and that is not ready: it may come back and write."""

    name: str
    release: TargetRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """One running server's entry in a StorageVersion."""

    server: str
    encodes: str
    decodes: tuple[str, ...]
    store: str = ""
    """The id of the own store in which an aggregated server keeps objects and lease."""
    location: str = ""
    """The form of the keys under which it stores objects; empty: not known."""
    is_custom: bool = False
    """Whether it has the resource from a CRD."""

    @property
    def readable(self) -> tuple[str, ...]:
        """The versions that it can read."""
        return tuple(dict.fromkeys((self.encodes, *self.decodes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """The state of one resource of a cluster."""

    resource: GroupResource
    kind: str = ""
    """Empty if the cluster does not serve it."""
    persisted: tuple[str, ...] | None = None
    """The persisted hashes of its StorageState; None: there is no state."""
    state_revision: int = 0
    """The resource version of its StorageState."""
    heartbeat_seconds: float | None = None
    """Age of the heartbeat of the StorageState; None: it has none."""
    current_hash: str = ""
    """The storage version hash in discovery."""
    entries: tuple[ServerEntry, ...] = ()
    common: str = ""
    """The version that all servers write, if they agree."""
    disagreement: str = ""
    """The reason why they do not agree, from their conditions."""
    selected: str = ""
    """The version that was voted for: a new server writes this, whatever its release prefers."""
    custom_versions: tuple[str, ...] | None = None
    """For a custom resource: the versions of its CRD, which no release changes."""
    stored_versions: tuple[str, ...] = ()
    """For a custom resource: `status.storedVersions` of its CRD."""
    custom_prefix: str = ""
    """For a custom resource: the prefix of its keys in the store."""
    is_namespaced: bool = True
    """For a custom resource: the scope of its CRD."""
    unconvertible: str = ""
    """For a custom resource: why its conversion webhook does not convert stored objects."""
    readable_keys: tuple[tuple[str, ...], ...] = ()
    """The encryption keys that each server with an entry can read."""
    persisted_keys: tuple[str, ...] = (IDENTITY,)
    """The encryption keys of its StorageState."""
    written_keys: tuple[str, ...] = ()
    """The encryption keys that servers write with, or will once all servers can read them."""
    failed_migration: str = ""
    """The last migration, if it failed: its name and why."""
    migrations: tuple[str, ...] = ()
    """Names of the running migrations."""
    has_objects: bool | None = None
    """None: not read, because no rule needs it, or because it could not be read."""

    @property
    def is_built_in(self) -> bool:
        """Whether running servers have it built in, even if there is a CRD."""
        return any(not each.is_custom and not each.store for each in self.entries)

    @property
    def prefixes(self) -> frozenset[str]:
        """The key prefixes at which servers store its objects, if they report them."""
        return frozenset(each.location.partition("{")[0] for each in self.entries if each.location)

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of the keys at which servers store its objects, if they report them."""
        return frozenset(
            "Namespaced" if "{namespace}" in each.location else "Cluster"
            for each in self.entries
            if each.location
        )

    @property
    def is_elsewhere(self) -> bool:
        """Whether aggregated servers keep its objects in their own store."""
        return bool(self.entries) and all(each.store for each in self.entries)

    @property
    def is_tracked(self) -> bool:
        """Whether its StorageState is complete and up to date."""
        is_fresh = bool(self.entries) or (
            self.heartbeat_seconds is not None and self.heartbeat_seconds <= HEARTBEAT_SECONDS_MAX
        )
        return bool(self.persisted) and UNKNOWN not in (self.persisted or ()) and is_fresh

    @property
    def is_agreed(self) -> bool:
        """Whether the servers that report agree. True if none reports."""
        return not self.entries or (bool(self.common) and not self.disagreement)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The state of a cluster, as it was read."""

    server: str = ""
    version: str = ""
    """The gitVersion at `/version`."""
    resources: tuple[ResourceView, ...] = ()
    is_rolling: bool = False
    """Whether a rolling upgrade is in progress: then the servers' versions differ."""
    kubernetes_minor: int | None = None
    """For real Kubernetes: N of 1.N. None for restow."""
    is_reported: bool = True
    """Whether the StorageVersion API is served: otherwise it is not known how servers write."""
    unseen: tuple[str, ...] = ()
    """Descriptions of served resources that could not be read."""
    notes: tuple[str, ...] = ()
    """Descriptions of data that could not be read and is not needed."""
    namespaced: Mapping[GroupResource, bool] = field(default_factory=dict)
    """The scope of each resource, in the discovery of the server."""
    scan: StoreScan | None = None
    """The raw values; None: they were not scanned."""
    scan_problem: str = ""
    """The reason why they were not scanned."""
    absent: tuple[AbsentServer, ...] = ()
    """Servers that the supervisor manages and that are not ready."""

    @property
    def evidence(self) -> Evidence:
        """The kind of evidence on this cluster."""
        if self.scan is not None:
            return Evidence.SCAN
        if self.resources and all(each.is_tracked for each in self.resources):
            return Evidence.VERIFIED
        return Evidence.DISCOVERY


class Evidence(StrEnum):
    """The kind of evidence for a report, strongest first."""

    SCAN = "raw-scan"
    """The raw values of the store, at one revision."""
    VERIFIED = "verified-migrations"
    """StorageStates that were kept up to date without a gap, and narrowed by verified passes."""
    DISCOVERY = "discovery-only"
    """The versions that servers write now. They do not show what was stored before."""


class Reason(StrEnum):
    """The kind of a blocker or warning."""

    MISPLACED = "misplaced"
    """Values at keys that the target does not read."""
    UNREADABLE = "unreadable"
    """Values that are not objects, or that no server can decrypt."""
    UNOWNED = "unowned"
    """Values under a prefix that no resource owns."""
    CHANGED_OWNER = "changed-owner"
    """A kind changes from a CRD to a built-in kind, or the other way round."""
    RECREATED = "recreated"
    """Values that are older than the CRD of their resource."""
    NOT_SERVED = "not-served"
    """A CRD that no server serves."""
    CONVERSION = "conversion"
    """A conversion webhook does not convert stored objects."""
    CONTRADICTION = "contradiction"
    """A StorageState lists less than is stored."""
    FAILED_MIGRATION = "failed-migration"
    UNREPORTED_WRITER = "unreported-writer"
    """A server writes without reporting its storage versions."""
    WRITES_UNREADABLE = "writes-unreadable"
    """A server that is not ready will write a version that the target cannot read."""
    KEY_UNREADABLE = "key-unreadable"
    """Values are encrypted with a key that the target does not have."""
    ENCRYPTION_CONFIG = "encryption-config"
    """A running server refuses its encryption configuration file, and would not start with it."""
    NOT_READY = "not-ready"
    """Another server is not ready."""
    WEAK_EVIDENCE = "weak-evidence"
    """There is no evidence on what was stored in the past."""

    UNDECODABLE = "undecodable"
    """Objects may be stored in a version that the target cannot read."""
    UNKNOWN = "unknown"
    """The persisted versions are not known."""
    DISAGREEMENT = "disagreement"
    MIGRATING = "migrating"
    NO_WAY_BACK = "no-way-back"
    """The target writes a version that a running server cannot read."""
    VANISHING = "vanishing"
    """There are objects of a resource that the target does not have."""
    UNSEEN = "unseen"
    """Something could not be read or counted."""
    SKIPPED_RELEASE = "skipped-release"
    KEY_WRITTEN = "key-written"
    """A server writes with the encryption key."""
    KEY_PREFERRED = "key-preferred"
    """A server will write with it as soon as all others can read it."""
    KEY_STORED = "key-stored"
    """A StorageState lists the key."""
    KEY_FOUND = "key-found"
    """Values are stored under the key."""
    KEY_UNKNOWN = "key-unknown"
    """No server and no StorageState has this key: the name may be misspelt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFinding:
    """A blocker or a warning, and what to do about it."""

    resource: GroupResource | None = None
    """None: the cluster as a whole."""
    reason: Reason
    what: str
    why: str
    advice: str
    intermediate: Intermediate | None = None
    """The release to upgrade to first, if the advice names one."""
    is_blocking: bool = True


def not_seen(what: Iterable[str]) -> Iterator[PreflightFinding]:
    """Findings about what could not be read."""
    for each in what:
        yield PreflightFinding(
            reason=Reason.UNSEEN,
            what=each,
            why="some resources could not be checked",
            advice="run it as a user who may list them, when all servers are up",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediate:
    """A release to upgrade to first, since no single step leads to the target."""

    resource: GroupResource
    reads: tuple[str, ...]
    writes: str
    is_kubernetes: bool = False
    """Whether the cluster is upgraded by other means than `restow upgrade`."""

    def __str__(self) -> str:
        return self.advice("FILE")

    def advice(self, release: str) -> str:
        """The advice, with this release."""
        command = "" if self.is_kubernetes else f": restow upgrade --to {release}"
        return (
            f"upgrade first to an intermediate release, in which {self.resource} is read as"
            f" {' and '.join(self.reads)} and stored as {self.writes}{command}; then check again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """The result of preflight."""

    target: str
    blockers: tuple[PreflightFinding, ...] = ()
    warnings: tuple[PreflightFinding, ...] = ()
    """Findings that do not block the release."""
    checked: int = 0
    """Number of resources that were checked."""
    notes: tuple[str, ...] = field(default=())
    evidence: Evidence | None = None
    scanned: str = ""
    """The scan that the report is based on, for messages."""

    @property
    def is_safe(self) -> bool:
        return not self.blockers

    @property
    def verdict(self) -> str:
        """`safe`, `not-safe`, or `unknown` if only information is missing."""
        if not self.blockers:
            return "safe"
        is_unknown = all(each.reason in _MISSING_INFORMATION for each in self.blockers)
        return "unknown" if is_unknown else "not-safe"


_MISSING_INFORMATION: Final = frozenset({Reason.UNSEEN, Reason.UNKNOWN, Reason.WEAK_EVIDENCE})
