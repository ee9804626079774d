"""What the rules of preflight are given, and what they answer. Plain values; nothing is read here.

Versions are `apiVersion`s, such as `apps/v1`. A hash stands for a version of one kind, and can be
told only by trying: see `machinery.version_hash`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
"""Three polling periods: a state that nobody looked after for longer may have missed changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResource:
    """How a release has a resource."""

    kind: str
    """Of what is stored."""
    storage: str
    """The version that it writes."""
    decodable: tuple[str, ...]
    """The versions that it can read, the one that it writes among them."""
    prefix: str = ""
    """Of its keys in the store: `/registry/example.com/widgets/`; empty: not known."""
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
    """The release that a cluster is to go to."""

    name: str
    resources: Mapping[GroupResource, TargetResource]
    kubernetes_minor: int | None = None
    """For a real Kubernetes release: N of 1.N. Then the table may not know every resource."""
    readable_keys: ReadableKeys | None = None
    """By the encryption configuration of the target; None: not known."""
    keeps_keys: bool = False
    """Whether servers keep the encryption configuration that they run with now."""

    def at(self, prefix: str, resource: GroupResource | None) -> TargetResource | None:
        """What the target reads at a prefix of keys."""
        if self.kubernetes_minor is not None:
            return None if resource is None else self.resources.get(resource)
        return self._by_prefix.get(prefix)

    @cached_property
    def _by_prefix(self) -> Mapping[str, TargetResource]:
        return {each.prefix: each for each in self.resources.values() if each.prefix}


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentServer:
    """A server that the supervisor knows and that is not ready: it may come back and write."""

    name: str
    release: TargetRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """What one running server says of a resource."""

    server: str
    encodes: str
    decodes: tuple[str, ...]
    store: str = ""
    """The id of the store of its own in which an aggregated server keeps it, and its lease."""
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
    """All that is known of one resource of a cluster."""

    resource: GroupResource
    kind: str = ""
    """Empty when the cluster does not serve it."""
    persisted: tuple[str, ...] | None = None
    """The persisted hashes of its StorageState; None: there is no state."""
    state_revision: int = 0
    """The resource version of its StorageState."""
    heartbeat_seconds: float | None = None
    """How long ago somebody last looked after the state; None: never."""
    current_hash: str = ""
    """What discovery says that is written."""
    entries: tuple[ServerEntry, ...] = ()
    common: str = ""
    """The version that all servers write, if they agree."""
    disagreement: str = ""
    """Why they do not, in their own words."""
    selected: str = ""
    """The version that was voted for: then a new server writes this, whatever it prefers."""
    custom_versions: tuple[str, ...] | None = None
    """For a custom resource: the versions of its definition, which no release changes."""
    stored_versions: tuple[str, ...] = ()
    """For a custom resource: `status.storedVersions` of its definition."""
    custom_prefix: str = ""
    """For a custom resource: of its keys in the store."""
    is_namespaced: bool = True
    """For a custom resource: the scope of its CRD."""
    unconvertible: str = ""
    """For a custom resource: why its conversion webhook does not convert stored objects."""
    readable_keys: tuple[tuple[str, ...], ...] = ()
    """The encryption keys that each server with an entry can read."""
    persisted_keys: tuple[str, ...] = (IDENTITY,)
    """The encryption keys of its StorageState."""
    written_keys: tuple[str, ...] = ()
    """The encryption keys that servers write with, or will when all of them can read it."""
    failed_migration: str = ""
    """The last migration, if it failed: its name and why."""
    migrations: tuple[str, ...] = ()
    """Names of the migrations that are under way."""
    has_objects: bool | None = None
    """None: nobody has looked, since nothing depends on it; or it could not be seen."""

    @property
    def is_built_in(self) -> bool:
        """Whether running servers build it in, whatever CRD there is."""
        return any(not each.is_custom and not each.store for each in self.entries)

    @property
    def prefixes(self) -> frozenset[str]:
        """The prefixes of keys under which servers look for its objects, as far as they say."""
        return frozenset(each.location.partition("{")[0] for each in self.entries if each.location)

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of the keys under which servers look for its objects, as far as they say."""
        return frozenset(
            "Namespaced" if "{namespace}" in each.location else "Cluster"
            for each in self.entries
            if each.location
        )

    @property
    def is_elsewhere(self) -> bool:
        """Whether aggregated servers keep its objects in a store of their own."""
        return bool(self.entries) and all(each.store for each in self.entries)

    @property
    def is_tracked(self) -> bool:
        """Whether its StorageState is complete, and was kept up to date until now."""
        is_fresh = bool(self.entries) or (
            self.heartbeat_seconds is not None and self.heartbeat_seconds <= HEARTBEAT_SECONDS_MAX
        )
        return bool(self.persisted) and UNKNOWN not in (self.persisted or ()) and is_fresh

    @property
    def is_agreed(self) -> bool:
        """Whether the servers that report agree. Where none reports, nothing speaks against it."""
        return not self.entries or (bool(self.common) and not self.disagreement)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A cluster, as one looked at it."""

    server: str = ""
    version: str = ""
    """What `/version` says."""
    resources: tuple[ResourceView, ...] = ()
    is_rolling: bool = False
    """Whether servers are being changed just now: then they differ, as they must."""
    kubernetes_minor: int | None = None
    """For real Kubernetes: N of 1.N. None for restow."""
    is_reported: bool = True
    """Whether the StorageVersion API is served: otherwise it is not known how servers write."""
    unseen: tuple[str, ...] = ()
    """What is there and could not be looked at, so that nothing can be said."""
    notes: tuple[str, ...] = ()
    """What could not be seen and does not matter."""
    namespaced: Mapping[GroupResource, bool] = field(default_factory=dict)
    """The scope of each resource, as the server that was asked has it."""
    scan: StoreScan | None = None
    """The raw values; None: they were not scanned."""
    scan_problem: str = ""
    """Why they were not."""
    absent: tuple[AbsentServer, ...] = ()
    """Servers that the supervisor knows and that are not ready."""

    @property
    def evidence(self) -> Evidence:
        """What an answer about this cluster rests on."""
        if self.scan is not None:
            return Evidence.SCAN
        if self.resources and all(each.is_tracked for each in self.resources):
            return Evidence.VERIFIED
        return Evidence.DISCOVERY


