"""Work budgets: the CPU time that some connections may use in one iteration of the event loop.

All connections of a class share one budget: unauthenticated ones for accepts, each step of a TLS
handshake, and each part of a request; authenticated ones for their requests and long lists. In each
iteration at least one work item is executed, and more while time remains. The rest waits in one of
two queues: work that is new (of a new connection, or a new request), and continued work. The queues
alternate, so neither can starve the other, and inside a queue keys (addresses or users) take turns.
So a client of another class waits for at most one item beyond the budget, however many connections
there are, and a client of the same class for at most one item of each other key in turn.

Not here: the work itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, ParamSpec

from restow.aio import LoopSteps, StepKind, StepSubject
from restow.aio.loop_steps import LONG_SECONDS
from restow.httpserver.connection_classes import ClassMember
from restow.httpserver.limits import Limits

Work = Callable[[], None]
P = ParamSpec("P")


class FairQueue:
    """Work items by key: the keys take turns, and the items of one are in order."""

    __slots__ = ("_by_key", "_count")

    def __init__(self) -> None:
        self._by_key: Final[dict[str, deque[Work]]] = {}
        """The next key is the first one."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, key: str, work: Work) -> None:
        of_key = self._by_key.get(key)
        if of_key is None:
            of_key = self._by_key[key] = deque()
        of_key.append(work)
        self._count += 1

    def popleft(self) -> Work:
        key = next(iter(self._by_key))
        of_key = self._by_key.pop(key)
        work = of_key.popleft()
        if of_key:
            self._by_key[key] = of_key
        self._count -= 1
        return work


class WorkBudget:
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
        self._queues: Final = (FairQueue(), FairQueue())
        """New work, and continued work."""
        self._next_queue = 0
        self._left_seconds = 0.0
        self._has_begun = False
        """Whether work was executed in this iteration, so that its end is scheduled."""
        self._is_working = False

    def __len__(self) -> int:
        """The number of queued work items."""
        new, continued = self._queues
        return len(new) + len(continued)

    def take(self, work: Work, *, key: str, is_new: bool = False) -> bool:
        """Execute work now if the budget allows it, else queue it; return whether it was
        executed."""
        if self.run(work):
            return True
        self._queues[not is_new].append(key, work)
        return False

    def run(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Execute work now if the budget allows it; return whether it was executed."""
        if self._is_working:
            work(*args, **kwargs)  # called from other work, which the budget has admitted
            return True
        if self._has_begun:
            if self._left_seconds <= 0 or len(self):
                return False
        else:
            self._begin()
        self._execute(work, *args, **kwargs)
        return True

    def run_now(self, work: Work) -> None:
        """Execute work that cannot wait, as if the budget had admitted it."""
        if not self._has_begun:
            self._begin()
        if self._is_working:
            work()
        else:
            self._execute(work)

    def wait(self, work: Work, *, key: str, is_new: bool = False) -> None:
        """Queue work for another iteration."""
        if not self._has_begun:
            self._begin()
        self._queues[not is_new].append(key, work)

    def _begin(self) -> None:
        self._has_begun = True
        self._left_seconds = self._seconds
        asyncio.get_running_loop().call_soon(self._next_iteration)

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
            self._execute(queue.popleft())

    def _execute(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        begin = self._monotonic()
        self._is_working = True
        try:
            work(*args, **kwargs)
        finally:
            self._is_working = False
            end = self._monotonic()
            self._left_seconds -= end - begin
            if end - begin >= LONG_SECONDS and self._measured is not None:
                steps, kind = self._measured
                steps.note(kind, begin, end)


class WorkBudgets:
    """The work budgets of a listener, one for each class of connections."""

    __slots__ = ("authenticated", "privileged", "unauthenticated")

    def __init__(self, monotonic: Callable[[], float], limits: Limits, steps: LoopSteps) -> None:
        """`steps`: where the work of unauthenticated connections counts; that of others measures
        itself, by connection and by stream."""
        unauthenticated = steps.kind("unauthenticated", lambda _: StepSubject())
        self.unauthenticated: Final = WorkBudget(
            monotonic,
            limits.unauthenticated_work_seconds,
            measured=(steps, unauthenticated),
        )
        self.authenticated: Final = WorkBudget(monotonic, limits.authenticated_work_seconds)
        self.privileged: Final = WorkBudget(monotonic, limits.privileged_work_seconds)

    def of(self, peer: ClassMember) -> WorkBudget:
        """That of the class of a connection."""
        if peer.is_privileged:
            return self.privileged
        return self.authenticated if peer.is_known else self.unauthenticated
