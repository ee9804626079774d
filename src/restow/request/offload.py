"""Runs long work in threads, so that it does not block the event loop.

Long is what may take more than 10 ms: decoding, checking, planning and encoding a request or an
object of more than `LONG_BODY_SIZE` bytes, and CEL expressions above a cost limit. Python
switches between the threads and the event loop every `SWITCH_SECONDS`, so a step of the event loop
is delayed by some milliseconds at most. One call into a C library is not interrupted; `codec`
limits what such a call gets.

The number of threads is limited, with one per user; more work waits in a queue. A thread keeps its
slot until its work is done, even if the request has ended. So one user's requests take a bounded
share of the CPU, and the event loop stays responsive.

Authorization checks of an expression run on the event loop, where the data does not change while a
check runs.

Not here: the work.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from restow.aio import Runtime, in_task
from restow.apimachinery import status
from restow.registry.long_work import RunLong, in_thread
from restow.request.context import Context
from restow.request.slot_queue import TOO_LATE, QueuedSlot, SlotQueue
from restow.request.slots import SlotPool

SWITCH_SECONDS: Final = 0.001
"""How long a thread may keep the event loop waiting, unless it is inside one call of a library."""
THREADS_MAX: Final = 2
WAIT_SECONDS_MAX: Final = 30.0
"""How long work waits for a thread."""
ANSWER_SECONDS_MAX: Final = 5.0
"""How long a thread waits for a call on the event loop."""
_TOO_MANY: Final = "too many requests wait for long computations, please try again later."

T = TypeVar("T")
Q = TypeVar("Q")


class Offload:
    """The threads of one server. They are created on first use; call `close` at the end."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        pool = SlotPool(THREADS_MAX, runtime.clock.monotonic, per_user_max=1)
        self._queue = SlotQueue(pool, runtime, refusal=_TOO_MANY)
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    def of(self, context: Context) -> RunLong:
        """Return a function that runs work for a request."""
        return partial(self.run, context)

    async def run(self, context: Context, work: Callable[[], T]) -> T:
        """Run work for a request in a thread and return the result. Re-raises its exceptions;
        raises a 429 if no thread is free in time, a 503 when the server stops, a 504 at the
        request's deadline."""
        by_seconds = context.request.answer_by_seconds
        await in_task()
        slot = await self._queue.enter(
            context.user, seconds_max=WAIT_SECONDS_MAX, by_seconds=by_seconds
        )
        pending = self._submit(work, slot)
        try:
            found = await asyncio.wrap_future(pending)
        except asyncio.CancelledError:
            if pending.cancelled() and self._is_closed:
                raise _stopping() from None
            raise
        if self._clock.monotonic() >= by_seconds:
            # The client already received a timeout error.
            raise status.timeout(TOO_LATE)
        return found

    async def encode(self, context: Context, work: Callable[[], T]) -> T:
        """Encode the response to a request. That of a write does not wait in the queue: the write
        is stored already, and a 429 or 503 would say that it is not."""
        if context.request.is_shielded:
            return await in_thread(work)
        return await self.run(context, work)

    def _submit(self, work: Callable[[], T], slot: QueuedSlot) -> Future[T]:
        if self._is_closed:
            slot.leave()
            raise _stopping()
        if self._threads is None:
            sys.setswitchinterval(SWITCH_SECONDS)
            self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="restow-long-work")
        pending = self._threads.submit(work)
        _leave_when_done(slot, pending)
        return pending

    def close(self) -> None:
        """Start no more work. Running work ends by itself: all of it is bounded."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def called_on_loop(function: Callable[[Q], T]) -> Callable[[Q], T]:
    """Return a function that calls `function` on this event loop from any thread. Call it on the
    loop."""
    loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()

    def call(argument: Q) -> T:
        if threading.get_ident() == loop_thread:
            return function(argument)
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function(argument))
            except Exception as error:  # noqa: BLE001  (re-raised in the calling thread)
                result.set_exception(error)

        try:
            loop.call_soon_threadsafe(run)
            return result.result(ANSWER_SECONDS_MAX)
        except (RuntimeError, TimeoutError):
            raise _stopping() from None

    return call


def _leave_when_done(slot: QueuedSlot, pending: Future[T]) -> None:
    loop = asyncio.get_running_loop()

    def leave(_done: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so no request waits for the slot
            loop.call_soon_threadsafe(slot.leave)

    pending.add_done_callback(leave)


def _stopping() -> status.ServiceUnavailable:
    return status.unavailable(
        "the server is stopping", retry_after_seconds=status.RETRY_AFTER_SECONDS
    )
