"""The chain: what happens to every request, in order.

    read the request line -> who is it -> may they -> does another server serve it
        -> which resource -> may it be written yet -> the handler of its verb
        -> the answer, or the Status of what went wrong

It is synchronous: each step is a plain function, and a handler returns an answer, or something to
await when it truly must wait. So a read costs no task, and a simulator can step through it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeAlias

from restow.machinery import status
from restow.machinery.errors import MachineryError
from restow.machinery.status import of_machinery_error
from restow.machinery.status_error import StatusError
from restow.resources.definition import Resource
from restow.resources.errors import DoAgain, ResourceReplaced, translate
from restow.resources.watch_cache import WatchCache
from restow.runtime import InvariantViolation, TasksClosed, TasksFull
from restow.serving.actions import ACTIONS, UNSTORED, WRITTEN_TO
from restow.serving.answers import JSON_HEADERS, error_answer
from restow.serving.audit import AuditIds, Auditor
from restow.serving.authentication import Authentication
from restow.serving.authentication.impersonation import impersonated, wish_of
from restow.serving.authorization.rules import Authorizer, refusal
from restow.serving.context import ANONYMOUS, Context
from restow.serving.forms import check_form
from restow.serving.handlers.committing import Committing, Freshening, Writing
from restow.serving.handlers.creating import create
from restow.serving.handlers.deleting import delete, delete_collection
from restow.serving.handlers.listing import list_objects
from restow.serving.handlers.patching import patch
from restow.serving.handlers.reading import answer_from, get
from restow.serving.handlers.reviews import review
from restow.serving.handlers.server import Server
from restow.serving.handlers.updating import update
from restow.serving.handlers.watching import watch
from restow.serving.limits import InFlight, RequestLimits, Seated
from restow.serving.listener import (
    Answer,
    Deferred,
    Promise,
    Quick,
    Request,
    Response,
    Shielded,
)
from restow.serving.metrics import Metrics
from restow.serving.nonresource import NonResources, no_such_version
from restow.serving.parameters import check_parameters, check_timeout
from restow.serving.request_info import RequestInfo
from restow.serving.routes import Route, Routes, ShortGet, deprecation_of
from restow.serving.short_gets import ShortGets, may_be_short
from restow.storage.errors import StorageError
from restow.storage.interface import Outcome

logger = logging.getLogger(__name__)

Handler: TypeAlias = "Callable[[Server, Context], Promise | Writing]"
Barrier = Callable[[Context, Resource], None]
Actions: TypeAlias = "Mapping[tuple[str, str], Handler]"
"""What is done by a subresource that is no part of its object, by its name and the verb."""

RETRY_SECONDS: Final = 1
AGAIN_MAX: Final = 8
"""How often a request is done anew because what it is about has changed."""
# Verbs of one object; all others are about a collection.
_NAMED: Final = frozenset({"get", "update", "patch", "delete"})
_IN_ONE_NAMESPACE: Final = frozenset({"create", "deletecollection"})
_SUBRESOURCE_VERBS: Final = frozenset({"get", "update", "patch"})
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_EXPECTED: Final = (StatusError, StorageError, MachineryError, RecursionError)

HANDLERS: Final[dict[str, Handler]] = {
    "get": get,
    "list": list_objects,
    "watch": watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}


def open_barrier(_context: Context, _resource: Resource) -> None:
    """The barrier of a server that need not wait for anything."""


class Aggregation(Protocol):
    """Who passes on requests for the APIs of other servers."""

    @property
    def listeners(self) -> list[Callable[[], None]]:
        """Called when other requests may be for remote APIs than before."""

    def answer(self, context: Context) -> Promise | None:
        """The answer to a request of somebody who may make it; None: it is for this server.

        Raises a StatusError.
        """


class App:
    """One server's answer to every request. Call it."""

    def __init__(
        self,
        server: Server,
        *,
        authentication: Authentication,
        authorizer: Authorizer,
        nonresources: NonResources,
        metrics: Metrics,
        barrier: Barrier = open_barrier,
        actions: Actions | None = None,
        aggregation: Aggregation | None = None,
        limits: RequestLimits | None = None,
        audit: Auditor | None = None,
    ) -> None:
        self._server = server
        self._authentication = authentication
        self._authorizer = authorizer
        self._nonresources = nonresources
        self._metrics = metrics
        self._barrier = barrier
        self._actions: Actions = {**ACTIONS, **(actions or {})}
        self._clock = server.runtime.clock
        self._audit = audit
        self._audit_ids = AuditIds(server.runtime.ids)
        limits = limits or RequestLimits()
        self.in_flight: Final = InFlight(self._clock.monotonic, limits.in_flight)
        self._routes = Routes(limits.deadlines)
        self._short_gets = ShortGets(
            server,
            authorizer=authorizer,
            routes=self._routes,
            in_flight=self.in_flight,
            audit=audit,
            audit_ids=self._audit_ids,
            long_way=self._answer_waited,
        )
        self.quick: Final = Quick(self._short_gets.quick, JSON_HEADERS, may_be_short)
        server.catalog.listeners.append(lambda _group: self._routes.forget())
        self._aggregation = aggregation
        if aggregation is not None:
            aggregation.listeners.append(self._routes.forget)

    def __call__(self, request: Request) -> Promise:
        context: Context | None = None
        if not request.answer_lines:  # or the gate has met it
            request.answer_lines = self._audit_ids.line_for(request)
        try:
            route = self._routes.of(request)
            request.answer_by_seconds = request.received_seconds + route.seconds_max
            if route.short is not None:
                awaited = self._short_gets.when_fresh(request, route, route.short)
                if awaited is not None:
                    return awaited
            context = Context(request, route.info)
            answer = self._chain(context, route)
        except DoAgain as lack:
            assert context is not None
            return self._again(context, lack)
        except Exception as error:  # noqa: BLE001 - the edge: whatever it is, it is answered
            return self._counted(context, request, self._failed(context, error))
        if isinstance(answer, Response):
            return self._counted(context, request, answer)
        if isinstance(answer, Committing):
            self.in_flight.take(context)
            return self._when_committed(context, answer, Deferred())
        if isinstance(answer, Freshening):
            self.in_flight.take(context)
            return self._when_fresh(context, answer)
        if isinstance(answer, Shielded):
            return Shielded(self._seated(context, answer.awaitable))
        if isinstance(answer, Awaitable):
            return self._seated(context, answer)
        if self._audit is not None and not isinstance(answer, Deferred):
            self._audit.stream(context, answer)
        return answer

    def _again(self, context: Context, lack: DoAgain) -> Promise:
        try:
            self.in_flight.check(context)
        except StatusError as error:
            return self._counted(context, context.request, error_answer(context, error))
        # What was begun before stays so: a write must not be given up half-way.
        return Shielded(self._seated(context, self._do_again(context, lack)))

    def _seated(self, context: Context, work: Awaitable[Answer]) -> Awaitable[Answer]:
        """Work that has to wait, with the seat that it needs for that."""
        seat = self.in_flight.take(context)
        return Seated(self._later(context, work), seat, work)

    def _answer_waited(
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
                answer = _too_many(context, "too many reads wait")
        except Exception as failed:  # noqa: BLE001 - the edge, as in `__call__`
            answer = self._failed(context, failed)
        if self._audit is not None:
            self._audit.begin(context)  # not before: it may have to be done again
        deferred.resolve(self._counted(context, context.request, answer))

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
                if isinstance(begun, Committing):
                    self._when_committed(context, begun, deferred)
                    return
                if isinstance(begun, Response):
                    self._keep(context, deferred, begun)
                    return
                later = self._resolve_later(context, waiting, deferred)
            except DoAgain as lack:
                later = self._resolve_again(context, lack, deferred)
            except Exception as failed:  # noqa: BLE001 - the edge, as in `__call__`
                self._keep(context, deferred, self._failed(context, failed))
                return
            try:
                self._server.tasks.spawn("write later", later)
            except (TasksFull, TasksClosed):
                self._keep(context, deferred, _too_many(context, "too many writes wait"))

        self._server.store.caches.when_fresh(begin)
        return deferred

    def _keep(self, context: Context, deferred: Deferred, answer: Response) -> None:
        """Keep the promise of an answer."""
        if context.seat is not None:
            context.seat.leave()
        deferred.resolve(self._counted(context, context.request, answer))

    async def _resolve_later(
        self, context: Context, waiting: Freshening, deferred: Deferred
    ) -> None:
        deferred.resolve(await self._seated(context, waiting.again()))

    def _when_committed(
        self, context: Context, committing: Committing, deferred: Deferred
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
                found = _too_many(context, "too many writes wait")
            except Exception as error:  # noqa: BLE001 - the edge, as in `__call__`
                found = self._failed(context, error)
            except InvariantViolation as violation:
                # A callback's error is only logged; a task's would have ended the process.
                self._server.runtime.fatal(violation)
                raise
            self._keep(context, deferred, found)

        committing.begun.outcome.add_done_callback(answer)
        return deferred

    async def _write_again(
        self, context: Context, committing: Committing, deferred: Deferred
    ) -> None:
        work = self._later(context, committing.again())
        seat = context.seat
        deferred.resolve(await (work if seat is None else Seated(work, seat)))

    def gate(self, request: Request) -> Response | None:
        """The refusal of a request whose body is still to come, so that nobody reads it for
        nothing; None lets it in."""
        context: Context | None = None
        request.answer_lines = self._audit_ids.line_for(request)
        try:
            context = Context(request, self._routes.of(request).info)
            self._admit(context)
            self.in_flight.check(context)
        except DoAgain:
            return None  # somebody must be asked first; it is decided when the body is there
        except Exception as error:  # noqa: BLE001 - the edge, as in `__call__`
            return self._counted(context, request, self._failed(context, error))
        return None

    def given_up(self, request: Request, answer: Response) -> Response:
        """The answer to a request whose body is read no further, as it is too large or too slow.
        Who may not make it is told that instead."""
        context: Context | None = None
        if not request.answer_lines:  # or the gate has met it
            request.answer_lines = self._audit_ids.line_for(request)
        try:
            context = Context(request, self._routes.of(request).info)
            self._admit(context)
            if self._audit is not None:
                self._audit.begin(context)
        except DoAgain:
            pass  # somebody would have to be asked first; and nobody waits for that
        except StatusError as error:
            answer = error_answer(context, error)
        return self._counted(context, request, answer)

    def _admit(self, context: Context) -> None:
        """Who is it, and may they. Raises 401 or 403."""
        context.user = self._authentication.authenticate(context.request)
        if context.user is not ANONYMOUS:
            context.request.peer.is_known = True
        # Of those who are known by their header lines, no line wishes to be another.
        if context.request.headers.memo is None:
            self._impersonate(context)
        if not self._authorizer.allows(context.user, context.info):
            why = self._authorizer.reason(context.user, context.info)
            raise refusal(context.user, context.info, why)

    def _impersonate(self, context: Context) -> None:
        """Do it as another, if that is wished for. Raises 400 or 403."""
        wish = wish_of(context.request.headers)
        if wish is None:
            context.impersonator = None
            return
        sender = context.user
        context.user = impersonated(wish, by=sender, authorizer=self._authorizer)
        context.impersonator = sender

    def _chain(self, context: Context, route: Route) -> Promise | Writing:
        """The steps, in order. Each may end the request by raising a StatusError."""
        info = context.info
        self._admit(context)
        if self._audit is not None:
            self._audit.begin(context)
        self.in_flight.check(context)
        if not info.is_resource:
            check_timeout(info)
            return self._nonresources.answer(context)
        resource = route.resource
        if resource is None:
            # Before the catalogue and the barrier: who serves it has both of its own.
            if self._aggregation is not None:
                passed_on = self._aggregation.answer(context)
                if passed_on is not None:
                    return passed_on
            if info.version not in self._server.catalog.groups.get(info.group, ()):
                self._server.check_whole()
                return no_such_version(self._server.catalog.groups, info.group)
            resource = self._resource(info)
            check_parameters(info)
            route.resource = resource
            if ShortGet.is_there(resource, info):
                route.short = ShortGet(resource, info, self._metrics)
        context.resource = resource
        if deprecation := deprecation_of(resource, info.version):
            context.warn(deprecation)
        check_form(context)
        if info.verb in _WRITES:
            self._check_barrier(context, resource)
        if not resource.kind.persisted:
            act = UNSTORED.get((resource.group, resource.plural), review)
            return act(self._server, context)
        if info.subresource and (info.subresource, info.verb) in self._actions:
            return self._actions[info.subresource, info.verb](self._server, context)
        return HANDLERS[info.verb](self._server, context)

    def _check_barrier(self, context: Context, resource: Resource) -> None:
        """Ask the barrier for all that a write to a resource writes. Raises a 503."""
        subresource = context.info.subresource
        if subresource or not resource.kind.persisted:
            places = WRITTEN_TO.get((resource.group, resource.plural, subresource))
            if places is not None:
                for place in places:
                    self._barrier(context, self._server.catalog.named(*place) or resource)
                return
        self._barrier(context, resource)

    def _resource(self, info: RequestInfo) -> Resource:
        """The resource a request is about. Raises 404 or 405."""
        resource = self._server.catalog.find(info.group, info.version, info.resource)
        if resource is None:
            self._server.check_whole()
            raise status.resource_not_found()
        kind = resource.kind
        if info.subresource:
            subresource = resource.subresource(info.version, info.subresource)
            if subresource is None or (info.rest and not subresource.takes_path):
                raise status.resource_not_found()
            # What else can be done to a subresource is not done by the handlers of objects.
            is_done = (
                info.verb in _SUBRESOURCE_VERBS or (info.subresource, info.verb) in self._actions
            )
            if info.verb not in subresource.verbs or not is_done:
                raise status.method_not_allowed(kind.group_resource, info.verb)
        elif info.verb not in kind.verbs or (info.verb in _NAMED) is not bool(info.name):
            raise status.method_not_allowed(kind.group_resource, info.verb)
        # A cluster's resource has no path in a namespace; a namespace's object none outside.
        if kind.namespaced:
            if not info.namespace and info.name:
                raise status.resource_not_found()
            if not info.namespace and info.verb in _IN_ONE_NAMESPACE:
                raise status.method_not_allowed(kind.group_resource, info.verb)
        elif info.namespace and (kind.plural != "namespaces" or info.namespace != info.name):
            raise status.resource_not_found()
        return resource

    async def _do_again(self, context: Context, lack: DoAgain) -> Answer:
        """Do a request anew from its first step, once it has what it lacked."""
        for _ in range(AGAIN_MAX):
            await lack.settle()
            try:
                route = self._routes.of(context.request)
                context.resource = None
                context.warnings.clear()
                context.annotations = None
                return await _awaited(self._chain(context, route))
            except DoAgain as next_lack:
                lack = next_lack
        raise status.unavailable(
            f"what {context.info.path} means is changing; try again",
            retry_after_seconds=RETRY_SECONDS,
        )

    async def _resolve_again(self, context: Context, lack: DoAgain, deferred: Deferred) -> None:
        self.in_flight.take(context)
        work = self._later(context, self._do_again(context, lack))
        deferred.resolve(await (work if context.seat is None else Seated(work, context.seat)))

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
            answer = self._failed(context, error)
        if isinstance(answer, Response):
            return self._counted(context, context.request, answer)
        if self._audit is not None:
            self._audit.stream(context, answer)
        return answer

    def _failed(self, context: Context | None, error: Exception) -> Response:
        """The answer to what went wrong."""
        if context is not None and self._audit is not None and not isinstance(error, _EXPECTED):
            self._audit.panicked(context)
        return error_answer(context, as_status(error))

    def _counted(self, context: Context | None, request: Request, answer: Response) -> Response:
        seconds = self._clock.monotonic() - request.received_seconds
        if context is not None and context.remote is not None:
            # What follows the version is the client's text: nobody here knows what exists.
            group, version = context.remote
            labels = (context.info.verb, group, version, "", "", str(answer.status))
        elif context is None or context.resource is None:
            labels = ("other", "", "", "", "", str(answer.status))
        else:
            info = context.info
            labels = (
                info.verb,
                info.group,
                info.version,
                info.resource,
                info.subresource,
                str(answer.status),
            )
        self._metrics.count(labels, seconds)
        if self._audit is not None and context is not None:
            self._audit.complete(context, answer)
        return answer


def _too_many(context: Context, why: str) -> Response:
    """The answer when no task can be had that is needed for one."""
    error = status.unavailable(why, retry_after_seconds=RETRY_SECONDS)
    return error_answer(context, error)


async def _awaited(promise: Promise | Writing) -> Answer:
    """The answer that a handler has promised, in whatever way."""
    if isinstance(promise, Freshening):
        return await promise.again()
    if isinstance(promise, Committing):
        await asyncio.wait([promise.begun.outcome])
        written = promise.begun.settle()
        return await promise.again() if written is None else promise.answer(written)
    if isinstance(promise, Shielded):
        return await promise.awaitable
    if isinstance(promise, Deferred):
        kept: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        promise.then(lambda answer: None if kept.done() else kept.set_result(answer))
        return await kept
    if isinstance(promise, Awaitable):
        return await promise
    return promise


def as_status(error: Exception) -> StatusError:
    """What an error is to the client."""
    match error:
        case StatusError():
            return error
        case StorageError():
            return translate(error)
        case MachineryError():
            return of_machinery_error(error)
        case RecursionError():
            return status.bad_request("the request is nested too deeply")
        case _:
            logger.error("a request has failed", exc_info=error)
            return status.internal(f"{type(error).__name__}: {error}")
