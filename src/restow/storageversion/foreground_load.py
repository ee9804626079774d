"""Detects from the number of requests whether a server is idle except for rewrites.

Not here: how a rewrite adapts (`rewrite_page.RewritePace`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SAMPLE_SECONDS: Final = 0.01
"""Interval between two reads of the number of requests."""
IDLE_SECONDS: Final = 0.1
"""A server without other requests for this long counts as idle."""


class ForegroundLoad:
    """The requests that a server has had, except those of rewrites."""

    def __init__(
        self, monotonic: Callable[[], float], *, request_count: Callable[[], int] = lambda: 0
    ) -> None:
        """`request_count` returns how many requests the server has had, of all kinds."""
        self._request_count = request_count
        self._monotonic = monotonic
        self._own = 0
        self._last_count = 0
        self._sample_at = self._idle_from = monotonic()

    def note_own(self) -> None:
        """Count a request that belongs to a rewrite."""
        self._own += 1

    def is_idle(self) -> bool:
        """Return whether the server has had no other request for `IDLE_SECONDS`."""
        now = self._monotonic()
        if now >= self._sample_at:
            self._sample_at = now + SAMPLE_SECONDS
            before, self._last_count = self._last_count, self._request_count() - self._own
            if self._last_count > before:
                self._idle_from = now + IDLE_SECONDS
        return now >= self._idle_from
