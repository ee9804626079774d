"""Options of the migrator: limits and times, with their defaults.

Not here: those of single patches (`pace`, `patch_rewrite`), and command-line flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from restow.aio import Backoff
from restow.migration.migrator.patch_rewrite import PatchOptions

FAILURES_SHOWN_MAX: Final = 100
"""Failed objects in the status of a migration."""
FAILURES_NAMED_MAX: Final = 3
"""Failed objects in a message."""
PATCH_OPTIONS: Final = PatchOptions()
MIGRATION_RETRY_BACKOFF: Final = Backoff(initial_seconds=2, factor=2, max_seconds=60, jitter=0.5)
RETRY_BACKOFF: Final = Backoff(initial_seconds=0.2, factor=2, max_seconds=10, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of one migration."""

    proof_passes_max: int = 3
    """Limit of the passes that must change nothing."""
    page_limit_first: int = 500
    page_limit_max: int = 10_000
    """Objects per page of the server's own rewrite."""
    page_seconds: float = 1.0
    """Target duration of a page, which bounds how long an aborted migration runs on."""
    page_attempts_max: int = 8
    """Limit of the tries of a page of the server's own rewrite."""
    conflicts_max: int = 5
    """Limit of consecutive conflicts that a server reports although the agreement holds."""
    restarts_max: int = 3
    """How often a pass may start over because the server rejects its continue token."""
    position_seconds: float = 1.0
    """Minimum interval between saved positions; pages since the last one are repeated."""
    progress_seconds: float = 2.0
    """Minimum interval between updates of the progress in the status."""
    discovery_seconds: float = 1.0
    """Polling interval of discovery where servers do not report storage versions."""
    confirm_seconds_max: float = 10.0
    """How long a watch may lag behind a read."""
    retry_backoff: Backoff = RETRY_BACKOFF
    patch: PatchOptions = PATCH_OPTIONS
    """Options of patches, for servers without a rewrite of their own."""


ENGINE_OPTIONS: Final = EngineOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratorOptions:
    """Options of the migrator controller."""

    engine: EngineOptions = ENGINE_OPTIONS
    resources_at_once: int = 4
    """Limit of concurrent migrations; paused ones do not count."""
    unknown_resource_seconds: float = 60.0
    """How long a resource may be missing before its migration fails."""
    interruptions_max: int = 10
    """Limit of consecutive interruptions by errors before a migration fails."""
    migration_retry_backoff: Backoff = MIGRATION_RETRY_BACKOFF
    """Backoff of migrations that could not start or were interrupted."""
    discovery_seconds: float = 30.0
    """Polling interval for migration APIs that the server did not have."""

    def __post_init__(self) -> None:
        if self.resources_at_once < 1 or self.interruptions_max < 0:
            raise ValueError("resources_at_once >= 1, interruptions_max >= 0")
