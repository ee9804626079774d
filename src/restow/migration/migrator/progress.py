"""Progress of a migration: counts, rate and ETA, for the status and for people.

Time is an argument. Not here: where it is shown or written.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from restow.migration.migrator.passes import PageDone
from restow.migration.migrator.position import Position

WINDOW_SECONDS: Final = 10.0
"""The rate is an average over this window."""
SAMPLES_MAX: Final = 1_000


class Progress:
    """The progress of one migration."""

    def __init__(self, position: Position | None = None, *, now_seconds: float) -> None:
        self.position = position or Position()
        self.total: int | None = self.position.objects
        """Estimated number of objects of a pass; None: not known."""
        self.now_seconds = now_seconds
        self._samples: deque[tuple[float, int]] = deque([(now_seconds, 0)], maxlen=SAMPLES_MAX)
        self._done = 0
        self._remaining: int | None = None

    def note(self, done: PageDone, position: Position, *, now_seconds: float) -> None:
        """Record a processed page and the position after it."""
        self.position, self.now_seconds = position, now_seconds
        self._remaining = 0 if not done.token else done.remaining
        self._done += done.scanned
        self._samples.append((now_seconds, self._done))
        while len(self._samples) > 2 and self._samples[1][0] <= now_seconds - WINDOW_SECONDS:
            self._samples.popleft()

    def begin(self, position: Position) -> None:
        """Start a pass, or start it over."""
        self.position, self._remaining = position, None
        if position.objects is not None:
            self.total = position.objects

    def expect(self, total: int) -> None:
        """Set the estimated number of objects of a pass."""
        self.total = total

    def skip_pause(self, now_seconds: float) -> None:
        """Exclude the time of a pause from the rate."""
        self._samples.clear()
        self._samples.append((now_seconds, self._done))

    @property
    def remaining(self) -> int | None:
        """Estimated number of objects that remain in this pass."""
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
        """Time remaining in this pass, in seconds."""
        remaining, rate = self.remaining, self.per_second
        if remaining is None or (remaining and rate <= 0):
            return None
        return round(remaining / rate) if remaining else 0

    @property
    def rewritten(self) -> int:
        """Objects rewritten in all passes."""
        return self.position.rewritten + self.position.counts.rewritten

    def text(self) -> str:
        """Format the progress, such as `12,300 of about 20,000 objects, 4,100/s, 2 s left`."""
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
        """Return `status.progress`. Unknown values are null, which a merge patch removes."""
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
    """Format a duration, such as `2 s`, `3 min 20 s` or `5 h 1 min`."""
    minutes, rest = divmod(seconds, 60)
    hours, rest_minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {rest_minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