class Evidence(StrEnum):
    """What an answer rests on, strongest first."""

    SCAN = "raw-scan"
    """The raw values of the store, at one revision."""
    VERIFIED = "verified-migrations"
    """StorageStates that were kept up to date without a gap, and narrowed by verified passes."""
    DISCOVERY = "discovery-only"
    """What servers write now. It says nothing of what was stored before."""


class Reason(StrEnum):
    """In which way something is in the way."""

    MISPLACED = "misplaced"
    """Values at keys where the target does not look for them."""
    UNREADABLE = "unreadable"
    """Values that are no objects, or that no server can decrypt."""
    UNOWNED = "unowned"
    """Values under a prefix that no resource owns."""
    CHANGED_OWNER = "changed-owner"
    """A kind that is defined by a CRD becomes a built-in one, or the other way round."""
    RECREATED = "recreated"
    """Values that are older than the CRD of their resource."""
    NOT_SERVED = "not-served"
    """A CRD that no server serves."""
    CONVERSION = "conversion"
    """A conversion webhook does not convert what is stored."""
    CONTRADICTION = "contradiction"
    """A StorageState lists less than is stored."""
    FAILED_MIGRATION = "failed-migration"
    UNREPORTED_WRITER = "unreported-writer"
    """A server writes without reporting in which version."""
    WRITES_UNREADABLE = "writes-unreadable"
    """A server writes what the target cannot read."""
    KEY_UNREADABLE = "key-unreadable"
    """Values are encrypted with a key that the target does not have."""
    ENCRYPTION_CONFIG = "encryption-config"
    """A running server refuses its encryption configuration file, and would not start with it."""
    NOT_READY = "not-ready"
    """Another server is not ready."""
    WEAK_EVIDENCE = "weak-evidence"
    """Nothing is known of what was stored in the past."""

    UNDECODABLE = "undecodable"
    """Something may be stored that the target cannot read."""
    UNKNOWN = "unknown"
    """Nobody knows what is stored."""
    DISAGREEMENT = "disagreement"
    MIGRATING = "migrating"
    NO_WAY_BACK = "no-way-back"
    """The target writes what a running server cannot read."""
    VANISHING = "vanishing"
    """There are objects of which the target knows nothing."""
    UNSEEN = "unseen"
    """It could not be looked at."""
    SKIPPED_RELEASE = "skipped-release"
    KEY_WRITTEN = "key-written"
    """A server writes with the encryption key."""
    KEY_PREFERRED = "key-preferred"
    """A server would, if all others could read it."""
    KEY_STORED = "key-stored"
    """A StorageState says that something may be stored under it."""
    KEY_FOUND = "key-found"
    """Something was found in the store under it."""
    KEY_UNKNOWN = "key-unknown"
    """Nobody has heard of it: the name may be misspelt."""


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
    """The release that the advice asks for."""
    is_blocking: bool = True


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
        """What to do, with this release."""
        command = "" if self.is_kubernetes else f": restow upgrade --to {release}"
        return (
            f"upgrade first to an intermediate release, in which {self.resource} is read as"
            f" {' and '.join(self.reads)} and written as {self.writes}{command}; then ask again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """The answer."""

    target: str
    blockers: tuple[PreflightFinding, ...] = ()
    warnings: tuple[PreflightFinding, ...] = ()
    """What does not speak against it, but should be known."""
    checked: int = 0
    """How many resources were looked at."""
    notes: tuple[str, ...] = field(default=())
    evidence: Evidence | None = None
    scanned: str = ""
    """Which values the answer rests on, for people."""

    @property
    def is_safe(self) -> bool:
        return not self.blockers

    @property
    def verdict(self) -> str:
        """`safe`, `not-safe`, or `unknown` where only information is missing."""
        if not self.blockers:
            return "safe"
        is_unknown = all(each.reason in _MISSING_INFORMATION for each in self.blockers)
        return "unknown" if is_unknown else "not-safe"


_MISSING_INFORMATION: Final = frozenset({Reason.UNSEEN, Reason.UNKNOWN, Reason.WEAK_EVIDENCE})
