"""The request chain: the steps that every request goes through, in order.

    parse the request line -> authenticate -> authorize -> does another server serve the API?
      -> find the resource -> check the write barrier -> the handler of the verb
      -> the response, or the Status of an error

Each handler is one coroutine, and a request runs synchronously until its first await that blocks
(`aio.eager`): a request that never blocks creates no task. A blocked request holds a slot of the
in-flight limiter (`limits`).

Not here: parsing of a request line (`routes`), lookup of the resource (`lookup`), errors and the
count of responses (`outcomes`), the byte-level shortcut for gets (`short_gets`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from restow.aio import Suspended, run_eagerly
from restow.aio.events import EventChannel
from restow.aio.loop_steps import LONG_SECONDS
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.audit import AuditIds, Auditor
from restow.authentication import Authentication
from restow.authorization.authorizer import Authorizer
from restow.endpoints.access import AccessCheck
from restow.endpoints.actions import ACTIONS, UNSTORED, VERBS, WRITTEN_TO, Action
from restow.endpoints.handlers.reviews import review
from restow.endpoints.handlers.server import Server
from restow.endpoints.lookup import find_resource
from restow.endpoints.nonresource import NonResources, no_such_version
from restow.endpoints.outcomes import RequestOutcomes
from restow.endpoints.representations import check_form
from restow.endpoints.request_steps import RequestSteps
from restow.endpoints.revocation import Revocation
from restow.endpoints.short_gets import ShortGets, may_be_short
from restow.httpserver import (
    Answer,
    AppResult,
    HttpRequest,
    HttpResponse,
    PushStream,
    Quick,
    Tunnel,
)
from restow.registry.errors import DoAgain
from restow.registry.resource import Resource
from restow.request.context import Context
from restow.request.limits import InFlight, RequestLimits, hold_slot
from restow.request.metrics import Metrics
from restow.request.parameters import check_parameters, check_timeout
from restow.request.responses import JSON_HEADERS, LongResponse, error_answer
from restow.request.routes import Route, Routes, ShortGet, deprecation_of

Barrier = Callable[[Context, Resource], None]
Actions: TypeAlias = "Mapping[tuple[str, str], Action]"
"""Handlers of subresources that are not a part of the stored object, by subresource and verb."""

_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def open_barrier(_context: Context, _resource: Resource) -> None:
    """The barrier of a server that has nothing to wait for: always open."""


class RemoteApis(Protocol):
    """Proxies requests for the APIs of other servers."""

    @property
    def changed(self) -> EventChannel[[]]:
        """Called when the set of requests that are for remote APIs has changed."""

    async def answer(self, context: Context) -> Answer | None:
        """The response to an authorized request; None if this server handles it.

        Raises a StatusError.
        """


class App:
    """Handles every request of one server. Call it with the request."""

    def __init__(
        self,
        server: Server,
        *,
        authentication: Authentication,
        authorizer: Authorizer,
        nonresources: Callable[[Callable[[HttpRequest], AppResult]], NonResources],
        metrics: Metrics,
        barrier: Barrier = open_barrier,
        actions: Actions | None = None,
        aggregation: RemoteApis | None = None,
        limits: RequestLimits | None = None,
        audit: Auditor | None = None,
    ) -> None:
        """`nonresources` is called with this app, through which its pages may send requests."""
        self._server = server
        self._nonresources = nonresources(self)
        self._metrics = metrics
        self._barrier = barrier
        self._actions: Actions = {**ACTIONS, **(actions or {})}
        clock, self._steps = server.runtime.clock, server.runtime.steps
        self.access: Final = AccessCheck(authentication, authorizer, clock)
        self._admit = self.access.admit
        self.revocation: Final = Revocation(self.access, clock)
        self._monotonic = self._steps.monotonic
        self._request_steps = RequestSteps(self._steps)
        self._audit = audit
        self._audit_ids = AuditIds(server.runtime.ids)
        limits = limits or RequestLimits()
        self.in_flight: Final = InFlight(clock.monotonic, limits.in_flight)
        self._routes = Routes(limits.deadlines)
        outcomes = RequestOutcomes(
            clock, metrics, audit, audit_ids=self._audit_ids, authentication=authentication
        )
        self._failed, self._counted = outcomes.failed, outcomes.counted
        self.refused: Final = outcomes.refused
        self._short_gets = ShortGets(
            server,
            authorizer=authorizer,
            routes=self._routes,
            audit=audit,
            audit_ids=self._audit_ids,
        )
        self.quick: Final = Quick(self._short_gets.quick, JSON_HEADERS, may_be_short)
        server.catalog.changed.subscribe(lambda _group: self._routes.forget())
        self._aggregation = aggregation
        if aggregation is not None:
            aggregation.changed.subscribe(self._routes.forget)

    def __call__(self, request: HttpRequest) -> AppResult:
        if not request.answer_lines:  # else set by the gate
            request.answer_lines = self._audit_ids.line_for(request)
        try:
            route = self._routes.of(request)
        except Exception as error:  # noqa: BLE001 - the boundary: any error becomes a response
            return self._counted(None, request, self._failed(None, error))
        request.answer_by_seconds = request.received_seconds + route.seconds_max
        context = self._context_of(request, route)
        begin = self._monotonic()
        result = run_eagerly(self._answer(context, route))
        end = self._monotonic()
        if end - begin >= LONG_SECONDS:
            self._steps.note(self._request_steps.of(route.info.verb), begin, end, context)
        if isinstance(result, Suspended):
            self.in_flight.take(context)
            kind = self._request_steps.of(route.info.verb)
            return result.measured_by(self._steps, kind, context)
        return result

    async def _answer(self, context: Context, route: Route) -> Answer:
        """The response to a request, counted and audited; raises nothing but its cancellation."""
        answer: Answer | None = None
        slot_is_held = False
        try:
            while answer is None:
                try:
                    answer = await self._chain(context, route)
                    if type(answer) is LongResponse:
                        answer = await self._server.offload.encode(context, answer.finish)
                except DoAgain as lack:
                    await self._settle(context, lack)
                    route = self._routes.of(context.request)
            if not isinstance(answer, HttpResponse) and context.info.is_long:
                slot = self.in_flight.take(context)  # unless it holds one already
                if slot is not None:
                    answer, slot_is_held = hold_slot(answer, slot), True
        except (asyncio.CancelledError, GeneratorExit):
            if self._audit is not None:
                self._audit.abandoned(context)
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: any error becomes a response
            answer = self._failed(context, error)
        finally:
            if context.slot is not None and not slot_is_held:
                context.slot.leave()
        if isinstance(answer, HttpResponse):
            return self._counted(context, context.request, answer)
        if self._audit is not None:
            self._audit.stream(context, answer)
        if isinstance(answer, PushStream | Tunnel):
            self.revocation.requests.add(context, answer)
        return answer

    async def _settle(self, context: Context, lack: DoAgain) -> None:
        """Wait for a missing dependency (keys of an issuer, a conversion, a replaced CRD); then the
        request runs through the chain again."""
        if not context.retries.take():
            raise status.unavailable(
                f"the resource of {context.info.path} is being replaced; try again",
                retry_after_seconds=status.RETRY_AFTER_SECONDS,
            ) from lack
        self.in_flight.check(context)  # it blocks: it needs a slot
        await lack.settle()
        context.resource = None
        context.warnings.clear()
        context.annotations = None

    def gate(self, request: HttpRequest) -> HttpResponse | None:
        """Check a request before its body is read: the error response if it is rejected, else
        None."""
        context: Context | None = None
        request.answer_lines = self._audit_ids.line_for(request)
        try:
            context = Context(request, self._routes.of(request).info)
            self._admit(context)
            self.in_flight.check(context)
            request.memo = context
        except DoAgain:
            return None  # needs a remote call: decided when the body has arrived
        except Exception as error:  # noqa: BLE001 - the boundary, as in `__call__`
            return self._counted(context, request, self._failed(context, error))
        return None

    def given_up(self, request: HttpRequest, answer: HttpResponse) -> HttpResponse:
        """The response to a request whose body is not read further, as it is too large or too slow.
        An unauthorized request gets its 401 or 403 instead."""
        context: Context | None = None
        if not request.answer_lines:  # else set by the gate
            request.answer_lines = self._audit_ids.line_for(request)
        try:
            context = self._context_of(request, self._routes.of(request))
            self._admit(context)
            if self._audit is not None:
                self._audit.begin(context)
        except DoAgain:
            pass  # needs a remote call, which a discarded request does not wait for
        except StatusError as error:
            answer = error_answer(context, error)
        return self._counted(context, request, answer)

    @staticmethod
    def _context_of(request: HttpRequest, route: Route) -> Context:
        """The context that the gate made for this request, or a new one."""
        context, request.memo = request.memo, None
        return Context(request, route.info) if context is None else context

    async def _chain(self, context: Context, route: Route) -> Answer:
        """The steps, in order. Each may end the request by raising a StatusError."""
        info = context.info
        self._admit(context)
        if self._audit is not None:
            # KEP-2339 3.60: the audit log has clients' requests for StorageVersions
            self._audit.begin(context)
        self.in_flight.check(context)
        if not info.is_resource:
            check_timeout(info)
            return await self._nonresources.answer(context)
        resource = route.resource
        if resource is None:
            # Before the catalog and the barrier: a server of a remote API has both of its own.
            if self._aggregation is not None:
                # KEP-2339 3.29: requests for aggregated APIs do not reach the filter
                passed_on = await self._aggregation.answer(context)
                if passed_on is not None:
                    return passed_on
            if info.version not in self._server.catalog.groups.get(info.group, ()):
                self._server.check_whole()
                return no_such_version(self._server.catalog.groups, info.group)
            resource = find_resource(self._server, info, self._actions)
            check_parameters(info)
            route.resource = resource
            if ShortGet.is_there(resource, info):
                route.short = ShortGet(resource, info, self._metrics)
        context.resource = resource
        if (prepare := resource.shape.to_prepare(resource.api_version(info.version))) is not None:
            await self._server.offload.run(context, prepare)
        if deprecation := deprecation_of(resource, info.version):
            context.warn(deprecation)
        check_form(context)
        # KEP-2339 3.25: the filter, for every write
        if info.verb in _WRITES:
            self._check_barrier(context, resource)
        if not resource.kind.persisted:
            act = UNSTORED.get((resource.group, resource.plural), review)
            return await act(self._server, context)
        if info.subresource and (info.subresource, info.verb) in self._actions:
            return await self._actions[info.subresource, info.verb](self._server, context)
        if info.verb == "watch":
            self.access.limit_duration(context)
        context.request.is_shielded = info.verb in _WRITES
        return await VERBS[info.verb](self._server, context)

    def _check_barrier(self, context: Context, resource: Resource) -> None:
        """Check the barrier for all resources that this request writes. Raises a 503."""
        subresource = context.info.subresource
        if subresource or not resource.kind.persisted:
            places = WRITTEN_TO.get((resource.group, resource.plural, subresource))
            if places is not None:
                for place in places:
                    self._barrier(context, self._server.catalog.named(*place) or resource)
                return
        self._barrier(context, resource)
