"""Background tasks: each has a name and an owner, and none ends unnoticed.

Nothing else in the project may call `asyncio.create_task`. For tasks that outlive the call that
starts them; work that ends within one function is an `asyncio.TaskGroup`. What to do about a
failed task is the owner's decision and does not live here.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from restow.aio.invariants import InvariantViolation, find_violation, stop_loop

TASKS_MAX_DEFAULT = 1_000
# Failures kept for `close` to raise; the others are only logged.
FAILURES_KEPT_MAX = 16

logger = logging.getLogger(__name__)


class TasksFull(Exception):
    """The owner has as many tasks as its limit allows."""


class TasksClosed(Exception):
    """The owner is closed or closing and starts nothing more."""


class StrayCancellation(Exception):
    """A task ended with CancelledError though nobody cancelled it: something it awaited was."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A background task that ended with an error."""

    name: str
    error: BaseException


class TaskHandle:
    """A running or ended task as its starter sees it. Its result or error is the owner's.

    Not awaitable, because awaiting a task passes on the waiter's cancellation and hides whose
    CancelledError comes back.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    @property
    def name(self) -> str:
        return self._task.get_name()

    def done(self) -> bool:
        return self._task.done()

    def cancel(self) -> None:
        """Ask the task to end; does not wait."""
        self._task.cancel()

    async def wait(self) -> None:
        """Return when the task has ended, however it did; a cancelled waiter leaves it running."""
        await asyncio.wait({self._task})

    async def stop(self) -> None:
        """Cancel the task and wait for its end."""
        self.cancel()
        await self.wait()


class Tasks:
    """The owner of some background tasks.

    A failure is logged with the task's name, then given to `on_failure` or, without one, raised by
    `close` in an ExceptionGroup. An InvariantViolation goes to `fatal` at once, whatever else.
    """

    def __init__(
        self,
        name: str,
        *,
        tasks_max: int = TASKS_MAX_DEFAULT,
        on_failure: Callable[[TaskFailure], None] | None = None,
        fatal: Callable[[InvariantViolation], None] = stop_loop,
        failed_loops: dict[str, str] | None = None,
    ) -> None:
        """`failed_loops` is where the process records loops that have failed."""
        self.name = name
        self.tasks_max = tasks_max
        self._on_failure = on_failure
        self._fatal = fatal
        self._failed_loops = {} if failed_loops is None else failed_loops
        self._loops: set[asyncio.Task[Any]] = set()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In the order of their start, which is also that of their end: a set's would be another
        each time."""
        self._failures: list[BaseException] = []
        self._violation: InvariantViolation | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def names(self) -> list[str]:
        """The names of the running tasks, sorted."""
        return sorted(task.get_name() for task in self._tasks)

    def spawn(
        self, name: str, coroutine: Coroutine[Any, Any, object], *, has_begun: bool = False
    ) -> TaskHandle:
        """Start a task called `owner/name`; the handle may be dropped. Work that has begun and
        cannot be undone is started beyond the limit, too."""
        return TaskHandle(self._start(name, coroutine, has_begun=has_begun))

    def spawn_loop(self, name: str, coroutine: Coroutine[Any, Any, object]) -> TaskHandle:
        """Start a task that must not fail as long as the process runs, such as one that follows
        the store until it is cancelled.

        If it ends with an error, that is recorded for the health checks (`Runtime.failed_loops`)
        until one of the same name is started.
        """
        task = self._start(name, coroutine)
        self._loops.add(task)
        self._failed_loops.pop(task.get_name(), None)
        return TaskHandle(task)

    def _start(
        self, name: str, coroutine: Coroutine[Any, Any, object], *, has_begun: bool = False
    ) -> asyncio.Task[Any]:
        refusal: Exception | None = None
        if self._closed:
            refusal = TasksClosed(f"{self.name} starts no {name}: closed")
        elif len(self._tasks) >= self.tasks_max and not has_begun:
            refusal = TasksFull(f"{self.name} starts no {name}: {self.tasks_max} tasks run")
        if refusal is not None:
            coroutine.close()
            raise refusal
        # Not `asyncio.create_task`: each request that waits has a task, and this costs less.
        loop = asyncio.get_running_loop()
        task = loop.create_task(coroutine, name=f"{self.name}/{name}")
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    async def close(self) -> None:
        """Cancel all tasks, wait for their end, and raise the failures nobody was told of.

        If the closer is itself cancelled it stops waiting at once; the tasks stay cancelled and
        owned, and `close` may be called again.
        """
        await self._cancel_and_wait()
        failures, self._failures = self._failures, []
        if self._violation is not None:
            raise self._violation
        if failures:
            raise BaseExceptionGroup(f"background tasks of {self.name} failed", failures)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
            return
        # The body's own error goes on; failures of tasks are in the log already.
        await self._cancel_and_wait()
        if self._violation is not None and find_violation(error) is None:
            raise self._violation

    async def _cancel_and_wait(self) -> None:
        self._closed = True
        if asyncio.current_task() in self._tasks:
            raise RuntimeError(f"{self.name} cannot be closed by one of its own tasks")
        for task in self._tasks:
            task.cancel()
        try:
            # Emptied by `_on_done`, which may run after `wait` returns: hence the loop.
            while self._tasks:
                await asyncio.wait(self._tasks)
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            logger.warning("%s: closing was cut short; still ending: %s", self.name, self.names())
            raise

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        error = _error_of(task)
        if error is None:
            self._loops.discard(task)
            return
        name = task.get_name()
        if task in self._loops:
            self._loops.discard(task)
            self._failed_loops[name] = f"{type(error).__name__}: {error}"
        violation = find_violation(error)
        if violation is not None:
            self._violation = self._violation or violation
            logger.critical("task %s broke an invariant", name, exc_info=error)
            self._fatal(violation)
            return
        logger.error("task %s failed", name, exc_info=error)
        if self._on_failure is None:
            self._keep(error)
            return
        try:
            self._on_failure(TaskFailure(name, error))
        except Exception as handler_error:  # the edge of a task: logged with its name
            logger.exception("the failure handler of task %s failed", name)
            self._keep(handler_error)

    def _keep(self, error: BaseException) -> None:
        if len(self._failures) < FAILURES_KEPT_MAX:
            self._failures.append(error)


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    if not task.cancelled():
        return task.exception()
    if task.cancelling():
        return None
    return StrayCancellation(f"{task.get_name()} awaited something that was cancelled")
