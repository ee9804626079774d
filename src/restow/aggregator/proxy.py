"""Forwards requests for aggregated APIs to a backend, and streams the response back.

    authenticated, authorized -> which API -> the request (`forwarded_headers`) -> a backend
        (`backends`)
    -> a small response whole, a large one in pieces, a 101 as a tunnel (`connection_upgrade`)

Only the part of a response that is in transit is buffered: the backend is read as fast as the
client reads. A client that disconnects ends the request at the backend. Errors of a backend affect
only its own requests:

    not available, not reachable, timeout, invalid HTTP   503
    too many requests to this API                         429
    a redirect                                            502
    a response that ends prematurely                      ends prematurely

Not here: authorization (`restow.endpoints.app`), the list of APIs (`Directory`), the documents.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from restow.aggregator.backends import RemoteBackends, authority_of
from restow.aggregator.connection_upgrade import has_agreed, open_tunnel
from restow.aggregator.exchanges import BackendRequest, Exchange
from restow.aggregator.forwarded_headers import NOTHING_ELSE, answer_lines, is_redirect, question_of
from restow.aggregator.interface import Directory, RemoteApi
from restow.aggregator.pools import BackendBusy
from restow.aggregator.published_headers import IdentityHeadersReader
from restow.aio import Clock, Runtime, Tasks, TasksClosed, TasksFull
from restow.aio.events import EventChannel
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.client.errors import ConnectionFailed
from restow.httpserver import Answer, HttpResponse, PullStream, PushStream, StreamWriter
from restow.request.context import Context

# With the wording of kube-apiserver.
UNAVAILABLE: Final = "service unavailable"
UNREACHABLE: Final = "error trying to reach service: "
REDIRECTED: Final = "the backend attempted to redirect this request, which is not permitted"
_STATUS_MAX: Final = 599
_RESET_CONTENT: Final = 205

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits:
    """Timeouts of backends, and the limit of streams."""

    head_seconds_max: float = 60.0
    """Time until the response must begin, else 503. A shorter timeout of the client gives a 504."""
    document_seconds_max: float = 5.0
    """The same for discovery documents, which clients request first."""
    streams_max: int = 10_000
    """Limit of long responses and tunnels of all APIs together, else 503."""


class Proxy:
    """Forwards requests to backends. Implements `restow.endpoints.app.RemoteApis`."""

    def __init__(
        self,
        directory: Directory,
        backends: RemoteBackends,
        runtime: Runtime,
        *,
        limits: ProxyLimits | None = None,
        identity_headers: IdentityHeadersReader | None = None,
        on_failed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_failed` is called with the name of an API whose backend failed."""
        self._directory = directory
        self._identity_headers = identity_headers
        self._backends = backends
        self._clock = runtime.clock
        self._limits = limits or ProxyLimits()
        self._tasks = runtime.tasks("proxy", tasks_max=self._limits.streams_max)
        self._on_failed = on_failed
        directory.changed.subscribe(lambda: self._backends.keep(directory.all()))

    @property
    def changed(self) -> EventChannel[[]]:
        """Called when the set of aggregated APIs has changed."""
        return self._directory.changed

    @property
    def streams_open(self) -> int:
        """Long responses and tunnels in progress."""
        return len(self._tasks)

    async def answer(self, context: Context) -> Answer | None:
        """Return the response to a request for an aggregated API; None for any other API.

        Raises a StatusError.
        """
        api = self._directory.find(context.info.group, context.info.version)
        return None if api is None else await self.forward(context, api)

    async def forward(self, context: Context, api: RemoteApi) -> Answer:
        """Forward a request on behalf of its user. Raises a StatusError."""
        context.remote = api.group_version
        if self._directory.unavailable(api) is not None:
            raise status.unavailable(UNAVAILABLE)
        return await self._pass_on(context, api)

    async def close(self) -> None:
        """End requests in progress. The caller closes the backends."""
        await self._tasks.close()

    async def _pass_on(self, context: Context, api: RemoteApi) -> Answer:
        identity_headers = (
            NOTHING_ELSE if self._identity_headers is None else await self._identity_headers.read()
        )
        question = question_of(
            context, authority=authority_of(api.service), identity_headers=identity_headers
        )
        exchange = await self._ask(context, api, question)
        try:
            return await self._answered(context, api, question, exchange)
        except ConnectionFailed as error:
            exchange.end()
            self._on_failed(api.name)
            raise _unreachable(error.what) from error
        except BaseException:
            exchange.end()
            raise

    async def _ask(self, context: Context, api: RemoteApi, question: BackendRequest) -> Exchange:
        limits = self._limits
        seconds = limits.head_seconds_max
        if not context.info.is_resource:
            seconds = limits.document_seconds_max
        try:
            async with self._clock.timeout(seconds):
                return await self._backends.exchange(api, question)
        except BackendBusy as error:
            raise status.too_many_requests() from error
        except ConnectionFailed as error:
            logger.info("%s: %s", api.name, error)
            self._on_failed(api.name)
            raise _unreachable(error.what) from error
        except TimeoutError as error:
            logger.info("%s: no response within %g seconds", api.name, seconds)
            self._on_failed(api.name)
            raise _unreachable("the request timed out") from error

    async def _answered(
        self, context: Context, api: RemoteApi, question: BackendRequest, exchange: Exchange
    ) -> Answer:
        head = exchange.head
        if head.status == 101 and not has_agreed(exchange, question):
            raise _unreachable("it switched to a protocol that was not requested")
        if is_redirect(head.status, exchange.lines):
            raise StatusError(REDIRECTED, code=502)
        if head.status > _STATUS_MAX:
            raise _unreachable(f"its response has the status {head.status}")
        try:
            if head.status == 101:
                return open_tunnel(exchange, name=api.name, tasks=self._tasks, clock=self._clock)
            headers = answer_lines(head.status, exchange.lines)
        except ValueError as error:
            raise _unreachable(f"its response has an invalid header: {error}") from error
        if head.status == _RESET_CONTENT:
            exchange.end()  # such a response has no body
            return HttpResponse(head.status, b"", headers)
        if head.is_small:
            body = await exchange.whole()
            exchange.end()
            if question.method == "HEAD":
                return PullStream(head.status, iter(()), headers, length=head.length)
            return HttpResponse(head.status, body, headers)
        # Client or backend end a watch; other responses have a timeout.
        by_seconds = math.inf if question.is_stream else context.request.answer_by_seconds
        sending = _Sending(
            exchange,
            self._tasks,
            self._clock,
            by_seconds=by_seconds,
            name=api.name,
            has_events=context.info.verb == "watch" and _is_json(exchange),
        )
        return PushStream(
            head.status,
            sending.start,
            headers,
            may_end=question.is_stream,
            on_dropped=exchange.end,
            on_revoked=sending.fail,
        )


