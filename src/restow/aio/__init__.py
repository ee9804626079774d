"""The ground everything stands on: time, chance, identifiers, tasks, waiting, and invariants.

Each touches the outside world (or the scheduler) behind a Protocol with a real and a simulated
form, so that the same code runs in production and in the simulator. This package alone may use
`time`, `random`, `uuid`, `asyncio.sleep` and `asyncio.create_task`. It imports nothing else of the
project and knows no word of its domain.
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
from restow.aio.queues import BoundedQueue, QueueClosed, QueueFull
from restow.aio.randomness import Randomness, SeededRandomness, SystemRandomness
from restow.aio.runtime import Runtime
from restow.aio.tasks import (
    StrayCancellation,
    TaskFailure,
    TaskHandle,
    Tasks,
    TasksClosed,
    TasksFull,
)
from restow.aio.workqueue import WorkQueue

__all__ = [
    "Backoff",
    "BoundedQueue",
    "Clock",
    "FileRefused",
    "Ids",
    "InvariantViolation",
    "QueueClosed",
    "QueueFull",
    "RandomIds",
    "Randomness",
    "Runtime",
    "SeededRandomness",
    "SimulatedClock",
    "StrayCancellation",
    "Suspended",
    "SystemClock",
    "SystemRandomness",
    "TaskFailure",
    "TaskHandle",
    "Tasks",
    "TasksClosed",
    "TasksFull",
    "Timer",
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
