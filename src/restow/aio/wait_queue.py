"""A fair wait queue: tasks that wait for one condition are resumed in order of arrival.

It provides the fairness of both queues of this package. It holds no items and has no limits.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class WaitQueue:
    """Resumes the first waiter when the condition holds; later ones never overtake it.

    A resumed waiter acts at once, without awaiting, and then calls `wake` for the next one. It
    keeps its position until it has run, so that its item or space cannot be taken by another task.
    """

    def __init__(self, may_pass: Callable[[], bool]) -> None:
        self._may_pass = may_pass
        self._waiters: deque[asyncio.Future[None]] = deque()

    def is_open(self) -> bool:
        """Whether a new task need not wait: there are no waiters and the condition holds."""
        return not self._waiters and self._may_pass()

    async def wait(self) -> None:
        """Wait until the condition holds and no earlier task waits."""
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
        """Resume the first waiter if the condition holds; call after every change of it."""
        if self._waiters and not self._waiters[0].done() and self._may_pass():
            self._waiters[0].set_result(None)
