"""Responses that take time: those of a task, streams, and tunnels.

A response is delivered only if its request is still the current one. There is one at a time, so
responses are sent in the order of their requests.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from restow.aio import (
    InvariantViolation,
    Suspended,
    TaskHandle,
    TasksClosed,
    TasksFull,
    Timer,
)
from restow.aio.loop_steps import LONG_SECONDS
from restow.httpserver.connection_states import (
    ANSWERING,
    READING,
    STREAMING,
    TUNNELLING,
    ConnectionState,
)
from restow.httpserver.connection_writer import ConnectionWriter, connection_line
from restow.httpserver.listener_state import ListenerState
from restow.httpserver.request import HttpRequest
from restow.httpserver.response import (
    Answer,
    AppResult,
    HttpResponse,
    close_awaitable,
    close_unused,
    encode_response,
    encode_stream_head,
)
from restow.httpserver.stream import (
    CHUNKED_LINE,
    LAST_CHUNK,
    PullStream,
    PushStream,
    StreamWriter,
    encode_chunk,
)
from restow.httpserver.tunnel import SWITCHING, Tunnel, TunnelEnd

T = TypeVar("T")

TIMED_SECONDS_MAX: Final = 10.0
# Timers have a resolution of milliseconds, and one that fires too early has no effect.
TIMER_SLACK_SECONDS: Final = 0.002
REFUSALS: Final = frozenset({400, 401, 403, 429})
REFUSALS_OF_KNOWN: Final = frozenset({401})
"""Statuses that throttle an authenticated connection. Not 403 and 429, of which its client may get
many: a proxy for many users, a program that probes its permissions, or a migration whose objects
a webhook rejects."""
DOUBLINGS_MAX: Final = 30
REFUSAL_BYTES: Final = 64 * 1024
"""Each of these in the head of a rejected request counts as another rejection."""

logger = logging.getLogger(__name__)


class ResponseWriter(ConnectionWriter):
    """The part of a connection that handles the response to the current request."""

    __slots__ = (
        *("_pull", "_pump_pending", "_refusals", "_request", "_ticket", "_timer", "_tunnel"),
        *("_waiting_for", "_writer", "is_deferred"),
    )

    def __init__(self, shared: ListenerState) -> None:
        super().__init__(shared)
        # The current request and its number: a late response has an old number.
        self._request: HttpRequest | None = None
        self._ticket = 0
        # Consecutive rejections.
        self._refusals = 0
        # Whether the next request is delayed, in favor of other connections or by throttling.
        self.is_deferred = False
        self._waiting_for: TaskHandle | None = None
        # Only for a response that is due soon: the periodic check is late by up to a second.
        self._timer: Timer | None = None
        self._writer: StreamWriter | None = None
        self._pull: PullStream | None = None
        # Whether the next pieces of the pulled stream wait for the work budget.
        self._pump_pending = False
        self._tunnel: TunnelEnd | None = None

    def _on_response_sent(self) -> None:
        """After a response: continue with what has arrived meanwhile."""
        raise NotImplementedError

    def _respond(self, response: HttpResponse, request: HttpRequest, out: list[bytes]) -> None:
        shared = self._shared
        keep = request.keep_alive and not response.close and not shared.stopping
        out.append(
            encode_response(
                response,
                shared.date_line,
                connection_line(request, keep=keep),
                head_only=request.method == "HEAD",
            )
        )
        if response.status >= 400 or self._refusals:
            self._count_refusal(response.status)
        if not keep:
            self._flush(out)
            self._end(drop_input=self._reader.unread_bytes > 0)

    def _count_refusal(self, status: int) -> None:
        """Throttle connections with consecutive rejections: then a flood of bad requests costs
        little, and the client learns little from the timing."""
        if status not in (REFUSALS_OF_KNOWN if self.peer.is_known else REFUSALS):
            self._refusals = 0
            return
        weight = 1 + self._reader.take_head_bytes() // REFUSAL_BYTES
        self._refusals += weight
        limits = self._shared.limits
        times = self._refusals - limits.refusals_free
        if times > 0 and not self.is_deferred:
            self._counters.requests_slowed += 1
            seconds = limits.refusal_seconds * 2 ** min(times - 1, DOUBLINGS_MAX)
            self._defer(min(seconds, limits.refusal_seconds_max * weight))

    def _defer(self, seconds: float) -> None:
        """Handle no further request for that long."""
        raise NotImplementedError

    def _flush(self, out: list[bytes]) -> None:
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._write(data)

    # --- answers that take time --------------------------------------------------------------

    def _start_response(self, result: AppResult, request: HttpRequest) -> None:
        """Start to wait for a response, or to send one."""
        match result:
            case Suspended():
                self._await_task(result, request)
            case HttpResponse():
                out: list[bytes] = []
                self._respond(result, request, out)
                self._flush(out)
            case PushStream():
                self._start_push(result, request)
            case PullStream():
                self._start_pull(result, request)
            case Tunnel():
                self._start_tunnel(result, request)
            case _ if inspect.isawaitable(result):
                self._await_task(result, request)
            case _:
                raise TypeError(f"not a response: {type(result).__name__}")

    def _begin_wait(self, request: HttpRequest) -> int:
        self.state = ANSWERING
        self._request = request
        self._counters.answers_pending += 1
        now = self._monotonic()
        by = request.answer_by_seconds
        self.deadline_seconds = min(now + self._shared.limits.answer_seconds, by)
        if by - now < TIMED_SECONDS_MAX:
            seconds = max(by - now, 0) + TIMER_SLACK_SECONDS
            self._timer = self._shared.clock.call_later(seconds, self._check_deadlines)
        return self._ticket

    def _check_deadlines(self) -> None:
        """Check the deadline of the response."""
        raise NotImplementedError

    def _await_task(self, awaitable: Awaitable[Answer], request: HttpRequest) -> None:
        ticket = self._begin_wait(request)
        if request.is_shielded and isinstance(awaitable, Suspended):
            self._await_write(awaitable, request, ticket)
        else:
            self._start_task(awaitable, request, ticket)

    def _await_write(self, suspended: Suspended[Answer], request: HttpRequest, ticket: int) -> None:
        """Resume a write when what it awaits is done: the cache, then the commit.

        A write is not cancelled when its client disconnects, so it needs no task of its own, and a
        task takes 10 % of the CPU of an update on SQLite.
        """
        if suspended.when_done(partial(self._resume, suspended, request, ticket)):
            self._shared.suspended_writes[suspended] = None
        else:
            self._start_task(suspended, request, ticket)

    def _resume(
        self,
        suspended: Suspended[Answer],
        request: HttpRequest,
        ticket: int,
        _future: asyncio.Future[object],
    ) -> None:
        """Run a write until its next suspension, or deliver its answer."""
        shared = self._shared
        is_stopped = suspended not in shared.suspended_writes
        shared.suspended_writes.pop(suspended, None)
        answer: Answer | Suspended[Answer]
        try:
            answer = suspended.resume()
        except asyncio.CancelledError as error:
            answer = self._stopped() if is_stopped else self._internal_error(request, error)
        except Exception as error:  # noqa: BLE001  (the boundary of a task: logged inside)
            answer = self._internal_error(request, error)
        except InvariantViolation as violation:
            shared.fatal(violation)
            raise
        if not isinstance(answer, Suspended):
            self._deliver(answer, ticket)
        elif is_stopped:
            self._start_task(answer, request, ticket)
        else:
            self._await_write(answer, request, ticket)

    def _start_task(self, awaitable: Awaitable[Answer], request: HttpRequest, ticket: int) -> None:
        name = f"{request.method}-{self.peer.connection_id}"
        try:
            # A write has started by now. Pending ones: up to one per connection, and those of
            # disconnected clients.
            task = self._shared.tasks.of(self.peer).spawn(
                name, self._run(awaitable, request, ticket), has_begun=request.is_shielded
            )
            if ticket == self._ticket:
                self._waiting_for = task
        except (TasksFull, TasksClosed):
            self._call_back(lambda: close_awaitable(awaitable))
            why = "too many requests wait, please try again"
            self._deliver(self._stopped() if request.is_shielded else self._error(503, why), ticket)

    def _stopped(self) -> HttpResponse:
        """The response to a write that the shutdown of the server interrupts."""
        why = "the server is shutting down; whether this request was applied is unknown"
        return self._error(503, why)

    async def _run(self, awaitable: Awaitable[Answer], request: HttpRequest, ticket: int) -> None:
        answer: Answer
        try:
            answer = await awaitable
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # This task was not cancelled, but something that it awaited.
            answer = self._internal_error(request, error)
        except Exception as error:  # noqa: BLE001  (the boundary of a task: logged inside)
            answer = self._internal_error(request, error)
        if isinstance(answer, HttpResponse):
            self._deliver(answer, ticket)
        else:
            # A stream begins with work, and many requests may have awaited the same.
            peer = self.peer
            self._shared.work.of(peer).take(partial(self._deliver, answer, ticket), key=peer.key)

    def _deliver(self, answer: Answer, ticket: int) -> None:
        request = self._request
        if self.state is not ANSWERING or ticket != self._ticket or request is None:
            self._call_back(lambda: close_unused(answer))
            return
        self._stop_waiting(READING)
        try:
            self._start_response(answer, request)
        except Exception as error:  # noqa: BLE001  (the boundary of a request: logged inside)
            self._call_back(lambda: close_unused(answer))
            self._start_response(self._internal_error(request, error), request)
        self._on_response_sent()

    def _stop_waiting(self, state: ConnectionState) -> None:
        self.state = state
        self._request = None
        self._counters.answers_pending -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting_for = None

    def _abandon(self, state: ConnectionState) -> None:
        """Handle a disconnect: cancel the request, unless it is shielded."""
        before, self.state = self.state, state
        self._direct = False
        if before is ANSWERING:
            self._ticket += 1
            task, request = self._waiting_for, self._request
            self._stop_waiting(state)
            if task is not None and request is not None and not request.is_shielded:
                # After its first step: a task that is cancelled before would not run its cleanup.
                asyncio.get_running_loop().call_soon(task.cancel)
        self._end_stream_objects()

    # --- streams -----------------------------------------------------------------------------

    def _start_push(self, stream: PushStream, request: HttpRequest) -> None:
        if not self._begin_stream(stream, request, length=None):
            stream.close()
            return
        chunked = request.version_minor == 1
        writer = StreamWriter(
            self, self._write, chunked=chunked, may_end=stream.may_end, later=self.stream_later
        )
        writer.writable = not self._writing_paused
        self._writer = writer
        try:
            self._write_stream(stream.start, writer)
        except Exception:  # the head was sent already: abort, so that the client sees an error
            logger.exception("the stream of %r failed", request)
            self._transport.abort()

    def _write_stream(self, work: Callable[[T], None], argument: T) -> None:
        """Do a step that writes a part of a stream, and measure it."""
        shared, request, begin = self._shared, self._request, self._monotonic()
        try:
            work(argument)
        finally:
            end = self._monotonic()
            if end - begin >= LONG_SECONDS and request is not None:
                shared.steps.note(shared.stream_steps, begin, end, request)

    def _start_pull(self, stream: PullStream, request: HttpRequest) -> None:
        if self._begin_stream(stream, request, length=stream.length):
            self._pull = stream
            self._pump()
        else:
            stream.close()

    def _begin_stream(
        self, stream: PushStream | PullStream, request: HttpRequest, *, length: int | None
    ) -> bool:
        """Send the head; return whether a body follows."""
        keep = request.keep_alive and not self._shared.stopping
        if length is not None:
            framing = b"Content-Length: %d\r\n" % length
        elif request.version_minor == 1:
            framing = CHUNKED_LINE
        else:
            framing, keep = b"", False  # the close ends the body
        head = encode_stream_head(
            stream.status,
            stream.headers,
            date_line=self._shared.date_line,
            connection_line=connection_line(request, keep=keep),
            framing=framing,
        )
        self._write(head)
        if request.method == "HEAD":
            if not keep:
                self._end(drop_input=self._reader.unread_bytes > 0)
            return False
        request.keep_alive = keep
        self._request = request
        self._counters.streams_open += 1
        self.state = STREAMING
        self.deadline_seconds = math.inf
        if self._reading_paused:
            self._resume_reading()
        return True

    def _pump(self) -> None:
        """Send pieces of a pulled stream, when the work budget of the class allows it."""
        if not self._pump_pending:
            self._pump_pending = True
            peer = self.peer
            self._shared.work.of(peer).take(self._pump_step, key=peer.key)

    def _pump_step(self) -> None:
        """Send pieces until the client is slow or the time is used up; the rest in another step."""
        self._pump_pending = False
        if self._pull is not None:  # else it was aborted meanwhile
            self._write_stream(self._send_pieces, self._pull)

    def _send_pieces(self, stream: PullStream) -> None:
        request = self._request
        if request is None:
            return
        chunked = stream.length is None and request.version_minor == 1
        is_closing = self._transport.is_closing
        end_seconds = self._monotonic() + self._shared.limits.streams_seconds
        try:
            # A closing transport drops writes without back pressure, and would take all pieces at
            # once.
            while not self._writing_paused and self._pull is stream and not is_closing():
                piece = next(stream.pieces, None)
                if piece is None:
                    self.stream_done()
                    return
                if piece:
                    self._write(encode_chunk(piece) if chunked else piece)
                if self._monotonic() >= end_seconds:
                    self._pump_pending = True
                    self._shared.work.of(self.peer).wait(self._pump_step, key=self.peer.key)
                    return
        except Exception:  # the head was sent already: abort, so that the client sees an error
            logger.exception("the stream of %r failed", request)
            self._transport.abort()

    def _continue_output(self) -> None:
        """Ask the producer of a pushed stream or a tunnel for more, as the client has read some."""
        end = self._writer or self._tunnel
        if end is None or self._writing_paused:
            return  # it has ended, or became slow again
        end.writable = True
        if end.on_writable is not None:
            self._write_stream(self._call_back, end.on_writable)

    def stream_later(self, work: Callable[[], None]) -> None:
        peer, step = self.peer, partial(self._write_stream, self._call_back, work)
        self._shared.work.of(peer).wait(step, key=peer.key)

    def stream_overfull(self) -> bool:
        if self._transport.get_write_buffer_size() <= self._shared.limits.write_bytes_max:
            return False
        self._transport.abort()
        return True

    def stream_done(self) -> None:
        """Everything has been written."""
        request = self._request
        if self.state is not STREAMING or request is None:
            return
        if request.version_minor == 1 and (self._pull is None or self._pull.length is None):
            self._write(LAST_CHUNK)
        self.state = READING
        self._end_stream_objects()
        if request.keep_alive and not self._shared.stopping:
            self._on_response_sent()
        else:
            self._end(drop_input=self._reader.unread_bytes > 0)

    def stream_abort(self) -> None:
        self._transport.abort()

    # --- tunnels -----------------------------------------------------------------------------

    def _start_tunnel(self, tunnel: Tunnel, request: HttpRequest) -> None:
        if self._shared.stopping or not request.version_minor:
            tunnel.close()
            self._start_response(self._error(503, "the connection cannot be upgraded now"), request)
            return
        self._write(SWITCHING + request.answer_lines + tunnel.headers + b"\r\n")
        end = TunnelEnd(self, self._write)
        end.writable = not self._writing_paused
        self._tunnel = end
        self._counters.tunnels_open += 1
        self.state = TUNNELLING
        self._direct = False
        self.deadline_seconds = math.inf
        early = self._reader.take_rest()
        if self._reading_paused:
            self._resume_reading()
        try:
            tunnel.start(end)
            if early:
                self._pass_on(early)
        except Exception:  # 101 was sent already: abort, so that the client sees an error
            logger.exception("the tunnel of %r failed", request)
            self._transport.abort()

    def _pass_on(self, data: bytes) -> None:
        """Pass bytes of the client to the other end of its tunnel."""
        end = self._tunnel
        if end is not None and end.on_data is not None:
            end.on_data(data)

    def tunnel_pause(self) -> None:
        self._pause_reading()

    def tunnel_resume(self) -> None:
        if self._reading_paused:
            self._resume_reading()

    def tunnel_done(self) -> None:
        """The other end has closed, and everything has been written."""
        if self.state is TUNNELLING:
            self._end_tunnel()
            self._close_transport()

    def _end_tunnel(self) -> None:
        end, self._tunnel = self._tunnel, None
        if end is None:
            return
        self._counters.tunnels_open -= 1
        self._call_back(end.cut)

    def _end_stream_objects(self) -> None:
        self._end_tunnel()
        writer, self._writer = self._writer, None
        pull, self._pull = self._pull, None
        if writer is None and pull is None:
            return
        self._request = None
        self._counters.streams_open -= 1
        if pull is not None:
            self._call_back(pull.close)
        if writer is not None:
            self._call_back(writer.cut)

    def _call_back(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            logger.exception("a callback of connection %d failed", self.peer.connection_id)
            self._transport.abort()
