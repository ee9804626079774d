"""Background tasks: each has a name and an owner, and no failure is lost.

Nothing else in the project may call `asyncio.create_task`. For tasks that outlive the call that
starts them; for work that ends within one function use `asyncio.TaskGroup`. Not here: the reaction
to a failed task, which is the owner's decision.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from restow.aio.invariants import InvariantViolation, find_violation, stop_loop

TASKS_MAX_DEFAULT = 1_000
# Limit of the failures that `close` raises; further ones are only logged.
FAILURES_KEPT_MAX = 16

logger = logging.getLogger(__name__)


class TasksFull(Exception):
    """The owner has reached its limit of tasks."""


class TasksClosed(Exception):
    """The owner is closed or closing and starts no more tasks."""


class UnexpectedCancellation(Exception):
    """A task ended with CancelledError without being cancelled: something it awaited was."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A background task that ended with an error."""

    name: str
    error: BaseException


class TaskHandle:
    """A running or ended task, for the code that started it. The owner handles its result or error.

    Not awaitable, because awaiting a task passes on the cancellation of the awaiting task and hides
    the origin of a CancelledError.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    @property
    def name(self) -> str:
        return self._task.get_name()

    def done(self) -> bool:
        return self._task.done()

    def cancel(self) -> None:
        """Request cancellation of the task; does not wait."""
        self._task.cancel()

    async def wait(self) -> None:
        """Wait until the task has ended in any way; if the waiter is cancelled, the task
        continues."""
        await asyncio.wait({self._task})

    async def stop(self) -> None:
        """Cancel the task and wait until it has ended."""
        self.cancel()
        await self.wait()


class Tasks:
    """The owner of background tasks.

    A failure is logged with the task's name, then passed to `on_failure` or, without one, raised by
    `close` in an ExceptionGroup. An InvariantViolation is passed to `fatal` at once in any case.
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
        """`failed_loops`: the process' record of failed loops."""
        self.name = name
        self.tasks_max = tasks_max
        self._on_failure = on_failure
        self._fatal = fatal
        self._failed_loops = {} if failed_loops is None else failed_loops
        self._loops: set[asyncio.Task[Any]] = set()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In the order of their start, in which they are also cancelled: the order of a set would
        not be reproducible."""
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
        """Start a task named `owner/name`; the handle may be dropped. With `has_begun`, the limit
        does not apply, since the work has begun and cannot be undone."""
        return TaskHandle(self._start(name, coroutine, has_begun=has_begun))

    def spawn_loop(self, name: str, coroutine: Coroutine[Any, Any, object]) -> TaskHandle:
        """Start a task that must not fail while the process runs, such as one that follows the
        store until it is cancelled.

        If it ends with an error, that is recorded for the health checks (`Runtime.failed_loops`)
        until a task of the same name is started.
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
            refusal = TasksClosed(f"{self.name} cannot start {name}: closed")
        elif len(self._tasks) >= self.tasks_max and not has_begun:
            refusal = TasksFull(f"{self.name} cannot start {name}: {self.tasks_max} are running")
        if refusal is not None:
            coroutine.close()
            raise refusal
        # Not `asyncio.create_task`, which costs more: each suspended request has a task.
        loop = asyncio.get_running_loop()
        task = loop.create_task(coroutine, name=f"{self.name}/{name}")
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    async def close(self) -> None:
        """Cancel all tasks, wait until they have ended, and raise the failures without a handler.

        If the caller is cancelled, it stops waiting at once; the tasks remain cancelled and owned,
        and `close` may be called again.
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
        # The error of the body is raised; failures of tasks were logged.
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
            # `_on_done` empties it and may run after `wait` returns: hence the loop.
            while self._tasks:
                await asyncio.wait(self._tasks)
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            logger.warning("%s: close was cancelled; still running: %s", self.name, self.names())
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
        except Exception as handler_error:  # top level of a task: logged with its name
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
    return UnexpectedCancellation(f"{task.get_name()} awaited something that was cancelled")
