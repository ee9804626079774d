"""Values of the engine: its input, its callbacks, and its outcome.

Not here: the engine itself (`engine`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from restow.client import ApiResource, Object
from restow.migration.migrator.passes import ObjectFailure, PageDone
from restow.migration.migrator.progress import Progress
from restow.migration.migrator.server_rewrite import SUBRESOURCE
from restow.migration.migrator.status_writer import Proof


class RunEnd(Enum):
    """How a run ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "AgreementLost"
    """Aborted: the agreement that it was for has changed."""
    GONE = "Gone"
    """Aborted: the migration was deleted."""
    UNREADY = "Unready"
    """Not started: servers do not agree. It may be retried."""
    INTERRUPTED = "Interrupted"
    """The server failed or could not be reached. Another run resumes where this one stopped."""
    NOTHING = "Nothing"
    """The migration had ended already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The outcome of a run."""

    ending: RunEnd
    reason: str = ""
    """The reason of the migration's condition, in CamelCase."""
    message: str = ""
    objects: int = 0
    """Number of objects at the end."""
    rewritten: int = 0
    failed: int = 0
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The resource to migrate, and the migration object."""

    resource: ApiResource
    """From discovery."""
    migration: Object | None = None
    """None: there is no migration object, so nothing is saved, and a run cannot be resumed."""
    migration_api: ApiResource | None = None
    """The API of the migration object."""
    is_remote: bool = False
    """Whether another server serves the resource. The server of the migration cannot rewrite it,
    even if both share the store, since it does not have the kind."""

    @property
    def can_rewrite(self) -> bool:
        """Whether the server itself can rewrite the objects."""
        api = self.migration_api
        if self.is_remote or self.migration is None or api is None:
            return False
        return SUBRESOURCE in api.subresources


def _ignore(*_values: Any) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListener:
    """Callbacks of a run. None of these may block or raise."""

    began: Callable[[], None] = _ignore
    resumed: Callable[[], None] = _ignore
    """Called instead of `began` when an earlier run is resumed."""
    page: Callable[[PageDone, Progress], None] = _ignore
    failed: Callable[[ObjectFailure], None] = _ignore
    """Called with each object that failed, if its name is known."""
    paused: Callable[[], None] = _ignore
    released: Callable[[], None] = _ignore
    """Called when a paused migration continues."""
    in_flight: Callable[[int], None] = _ignore
