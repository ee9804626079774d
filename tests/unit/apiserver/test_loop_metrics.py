"""Metrics of the event loop: its delay, and its long steps."""

from __future__ import annotations

import re

import pytest

from restow.aio import LoopSteps, SimulatedClock, StepSubject, Tasks
from restow.apiserver.loop_metrics import BEAT_SECONDS, measure_lag, publish_steps
from restow.request.metrics import Metrics

BEATS = 10


async def test_the_delay_of_the_loop_is_measured() -> None:
    """A loop that is blocked delays the timer by the rest of that time; otherwise there is no
    delay."""
    clock, metrics = SimulatedClock(), Metrics()
    async with Tasks("apiserver") as tasks:
        measure_lag(tasks, clock, metrics)
        await clock.advance(BEATS * BEAT_SECONDS)
        assert _sample(metrics, "bucket", le="0.001") == BEATS
        clock.stall(0.4)
        await clock.advance(0)
        assert _sample(metrics, "bucket", le="0.2") == BEATS
        assert _sample(metrics, "count") == BEATS + 1
        assert _sample(metrics, "sum") == pytest.approx(0.4 - BEAT_SECONDS)


def test_the_longest_steps_are_shown_with_their_labels() -> None:
    """The histogram has the handler only, the gauge all labels."""
    clock, metrics = SimulatedClock(), Metrics()
    steps = LoopSteps(clock.monotonic)
    publish_steps(metrics, steps)
    steps.note(steps.kind("list", lambda _: StepSubject("pods", "Table", "/p")), 1.0, 1.25)
    text = metrics.document().decode()
    shown = re.findall(r"^restow_event_loop_step_max_seconds\{(.*)\} (.*)$", text, re.MULTILINE)
    assert shown == [('form="Table",handler="list",resource="pods"', "0.25")]
    value = metrics.registry.get_sample_value(
        "restow_event_loop_step_seconds_bucket", {"handler": "list", "le": "0.5"}
    )
    assert value == 1


def _sample(metrics: Metrics, part: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"restow_event_loop_lag_seconds_{part}", labels)
