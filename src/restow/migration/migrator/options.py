"""How a migration is done: limits and times, with their defaults.

Not here: those of single patches (`pace`, `patch_rewrite`), and flags of the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from restow.aio import Backoff
from restow.migration.migrator.patch_rewrite import PatchOptions

FAILURES_SHOWN_MAX: Final = 100
"""Objects that the status of a request names."""
FAILURES_NAMED_MAX: Final = 3
"""Objects that a message names."""
PATCH_OPTIONS: Final = PatchOptions()
AGAIN_BACKOFF: Final = Backoff(initial_seconds=2, factor=2, max_seconds=60, jitter=0.5)
RETRY_BACKOFF: Final = Backoff(initial_seconds=0.2, factor=2, max_seconds=10, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How one migration is done."""

    proof_passes_max: int = 3
    """A pass that must change nothing may be repeated so often."""
    page_limit_first: int = 500
    page_limit_max: int = 10_000
    """Objects of one page of the server's own rewrite."""
    page_seconds: float = 1.0
    """About how long a page should take: so late, at most, a migration ends that is to end."""
    page_attempts_max: int = 8
    """How often a page of the server's own rewrite is asked for."""
    doubts_max: int = 5
    """How often in a row a server may say that the servers do not agree, while they do."""
    restarts_max: int = 3
    """How often a pass may begin again because a server does not know its token any more."""
    position_seconds: float = 1.0
    """A position is saved at most so often; what was not saved is done again."""
    progress_seconds: float = 2.0
    """Progress is written to the request at most so often."""
    discovery_seconds: float = 1.0
    """How often discovery is read where servers do not report what they write."""
    confirm_seconds_max: float = 10.0
    """How long a watch may lag behind what was read."""
    retry_backoff: Backoff = RETRY_BACKOFF
    patch: PatchOptions = PATCH_OPTIONS
    """Of patches, where the server does not rewrite itself."""


ENGINE_OPTIONS: Final = EngineOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratorOptions:
    """How requests are worked off."""

    engine: EngineOptions = ENGINE_OPTIONS
    resources_at_once: int = 4
    """Resources that are migrated side by side; those that are paused do not count."""
    unknown_resource_seconds: float = 60.0
    """How long a resource may be unknown before a request for it fails."""
    interruptions_max: int = 10
    """How often in a row a migration may be interrupted by errors before it fails."""
    again_backoff: Backoff = AGAIN_BACKOFF
    """When a request is looked at again that could not begin, or was interrupted."""
    discovery_seconds: float = 30.0
    """How often a server is asked for the APIs of requests that it did not have."""

    def __post_init__(self) -> None:
        if self.resources_at_once < 1 or self.interruptions_max < 0:
            raise ValueError("resources_at_once >= 1, interruptions_max >= 0")
