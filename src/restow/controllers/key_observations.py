"""How long a key has not changed, as this process has seen it with its own monotonic clock.

Processes that renew a key are judged by this alone: no wall clock of one machine is compared with
that of another. A process that has only just begun to look knows nothing, and so waits the whole
time before it judges. Not here: what follows from it.
"""

from __future__ import annotations

from collections.abc import Collection

from restow.aio import Clock
from restow.storage.interface import Item, Key, Revision


class KeyObservations:
    """The newest revision seen of some keys, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Key, tuple[Revision, float]] = {}

    def unchanged_seconds(self, item: Item) -> float:
        """Note an item that was just read; for how long it has been the same."""
        now = self._clock.monotonic()
        seen = self._seen.get(item.key)
        if seen is None or seen[0] != item.revision:
            self._seen[item.key] = (item.revision, now)
            return 0.0
        return now - seen[1]

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget all others: they are gone, and may come again as something new."""
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}
