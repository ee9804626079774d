"""Options of the trigger.

Not here: the settings of the rules (`values.Settings`), which are a part of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from restow.migration.trigger.values import Settings

WORKERS_DEFAULT: Final = 8
WORKERS_MAX: Final = 64


class TriggerSource(StrEnum):
    """The source of the servers' storage versions."""

    AUTO = "auto"
    """The best source that is available for each resource."""
    STORAGE_VERSION = "storageversion"
    """StorageVersions, in which every server reports. Resources without one are not migrated."""
    DISCOVERY_HA = "discovery-ha"
    """The hash in the discovery of each server."""
    DISCOVERY = "discovery"
    """The hash in the discovery of one server: only for a cluster that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOptions:
    """Options of the trigger controller."""

    source: TriggerSource = TriggerSource.AUTO
    is_local: bool = False
    """Whether such a controller runs next to each server and reports that server's hash. If not,
    the leader reads every server itself."""
    reporter_id: str = ""
    """The id in the reports of a local controller: its identity in leader election, which no other
    process ever has."""
    workers: int = WORKERS_DEFAULT
    """Number of resources that are reconciled concurrently."""
    rules: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= WORKERS_MAX:
            raise ValueError(f"workers must be from 1 to {WORKERS_MAX}, not {self.workers}")
        if self.rules.poll_seconds <= 0:
            raise ValueError(f"poll_seconds must be above 0, not {self.rules.poll_seconds}")
        if self.is_local and not self.reporter_id:
            raise ValueError("a local controller needs a reporter_id")
        if self.is_local and self.source in {
            TriggerSource.STORAGE_VERSION,
            TriggerSource.DISCOVERY,
        }:
            raise ValueError(f"with the source {self.source} there is nothing to report locally")

    @property
    def reconcile_seconds(self) -> float:
        """The interval at which every resource is reconciled: a third of a polling period, so that
        no heartbeat is late, which would be taken for a gap."""
        # KEP-2343 4.15: reconcile three times in a period, so that no heartbeat is late
        return self.rules.poll_seconds / 3
