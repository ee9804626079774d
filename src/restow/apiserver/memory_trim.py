"""Giving memory back to the system after a burst of large bodies and lists.

The C library keeps what was freed, for the next time: after sixteen lists of 60 MB at once, a fifth
of the process was such memory. It is given back when there has been much traffic and then nearly
none, since it takes some 10 ms per 100 MB during which nobody else gets memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
from collections.abc import Callable
from typing import Final

from restow.aio import Clock
from restow.httpserver import Counters

LOOK_SECONDS: Final = 5.0
BUSY_BYTES: Final = 64 * 1024 * 1024
"""So much must have been read and written since memory was last given back."""
QUIET_BYTES: Final = 1024 * 1024
"""Less than this between two looks is a quiet time."""

logger = logging.getLogger(__name__)


def find_trim() -> Callable[[], object] | None:
    """The C library's function that gives memory back; None where it has none."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else lambda: trim(0)


async def give_back_memory(
    counters: Counters, clock: Clock, trim: Callable[[], object] | None
) -> None:
    """Look now and then, for ever; `trim` runs in a thread."""
    if trim is None:
        return
    given_at = seen = _traffic(counters)
    while True:
        await clock.sleep(LOOK_SECONDS)
        before, seen = seen, _traffic(counters)
        if seen - before < QUIET_BYTES and seen - given_at > BUSY_BYTES:
            given_at = seen
            logger.debug("giving memory back")
            await asyncio.to_thread(trim)


def _traffic(counters: Counters) -> int:
    return counters.received_bytes + counters.sent_bytes
