"""The runtime: one value with all interfaces to the outside: clock, randomness, IDs and tasks.

Created once per process (or simulated process) and passed to its parts. No configuration and no
services: those are passed to the parts that need them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from restow.aio.clock import Clock, SimulatedClock, SystemClock
from restow.aio.ids import Ids, RandomIds
from restow.aio.invariants import InvariantViolation, stop_loop
from restow.aio.loop_steps import LoopSteps
from restow.aio.randomness import Randomness, SeededRandomness, SystemRandomness
from restow.aio.tasks import TASKS_MAX_DEFAULT, TaskFailure, Tasks
from restow.aio.workqueue import KEYS_MAX_DEFAULT, WorkQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Clock, randomness, IDs, the measurement of steps on the event loop, the handler of broken
    invariants in background tasks, and the background tasks that have failed."""

    clock: Clock
    randomness: Randomness
    ids: Ids
    steps: LoopSteps
    fatal: Callable[[InvariantViolation], None] = stop_loop
    failed_loops: dict[str, str] = field(default_factory=dict)
    """Background tasks that should run until the process ends and have failed: name and error. Only
    a restart of the process starts them again."""

    @classmethod
    def system(cls, *, fatal: Callable[[InvariantViolation], None] = stop_loop) -> Self:
        """Return the runtime of a real process. A server's main function passes
        `fatal=end_process`."""
        randomness = SystemRandomness()
        ids = RandomIds(randomness)
        clock = SystemClock()
        steps = LoopSteps(clock.monotonic)
        return cls(clock=clock, randomness=randomness, ids=ids, steps=steps, fatal=fatal)

    @classmethod
    def simulated(
        cls,
        seed: int | str,
        *,
        clock: SimulatedClock | None = None,
        fatal: Callable[[InvariantViolation], None] = stop_loop,
    ) -> Self:
        """Return a reproducible runtime for a seed. Pass the clock in order to control it."""
        randomness = SeededRandomness(seed)
        clock = clock or SimulatedClock()
        return cls(
            clock=clock,
            randomness=randomness,
            ids=RandomIds(randomness.child("ids")),
            steps=LoopSteps(clock.monotonic),
            fatal=fatal,
        )

    def tasks(
        self,
        name: str,
        *,
        tasks_max: int = TASKS_MAX_DEFAULT,
        on_failure: Callable[[TaskFailure], None] | None = None,
    ) -> Tasks:
        """Return a new owner of background tasks, with the handler of broken invariants."""
        return Tasks(
            name,
            tasks_max=tasks_max,
            on_failure=on_failure,
            fatal=self.fatal,
            failed_loops=self.failed_loops,
        )

    def work_queue(self, name: str, *, keys_max: int = KEYS_MAX_DEFAULT) -> WorkQueue[Any]:
        """Return a new work queue with this clock."""
        return WorkQueue(name, clock=self.clock, randomness=self.randomness, keys_max=keys_max)
