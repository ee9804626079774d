"""Whether a server does anything but rewrite: told by how many requests it has had.

Not here: what a rewrite does about it (`rewrite_page.Pace`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LOOK_SECONDS: Final = 0.01
ALONE_SECONDS: Final = 0.1
"""So long nobody must have asked for anything."""


class ForegroundLoad:
    """Those who ask a server for something else."""

    def __init__(
        self, monotonic: Callable[[], float], *, asked: Callable[[], int] = lambda: 0
    ) -> None:
        """`asked` gives how many requests the server has had, of all kinds."""
        self._asked = asked
        self._monotonic = monotonic
        self._own = 0
        self._seen = 0
        self._look_at = self._alone_from = monotonic()

    def note_own(self) -> None:
        """One of the requests is for a rewrite."""
        self._own += 1

    def are_none(self) -> bool:
        """Whether nobody else has asked for anything in the last moment."""
        now = self._monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            seen, self._seen = self._seen, self._asked() - self._own
            if self._seen > seen:
                self._alone_from = now + ALONE_SECONDS
        return now >= self._alone_from
