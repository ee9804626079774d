"""A migration as it was read from the API: which one, its phase, and for what it was created.

Plain values. Not here: how they are read (`migration_objects`, `records`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple


class MigrationPhase(Enum):
    """Where a migration request stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class MigrationRef(NamedTuple):
    """One request, and not another of the same name."""

    api_version: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRecord:
    """For what a request was made. It counts only as long as all of this is still so."""

    target: str
    """The hash to which objects are rewritten."""
    state_uid: str
    change: str
    """The change mark of the state when it was made."""
    epoch: str = ""
    """The servers' epoch on the state when it was made."""
    storage_version: str = ""
    """The mark of the StorageVersion when it was made, if that was the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationSeen:
    """A request as it was read."""

    ref: MigrationRef
    phase: MigrationPhase
    record: MigrationRecord | None = None
    """None: somebody else's."""
    finished_at: datetime | None = None
    has_failed_objects: bool = False
    """Whether it has failed because of objects that could not be rewritten."""

    @property
    def is_open(self) -> bool:
        return self.phase in (MigrationPhase.PENDING, MigrationPhase.RUNNING)
