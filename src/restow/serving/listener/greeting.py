"""When a client that has come is greeted: a handshake costs as much as many requests.

Clients that say nothing yet cost nothing, so they stand in no line. Of those that have begun to
speak one is greeted in a turn of the loop; while requests are being answered there is a pause
behind each, so that however many come at once, who is connected already waits for one of them at
most. Without requests there is no pause.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from restow.runtime import Clock, Timer
from restow.serving.listener.limits import Limits

BUSY_SECONDS: Final = 0.1
"""How long after an answer the server counts as busy."""


class Greetings:
    """The line of those who wait to be greeted."""

    def __init__(self, *, limits: Limits, clock: Clock, requests_total: Callable[[], int]) -> None:
        self._limits = limits
        self._clock = clock
        self._requests_total = requests_total
        self._requests_seen = 0
        self._busy_until_seconds = 0.0
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
        self._busy_until_seconds = -1.0
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
        if self._is_busy():
            self._timer = self._clock.call_later(self._limits.greeting_seconds, self._go_on)
        else:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _is_busy(self) -> bool:
        if self._busy_until_seconds < 0:
            return False
        now = self._clock.monotonic()
        requests = self._requests_total()
        if requests != self._requests_seen:
            self._requests_seen = requests
            self._busy_until_seconds = now + BUSY_SECONDS
        return now < self._busy_until_seconds


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
