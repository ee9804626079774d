"""Several watches in one response, for clients with few connections, such as browsers.

    GET ...?watch=/api/v1/events%3Fwatch%3D1&watch=/apis/...   ->   0 {"type":"ADDED","object":...}
                                                                    1 {"type":"ADDED","object":...}

Each line is one event of one watch, prefixed with the number of the watch. A watch that ends sends
an event of type END, preceded by ERROR if it failed, as in any watch. Every watch runs as a
separate request to the same application with the same headers, so authorization, limits and
responses are those of a separate request. Connection headers are left out: an inner watch cannot
switch protocols. Not here: the watches themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from restow.aio import Clock, InvariantViolation, Tasks, TasksClosed, TasksFull, Timer
from restow.apimachinery import status
from restow.apimachinery.status_decoder import status_from_response
from restow.apimachinery.status_error import StatusError
from restow.httpserver import (
    Answer,
    AppResult,
    Headers,
    HttpRequest,
    HttpResponse,
    PushStream,
    StreamWriter,
    close_awaitable,
    close_unused,
    header_block,
)
from restow.request.context import Context
from restow.request.request_info import parse_request

WATCHES_MAX: Final = 10
SECONDS_MAX: Final = 3600.0
"""How long one response lasts. Then the client has to send, and authenticate, the request again."""

# No proxy may buffer lines: the next one may be an hour away.
_HEADERS: Final = header_block(
    [
        ("Content-Type", "application/x-ndjson"),
        ("Cache-Control", "no-store"),
        ("X-Accel-Buffering", "no"),
        ("X-Content-Type-Options", "nosniff"),
    ]
)
_END: Final = b'{"type":"END"}\n'
_HOP_BY_HOP: Final = ("connection", "upgrade", "sec-websocket-")
"""Prefixes of the names of connection headers, which are not passed to inner requests."""

logger = logging.getLogger(__name__)

App = Callable[[HttpRequest], AppResult]


def bundle(
    context: Context, app: App, *, clock: Clock, tasks: Tasks, seconds_max: float = SECONDS_MAX
) -> PushStream:
    """The streaming response to a request that names its watches. Raises 400."""
    targets = context.info.query.get("watch", [])
    if not 0 < len(targets) <= WATCHES_MAX:
        raise status.bad_request(f"1 to {WATCHES_MAX} parameters 'watch' are needed")
    headers = _inner_headers(context.request.headers)
    requests = [_request(context, target, headers) for target in targets]
    opened: list[_Bundle] = []

    def start(writer: StreamWriter) -> None:
        opened.append(_Bundle(writer, app, clock, tasks))
        opened[0].open(requests, min(seconds_max, SECONDS_MAX))

    def fail(status_json: bytes) -> None:
        opened[0].fail(status_json)

    return PushStream(200, start, _HEADERS, on_revoked=fail)


def _inner_headers(outer: Headers) -> Headers:
    """The headers of the inner requests: all but those of the outer connection."""
    if not any(name.startswith(_HOP_BY_HOP) for name, _ in outer.items()):
        return outer
    return Headers([line for line in outer.items() if not line[0].startswith(_HOP_BY_HOP)])


def _request(context: Context, target: str, headers: Headers) -> HttpRequest:
    """One of the watches, as the separate request that it stands for."""
    info = parse_request("GET", target)
    if not info.is_resource or info.verb != "watch":
        raise status.bad_request(f"{target[:64]!r} is not the path of a watch")
    path, _, query = target.partition("?")
    outer = context.request
    return HttpRequest(
        "GET", path, query, headers, b"", outer.peer, outer.received_seconds, 1, True
    )


class _Bundle:
    """The watches of one response, which share its stream."""

    def __init__(self, writer: StreamWriter, app: App, clock: Clock, tasks: Tasks) -> None:
        self._outer = writer
        self._app = app
        self._clock = clock
        self._tasks = tasks
        self._channels: list[_Channel] = []
        self._timer: Timer | None = None

    def open(self, requests: Sequence[HttpRequest], seconds: float) -> None:
        self._outer.on_close = self._closed
        self._outer.on_writable = self._writable
        self._timer = self._clock.call_later(seconds, self._timed_out)
        self._channels = [_Channel(number, self) for number in range(len(requests))]
        for channel, request in zip(self._channels, requests, strict=True):
            # As one of the requests that its sender might have sent separately.
            self._outer.do_later(partial(self._begin, channel, request))

    def _begin(self, channel: _Channel, request: HttpRequest) -> None:
        """Call the application, unless the response has ended while this was queued."""
        if self._outer.closed:
            return
        try:
            result = self._app(request)
        except InvariantViolation as violation:
            self._tasks.spawn("bundled watch", _fail(violation))  # its owner ends the process
            return
        if not isinstance(result, Awaitable):
            self._open(channel, result)
            return
        try:
            self._tasks.spawn("bundled watch", self._await(channel, result))
        except (TasksFull, TasksClosed):
            close_awaitable(result)
            channel.fail(status.unavailable("too many requests wait", retry_after_seconds=1))

    async def _await(self, channel: _Channel, result: Awaitable[Answer]) -> None:
        self._open(channel, await result)

    def _open(self, channel: _Channel, answer: Answer) -> None:
        if self._outer.closed:
            close_unused(answer)
        elif isinstance(answer, PushStream):
            try:
                answer.start(channel.writer)
            except Exception:  # lines were sent already: abort, so that the client sees an error
                logger.exception("watch %d of a bundle failed", channel.number)
                self._outer.abort()
        elif isinstance(answer, HttpResponse):
            body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
            channel.fail(status_from_response(answer.status, body))
        else:
            close_unused(answer)
            channel.fail(status.internal("a watch was not answered by a stream"))

    def do_later(self, work: Callable[[], None]) -> None:
        """Do work of one watch when the work budget of the connection allows it."""
        self._outer.do_later(work)

    def send(self, number: int, lines: bytes) -> None:
        """Send complete lines of one watch."""
        mark = b"%d " % number
        self._outer.write(b"".join([mark + line for line in lines.splitlines(keepends=True)]))
        for channel in self._channels:
            channel.writer.writable = self._outer.writable

    def ended(self) -> None:
        """Count a watch that has ended; the response ends with the last one."""
        if all(channel.writer.closed for channel in self._channels):
            self._stop_timer()
            self._outer.close()

    def _writable(self) -> None:
        for channel in self._channels:
            channel.writer.writable = True
        for channel in self._channels:
            if not channel.writer.closed and channel.writer.on_writable is not None:
                channel.writer.on_writable()

    def _timed_out(self) -> None:
        self._closed()
        self._outer.close()

    def fail(self, status_json: bytes) -> None:
        """End all watches with this Status."""
        for channel in self._channels:
            if not channel.writer.closed:
                self.send(channel.number, _error_line(status_json) + _END)
        self._timed_out()

    def _closed(self) -> None:
        self._stop_timer()
        for channel in self._channels:
            channel.cut()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def overfull(self) -> bool:
        return self._outer.closed

    def abort(self) -> None:
        self._outer.abort()


async def _fail(violation: InvariantViolation) -> None:
    raise violation


class _Channel:
    """The connection of one watch, as its stream uses it."""

    def __init__(self, number: int, owner: _Bundle) -> None:
        self.number = number
        self._owner = owner
        # Unchunked: its output is a part of the chunks of the outer response.
        self.writer = StreamWriter(self, self._write, chunked=False, later=owner.do_later)

    def _write(self, lines: bytes) -> None:
        self._owner.send(self.number, lines)

    def fail(self, error: StatusError) -> None:
        self.writer.write(_error_line(error.to_bytes()))
        self.writer.close()

    def cut(self) -> None:
        """Notify the watch that the response has ended."""
        self.writer.cut()

    def stream_overfull(self) -> bool:
        return self._owner.overfull()

    def stream_done(self) -> None:
        self._owner.send(self.number, _END)
        self._owner.ended()

    def stream_abort(self) -> None:
        self._owner.abort()


def _error_line(status_json: bytes) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % status_json
