"""Runtime primitives: clock, randomness, identifiers, tasks, queues, leader election, invariants.

Each access to the outside world (or the scheduler) is behind a Protocol with a real and a simulated
implementation, so that the same code runs in production and in the simulator. Only this package may
use `time`, `random`, `uuid`, `asyncio.sleep` and `asyncio.create_task`. It imports nothing else of
the project and has no knowledge of Kubernetes.
"""

from restow.aio.backoff import Backoff, retry
from restow.aio.clock import Clock, SimulatedClock, SystemClock, Timer
from restow.aio.eager import Suspended, in_task, run_eagerly
from restow.aio.files import FileRefused, check_regular, in_own_thread, read_regular_file
from restow.aio.ids import Ids, RandomIds
from restow.aio.invariants import (
    InvariantViolation,
    end_process,
    find_violation,
    foremost,
    invariant,
    stop_loop,
)
from restow.aio.loop_steps import LoopSteps, StepKind, StepSubject
from restow.aio.queues import BoundedQueue, QueueClosed, QueueFull
from restow.aio.randomness import Randomness, SeededRandomness, SystemRandomness
from restow.aio.runtime import Runtime
from restow.aio.tasks import (
    TaskFailure,
    TaskHandle,
    Tasks,
    TasksClosed,
    TasksFull,
    UnexpectedCancellation,
)
from restow.aio.workqueue import WorkQueue

__all__ = [
    "Backoff",
    "BoundedQueue",
    "Clock",
    "FileRefused",
    "Ids",
    "InvariantViolation",
    "LoopSteps",
    "QueueClosed",
    "QueueFull",
    "RandomIds",
    "Randomness",
    "Runtime",
    "SeededRandomness",
    "SimulatedClock",
    "StepKind",
    "StepSubject",
    "Suspended",
    "SystemClock",
    "SystemRandomness",
    "TaskFailure",
    "TaskHandle",
    "Tasks",
    "TasksClosed",
    "TasksFull",
    "Timer",
    "UnexpectedCancellation",
    "WorkQueue",
    "check_regular",
    "end_process",
    "find_violation",
    "foremost",
    "in_own_thread",
    "in_task",
    "invariant",
    "read_regular_file",
    "retry",
    "run_eagerly",
    "stop_loop",
]
