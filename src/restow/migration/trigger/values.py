"""Input of the trigger's rules: readings, the state, the migrations, memory, time.

All are plain values. They are read in this order: the StorageState, the migrations, the servers.
A decision updates the state on condition that it is the one that was read first. So the update
succeeds only if the state has not changed since before the rest was read.

Not here: reading them from the API.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from restow.apimachinery.names import GroupVersionResource
from restow.apis.encryption_keys import IDENTITY
from restow.apis.migration_v1alpha1 import UNKNOWN_HASH
from restow.migration.migration_values import MigrationSeen

UNKNOWN: Final = UNKNOWN_HASH
"""Stands for every hash: objects may be stored in any version."""

# KEP-2343 4.15: ten minutes
POLL_SECONDS: Final = 600.0
FAILED_MIGRATION_RETRY_SECONDS: Final = 600.0
LOOK_AGAIN_SECONDS: Final = 1.0
SKEW_SECONDS: Final = 60.0
REQUEST_SECONDS_MAX: Final = 60.0
"""A write that a server has accepted is committed within this time, or not at all."""


class Now(NamedTuple):
    """Two clocks: `seconds` is monotonic and for durations, `wall` is for times in objects."""

    seconds: float
    wall: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Intervals and bounds of the rules."""

    poll_seconds: float = POLL_SECONDS
    """The polling period: how often discovery is read, and how old a heartbeat may be at start."""
    hold_seconds: float = POLL_SECONDS
    """How long reports must have been identical before a migration begins (discovery-ha)."""
    retry_seconds: float = FAILED_MIGRATION_RETRY_SECONDS
    """How long after a failed migration a new one is created."""
    loose_wait_seconds: float | None = None
    """In loose mode, the bound and the longest request timeout together; None in other modes."""
    skew_seconds: float = SKEW_SECONDS
    """How far another clock may be ahead of this one before its times are ignored."""

    @property
    def gap_seconds_max(self) -> float:
        """If a running controller finds an older heartbeat, it was suspended and missed changes."""
        return 2 * self.poll_seconds

    @property
    def silence_seconds_max(self) -> float:
        """Reporters that are silent for longer are removed (three polling periods)."""
        return 3 * self.poll_seconds


# Readings of the servers.


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageVersionReading:
    """A StorageVersion; without a uid if there is none."""

    uid: str = ""
    resource_version: str = ""
    epoch: str = ""
    """The epoch of the agreement; empty where servers keep none, as in real Kubernetes."""
    common: str = ""
    """The hash of the version that all servers write; empty if they do not agree."""
    written: frozenset[str] = frozenset()
    """The hashes of all versions that servers write, or wrote since the reading before."""
    follows: bool = False
    """Whether every change since the last reading has been seen. The reading is a GET, not an event
    of the watch: a late event would undo what others have recorded since."""
    key: str = IDENTITY
    """The encryption key with which all servers write, if they agree (`common`)."""
    keys: frozenset[str] = frozenset()
    """The encryption keys with which any server writes, except `identity`."""
    loose_seconds: float = 0.0
    """How long servers may still write the old version after a change; 0: they do not."""

    @property
    def mark(self) -> str:
        """Identifies the agreement: it has not changed between two equal marks."""
        if not self.uid:
            return ""
        moment = f"epoch/{self.epoch}" if self.epoch else f"version/{self.resource_version}"
        return f"{self.uid}/{moment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryReading:
    """The hash in discovery; empty if there is none."""

    hash: str


class ServerHash(NamedTuple):
    """The hash that one server shows; empty if it shows none, or could not be read."""

    reporter_id: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalReading:
    """The hash of the server next to this controller; one of several controllers leads."""

    reporter_id: str
    hash: str
    is_leader: bool
    is_sole: bool = False
    """Whether no other process may report under this id."""

    @property
    def servers(self) -> tuple[ServerHash, ...]:
        return (ServerHash(self.reporter_id, self.hash),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersReading:
    """The hashes of all servers, read by the leader itself."""

    servers: tuple[ServerHash, ...]

    @property
    def is_leader(self) -> bool:
        return True


Reading = StorageVersionReading | DiscoveryReading | LocalReading | ServersReading


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusReading:
    """The result of a census of all stored objects."""

    found: frozenset[str]
    begun_seconds: float
    """When it began, on the clock of `Now.seconds`."""


# The state.


@dataclass(frozen=True, slots=True, kw_only=True)
class HashReport:
    """The last hash that one reporter has seen (discovery-ha)."""

    reporter_id: str
    hash: str
    heartbeat: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStatus:
    """The status of a StorageState: one update always replaces all of it."""

    persisted: tuple[str, ...]
    keys: tuple[str, ...] = (IDENTITY,)
    """The encryption keys under which objects may be stored. If a version is unknown, the keys are
    unknown too. Servers append to them; only sources that show the servers' keys may remove any."""
    current: str = ""
    heartbeat: datetime | None = None
    reports: tuple[HashReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSeen:
    """A StorageState as it was read."""

    uid: str
    resource_version: str
    status: StateStatus
    epoch: str = ""
    """The servers' annotation, if they keep one: it grows with each change of the agreement."""
    change: str = ""
    """The trigger's annotation: it changes whenever the trigger records a change."""
    is_verified_by_servers: bool = False
    """Whether servers record verified migrations and failed objects in it themselves."""


# The whole input.


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerView:
    """The input for one resource."""

    resource: GroupVersionResource
    state: StateSeen | None
    migrations: tuple[MigrationSeen, ...]
    reading: Reading
    census: CensusReading | None = None
    """Only in loose mode, where nothing is narrowed without one."""
    lists_more: bool = False
    """Whether storedVersions of a CRD lists more than the storage version. No other record has a
    version that was reverted before any server wrote it."""


class Sighting(NamedTuple):
    """When a reporter's heartbeat was first seen by this controller."""

    reporter_id: str
    heartbeat: datetime
    seen_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one controller on one resource. A new controller has none, which is safe."""

    key: str = ""
    """Identifies the observed state; another key is a change."""
    since_seconds: float = 0.0
    """When this key was first seen."""
    mark: str = ""
    """The mark of the last StorageVersion."""
    owed: frozenset[str] = frozenset()
    """Hashes that were seen and are not in the state yet."""
    sightings: tuple[Sighting, ...] = ()
    watched: frozenset[str] = frozenset()
    """Reporters whose servers this controller has read itself (discovery-ha)."""
    succeeded: tuple[str, float] | None = None
    """The successful migration that counts, and when it was first seen."""
    said: tuple[datetime, ...] = ()
    """Heartbeats of the own report that this controller has recently tried to write."""
