"""A migration as it was read from the API: its identity, its phase, and the state it is for.

Plain values. Not here: how they are read (`migration_objects`, `records`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple


class MigrationPhase(Enum):
    """The phase of a migration."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class MigrationRef(NamedTuple):
    """Identity of one migration; the uid distinguishes it from another one of the same name."""

    api_version: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRecord:
    """The state for which a migration was created. Its result counts only while all of it holds."""

    target: str
    """The hash to which objects are rewritten."""
    state_uid: str
    change: str
    """The change mark of the StorageState at creation."""
    epoch: str = ""
    """The servers' epoch on the StorageState at creation."""
    storage_version: str = ""
    """The mark of the StorageVersion at creation, if that was the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationSeen:
    """A migration as it was read."""

    ref: MigrationRef
    phase: MigrationPhase
    record: MigrationRecord | None = None
    """None: it was not created by the trigger."""
    finished_at: datetime | None = None
    has_failed_objects: bool = False
    """Whether it failed because objects could not be rewritten."""

    @property
    def is_open(self) -> bool:
        return self.phase in (MigrationPhase.PENDING, MigrationPhase.RUNNING)
