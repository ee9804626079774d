"""A work budget: how much CPU time some connections may use in one iteration of the event loop.

All unauthenticated connections of a listener share one: accepting them, each step of a TLS
handshake, and each piece of a request. In each iteration at least one piece of work is done, and
more as long as time remains. The rest waits in one of two queues, first in, first out: work of new
connections, and work of the others. The queues alternate, so neither can starve the other. So an
authenticated client waits for one piece of unauthenticated work at most, however many connections
there are, and unauthenticated clients wait only for each other.

Not here: the work itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final


class UnauthenticatedBudget:
    """CPU time that queued work may use in one iteration of the event loop."""

    __slots__ = (
        *("_has_begun", "_is_working", "_left_seconds", "_monotonic", "_next_queue", "_queues"),
        "_seconds",
    )

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic: Final = monotonic
        self._seconds: Final = seconds
        """For all work together, in one iteration."""
        self._queues: Final[tuple[deque[Callable[[], None]], ...]] = (deque(), deque())
        """Work of new connections, and work of the others."""
        self._next_queue = 0
        self._left_seconds = 0.0
        self._has_begun = False
        """Whether work was done in this iteration, so that its end is waited for."""
        self._is_working = False

    def __len__(self) -> int:
        """How many pieces of work are queued."""
        return sum(map(len, self._queues))

    def take(self, work: Callable[[], None], *, is_new: bool = False) -> bool:
        """Do some work now if the budget allows it, otherwise queue it; whether it is done."""
        if self._is_working:
            work()  # a part of other work, which the budget has allowed
            return True
        if self._begin() or (self._left_seconds > 0 and not len(self)):
            self._do(work)
            return True
        self._queues[not is_new].append(work)
        return False

    def wait(self, work: Callable[[], None]) -> None:
        """Do some work in another iteration, behind the other queued work that is not new."""
        self._begin()
        self._queues[1].append(work)

    def _begin(self) -> bool:
        """Whether this is the first work in this iteration."""
        if self._has_begun:
            return False
        self._has_begun = True
        self._left_seconds = self._seconds
        asyncio.get_running_loop().call_soon(self._next_iteration)
        return True

    def _next_iteration(self) -> None:
        if not len(self):
            self._has_begun = False
            return
        # Before any work, so that the queues go on even if it fails.
        asyncio.get_running_loop().call_soon(self._next_iteration)
        self._left_seconds = self._seconds
        while self._left_seconds > 0 and len(self):
            queue = self._queues[self._next_queue] or self._queues[not self._next_queue]
            self._next_queue = int(queue is self._queues[0])
            self._do(queue.popleft())

    def _do(self, work: Callable[[], None]) -> None:
        begin = self._monotonic()
        self._is_working = True
        try:
            work()
        finally:
            self._is_working = False
            self._left_seconds -= self._monotonic() - begin
