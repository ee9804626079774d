"""What a server's process shows of itself on `/metrics`: whether something piles up in it.

Memory and open files are the system's to tell; tasks only the process knows. Not here: what belongs
to one part, such as connections or seats.
"""

from __future__ import annotations

import asyncio

from restow.request.metrics import Metrics


def publish_process(metrics: Metrics) -> None:
    """Add the figures of the whole process."""
    metrics.gauge(
        "restow_tasks",
        "Unfinished tasks of the whole server; a number that grows without end is a leak.",
        (),
        _tasks,
    )


def _tasks() -> list[tuple[tuple[str, ...], float]]:
    try:
        return [((), len(asyncio.all_tasks()))]
    except RuntimeError:
        return []  # asked outside of a running server, as who only wants the names does
