"""The pace, against simulated servers: capacity, saturation, refusals, and elapsed time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.migration.migrator.pace import (
    FLOOR_SECONDS_MAX,
    IN_FLIGHT_START,
    PAUSE_SECONDS_MAX,
    Pace,
    PaceOptions,
)

Latency = Callable[[int], float]
"""The latency of a reply for a number of requests in flight."""


def run(pace: Pace, latency: Latency, *, answers: int, now: float = 0.0) -> float:
    """Simulates a number of replies and returns the time afterwards."""
    for _ in range(answers):
        seconds = latency(pace.limit)
        now += seconds / pace.limit
        pace.answered(now, seconds=seconds)
    return now


def new_pace(in_flight_max: int = 64, rate: float | None = None) -> Pace:
    return Pace(PaceOptions(in_flight_max=in_flight_max, requests_per_second=rate))


def test_it_starts_small_and_grows_while_there_is_capacity() -> None:
    """A server with constant latency gets as many requests in flight as allowed."""
    pace = new_pace()
    assert pace.limit == IN_FLIGHT_START
    run(pace, lambda _: 0.01, answers=2_000)
    assert pace.limit == 64
    assert new_pace(in_flight_max=3).limit == 3


def test_it_stops_growing_when_a_server_is_saturated() -> None:
    """A server that works serially gets a few more requests, then no more: other clients need a
    reserve."""
    pace = new_pace()
    run(pace, lambda count: 0.01 * count, answers=5_000)
    assert IN_FLIGHT_START < pace.limit <= 3 * IN_FLIGHT_START


def test_it_shrinks_when_a_server_slows_down() -> None:
    """Replies that take many times as long halve the limit repeatedly, down to one."""
    pace = new_pace()
    now = run(pace, lambda _: 0.01, answers=2_000)
    seen: list[int] = []

    def slow(count: int) -> float:
        seen.append(count)
        return 0.1

    run(pace, slow, answers=400, now=now)
    assert list(dict.fromkeys(seen))[:7] == [64, 32, 16, 8, 4, 2, 1]


def test_small_differences_are_noise() -> None:
    """Differences of milliseconds are ignored, whatever their ratio to the latency floor."""
    pace = new_pace()
    now = run(pace, lambda _: 0.0001, answers=2_000)
    run(pace, lambda _: 0.04, answers=500, now=now)
    assert pace.limit == 64


def test_one_burst_of_refusals_halves_once() -> None:
    """Requests that were in flight together are refused together, and count once."""
    pace = new_pace()
    now = run(pace, lambda _: 0.01, answers=2_000)
    for _ in range(64):
        pace.refused(now)
    assert pace.limit == 32
    for _ in range(33):
        pace.refused(now)
    assert pace.limit == 16


def test_it_recovers() -> None:
    """After refusals the limit grows as before."""
    pace = new_pace()
    for _ in range(500):
        pace.refused(0.0)
    assert pace.limit == 1
    run(pace, lambda _: 0.01, answers=3_000)
    assert pace.limit == 64


def test_a_server_that_is_permanently_slower() -> None:
    """The latency floor is measured again periodically, with few in flight; then the limit
    grows."""
    pace = new_pace()
    now = run(pace, lambda _: 0.01, answers=2_000)
    now = run(pace, lambda _: 0.3, answers=400, now=now)
    assert pace.limit < IN_FLIGHT_START
    now = run(pace, lambda _: 0.3, answers=4_000, now=now + FLOOR_SECONDS_MAX)
    assert pace.limit == 64
    lows: list[int] = []

    def watched(count: int) -> float:
        lows.append(count)
        return 0.3

    run(pace, watched, answers=4_000, now=now + FLOOR_SECONDS_MAX)
    assert min(lows) == IN_FLIGHT_START
    assert pace.limit == 64


def test_a_pause_applies_to_all_requests() -> None:
    """A server's Retry-After pauses every request, up to a limit; the longest one counts."""
    pace = new_pace()
    assert pace.reserve(100.0) == 0
    pace.refused(100.0, wait_seconds=5)
    pace.refused(100.0, wait_seconds=2)
    assert pace.reserve(101.0) == pytest.approx(4)
    assert pace.paused_seconds(101.0) == pytest.approx(4)
    assert pace.reserve(105.0) == 0
    assert pace.paused_seconds(106.0) == 0
    pace.refused(200.0, wait_seconds=10**6)
    assert pace.reserve(200.0) == PAUSE_SECONDS_MAX


@given(
    rate=st.floats(0.1, 10_000),
    gaps=st.lists(st.floats(0, 1), min_size=1, max_size=50),
)
def test_a_rate_is_never_exceeded(rate: float, gaps: list[float]) -> None:
    """Requests start at least 1/rate apart, and none later than necessary."""
    pace = new_pace(rate=rate)
    now, last = 1000.0, -math.inf
    for gap in gaps:
        now += gap
        begin = now + pace.reserve(now)
        assert begin >= now
        assert begin - last >= (1 / rate) * (1 - 1e-6) - 1e-6
        assert begin <= max(now, last + 1 / rate) + 1e-6
        last = begin


@given(
    most=st.integers(1, 100),
    events=st.lists(
        st.tuples(st.sampled_from(["answer", "refusal"]), st.floats(0, 100), st.floats(0, 50)),
        max_size=300,
    ),
)
def test_it_stays_within_its_bounds(most: int, events: list[tuple[str, float, float]]) -> None:
    """After any replies in any order, the limit is at least 1 and at most the configured
    maximum."""
    pace, now = new_pace(most), 0.0
    for kind, seconds, passed in events:
        now += passed
        if kind == "answer":
            pace.answered(now, seconds=seconds)
        else:
            pace.refused(now, wait_seconds=seconds)
        assert 1 <= pace.limit <= most
        assert 0 <= pace.reserve(now) <= PAUSE_SECONDS_MAX + 1e-6


def test_options() -> None:
    """Invalid options are rejected."""
    for rate in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="more than 0"):
            PaceOptions(requests_per_second=rate)
    with pytest.raises(ValueError, match="at least 1"):
        PaceOptions(in_flight_max=0)
