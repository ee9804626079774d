"""Requests that cannot be answered at once: what each waits for, and who answers it then.

    a commit          when the store has it: without a task, unless it has to be done again
    a fresh memory    when all is there that was acknowledged before: the same
    something lacked  when it is there, from the first step of the chain (`DoAgain`)
    anything else     when it has been awaited

Each holds a seat meanwhile (`limits`). Not here: the steps themselves (`app`), and how a request
ends (`outcomes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias

from restow.aio import InvariantViolation, TasksClosed, TasksFull
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.audit import Auditor
from restow.endpoints.handlers.get import answer_from
from restow.endpoints.handlers.pending_commit import Freshening, PendingCommit, Writing
from restow.endpoints.handlers.server import Server
from restow.endpoints.outcomes import RequestOutcomes, too_many
from restow.httpserver import (
    Answer,
    Deferred,
    HttpResponse,
    Promise,
    Shielded,
    close_unused,
)
from restow.registry.errors import DoAgain, ResourceReplaced
from restow.registry.watch_cache import WatchCache
from restow.request.context import Context
from restow.request.limits import InFlight, Seated
from restow.request.responses import error_answer
from restow.storage.errors import StorageError
from restow.storage.interface import Outcome

AGAIN_MAX: Final = 8
"""How often a request is done anew because what it is about has changed."""
Chain: TypeAlias = "Callable[[Context], Promise | Writing]"
"""All steps of a request, from the first."""


class DeferredResponses:
    """The requests of one server that wait."""

    def __init__(
        self,
        server: Server,
        chain: Chain,
        *,
        in_flight: InFlight,
        outcomes: RequestOutcomes,
        audit: Auditor | None,
    ) -> None:
        self._server = server
        self._chain = chain
        self._in_flight = in_flight
        self._outcomes = outcomes
        self._audit = audit

    def begin(self, context: Context, answer: Promise | Writing) -> Promise:
        """Have somebody keep what a handler has promised."""
        if isinstance(answer, PendingCommit):
            self._in_flight.take(context)
            return self._when_committed(context, answer, Deferred())
        if isinstance(answer, Freshening):
            self._in_flight.take(context)
            return self._when_fresh(context, answer)
        if isinstance(answer, Shielded):
            return Shielded(self._seated(context, answer.awaitable))
        if isinstance(answer, Awaitable):
            return self._seated(context, answer)
        if self._audit is not None and not isinstance(answer, HttpResponse | Deferred):
            self._audit.stream(context, answer)
        return answer

    def again(self, context: Context, lack: DoAgain) -> Promise:
        """Have a request done anew that lacks something."""
        try:
            self._in_flight.check(context)
        except StatusError as error:
            return self._outcomes.counted(context, context.request, error_answer(context, error))
        # What was begun before stays so: a write must not be given up half-way.
        return Shielded(self._seated(context, self._do_again(context, lack)))

    def _seated(self, context: Context, work: Awaitable[Answer]) -> Awaitable[Answer]:
        """Work that has to wait, with the seat that it needs for that."""
        slot = self._in_flight.take(context)
        return Seated(self._later(context, work), slot, work)

    def answer_waited(
        self,
        context: Context,
        deferred: Deferred,
        cache: WatchCache | None,
        error: StorageError | None,
    ) -> None:
        """Answer a get that has waited, when it is not just what memory holds."""
        try:
            if cache is None:
                raise ResourceReplaced
            if error is not None:
                raise error
            answer = answer_from(self._server, context, cache)
        except DoAgain as lack:
            again = self._resolve_again(context, lack, deferred)
            try:
                self._server.tasks.spawn("answer again", again)
                return
            except (TasksFull, TasksClosed):
                answer = too_many(context, "too many reads wait")
        except Exception as failed:  # noqa: BLE001 - the edge, as in `app`
            answer = self._outcomes.failed(context, failed)
        if self._audit is not None:
            self._audit.begin(context)  # not before: it may have to be done again
        deferred.resolve(self._outcomes.counted(context, context.request, answer))

    def _when_fresh(self, context: Context, waiting: Freshening) -> Deferred:
        """Begin a write when memory has all that was acknowledged before it. No task is needed,
        unless something else has to be waited for."""
        deferred = Deferred()

        def begin(error: StorageError | None) -> None:
            later: Coroutine[Any, Any, None]
            try:
                if error is not None:
                    raise error
                begun = waiting.begin()
                if isinstance(begun, PendingCommit):
                    self._when_committed(context, begun, deferred)
                    return
                if isinstance(begun, HttpResponse):
                    self._keep(context, deferred, begun)
                    return
                later = self._resolve_later(context, waiting, deferred)
            except DoAgain as lack:
                later = self._resolve_again(context, lack, deferred)
            except Exception as failed:  # noqa: BLE001 - the edge, as in `app`
                self._keep(context, deferred, self._outcomes.failed(context, failed))
                return
            try:
                self._server.tasks.spawn("write later", later)
            except (TasksFull, TasksClosed):
                self._keep(context, deferred, too_many(context, "too many writes wait"))

        self._server.store.caches.when_fresh(begin)
        return deferred

    def _keep(self, context: Context, deferred: Deferred, answer: HttpResponse) -> None:
        """Keep the promise of an answer."""
        if context.slot is not None:
            context.slot.leave()
        deferred.resolve(self._outcomes.counted(context, context.request, answer))

    async def _resolve_later(
        self, context: Context, waiting: Freshening, deferred: Deferred
    ) -> None:
        deferred.resolve(await self._seated(context, waiting.again()))

    def _when_committed(
        self, context: Context, committing: PendingCommit, deferred: Deferred
    ) -> Deferred:
        """Answer a write when the store has committed it. No task is needed, unless it has to be
        done again."""

        def answer(_outcome: asyncio.Future[Outcome]) -> None:
            try:
                written = committing.begun.settle()
                if written is None:
                    self._server.tasks.spawn(
                        "write again", self._write_again(context, committing, deferred)
                    )
                    return
                found = committing.answer(written)
            except (TasksFull, TasksClosed):
                found = too_many(context, "too many writes wait")
            except Exception as error:  # noqa: BLE001 - the edge, as in `app`
                found = self._outcomes.failed(context, error)
            except InvariantViolation as violation:
                # A callback's error is only logged; a task's would have ended the process.
                self._server.runtime.fatal(violation)
                raise
            self._keep(context, deferred, found)

        committing.begun.outcome.add_done_callback(answer)
        return deferred

    async def _write_again(
        self, context: Context, committing: PendingCommit, deferred: Deferred
    ) -> None:
        work = self._later(context, committing.again())
        slot = context.slot
        deferred.resolve(await (work if slot is None else Seated(work, slot)))

    async def _do_again(self, context: Context, lack: DoAgain) -> Answer:
        """Do a request anew from its first step, once it has what it lacked."""
        for _ in range(AGAIN_MAX):
            await lack.settle()
            try:
                context.resource = None
                context.warnings.clear()
                context.annotations = None
                return await awaited(self._chain(context))
            except DoAgain as next_lack:
                lack = next_lack
        raise status.unavailable(
            f"what {context.info.path} means is changing; try again",
            retry_after_seconds=status.RETRY_AFTER_SECONDS,
        )

    async def _resolve_again(self, context: Context, lack: DoAgain, deferred: Deferred) -> None:
        self._in_flight.take(context)
        work = self._later(context, self._do_again(context, lack))
        deferred.resolve(await (work if context.slot is None else Seated(work, context.slot)))

    async def _later(self, context: Context, awaitable: Awaitable[Answer]) -> Answer:
        try:
            try:
                answer = await awaitable
            except DoAgain as lack:
                answer = await self._do_again(context, lack)
        except asyncio.CancelledError:
            if self._audit is not None:
                self._audit.given_up(context)
            raise
        except Exception as error:  # noqa: BLE001 - the edge, for answers that had to wait
            answer = self._outcomes.failed(context, error)
        if isinstance(answer, HttpResponse):
            return self._outcomes.counted(context, context.request, answer)
        if self._audit is not None:
            self._audit.stream(context, answer)
        return answer


async def awaited(promise: Promise | Writing) -> Answer:
    """The answer that a handler has promised, in whatever way."""
    if isinstance(promise, Freshening):
        return await promise.again()
    if isinstance(promise, PendingCommit):
        await asyncio.wait([promise.begun.outcome])
        written = promise.begun.settle()
        return await promise.again() if written is None else promise.answer(written)
    if isinstance(promise, Shielded):
        return await promise.awaitable
    if isinstance(promise, Deferred):
        kept: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        promise.then(
            lambda answer: close_unused(answer) if kept.done() else kept.set_result(answer)
        )
        return await kept
    if isinstance(promise, Awaitable):
        return await promise
    return promise
