"""Loops that survive errors: one repeats a step, one processes a work queue.

An error is logged with the name of the work and retried with exponential backoff, because
background work must not end a server. A broken invariant is not caught. Not here: the steps
themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from restow.aio import Backoff, Runtime, WorkQueue
from restow.apimachinery.status import Conflict
from restow.apimachinery.status_error import StatusError
from restow.registry.errors import DoAgain
from restow.storage.errors import StorageError

BACKOFF: Final = Backoff(initial_seconds=0.2, factor=2, max_seconds=30, jitter=0.3)
AT_ONCE_MAX: Final = 16

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def repeat(name: str, step: Callable[[], Awaitable[float]], runtime: Runtime) -> None:
    """Repeat a step, which returns the seconds to wait before the next one."""
    failures = 0
    while True:
        try:
            seconds = await step()
            failures = 0
        except Exception as error:  # noqa: BLE001 - top level of a task: logged with its name
            seconds = BACKOFF.delay_seconds(failures, runtime.randomness)
            failures += 1
            log_failure(name, error, seconds)
        await runtime.clock.sleep(seconds)


async def run_worker(
    queue: WorkQueue[str], reconcile: Callable[[str], Awaitable[float | None]]
) -> None:
    """Process the keys of a queue; `reconcile` may return the seconds after which to requeue."""
    while True:
        key = await queue.get()
        try:
            again_seconds = await reconcile(key)
        except (Conflict, DoAgain):
            # The object or its resource has changed since it was read: retry without logging an
            # error.
            queue.retry(key)
        except Exception as error:  # noqa: BLE001 - top level of a task: logged with its name
            log_failure(f"{queue.name} {key}", error, queue.retry(key))
        else:
            queue.forget(key)
            if again_seconds is not None:
                queue.add_after(key, again_seconds)
        finally:
            queue.done(key)


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[object]]) -> None:
    """Process all items, up to 16 at once. Stops at the first error and raises it."""
    waiting = iter(items)

    async def process_items() -> None:
        for item in waiting:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE_MAX):
                group.create_task(process_items())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def log_failure(name: str, error: Exception, seconds: float) -> None:
    """Log an expected error as a warning, any other error with its traceback."""
    if isinstance(error, StorageError | StatusError):
        logger.warning("%s: %s; trying again in %.1f s", name, error, seconds)
    else:
        logger.error("%s failed; trying again in %.1f s", name, seconds, exc_info=error)
