"""One value that carries every seam to the outside: time, chance, identifiers and tasks.

Made once per process (or per simulated process) and handed down. No configuration, no services:
what belongs to one part of the program is passed to that part.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from restow.aio.clock import Clock, SimulatedClock, SystemClock
from restow.aio.ids import Ids, RandomIds
from restow.aio.invariants import InvariantViolation, stop_loop
from restow.aio.randomness import Randomness, SeededRandomness, SystemRandomness
from restow.aio.tasks import TASKS_MAX_DEFAULT, TaskFailure, Tasks
from restow.aio.workqueue import KEYS_MAX_DEFAULT, WorkQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Clock, randomness, ids, what to do when an invariant breaks in a background task, and which
    of these tasks have failed."""

    clock: Clock
    randomness: Randomness
    ids: Ids
    fatal: Callable[[InvariantViolation], None] = stop_loop
    failed_loops: dict[str, str] = field(default_factory=dict)
    """Background tasks that should run until the end and have failed, by name, with the error. Only
    a restart of the process brings them back."""

    @classmethod
    def system(cls, *, fatal: Callable[[InvariantViolation], None] = stop_loop) -> Self:
        """The real thing. A server's main function passes `fatal=end_process`."""
        randomness = SystemRandomness()
        ids = RandomIds(randomness)
        return cls(clock=SystemClock(), randomness=randomness, ids=ids, fatal=fatal)

    @classmethod
    def simulated(
        cls,
        seed: int | str,
        *,
        clock: SimulatedClock | None = None,
        fatal: Callable[[InvariantViolation], None] = stop_loop,
    ) -> Self:
        """Replayable: the same seed gives the same draws. Pass the clock in order to drive it."""
        randomness = SeededRandomness(seed)
        return cls(
            clock=clock or SimulatedClock(),
            randomness=randomness,
            ids=RandomIds(randomness.child("ids")),
            fatal=fatal,
        )

    def tasks(
        self,
        name: str,
        *,
        tasks_max: int = TASKS_MAX_DEFAULT,
        on_failure: Callable[[TaskFailure], None] | None = None,
    ) -> Tasks:
        """A new owner of background tasks that knows what to do about a broken invariant."""
        return Tasks(
            name,
            tasks_max=tasks_max,
            on_failure=on_failure,
            fatal=self.fatal,
            failed_loops=self.failed_loops,
        )

    def work_queue(self, name: str, *, keys_max: int = KEYS_MAX_DEFAULT) -> WorkQueue[Any]:
        """A new queue of keys to look at, on this clock."""
        return WorkQueue(name, clock=self.clock, randomness=self.randomness, keys_max=keys_max)
