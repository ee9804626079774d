"""Adaptive concurrency: how many requests are in flight, and when the next may start.

It starts low. The limit grows by one step per round of responses while responses are about as fast
as they ever were: then the server has spare capacity. It halves after a rejection, a lost response,
or when responses take several times as long. In between it stays: the server works at full rate
there, and other clients still get their share.

    response time        up to 2.5 times the floor   up to 5 times     above
    in flight            grows                       stays             halves

The floor is the best round so far. It expires periodically, and is measured again with few requests
in flight, since the speed of a server varies over time.

Pure: time is an argument. Not here: waiting, and the requests themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Final

IN_FLIGHT_START: Final = 8
GROWTH_STEP: Final = 2
ROUND_ANSWERS_MIN: Final = 16
NEAR_FLOOR: Final = 2.5
ABOVE_FLOOR: Final = 5.0
# Below this, a difference is noise of the machine.
ABOVE_SECONDS_MIN: Final = 0.05
FLOOR_SECONDS_MAX: Final = 30.0
PAUSE_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceOptions:
    """Limits that a user may set."""

    in_flight_max: int = 64
    requests_per_second: float | None = None
    """None: no limit but the adaptive one."""

    def __post_init__(self) -> None:
        if self.in_flight_max < 1:
            raise ValueError("in_flight_max must be at least 1")
        rate = self.requests_per_second
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError("requests_per_second must be more than 0")


class Pace:
    """The pace of one pass. Report every response to it; it returns the concurrency limit."""

    def __init__(self, options: PaceOptions) -> None:
        self.options = options
        self._start = min(IN_FLIGHT_START, options.in_flight_max)
        self._limit = self._start
        self._round: list[float] = []
        self._ignored = 0
        """Responses to requests that were in flight at the last halving: they are ignored."""
        self._floor = math.inf
        self._floor_until = 0.0
        self._paused_until = 0.0
        self._next_at = 0.0

    @property
    def limit(self) -> int:
        """How many requests may be in flight now."""
        return self._limit

    def reserve(self, now: float) -> float:
        """Reserve the next slot of the rate limit; return in how many seconds it begins."""
        begin = max(now, self._paused_until)
        if self.options.requests_per_second is not None:
            begin = max(begin, self._next_at)
            self._next_at = begin + 1 / self.options.requests_per_second
        return begin - now

    def paused_seconds(self, now: float) -> float:
        """Return for how long no request may be sent."""
        return max(self._paused_until - now, 0.0)

    def answered(self, now: float, *, seconds: float) -> None:
        """Record a response and its latency."""
        if self._ignored:
            self._ignored -= 1
            return
        self._round.append(seconds)
        if len(self._round) >= max(self._limit, ROUND_ANSWERS_MIN):
            typical, self._round = median(self._round), []
            self._adjust(now, typical)

    def refused(self, now: float, *, wait_seconds: float = 0.0) -> None:
        """Record a 429, 503 or lost response, with the pause that the server asks for."""
        pause = min(wait_seconds, PAUSE_SECONDS_MAX)
        self._paused_until = max(self._paused_until, now + pause)
        if self._ignored:
            self._ignored -= 1
            return
        self._halve()

    def _adjust(self, now: float, typical: float) -> None:
        if now >= self._floor_until:
            if self._limit > self._start:
                # Measure with few in flight, or the floor would include our own load.
                self._ignored, self._limit = self._limit, self._start
                self._floor = math.inf
                return
            self._floor, self._floor_until = typical, now + FLOOR_SECONDS_MAX
        self._floor = min(self._floor, typical)
        if typical <= NEAR_FLOOR * self._floor:
            self._limit = min(self._limit + GROWTH_STEP, self.options.in_flight_max)
        elif typical > max(ABOVE_FLOOR * self._floor, ABOVE_SECONDS_MIN):
            self._halve()

    def _halve(self) -> None:
        self._ignored = self._limit
        self._limit = max(self._limit // 2, 1)
        self._round = []
