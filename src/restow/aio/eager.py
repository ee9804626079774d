"""Runs a coroutine until its first suspension, before a task is created for it.

Most requests are processed without suspending, and a task costs about as much as a small request.
So a coroutine is started in the call that created it: if it finishes, its result is available at
once; if not, either a task takes over the `Suspended` coroutine, or it is resumed without a task
when the future that it awaits is done. (Python 3.12 has eager tasks.)

Until a task takes over, the coroutine has no task of its own. Code that needs one (a timeout, a
task group) awaits `in_task` first.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine as generator_coroutine
from typing import Any, Generic, Self, TypeVar

from restow.aio.loop_steps import LONG_SECONDS, LoopSteps, StepKind

T = TypeVar("T")
S = TypeVar("S")

_is_eager = False
"""Whether the running code has no task of its own: `run_eagerly` or `Suspended.resume` runs it."""


class Suspended(Generic[T]):
    """A started coroutine that is suspended. Await it in a task, resume it, or close it."""

    __slots__ = ("_coroutine", "_measured", "_yielded")

    def __init__(self, coroutine: Coroutine[Any, Any, T], yielded: Any) -> None:
        self._coroutine = coroutine
        self._yielded = yielded
        self._measured: tuple[LoopSteps, StepKind, object] | None = None

    def measured_by(self, steps: LoopSteps, kind: StepKind, subject: object) -> Self:
        """Measure each further step of the coroutine, in a task or without."""
        self._measured = steps, kind, subject
        return self

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, yielded = self._coroutine, self._yielded
        if yielded is not None:
            yielded._asyncio_future_blocking = True  # noqa: SLF001 - as a task expects it
        try:
            while True:
                try:
                    sent = yield yielded
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - passed on, as `yield from` does
                    yielded = self._step(coroutine.throw, error)
                else:
                    yielded = self._step(coroutine.send, sent)
        except StopIteration as finished:
            result: T = finished.value
            return result

    def _step(self, run: Callable[[Any], S], value: Any) -> S:
        """Run one step, measured."""
        if self._measured is None:
            return run(value)
        steps, kind, subject = self._measured
        begin = steps.monotonic()
        try:
            return run(value)
        finally:
            end = steps.monotonic()
            if end - begin >= LONG_SECONDS:
                steps.note(kind, begin, end, subject)

    def when_done(self, resume: Callable[[Any], object]) -> bool:
        """Call `resume` when the future that the coroutine awaits is done. Return False if it
        awaits no future: then it needs a task."""
        if self._yielded is None:
            return False
        self._yielded.add_done_callback(resume)
        return True

    def resume(self) -> T | Suspended[T]:
        """Run the coroutine until its next suspension, once its future is done."""
        result = self._step(run_eagerly, self._coroutine)
        if self._measured is not None and isinstance(result, Suspended):
            return result.measured_by(*self._measured)
        return result

    def cancel(self) -> None:
        """Cancel the future that the coroutine awaits, which resumes it with CancelledError."""
        if self._yielded is not None:
            self._yielded.cancel()

    def close(self) -> None:
        """Close the coroutine at its suspension, because no task will await it."""
        self._coroutine.close()


def run_eagerly(coroutine: Coroutine[Any, Any, T]) -> T | Suspended[T]:
    """Start a coroutine; return its result if it does not suspend, otherwise its remainder."""
    global _is_eager  # noqa: PLW0603 - there is one event loop in a process
    before, _is_eager = _is_eager, True
    try:
        yielded = coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        _is_eager = before
    if yielded is not None:
        # The future is awaited without a task; this allows other coroutines to await it as well.
        yielded._asyncio_future_blocking = False  # noqa: SLF001 - as a task does
    return Suspended(coroutine, yielded)


def is_eager() -> bool:
    """Whether the running code has no task of its own yet."""
    return _is_eager


async def in_task() -> None:
    """Wait until the running code has a task of its own."""
    if _is_eager:
        await _yield_once()


@generator_coroutine
def _yield_once() -> Generator[None, None, None]:
    yield