class _Sending:
    """A streamed response from a backend to a client."""

    def __init__(
        self,
        exchange: Exchange,
        tasks: Tasks,
        clock: Clock,
        *,
        by_seconds: float,
        name: str,
        has_events: bool,
    ) -> None:
        """`has_events`: it is a watch in JSON, with one event per line."""
        self._writer: StreamWriter | None = None
        self._has_events = has_events
        self._is_between_events = True
        self._exchange = exchange
        self._tasks = tasks
        self._clock = clock
        self._by_seconds = by_seconds
        self._name = name
        self._room = asyncio.Event()

    def start(self, writer: StreamWriter) -> None:
        """Start; called by the listener once the head is sent."""
        self._writer = writer
        writer.on_writable = self._room.set
        try:
            task = self._tasks.spawn(f"response of {self._name}", self._run(writer))
        except (TasksFull, TasksClosed):
            self._exchange.end()
            writer.abort()
            return

        def leave() -> None:
            # A task that has not run yet does not reach its `finally`.
            self._exchange.end()
            task.cancel()

        writer.on_close = leave

    def fail(self, status_json: bytes) -> None:
        """End the response; a watch gets this Status as its last event."""
        writer = self._writer
        if writer is None or writer.closed:
            return
        if self._has_events and self._is_between_events:
            writer.write(b'{"type":"ERROR","object":%b}\n' % status_json)
        writer.drop()

    async def _run(self, writer: StreamWriter) -> None:
        clock, by = self._clock, self._by_seconds
        left = None if math.isinf(by) else max(0.0, by - clock.monotonic())
        try:
            async with clock.timeout(left), aclosing(self._exchange.pieces()) as pieces:
                async for piece in pieces:
                    self._is_between_events = piece.endswith(b"\n")
                    if not writer.write(piece):
                        await self._wait_for_room(writer)
            self._exchange.end()
            writer.close()
        except (ConnectionFailed, TimeoutError) as error:
            logger.info("%s: a response ended prematurely: %s", self._name, error)
            writer.abort()
        finally:
            self._exchange.end()

    async def _wait_for_room(self, writer: StreamWriter) -> None:
        while not writer.writable and not writer.closed:
            self._room.clear()
            await self._room.wait()


def _unreachable(what: str) -> StatusError:
    return status.unavailable(UNREACHABLE + what)


def _is_json(exchange: Exchange) -> bool:
    """Whether a response has the media type of JSON, and is not compressed."""
    headers = exchange.head.headers
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media == "application/json" and "content-encoding" not in headers
