"""How a run is ended from outside: the first signal asks for the end, a later one for it at once.

Not here: what has to be done at the end.
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
"""Some who end processes send the signal twice, to the process and to its group: that is one."""


class ShutdownSignals:
    """Whether the end was asked for, and by what it interrupts the work."""

    def __init__(self, clock: Clock, hurry: Callable[[], None]) -> None:
        self._clock = clock
        self._hurry = hurry
        self._task: asyncio.Task[object] | None = None
        self._asked_at: float | None = None

    def ask(self) -> None:
        """Interrupt the work; asked again after a while, hurry."""
        now = self._clock.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            if self._task is not None:
                self._task.cancel()
        elif now - self._asked_at >= SAME_SECONDS:
            self._hurry()

    def begin(self) -> None:
        """The end has begun by itself: who asks from now on wants to hurry."""
        if self._asked_at is None:
            self._asked_at = self._clock.monotonic()

    @asynccontextmanager
    async def interrupts(self) -> AsyncIterator[None]:
        """The body is the work; when the end is asked for, it is left without an error."""
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
