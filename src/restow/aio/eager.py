"""Runs a coroutine until it first has to wait, before there is a task for it.

Most requests are answered without waiting for anything, and a task costs about as much as a small
request. So a coroutine is started in the call that made it: if it finishes, its result is there
at once; if not, a task takes over the `Suspended` coroutine. (Python 3.12 has eager tasks.)

Before that there is no task of its own. What needs one (a timeout, a task group) awaits `in_task`
first.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine as generator_coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_is_eager = False
"""Whether the running code was started by `run_eagerly` and has not waited yet."""


class Suspended(Generic[T]):
    """A coroutine that was started and waits. Await it in a task, or close it."""

    __slots__ = ("_coroutine", "_yielded")

    def __init__(self, coroutine: Coroutine[Any, Any, T], yielded: Any) -> None:
        self._coroutine = coroutine
        self._yielded = yielded

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
                    yielded = coroutine.throw(error)
                else:
                    yielded = coroutine.send(sent)
        except StopIteration as finished:
            result: T = finished.value
            return result

    def close(self) -> None:
        """End the coroutine where it waits: no task will await it."""
        self._coroutine.close()


def run_eagerly(coroutine: Coroutine[Any, Any, T]) -> T | Suspended[T]:
    """The result of a coroutine that waits for nothing; otherwise what is left of it."""
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
        # A future that is awaited and has no task yet: another coroutine may await it, too.
        yielded._asyncio_future_blocking = False  # noqa: SLF001 - as a task does
    return Suspended(coroutine, yielded)


def is_eager() -> bool:
    """Whether the running code has no task of its own yet."""
    return _is_eager


async def in_task() -> None:
    """Return when the running code has a task of its own."""
    if _is_eager:
        await _give_way()


@generator_coroutine
def _give_way() -> Generator[None, None, None]:
    yield
