"""Measures how long a key has not changed, with the monotonic clock of this process.

Expiry of keys that other processes renew depends only on this: wall clocks of different machines
are never compared. A process that has just started has no observations, so it waits the whole
duration before a key expires. Not here: the actions after expiry.
"""

from __future__ import annotations

from collections.abc import Collection

from restow.aio import Clock
from restow.storage.interface import Item, Key, Revision


class KeyObservations:
    """The newest observed revision of some keys, and when it was first observed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._observed: dict[Key, tuple[Revision, float]] = {}

    def unchanged_seconds(self, item: Item) -> float:
        """Record an item that was just read; return for how long it has not changed."""
        now = self._clock.monotonic()
        observed = self._observed.get(item.key)
        if observed is None or observed[0] != item.revision:
            self._observed[item.key] = (item.revision, now)
            return 0.0
        return now - observed[1]

    def keep_only(self, keys: Collection[Key]) -> None:
        """Drop the observations of all other keys, which were deleted."""
        self._observed = {key: observed for key, observed in self._observed.items() if key in keys}
