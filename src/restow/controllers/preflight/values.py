"""What the rules of preflight are given, and what they answer. Plain values; nothing is read here.

Versions are `apiVersion`s, such as `apps/v1`. A hash stands for a version of one kind, and can be
told only by trying: see `machinery.version_hash`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from restow.machinery.names import GroupResource

UNKNOWN: Final = "Unknown"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The release that a cluster is to go to."""

    name: str
    resources: Mapping[GroupResource, TargetResource]
    kubernetes_minor: int | None = None
    """For a real Kubernetes release: N of 1.N. Then the table may not know every resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """What one running server says of a resource."""

    server: str
    encodes: str
    decodes: tuple[str, ...]
    store: str = ""
    """The id of the store of its own in which an aggregated server keeps it, and its lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """All that is known of one resource of a cluster."""

    resource: GroupResource
    kind: str = ""
    """Empty when the cluster does not serve it."""
    persisted: tuple[str, ...] | None = None
    """The persisted hashes of its StorageState; None: there is no state."""
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
    migrations: tuple[str, ...] = ()
    """Names of the migrations that are under way."""
    has_objects: bool | None = None
    """None: nobody has looked, since nothing depends on it; or it could not be seen."""

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
    unseen: tuple[str, ...] = ()
    """What is there and could not be looked at, so that nothing can be said."""
    notes: tuple[str, ...] = ()
    """What could not be seen and does not matter."""


class Reason(StrEnum):
    """In which way something is in the way."""

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
class Blocker:
    """One thing that is in the way, and what to do about it."""

    resource: GroupResource | None
    """None: the cluster as a whole."""
    reason: Reason
    what: str
    why: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer."""

    target: str
    blockers: tuple[Blocker, ...] = ()
    warnings: tuple[Blocker, ...] = ()
    """What does not speak against it, but should be known."""
    checked: int = 0
    """How many resources were looked at."""
    notes: tuple[str, ...] = field(default=())

    @property
    def is_safe(self) -> bool:
        return not self.blockers
