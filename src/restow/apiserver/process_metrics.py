"""Metrics of the server process that reveal leaks.

Memory and open files are reported by the operating system, tasks by the process itself. Not here:
metrics of one part, such as connections or in-flight slots.
"""

from __future__ import annotations

import asyncio

from restow.request.metrics import Metrics


def publish_process(metrics: Metrics) -> None:
    """Add the metrics of the whole process."""
    metrics.gauge(
        "restow_tasks",
        "Unfinished tasks of the whole server; unlimited growth indicates a leak.",
        (),
        _tasks,
    )


def _tasks() -> list[tuple[tuple[str, ...], float]]:
    try:
        return [((), len(asyncio.all_tasks()))]
    except RuntimeError:
        return []  # no running event loop, as in the generator of the metrics reference
