"""How far a migration is, how fast it goes, and how long it will take: for people and for status.

Time is an argument. Not here: where it is shown or written.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from restow.migration.migrator.passes import PageDone
from restow.migration.migrator.position import Position

WINDOW_SECONDS: Final = 10.0
"""The rate is that of the last so many seconds."""
SAMPLES_MAX: Final = 1_000


class Progress:
    """What one migration has done so far."""

    def __init__(self, position: Position | None = None, *, now_seconds: float) -> None:
        self.position = position or Position()
        self.total: int | None = self.position.objects
        """About how many objects a pass has; None: nobody knows."""
        self.now_seconds = now_seconds
        self._samples: deque[tuple[float, int]] = deque([(now_seconds, 0)], maxlen=SAMPLES_MAX)
        self._done = 0
        self._remaining: int | None = None

    def note(self, done: PageDone, position: Position, *, now_seconds: float) -> None:
        """A page is done; the position is behind it."""
        self.position, self.now_seconds = position, now_seconds
        self._remaining = 0 if not done.token else done.remaining
        self._done += done.scanned
        self._samples.append((now_seconds, self._done))
        while len(self._samples) > 2 and self._samples[1][0] <= now_seconds - WINDOW_SECONDS:
            self._samples.popleft()

    def begin(self, position: Position) -> None:
        """A pass begins, or begins again."""
        self.position, self._remaining = position, None
        if position.objects is not None:
            self.total = position.objects

    def stand_still(self, now_seconds: float) -> None:
        """It was paused: the time in between does not count."""
        self._samples.clear()
        self._samples.append((now_seconds, self._done))

    @property
    def remaining(self) -> int | None:
        """How many objects of this pass follow, about."""
        if self._remaining is not None:
            return self._remaining
        if self.total is None:
            return None
        return max(self.total - self.position.counts.scanned, 0)

    @property
    def per_second(self) -> float:
        (first_at, first), (last_at, last) = self._samples[0], self._samples[-1]
        seconds = last_at - first_at
        return (last - first) / seconds if seconds > 0 else 0.0

    @property
    def seconds_left(self) -> int | None:
        """Of this pass."""
        remaining, rate = self.remaining, self.per_second
        if remaining is None or (remaining and rate <= 0):
            return None
        return round(remaining / rate) if remaining else 0

    @property
    def rewritten(self) -> int:
        """In all passes."""
        return self.position.rewritten + self.position.counts.rewritten

    def text(self) -> str:
        """Such as `12,300 of about 20,000 objects, 4,100/s, 2 s left`."""
        scanned, remaining = self.position.counts.scanned, self.remaining
        parts = [f"{scanned:,} objects"]
        if remaining:
            parts = [f"{scanned:,} of about {scanned + remaining:,} objects"]
        if rate := round(self.per_second):
            parts.append(f"{rate:,}/s")
        if remaining and self.seconds_left is not None:
            parts.append(f"{duration_text(self.seconds_left)} left")
        if self.position.counts.failed:
            parts.append(f"{self.position.counts.failed:,} failed")
        proves = "" if self.position.pass_number == 1 else "proving: "
        return proves + ", ".join(parts)

    def to_status(self) -> dict[str, Any]:
        """As in `status.progress`. What nobody knows is null, which a merge patch takes out."""
        counts = self.position.counts
        return {
            "pass": self.position.pass_number,
            "scanned": counts.scanned,
            "rewritten": self.rewritten,
            "unchanged": counts.unchanged + counts.settled,
            "failed": counts.failed,
            "remaining": self.remaining,
            "objectsPerSecond": round(self.per_second),
            "secondsLeft": self.seconds_left,
        }


def duration_text(seconds: int) -> str:
    """Such as `2 s`, `3 min 20 s` or `5 h 1 min`."""
    minutes, rest = divmod(seconds, 60)
    hours, rest_minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {rest_minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
