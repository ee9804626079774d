"""Expressions that take long: evaluated in threads, so that nobody else waits for them.

Each expression is first tried on the loop, where it may cost so much and no more: that is all that
most need. One that costs more is begun anew in a thread. Only so many are in threads at once, one
of each user, and whoever comes then waits for his turn; a thread is left when its work is done, not
when nobody wants it any more. So one user's expressions take up some of the time of a server, and
the loop goes on in between.

What an expression asks others for while it runs is asked on the loop, where nothing changes in the
middle of an answer.

Not here: what is evaluated (`policies_evaluation`, `webhooks_conditions`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from restow.admission.review import Attributes
from restow.admission.slot_queue import TOO_LATE, QueuedSlot, SlotQueue
from restow.aio import Runtime
from restow.apimachinery import status
from restow.request.slots import SlotPool

COST_ON_LOOP_MAX: Final = 10_000
"""What one expression may cost, some milliseconds, before it is begun anew in a thread."""
AT_ONCE_MAX: Final = 2
WAIT_SECONDS_MAX: Final = 10.0
"""How long to wait for a turn."""
ANSWER_SECONDS_MAX: Final = 5.0
"""How long a thread waits for what it asks on the loop."""
_TOO_MANY: Final = "too many requests wait for expressions that take long, please try again later."

T = TypeVar("T")
Q = TypeVar("Q")


class OffloadedEvaluations:
    """The threads of one server. Made when first needed; `close` it."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        pool = SlotPool(AT_ONCE_MAX, runtime.clock.monotonic, per_user_max=1)
        self._line = SlotQueue(pool, runtime, refusal=_TOO_MANY)
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    async def run(self, work: Callable[[], T], attributes: Attributes) -> T:
        """Do something for a write that takes long. Raises what it raises; a 429 if there is no
        turn for it, a 503 when the server stops, a 504 when the time of the request is over."""
        by_seconds = attributes.context.request.answer_by_seconds
        slot = await self._line.enter(
            attributes.user, seconds_max=WAIT_SECONDS_MAX, by_seconds=by_seconds
        )
        pending = self._begin(work, slot)
        try:
            found = await asyncio.wrap_future(pending)
        except asyncio.CancelledError:
            if pending.cancelled() and self._is_closed:
                raise _stopping() from None
            raise
        if self._clock.monotonic() >= by_seconds:
            # The client has been told that nothing came of it.
            raise status.timeout(TOO_LATE)
        return found

    def _begin(self, work: Callable[[], T], slot: QueuedSlot) -> Future[T]:
        if self._is_closed:
            slot.leave()
            raise _stopping()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="restow-expressions")
        pending = self._threads.submit(work)
        _leave_when_done(slot, pending)
        return pending

    def close(self) -> None:
        """Begin nothing more. What is under way ends by itself, and soon."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def asked_on_loop(ask: Callable[[Q], T]) -> Callable[[Q], T]:
    """The same, for whoever may ask from a thread; to be called on the loop."""
    loop, home = asyncio.get_running_loop(), threading.get_ident()

    def asked(question: Q) -> T:
        if threading.get_ident() == home:
            return ask(question)
        answer: Future[T] = Future()

        def settle() -> None:
            try:
                answer.set_result(ask(question))
            except Exception as error:  # noqa: BLE001  (raised where it was asked)
                answer.set_exception(error)

        try:
            loop.call_soon_threadsafe(settle)
            return answer.result(ANSWER_SECONDS_MAX)
        except (RuntimeError, TimeoutError):
            raise _stopping() from None

    return asked


def _leave_when_done(slot: QueuedSlot, pending: Future[T]) -> None:
    loop = asyncio.get_running_loop()

    def leave(_done: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(slot.leave)

    pending.add_done_callback(leave)


def _stopping() -> status.ServiceUnavailable:
    return status.unavailable(
        "the server is stopping", retry_after_seconds=status.RETRY_AFTER_SECONDS
    )
