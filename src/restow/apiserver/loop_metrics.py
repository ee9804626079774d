"""Measures the delay of the event loop, and exports its metrics and those of its steps.

The delay is what every callback that is ready sees, whatever the cause: one long step, or many
short ones of a busy server.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from restow.aio import Clock, LoopSteps, Tasks
from restow.aio.loop_steps import BOUNDS, LONG_SECONDS
from restow.request.metrics import Metrics

LAG_BOUNDS: Final = (LONG_SECONDS, *BOUNDS)
BEAT_SECONDS: Final = 0.1
"""Interval of the measurement of the delay."""


class LoopLag:
    """The delay of a timer, measured at an interval."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.buckets = [0] * (len(LAG_BOUNDS) + 1)
        self.sum_seconds = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        clock = self._clock
        while True:
            due_seconds = clock.monotonic() + BEAT_SECONDS
            await clock.sleep(BEAT_SECONDS)
            late_seconds = max(clock.monotonic() - due_seconds, 0.0)
            self.buckets[bisect_left(LAG_BOUNDS, late_seconds)] += 1
            self.sum_seconds += late_seconds

    def publish(self, metrics: Metrics) -> None:
        metrics.histogram(
            "restow_event_loop_lag_seconds",
            "Delay of a timer of the event loop, measured ten times per second: how long all"
            " clients wait before the server does anything.",
            (),
            lambda: [((), self._cumulative(), self.sum_seconds)],
        )

    def _cumulative(self) -> list[tuple[str, float]]:
        total = 0
        pairs: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, LAG_BOUNDS), "+Inf"), self.buckets, strict=True):
            total += count
            pairs.append((bound, total))
        return pairs


def measure_lag(tasks: Tasks, clock: Clock, metrics: Metrics) -> None:
    """Measure the delay of this process' event loop from now on."""
    lag = LoopLag(clock)
    lag.publish(metrics)
    tasks.spawn_loop("event loop lag", lag.run())


def publish_steps(metrics: Metrics, steps: LoopSteps) -> None:
    """Add the metrics of the steps on the event loop."""
    metrics.histogram(
        "restow_event_loop_step_seconds",
        "Duration of each step on the event loop that took 1 ms or more, by handler: the verb of a"
        " request, or task, stream, connection, unauthenticated, watch-events. All clients wait"
        " during a step.",
        ("handler",),
        steps.histogram,
    )
    metrics.gauge(
        "restow_event_loop_step_max_seconds",
        "Longest step on the event loop in the last one to two minutes, if it took 10 ms or more."
        " Resources from CRDs count as custom; of a task, the resource is its owner.",
        ("handler", "resource", "form"),
        steps.longest,
    )
