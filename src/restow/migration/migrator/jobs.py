"""What an engine is given, what it tells meanwhile, and what has come of it: plain values.

Not here: doing it (`engine`).
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
    """Aborted: what it was begun for is no longer so."""
    GONE = "Gone"
    """Aborted: the request was deleted."""
    UNREADY = "Unready"
    """Not begun: servers do not agree. It may be tried again."""
    INTERRUPTED = "Interrupted"
    """The server could not be reached, or has failed. A further run goes on where this one was."""
    NOTHING = "Nothing"
    """The request had ended before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What has come of a run."""

    ending: RunEnd
    reason: str = ""
    """One word, as in the condition of the request."""
    message: str = ""
    objects: int = 0
    """How many were there at the end."""
    rewritten: int = 0
    failed: int = 0
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to migrate, and on whose request."""

    resource: ApiResource
    """As discovery shows it."""
    request: Object | None = None
    """None: nobody's; then nothing is saved, and nothing can be resumed."""
    request_api: ApiResource | None = None
    """Where the request is."""
    is_remote: bool = False
    """Whether another server serves the resource: the one that has the request cannot rewrite it,
    even if it has the same store, since it does not know the kind."""

    @property
    def can_rewrite(self) -> bool:
        """Whether the server itself can rewrite."""
        api = self.request_api
        if self.is_remote or self.request is None or api is None:
            return False
        return SUBRESOURCE in api.subresources


def _ignore(*_values: Any) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListener:
    """Who is told what happens. None of these may block or raise."""

    began: Callable[[], None] = _ignore
    resumed: Callable[[], None] = _ignore
    """Instead of begun: an earlier run is gone on with."""
    page: Callable[[PageDone, Progress], None] = _ignore
    failed: Callable[[ObjectFailure], None] = _ignore
    """Of each object that failed, as far as its name is told."""
    paused: Callable[[], None] = _ignore
    released: Callable[[], None] = _ignore
    """It was held, and goes on."""
    in_flight: Callable[[int], None] = _ignore
