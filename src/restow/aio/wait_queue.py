"""A waiting line: tasks that wait for one condition and are let through in order of arrival.

The fairness under both queues of this package. It holds no items and knows no limits.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class WaitQueue:
    """Lets the first in line pass when the condition holds; nobody overtakes.

    Whoever passes acts at once, without awaiting, and then calls `wake` for the next. Whoever is
    told to go keeps its place until it has gone, so what it was promised cannot be taken away.
    """

    def __init__(self, may_pass: Callable[[], bool]) -> None:
        self._may_pass = may_pass
        self._waiters: deque[asyncio.Future[None]] = deque()

    def is_open(self) -> bool:
        """Whether a newcomer may pass now: nobody waits and the condition holds."""
        return not self._waiters and self._may_pass()

    async def wait(self) -> None:
        """Return when it is this task's turn."""
        if self.is_open():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self._waiters.remove(waiter)
            self.wake()
            raise
        del self._waiters[0]

    def wake(self) -> None:
        """Tell the first in line to go if the condition holds; call after every change to it."""
        if self._waiters and not self._waiters[0].done() and self._may_pass():
            self._waiters[0].set_result(None)
