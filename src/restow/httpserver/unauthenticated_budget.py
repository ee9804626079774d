"""Turns: how much is done for those who have not shown who they are, before others are looked at.

A turn of the event loop has so much time for all strangers together, whatever they want: to be
accepted, a step of a handshake, the next piece of a request. At least one of them gets something
done in each turn. The others stand in one of two lines, in the order in which they came: those who
are new, and those who are not. Both lines move on by turns, so nobody is kept out by what others
have to say. Who is known waits for one stranger, however many there are, and strangers wait only
for each other: there is no pause in which nobody is served.

Not here: what is done in a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final


class UnauthenticatedBudget:
    """The strangers of one listener."""

    __slots__ = (
        *("_is_begun", "_is_working", "_left_seconds", "_lines", "_monotonic", "_next"),
        "_seconds",
    )

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic: Final = monotonic
        self._seconds: Final = seconds
        """How much time a turn of the loop has for all of them."""
        self._lines: Final[tuple[deque[Callable[[], None]], ...]] = (deque(), deque())
        """Those who are new, and the others."""
        self._next = 0
        """Which line moves on."""
        self._left_seconds = 0.0
        self._is_begun = False
        """Whether the end of this turn of the loop is waited for."""
        self._is_working = False

    def __len__(self) -> int:
        """How many stand in line."""
        return sum(map(len, self._lines))

    def take(self, work: Callable[[], None], *, is_new: bool = False) -> bool:
        """Do some work for a stranger, now or when it is its turn; whether it is done."""
        if self._is_working:
            work()  # a part of what has its turn
            return True
        if self._begin() or (self._left_seconds > 0 and not len(self)):
            self._do(work)
            return True
        self._lines[not is_new].append(work)
        return False

    def wait(self, work: Callable[[], None]) -> None:
        """Have some work done in another turn, behind the others who are not new."""
        self._begin()
        self._lines[1].append(work)

    def _begin(self) -> bool:
        """Whether nobody has had a turn since the loop has looked around."""
        if self._is_begun:
            return False
        self._is_begun = True
        self._left_seconds = self._seconds
        asyncio.get_running_loop().call_soon(self._go_on)
        return True

    def _go_on(self) -> None:
        """The loop has looked around meanwhile."""
        if not len(self):
            self._is_begun = False
            return
        # Before anything is done: whatever goes wrong there, the others get their turn.
        asyncio.get_running_loop().call_soon(self._go_on)
        self._left_seconds = self._seconds
        while self._left_seconds > 0 and len(self):
            line = self._lines[self._next] or self._lines[not self._next]
            self._next = int(line is self._lines[0])
            self._do(line.popleft())

    def _do(self, work: Callable[[], None]) -> None:
        begin = self._monotonic()
        self._is_working = True
        try:
            work()
        finally:
            self._is_working = False
            self._left_seconds -= self._monotonic() - begin
