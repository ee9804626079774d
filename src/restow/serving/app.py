"""The chain: what happens to every request, in order.

    read the request line -> who is it -> may they -> may it be written yet -> which resource
        -> the handler of its verb -> the answer, or the Status of what went wrong

It is synchronous: each step is a plain function, and a handler returns an answer, or something to
await when it truly must wait. So a read costs no task, and a simulator can step through it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from restow.machinery import status
from restow.machinery.errors import MachineryError
from restow.machinery.status import of_machinery_error
from restow.machinery.status_error import StatusError
from restow.resources.definition import Resource
from restow.resources.errors import translate
from restow.resources.watch_cache import WatchCache
from restow.runtime import InvariantViolation, TasksClosed, TasksFull
from restow.serving.answers import GZIP_BYTES_MIN, JSON_HEADERS, error_answer
from restow.serving.authentication import Authentication
from restow.serving.authorization.rules import Authorizer, refusal
from restow.serving.context import Context, Sender
from restow.serving.forms import check_form
from restow.serving.handlers.committing import Committing
from restow.serving.handlers.creating import create
from restow.serving.handlers.deleting import delete, delete_collection
from restow.serving.handlers.listing import list_objects
from restow.serving.handlers.patching import patch
from restow.serving.handlers.reading import answer_from, get
from restow.serving.handlers.reviews import review
from restow.serving.handlers.server import Server
from restow.serving.handlers.updating import update
from restow.serving.handlers.watching import watch
from restow.serving.listener import (
    Answer,
    Deferred,
    Headers,
    Promise,
    Quick,
    Request,
    RequestLine,
    Response,
    Shielded,
)
from restow.serving.metrics import Metrics
from restow.serving.nonresource import NonResources, not_found_text
from restow.serving.parameters import check_parameters, seconds_of
from restow.serving.request_info import RequestInfo, has_siblings, parse_request, sibling
from restow.storage.errors import StorageError
from restow.storage.interface import Outcome

logger = logging.getLogger(__name__)

Handler: TypeAlias = "Callable[[Server, Context], Promise | Committing]"
Barrier = Callable[[Context, Resource], None]
Actions: TypeAlias = "Mapping[tuple[str, str], Handler]"
"""What is done by a subresource that is no part of its object, by its name and the verb."""

RETRY_SECONDS: Final = 1
ROUTES_MAX: Final = 4096
# Longer ones are rare, and would fill the memory with what will not be asked again.
ROUTE_LENGTH_MAX: Final = 512
# Verbs of one object; all others are about a collection.
_NAMED: Final = frozenset({"get", "update", "patch", "delete"})
_IN_ONE_NAMESPACE: Final = frozenset({"create", "deletecollection"})
_SUBRESOURCE_VERBS: Final = frozenset({"get", "update", "patch"})
_WRITING_METHODS: Final = frozenset({"PUT", "PATCH", "DELETE"})
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})

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


class ShortGet:
    """A get of an object whose answer is what memory holds, as it is."""

    __slots__ = ("api_version", "info", "path", "root", "tally")

    def __init__(self, resource: Resource, info: RequestInfo, metrics: Metrics) -> None:
        self.info = info
        self.root = resource.root
        self.path = resource.path_of(info.namespace, info.name)
        self.api_version = resource.api_version(info.version)
        self.tally = metrics.tally(("get", info.group, info.version, info.resource, "", "200"))

    @staticmethod
    def is_there(info: RequestInfo) -> bool:
        """Whether a request like this can be answered that way."""
        return info.verb == "get" and info.method == "GET" and not (info.subresource or info.query)


class _Route:
    """What a request line means. It never changes, so it is worked out once."""

    __slots__ = ("info", "resource", "seconds_max", "short")

    def __init__(self, info: RequestInfo) -> None:
        self.info = info
        self.seconds_max = seconds_of(info)
        self.resource: Resource | None = None
        """Set once the path, the verb and the parameters have been found to be good."""
        self.short: ShortGet | None = None
        """Set once a get was answered the long way, if there is a short one."""


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
    ) -> None:
        self._server = server
        self._authentication = authentication
        self._authorizer = authorizer
        self._nonresources = nonresources
        self._metrics = metrics
        self._barrier = barrier
        self._actions = actions or {}
        self._clock = server.runtime.clock
        self._monotonic = self._clock.monotonic
        self._allows = authorizer.allows
        self._caches = server.store.caches
        self.quick: Final = Quick(self.quick_get, JSON_HEADERS)
        self._routes: dict[tuple[str, str, str], _Route] = {}
        self._siblings: dict[tuple[str, str, str], _Route] = {}
        """By method, path without the last segment, and query: the first of many like it."""

    def __call__(self, request: Request) -> Promise:
        context: Context | None = None
        try:
            route = self._route(request)
            request.answer_by_seconds = request.received_seconds + route.seconds_max
            if route.short is not None:
                awaited = self._get_when_fresh(request, route, route.short)
                if awaited is not None:
                    return awaited
            context = Context(request, route.info)
            answer = self._chain(context, route)
        except Exception as error:  # noqa: BLE001 - the edge: whatever it is, it is answered
            return self._counted(context, request, error_answer(context, as_status(error)))
        if isinstance(answer, Response):
            return self._counted(context, request, answer)
        if isinstance(answer, Committing):
            return self._when_committed(context, answer)
        if isinstance(answer, Shielded):
            return Shielded(self._later(context, answer.awaitable))
        if isinstance(answer, Awaitable):
            return self._later(context, answer)
        return answer

    def quick_get(
        self, line: RequestLine, headers: Headers, received_seconds: float
    ) -> bytes | None:
        """The most travelled way, in as few steps as can be; None: go the long one."""
        short: ShortGet | None = line.memo
        if short is None:
            route = self._routes.get((line.method, line.path, line.query))
            if route is None or route.short is None:
                return None
            short = line.memo = route.short
        sender: Sender | None = headers.memo
        if sender is None or not sender.is_plain or not self._allows(sender.user, short.info):
            return None
        cache = self._caches.fresh(short.root)
        if cache is None:
            return None
        return self._short_body(short, cache, received_seconds)

    def _get_when_fresh(self, request: Request, route: _Route, short: ShortGet) -> Deferred | None:
        """Answer a get when memory has all that was acknowledged before it, without a task; None
        if that is not what it lacks."""
        sender: Sender | None = request.headers.memo
        if sender is None or not sender.is_plain or not self._allows(sender.user, short.info):
            return None
        cache = self._caches.ready(short.root)
        if cache is None or self._caches.fresh(short.root) is not None:
            return None
        deferred = Deferred()

        def answer(error: StorageError | None) -> None:
            body = None
            if error is None:
                body = self._short_body(short, cache, request.received_seconds)
            if body is not None:
                deferred.resolve(Response(200, body, JSON_HEADERS))
            else:
                deferred.resolve(self._long_answer(request, route, cache, error))

        self._caches.when_fresh(answer)
        return deferred

    def _short_body(
        self, short: ShortGet, cache: WatchCache, received_seconds: float
    ) -> bytes | None:
        entry = cache.get(short.path)
        if entry is None or entry[1] != short.api_version or len(entry[2]) > GZIP_BYTES_MIN:
            return None
        short.tally.add(self._monotonic() - received_seconds)
        return entry[2]

    def _long_answer(
        self, request: Request, route: _Route, cache: WatchCache, error: StorageError | None
    ) -> Response:
        """The answer to a get that has waited, when it is not just what memory holds."""
        context = Context(request, route.info)
        context.resource = route.resource
        try:
            if error is not None:
                raise error
            answer = answer_from(self._server, context, cache)
        except Exception as failed:  # noqa: BLE001 - the edge, as in `__call__`
            answer = error_answer(context, as_status(failed))
        return self._counted(context, request, answer)

    def _when_committed(self, context: Context, committing: Committing) -> Deferred:
        """Answer a write when the store has committed it. No task is needed, unless it has to be
        done again."""
        deferred = Deferred()

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
                found = error_answer(
                    context,
                    status.unavailable("too many writes wait", retry_after_seconds=RETRY_SECONDS),
                )
            except Exception as error:  # noqa: BLE001 - the edge, as in `__call__`
                found = error_answer(context, as_status(error))
            except InvariantViolation as violation:
                # A callback's error is only logged; a task's would have ended the process.
                self._server.runtime.fatal(violation)
                raise
            deferred.resolve(self._counted(context, context.request, found))

        committing.begun.outcome.add_done_callback(answer)
        return deferred

    async def _write_again(
        self, context: Context, committing: Committing, deferred: Deferred
    ) -> None:
        deferred.resolve(await self._later(context, committing.again()))

    def gate(self, request: Request) -> Response | None:
        """The refusal of a request whose body is still to come, so that nobody reads it for
        nothing; None lets it in."""
        context: Context | None = None
        try:
            context = Context(request, self._route(request).info)
            self._admit(context)
        except StatusError as error:
            return self._counted(context, request, error_answer(context, error))
        return None

    def _admit(self, context: Context) -> None:
        """Who is it, and may they. Raises 401 or 403."""
        context.user = self._authentication.authenticate(context.request)
        if not self._authorizer.allows(context.user, context.info):
            raise refusal(context.user, context.info)

    def _chain(self, context: Context, route: _Route) -> Promise | Committing:
        """The steps, in order. Each may end the request by raising a StatusError."""
        info = context.info
        self._admit(context)
        if not info.is_resource:
            return self._nonresources.answer(context)
        resource = route.resource
        if resource is None:
            if info.version not in self._server.catalog.groups.get(info.group, ()):
                return not_found_text()
            resource = self._resource(info)
            check_parameters(info)
            route.resource = resource
            if resource.kind.persisted and ShortGet.is_there(info):
                route.short = ShortGet(resource, info, self._metrics)
        context.resource = resource
        check_form(context)
        if info.verb in _WRITES:
            self._barrier(context, resource)
        if not resource.kind.persisted:
            return review(self._server, context)
        if info.subresource and (info.subresource, info.verb) in self._actions:
            return self._actions[info.subresource, info.verb](self._server, context)
        return HANDLERS[info.verb](self._server, context)

    def _resource(self, info: RequestInfo) -> Resource:
        """The resource a request is about. Raises 404 or 405."""
        resource = self._server.catalog.find(info.group, info.version, info.resource)
        if resource is None:
            raise status.resource_not_found()
        kind = resource.kind
        if info.subresource:
            subresource = kind.subresource(info.subresource)
            if subresource is None or info.rest:
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

    def _route(self, request: Request) -> _Route:
        key = (request.method, request.path, request.query)
        route = self._routes.get(key)
        if route is None and request.method in _WRITING_METHODS:
            route = self._sibling(request)
        if route is None:
            query = f"?{request.query}" if request.query else ""
            route = _Route(parse_request(request.method, request.path + query))
            if len(request.path) + len(query) > ROUTE_LENGTH_MAX:
                return route
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[key] = route
        return route

    def _sibling(self, request: Request) -> _Route | None:
        """The route of a write to an object, from that of another beside it; None: read it.

        Objects are many and each is seldom written, so that their routes are not worth keeping.
        """
        folder, _, name = request.path.rpartition("/")
        key = (request.method, folder, request.query)
        known = self._siblings.get(key)
        if known is not None:
            info = sibling(known.info, request.path, name)
            if info is None:
                return None
            route = _Route(info)
            route.resource = known.resource
            return route
        query = f"?{request.query}" if request.query else ""
        if len(request.path) + len(query) > ROUTE_LENGTH_MAX:
            return None
        route = _Route(parse_request(request.method, request.path + query))
        if has_siblings(route.info, name):
            if len(self._siblings) >= ROUTES_MAX:
                self._siblings.clear()
            self._siblings[key] = route
        return route

    async def _later(self, context: Context, awaitable: Awaitable[Answer]) -> Answer:
        try:
            answer = await awaitable
        except Exception as error:  # noqa: BLE001 - the edge, for answers that had to wait
            answer = error_answer(context, as_status(error))
        if isinstance(answer, Response):
            return self._counted(context, context.request, answer)
        return answer

    def _counted(self, context: Context | None, request: Request, answer: Response) -> Response:
        seconds = self._clock.monotonic() - request.received_seconds
        if context is None or context.resource is None:
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
        return answer


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
