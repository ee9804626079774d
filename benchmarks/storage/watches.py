"""Watch: rate of events for one watcher, compared to the rate of writes."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from benchmarks.storage import workload
from restow.storage.interface import Span, Storage

WRITERS = 64


class WatchRates(NamedTuple):
    """Events per second."""

    written: float
    followed: float
    """As received by a watcher that runs while they are written."""
    replayed: float
    """As received by a watcher that starts before them when all are written."""


async def measure_watch(storage: Storage, *, events: int, name: str) -> WatchRates:
    begin_revision = await storage.revision()
    span = Span.of_prefix(workload.PREFIX)
    watch = storage.watch(span, after=begin_revision)
    begin = time.perf_counter()
    receiving = asyncio.ensure_future(workload.receive(watch, events=events))
    each = events // WRITERS + 1
    await workload.guarded_puts(storage, writers=WRITERS, each=each, name=name)
    written = WRITERS * each / (time.perf_counter() - begin)
    await receiving
    followed = events / (time.perf_counter() - begin)
    await watch.close()
    again = storage.watch(span, after=begin_revision)
    begin = time.perf_counter()
    await workload.receive(again, events=events)
    replayed = events / (time.perf_counter() - begin)
    await again.close()
    return WatchRates(written, followed, replayed)
