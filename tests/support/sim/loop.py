"""An event loop whose time is virtual and whose order is decided by a seed.

Every callback belongs to a process: the one that was running when it was scheduled. Within a
process callbacks run in the order in which they became ready, as in any event loop; the process
of the next step is drawn. A paused process makes none, and its ready callbacks wait; a killed one
never makes another. Time advances when no process has anything to do.

There are no threads: their work is done at once, in a later step.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final, TypeVar

T = TypeVar("T")

STEPS_MAX: Final = 20_000_000
"""Step limit of one world. One that takes more is in an endless loop."""
STEPS_WITHOUT_TIME_MAX: Final = 300_000
"""Step limit without a passing of time: a process is in a busy loop."""
END_STEPS_MAX: Final = 200_000
END_ROUNDS_MAX: Final = 20


class Stuck(Exception):
    """A world is in an endless loop, or nothing more can happen in it."""


class Process:
    """Callbacks and tasks that are paused and killed together."""

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.is_killed = False
        self.steps = 0
        self.queue: deque[Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks that are not done, and some that are: no waiting task may be garbage-collected,
        or its cleanup would run at a random time."""
        self.context = copy_context()
        self.context.run(_PROCESS.set, self)
        self._loop = loop
        self._crashes_at: int | None = None
        self._on_crash: Callable[[], object] = lambda: None

    def crashes_after(self, steps: int, on_crash: Callable[[], object]) -> None:
        """Call `on_crash`, outside of this process, after `steps` more steps."""
        self._crashes_at, self._on_crash = self.steps + max(steps, 1), on_crash

    def survives(self) -> None:
        self._crashes_at = None

    def note_step(self) -> None:
        self.steps += 1
        if self._crashes_at is not None and self.steps >= self._crashes_at:
            self._crashes_at = None
            self._loop.outside.call(self._on_crash)
            self.pause()  # nothing comes between this step and its end

    def pause(self) -> None:
        self.is_paused = True

    def wake(self) -> None:
        self.is_paused = False

    def kill(self) -> None:
        """Make no more steps."""
        self.is_killed = True
        self.queue.clear()
        if self in self._loop.living:
            self._loop.living.remove(self)

    def start(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Start a task in this process, without waiting for it."""
        begun = self._loop.create_task(work, name=name, context=self.context.copy())
        assert not begun.done()

    def task(self, work: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """Start a task in this process, to be awaited."""
        return self._loop.create_task(work, name=name or None, context=self.context.copy())

    def call(self, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback in this process, in a step of its own."""
        self._loop.call_soon(callback, *args, context=self.context.copy())


_PROCESS: ContextVar[Process] = ContextVar("process")


def current_process() -> Process:
    """The process of the current step."""
    return _PROCESS.get()


class _Task(asyncio.Task[Any]):
    """A task whose order in a set does not depend on its memory address."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """See the module."""

    def __init__(self, seed: int | str) -> None:
        self._random = Random(f"loop/{seed}")
        self._now = 0.0
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._arrivals = 0
        self._tasks_made = 0
        self._is_running = False
        self._is_closed = False
        self.steps = 0
        self._steps_at_time = 0
        self.failures: list[dict[str, Any]] = []
        """Exceptions that were not caught."""
        self.processes: list[Process] = []
        self.living: list[Process] = []
        self.outside = self.process("outside")
        """The process of what is not simulated: the director, the network, the store."""

    def process(self, name: str) -> Process:
        """A new process."""
        process = Process(self, name)
        self.processes.append(process)
        self.living.append(process)
        return process

    # Time and order.

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        context = copy_context() if context is None else context
        handle = Handle(callback, args, self, context)
        self._put(handle, context)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        context = copy_context() if context is None else context
        handle = TimerHandle(when, callback, args, self, context)
        self._arrivals += 1
        heapq.heappush(self._timers, (when, self._arrivals, handle))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _put(self, handle: Handle, context: Context) -> None:
        process = context.get(_PROCESS, self.outside)
        assert process is not None
        if not process.is_killed:
            process.queue.append(handle)

    def _step(self) -> bool:
        """One step of one process; False if no process has anything to do."""
        ready = [each for each in self.living if each.queue and not each.is_paused]
        if not ready:
            return False
        process = ready[0] if len(ready) == 1 else ready[int(self._random.random() * len(ready))]
        handle = process.queue.popleft()
        if not handle.cancelled():
            self.steps += 1
            handle._run()
            process.note_step()
        return True

    def _pass_time(self) -> bool:
        """Advance to the next scheduled time; False if there is none."""
        while self._timers:
            when, _, handle = heapq.heappop(self._timers)
            if handle.cancelled():
                continue
            if when > self._now:
                self._now, self._steps_at_time = when, self.steps
            context = handle._context  # type: ignore[attr-defined]
            self._put(handle, context)
            return True
        return False

    # Running.

    def run_until_complete(self, future: Coroutine[Any, Any, T]) -> T:  # type: ignore[override]
        """Run a world until its director is done."""
        hooks = sys.get_asyncgen_hooks()
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=lambda _: None, finalizer=self._close_generator)
        self._is_running = True
        try:
            task = self.outside.task(future, "director")
            while not task.done():
                self._advance()
            return task.result()
        finally:
            self._is_running = False
            asyncio._set_running_loop(before)
            sys.set_asyncgen_hooks(*hooks)

    def _advance(self) -> None:
        if not self._step() and not self._pass_time():
            raise Stuck("no timer is scheduled, and no process can make a step")
        if self.steps - self._steps_at_time > STEPS_WITHOUT_TIME_MAX:
            busy = max(self.processes, key=lambda each: each.steps)
            raise Stuck(f"{STEPS_WITHOUT_TIME_MAX} steps without time passing, most by {busy.name}")
        if self.steps > STEPS_MAX:
            raise Stuck(f"more than {STEPS_MAX} steps")

    def end(self) -> None:
        """After the director is done: cancel all tasks for cleanup, also those of killed
        processes."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            self.living = list(self.processes)
            for process in self.processes:
                process.is_killed = process.is_paused = False
                process.survives()
            for _ in range(END_ROUNDS_MAX):
                left = self._unfinished()
                for task in left:
                    task.cancel()
                for _ in range(END_STEPS_MAX):
                    if not self._step():
                        break
                if not left:
                    break
            for task in self._unfinished():
                # It ignores its cancellation. Suppress the warning.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(RuntimeError):
                    task.get_coro().close()
        finally:
            self.close()
            asyncio._set_running_loop(before)
        for process in self.processes:
            for task in process.tasks:
                if task.done() and not task.cancelled():
                    task.exception()  # mark as retrieved

    def _unfinished(self) -> list[asyncio.Task[Any]]:
        return [task for each in self.processes for task in each.tasks if not task.done()]

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._is_closed:
            self.call_soon(self.create_task, generator.aclose())

    # The interface of an asyncio loop.

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        context = copy_context() if context is None else context
        process = context.get(_PROCESS, self.outside)
        assert process is not None
        self._tasks_made += 1
        task = _Task.__new__(_Task)
        task.number = self._tasks_made  # before asyncio keeps it in a set
        task.__init__(coro, loop=self, name=name or "task", context=context)  # type: ignore[misc]
        if len(process.tasks) > 1000:
            process.tasks = [each for each in process.tasks if not each.done()]
        process.tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - the waiting task gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_soon(work)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed:
            self.failures.append(context)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Do nothing: a cancelled timer is dropped when it is due."""

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._timers.clear()
        for process in self.processes:
            process.is_killed = True
            process.queue.clear()
