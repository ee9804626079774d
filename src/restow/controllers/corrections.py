"""How often the same thing is set right that somebody else keeps otherwise.

A controller manager beside this server publishes the certificates that it was given, into the same
objects. Are they others than ours, each would set right what the other wrote, as fast as both can.
So the first times are at once, as after a slip; then each waits longer than the one before.

Not here: what is right, and who writes it.
"""

from __future__ import annotations

import logging
from typing import Final

from restow.aio import Clock
from restow.aio.backoff import Backoff

AT_ONCE_MAX: Final = 3
"""How often something is set right without a wait."""
WAITS: Final = Backoff(initial_seconds=1.0, factor=2.0, max_seconds=300.0, jitter=0.0)
FORGOTTEN_SECONDS: Final = 2 * WAITS.max_seconds
"""Who was right for so long begins anew."""
KNOWN_MAX: Final = 10_000
"""How many names are remembered. Beyond it all are forgotten, and waits begin anew."""

logger = logging.getLogger(__name__)


class Corrections:
    """Those of one keeper, by name of what was set right."""

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}

    def seconds_to_wait(self, name: str) -> float:
        """How long not to touch it yet; 0: set it right now."""
        count, last = self._known.get(name, (0, 0.0))
        if count < AT_ONCE_MAX:
            return 0.0
        wait = WAITS.ceiling_seconds(count - AT_ONCE_MAX)
        return max(last + wait - self._clock.monotonic(), 0.0)

    def note(self, name: str) -> None:
        """It was set right now."""
        now = self._clock.monotonic()
        count, last = self._known.get(name, (0, now))
        if now - last > FORGOTTEN_SECONDS:
            count = 0
        if count == AT_ONCE_MAX:
            logger.warning("somebody else keeps %s %s otherwise", self._what, name)
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[name] = (count + 1, now)
