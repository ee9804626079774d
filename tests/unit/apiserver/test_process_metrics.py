"""Metrics of the server process."""

from __future__ import annotations

import asyncio

from restow.apiserver.process_metrics import publish_process
from restow.request.metrics import Metrics


def tasks_shown(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("restow_tasks")


async def test_tasks_are_counted() -> None:
    """One more when a task begins, one less when it ends."""
    metrics = Metrics()
    publish_process(metrics)
    before = tasks_shown(metrics)
    assert before is not None
    ends = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(ends.wait())
        await asyncio.sleep(0)
        assert tasks_shown(metrics) == before + 1
        ends.set()
    assert tasks_shown(metrics) == before


def test_outside_of_a_loop() -> None:
    """Metric names can be collected without an event loop."""
    metrics = Metrics()
    publish_process(metrics)
    assert tasks_shown(metrics) is None
