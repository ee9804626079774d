"""What the rules of the trigger are given: readings, the state, the requests, memory, time.

All are plain values. Whoever fills them reads in this order: the StorageState, then the migration
requests, then what the servers say. What a decision writes to the state is conditional on the state
that was read first, so it holds only if nothing has touched the state since before the rest was
seen.

Not here: how any of it is read from the API.
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

POLL_SECONDS: Final = 600.0
FAILED_MIGRATION_RETRY_SECONDS: Final = 600.0
LOOK_AGAIN_SECONDS: Final = 1.0
SKEW_SECONDS: Final = 60.0
REQUEST_SECONDS_MAX: Final = 60.0
"""A write that a server has accepted lands within this time, or not at all."""


class Now(NamedTuple):
    """Two clocks: `seconds` never jumps and is for durations, `wall` is for what others read."""

    seconds: float
    wall: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How often, and how long."""

    poll_seconds: float = POLL_SECONDS
    """The polling period: how often discovery is read, and how old a heartbeat may be at start."""
    hold_seconds: float = POLL_SECONDS
    """How long reports must have been identical before a migration begins (discovery-ha)."""
    retry_seconds: float = FAILED_MIGRATION_RETRY_SECONDS
    """How long after its failure a request is made again."""
    loose_wait_seconds: float | None = None
    """In loose mode, the bound and the longest request timeout together; None in other modes."""
    skew_seconds: float = SKEW_SECONDS
    """How far ahead of ours another clock may be before its times are not believed."""

    @property
    def gap_seconds_max(self) -> float:
        """A running controller that finds an older heartbeat has slept, and missed changes."""
        return 2 * self.poll_seconds

    @property
    def silence_seconds_max(self) -> float:
        """Reporters that say nothing for longer are taken out (three polling periods)."""
        return 3 * self.poll_seconds


# What servers say.


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageVersionReading:
    """A StorageVersion. Without a uid: there is none."""

    uid: str = ""
    resource_version: str = ""
    epoch: str = ""
    """The epoch of the agreement; empty where servers keep none, as in real Kubernetes."""
    common: str = ""
    """The hash of what all servers write; empty when they do not agree."""
    written: frozenset[str] = frozenset()
    """The hashes of what any server writes, or has written since the reading that it follows."""
    follows: bool = False
    """Whether every change since the last reading has been seen. It is itself read, not watched:
    one that comes late would let what others have recorded since be narrowed away."""
    key: str = IDENTITY
    """The encryption key that all servers write with, if they agree (`common`)."""
    keys: frozenset[str] = frozenset()
    """The encryption keys that any server writes with, beside `identity`."""
    loose_seconds: float = 0.0
    """For so long after a change servers may go on writing as before; 0: they do not."""

    @property
    def mark(self) -> str:
        """Two equal marks: agreement has not moved in between."""
        if not self.uid:
            return ""
        moment = f"epoch/{self.epoch}" if self.epoch else f"version/{self.resource_version}"
        return f"{self.uid}/{moment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryReading:
    """The hash that discovery shows; empty if it shows none, or could not be read."""

    hash: str


class ServerHash(NamedTuple):
    """The hash that one server shows; empty if it shows none, or could not be read."""

    reporter_id: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalReading:
    """The hash that the server beside this controller shows; one of many controllers leads."""

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
    """The hashes that all servers show, read by the leader itself."""

    servers: tuple[ServerHash, ...]

    @property
    def is_leader(self) -> bool:
        return True


Reading = StorageVersionReading | DiscoveryReading | LocalReading | ServersReading


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusReading:
    """What was found when every stored object was looked at."""

    found: frozenset[str]
    begun_seconds: float
    """When it began, on the clock of `Now.seconds`."""


# The state.


@dataclass(frozen=True, slots=True, kw_only=True)
class HashReport:
    """What one reporter last saw of its server (discovery-ha)."""

    reporter_id: str
    hash: str
    heartbeat: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStatus:
    """The status of a StorageState: always written whole, in one update."""

    persisted: tuple[str, ...]
    keys: tuple[str, ...] = (IDENTITY,)
    """The encryption keys under which objects may be stored. If a version is unknown, so are they.
    Servers append to them; only those who see the servers' keys may take any out."""
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
    """The servers' annotation, if they keep one: with the agreement it grows."""
    change: str = ""
    """The trigger's annotation: other than before whenever the trigger has recorded a change."""
    is_verified_by_servers: bool = False
    """Whether servers record verified migrations, and objects that fail, in it themselves."""


# Everything together.


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerView:
    """All that is known of one resource."""

    resource: GroupVersionResource
    state: StateSeen | None
    migrations: tuple[MigrationSeen, ...]
    reading: Reading
    census: CensusReading | None = None
    """Only in loose mode, where nothing is narrowed without one."""
    lists_more: bool = False
    """Whether the definition of a custom resource lists versions as stored besides the one that it
    stores now. One that was taken back before any server wrote it is known to nobody else."""


class Sighting(NamedTuple):
    """When a reporter's heartbeat was first seen here."""

    reporter_id: str
    heartbeat: datetime
    seen_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one controller remembers of one resource. A new controller has none, which is safe."""

    key: str = ""
    """What was looked at; another key is a change."""
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
    """The request that counts and has succeeded, and when that was first seen."""
    said: tuple[datetime, ...] = ()
    """Heartbeats of the own report that this controller has tried to write lately."""
