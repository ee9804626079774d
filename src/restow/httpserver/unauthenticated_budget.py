"""Work budget: the CPU time that some connections may use in one iteration of the event loop.

All unauthenticated connections of a listener share one: accepts, each step of a TLS handshake, and
each part of a request. In each iteration at least one work item is executed, and more while time
remains. The rest waits in one of two FIFO queues: work of new connections, and other work. The
queues alternate, so neither can starve the other. So an authenticated client waits for at most one
item of unauthenticated work beyond the budget, however many connections there are, and
unauthenticated clients wait only for each other.

Not here: the work itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from restow.aio import LoopSteps, StepKind
from restow.aio.loop_steps import LONG_SECONDS


class UnauthenticatedBudget:
    """CPU time that queued work may use in one iteration of the event loop."""

    __slots__ = (
        *("_has_begun", "_is_working", "_left_seconds", "_measured", "_monotonic", "_next_queue"),
        *("_queues", "_seconds"),
    )

    def __init__(
        self,
        monotonic: Callable[[], float],
        seconds: float,
        *,
        measured: tuple[LoopSteps, StepKind] | None = None,
    ) -> None:
        """`measured`: where each work item counts as a step; None if it measures itself."""
        self._measured: Final = measured
        self._monotonic: Final = monotonic
        self._seconds: Final = seconds
        """The share of an iteration for all work together."""
        self._queues: Final[tuple[deque[Callable[[], None]], ...]] = (deque(), deque())
        """Work of new connections, and other work."""
        self._next_queue = 0
        self._left_seconds = 0.0
        self._has_begun = False
        """Whether work was executed in this iteration, so that its end is scheduled."""
        self._is_working = False

    def __len__(self) -> int:
        """The number of queued work items."""
        return sum(map(len, self._queues))

    def take(self, work: Callable[[], None], *, is_new: bool = False) -> bool:
        """Execute work now if the budget allows it, else queue it; return whether it was
        executed."""
        if self._is_working:
            work()  # called from other work, which the budget has admitted
            return True
        if self._begin() or (self._left_seconds > 0 and not len(self)):
            self._do(work)
            return True
        self._queues[not is_new].append(work)
        return False

    def wait(self, work: Callable[[], None]) -> None:
        """Queue work of an existing connection for another iteration."""
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
        # Before any work, so that the queues continue even if it raises.
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
            end = self._monotonic()
            self._left_seconds -= end - begin
            if end - begin >= LONG_SECONDS and self._measured is not None:
                steps, kind = self._measured
                steps.note(kind, begin, end)
