"""When a client that has come is greeted: a handshake costs as much as many requests.

Clients that say nothing yet cost nothing, so they stand in no line. Of those that have begun to
speak one is greeted in a turn of the loop. Some come only to be sent away, and come back: while
such leave and requests are being answered, there is a pause behind each greeting, so that who is
connected already hardly notices. When all servers of a cluster have been started anew, everybody
comes at once, says who they are and stays; then there is no pause.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from restow.runtime import Clock, Timer
from restow.serving.listener.limits import Limits

BUSY_SECONDS: Final = 0.1
"""How long after an answer the server counts as busy."""
SPOILT_SECONDS: Final = 1.0
"""How long after a stranger has left others may be of the same kind."""


class Seen:
    """Whether a number has grown lately."""

    __slots__ = ("_count", "_seconds", "_until_seconds", "_value")

    def __init__(self, count: Callable[[], int], seconds: float) -> None:
        self._count = count
        self._seconds = seconds
        self._value = 0
        self._until_seconds = -math.inf

    def is_recent(self, now: float) -> bool:
        value = self._count()
        if value != self._value:
            self._value = value
            self._until_seconds = now + self._seconds
        return now < self._until_seconds


class Greetings:
    """The line of those who wait to be greeted."""

    def __init__(
        self,
        *,
        limits: Limits,
        clock: Clock,
        requests_total: Callable[[], int],
        strangers_gone: Callable[[], int],
    ) -> None:
        """What is counted: requests that were answered, and connections of which it was never known
        whose they were."""
        self._limits = limits
        self._clock = clock
        self._requests = Seen(requests_total, BUSY_SECONDS)
        self.failed = 0
        """Handshakes that came to nothing: these were strangers, too."""
        self._strangers = Seen(lambda: strangers_gone() + self.failed, SPOILT_SECONDS)
        self._is_leaving = False
        self._line: deque[asyncio.Future[None]] = deque()
        self._is_going = False
        self._timer: Timer | None = None

    async def wait_for_word(self, accepted: socket.socket) -> None:
        """Until the client has sent something, or is gone. TimeoutError: it did neither."""
        loop = asyncio.get_running_loop()
        spoken: asyncio.Future[None] = loop.create_future()
        number = accepted.fileno()
        loop.add_reader(number, _end, spoken)
        try:
            async with self._clock.timeout(self._limits.handshake_seconds):
                await spoken
        finally:
            loop.remove_reader(number)

    async def wait_for_turn(self) -> None:
        """Until it is the turn of whoever asks."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        if not self._is_going:
            self._is_going = True
            self._go_on()
        await turn

    def stop_pausing(self) -> None:
        """Greet those in line, and all who follow, as soon as can be: the server is leaving."""
        self._is_leaving = True
        if self._timer is not None:
            self._timer.cancel()
            self._go_on()

    def _go_on(self) -> None:
        self._timer = None
        while self._line:
            turn = self._line.popleft()
            if not turn.done():  # who was given up meanwhile needs no turn
                _end(turn)
                break
        else:
            self._is_going = False
            return
        if self._is_to_pause():
            self._timer = self._clock.call_later(self._limits.greeting_seconds, self._go_on)
        else:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _is_to_pause(self) -> bool:
        now = self._clock.monotonic()
        is_busy, is_spoilt = self._requests.is_recent(now), self._strangers.is_recent(now)
        return is_busy and is_spoilt and not self._is_leaving


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
