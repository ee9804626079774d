"""Returns freed memory to the operating system after a burst of large bodies and lists.

The C library keeps freed memory for reuse: after sixteen concurrent lists of 60 MB, that was a
fifth of the process. It is returned once heavy traffic is followed by almost none, since trimming
takes some 10 ms per 100 MB, during which no other thread can allocate memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
from collections.abc import Callable
from typing import Final

from restow.aio import Clock
from restow.httpserver import Counters

CHECK_SECONDS: Final = 5.0
BUSY_BYTES: Final = 64 * 1024 * 1024
"""Traffic since the last trim above which the next one is due."""
QUIET_BYTES: Final = 1024 * 1024
"""Traffic between two checks below which the server counts as idle."""

logger = logging.getLogger(__name__)


def find_trim() -> Callable[[], object] | None:
    """Return the C library's function that trims the heap; None if it has none."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else lambda: trim(0)


async def trim_memory(counters: Counters, clock: Clock, trim: Callable[[], object] | None) -> None:
    """Check periodically, forever; `trim` runs in a thread."""
    if trim is None:
        return
    trimmed_at = seen = _traffic(counters)
    while True:
        await clock.sleep(CHECK_SECONDS)
        before, seen = seen, _traffic(counters)
        if seen - before < QUIET_BYTES and seen - trimmed_at > BUSY_BYTES:
            trimmed_at = seen
            logger.debug("returning freed memory to the operating system")
            await asyncio.to_thread(trim)


def _traffic(counters: Counters) -> int:
    return counters.received_bytes + counters.sent_bytes
