"""Rate limit for corrections of an object that another program changes back each time.

A separate controller manager may publish its own certificates into the same objects. If they
differ from those of this server, both would overwrite each other at full speed. So the first
corrections are immediate, and later ones wait with exponential backoff.

Not here: the correct content, and the writes.
"""

from __future__ import annotations

import logging
from typing import Final

from restow.aio import Clock
from restow.aio.backoff import Backoff

AT_ONCE_MAX: Final = 3
"""Number of corrections without a wait."""
WAITS: Final = Backoff(initial_seconds=1.0, factor=2.0, max_seconds=300.0, jitter=0.0)
FORGOTTEN_SECONDS: Final = 2 * WAITS.max_seconds
"""The count of an object is reset after this time without a correction."""
KNOWN_MAX: Final = 10_000
"""Limit of the recorded names. Above it all counts are reset."""

logger = logging.getLogger(__name__)


class Corrections:
    """The corrections of one controller, by name of the object."""

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}

    def seconds_to_wait(self, name: str) -> float:
        """Return the seconds to wait before the next correction; 0: correct it now."""
        count, last = self._known.get(name, (0, 0.0))
        if count < AT_ONCE_MAX:
            return 0.0
        wait = WAITS.ceiling_seconds(count - AT_ONCE_MAX)
        return max(last + wait - self._clock.monotonic(), 0.0)

    def note(self, name: str) -> None:
        """Record a correction."""
        now = self._clock.monotonic()
        count, last = self._known.get(name, (0, now))
        if now - last > FORGOTTEN_SECONDS:
            count = 0
        if count == AT_ONCE_MAX:
            logger.warning("another program keeps changing %s %s", self._what, name)
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[name] = (count + 1, now)
