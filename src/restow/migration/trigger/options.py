"""What whoever runs the trigger may choose.

Not here: the rules' own settings (`values.Settings`), which are a part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from restow.migration.trigger.values import Settings

WORKERS_DEFAULT: Final = 8
WORKERS_MAX: Final = 64


class TriggerSource(StrEnum):
    """By what the trigger knows how servers write."""

    AUTO = "auto"
    """The best that there is, for each resource."""
    STORAGE_VERSION = "storageversion"
    """StorageVersions, in which every server reports. Resources without one are left alone."""
    DISCOVERY_HA = "discovery-ha"
    """The hash in the discovery of each server."""
    DISCOVERY = "discovery"
    """The hash in the discovery of one server: only for a cluster that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOptions:
    """How the trigger looks, and how often."""

    source: TriggerSource = TriggerSource.AUTO
    is_local: bool = False
    """Whether one such controller stands beside each server and reports what that one shows. If
    not, the leader asks every server itself."""
    reporter_id: str = ""
    """The id under which this controller reports, if it is local: the identity with which it
    contends for its lease, which no other process has, before or after."""
    workers: int = WORKERS_DEFAULT
    """How many resources are looked at at once."""
    rules: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= WORKERS_MAX:
            raise ValueError(f"workers must be from 1 to {WORKERS_MAX}, not {self.workers}")
        if self.rules.poll_seconds <= 0:
            raise ValueError(f"poll_seconds must be above 0, not {self.rules.poll_seconds}")
        if self.is_local and not self.reporter_id:
            raise ValueError("a local controller reports under a name: give it a reporter_id")
        if self.is_local and self.source in {
            TriggerSource.STORAGE_VERSION,
            TriggerSource.DISCOVERY,
        }:
            raise ValueError(f"with the source {self.source} there is nothing to report locally")

    @property
    def look_seconds(self) -> float:
        """How often everything is looked at, changes or not: three times in a period, so that no
        heartbeat comes late, which would look like a gap."""
        return self.rules.poll_seconds / 3
