"""Freed memory is returned after a burst."""

from __future__ import annotations

import asyncio
import sys

import pytest

from restow.aio import SimulatedClock
from restow.apiserver.memory_trim import (
    BUSY_BYTES,
    CHECK_SECONDS,
    QUIET_BYTES,
    find_trim,
    trim_memory,
)
from restow.httpserver import Counters


async def test_memory_is_given_back_in_the_first_quiet_time_after_much_traffic() -> None:
    """Not during traffic, not after little of it, and once after each burst."""
    counters, clock, given = Counters(), SimulatedClock(), []
    task = asyncio.ensure_future(trim_memory(counters, clock, lambda: given.append(1)))

    async def look(*, received: int = 0, sent: int = 0) -> int:
        counters.received_bytes += received
        counters.sent_bytes += sent
        await clock.advance(CHECK_SECONDS)
        await asyncio.sleep(0.02)  # the thread
        return len(given)

    await asyncio.sleep(0)
    assert await look(sent=BUSY_BYTES // 2) == 0
    assert await look() == 0
    assert await look(received=BUSY_BYTES) == 0
    assert await look(sent=QUIET_BYTES) == 0
    assert await look(sent=QUIET_BYTES - 1) == 1
    assert await look() == 1
    assert await look(sent=BUSY_BYTES + 1) == 1
    assert await look() == 2
    task.cancel()


@pytest.mark.skipif(sys.platform != "linux", reason="what there is depends on the C library")
def test_the_function_of_the_c_library_can_be_called() -> None:
    """It exists and can be called."""
    trim = find_trim()
    assert trim is not None
    trim()
