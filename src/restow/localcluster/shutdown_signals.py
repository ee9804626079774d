"""Shutdown by signals: the first one stops gracefully, a later one immediately.

Not here: the shutdown itself.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from restow.aio import Clock

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_SECONDS: Final = 1.0
"""Some programs signal the process and its group: within this time it counts as one signal."""


class ShutdownSignals:
    """Cancels the work at the first request for a shutdown; calls `hurry` at a later one."""

    def __init__(self, clock: Clock, hurry: Callable[[], None]) -> None:
        self._clock = clock
        self._hurry = hurry
        self._task: asyncio.Task[object] | None = None
        self._asked_at: float | None = None

    def ask(self) -> None:
        """Cancel the work; if called again after SAME_SECONDS, stop immediately by `hurry`."""
        now = self._clock.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            if self._task is not None:
                self._task.cancel()
        elif now - self._asked_at >= SAME_SECONDS:
            self._hurry()

    def begin(self) -> None:
        """Record a shutdown that began without a signal: the next signal stops immediately."""
        if self._asked_at is None:
            self._asked_at = self._clock.monotonic()

    @asynccontextmanager
    async def interrupts(self) -> AsyncIterator[None]:
        """Run the body; a shutdown cancels it and exits the context without an error."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.ask)
        self._task = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if self._asked_at is None or self._task is None:
                raise
            self._task.uncancel()
        finally:
            self._task = None
            self.begin()
