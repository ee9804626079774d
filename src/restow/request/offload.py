"""Evaluation of expensive expressions in threads, so that they do not block the event loop.

Each expression is first evaluated on the event loop with a cost limit, which is enough for most.
One that exceeds the limit is restarted in a thread. The number of threads is limited, with one per
user; further evaluations wait in a queue. A thread keeps its slot until its work is done, even if
the request has ended. So one user's expressions take a bounded share of the CPU, and the event loop
stays responsive.

Authorization checks of an expression run on the event loop, where the data does not change while a
check runs.

Not here: the evaluation (`policies_evaluation`, `webhooks_conditions`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from restow.admission.review import Attributes
from restow.request.slot_queue import TOO_LATE, QueuedSlot, SlotQueue
from restow.aio import Runtime
from restow.apimachinery import status
from restow.request.slots import SlotPool

COST_ON_LOOP_MAX: Final = 10_000
"""CEL cost limit of an evaluation on the event loop: some milliseconds. An expression that exceeds
it is restarted in a thread."""
THREADS_MAX: Final = 2
WAIT_SECONDS_MAX: Final = 10.0
"""How long an evaluation waits for a thread."""
ANSWER_SECONDS_MAX: Final = 5.0
"""How long a thread waits for a call on the event loop."""
_TOO_MANY: Final = (
    "too many requests wait for the evaluation of expensive expressions, please try again later."
)

T = TypeVar("T")
Q = TypeVar("Q")


class OffloadedEvaluations:
    """The evaluation threads of one server. They are created on first use; call `close` at the
    end."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        pool = SlotPool(THREADS_MAX, runtime.clock.monotonic, per_user_max=1)
        self._queue = SlotQueue(pool, runtime, refusal=_TOO_MANY)
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    async def run(self, work: Callable[[], T], attributes: Attributes) -> T:
        """Evaluate in a thread and return the result. Re-raises its exceptions; raises a 429 if no
        thread is free in time, a 503 when the server stops, a 504 at the request's deadline."""
        by_seconds = attributes.context.request.answer_by_seconds
        slot = await self._queue.enter(
            attributes.user, seconds_max=WAIT_SECONDS_MAX, by_seconds=by_seconds
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

    def _submit(self, work: Callable[[], T], slot: QueuedSlot) -> Future[T]:
        if self._is_closed:
            slot.leave()
            raise _stopping()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="restow-expressions")
        pending = self._threads.submit(work)
        _leave_when_done(slot, pending)
        return pending

    def close(self) -> None:
        """Start no new evaluations. Running ones end by themselves, within their cost limit."""
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
