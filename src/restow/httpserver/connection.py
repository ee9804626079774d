"""One connection: reads requests, calls the application, writes responses in the same order.

A response that is ready is written in the same call that read its request, without a task or a
future. While a response is pending, the next request of the connection is not parsed. The contents
of requests are not interpreted here.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from restow.aio import InvariantViolation, Timer
from restow.aio.loop_steps import LONG_SECONDS
from restow.httpserver.connection_states import (
    ANSWERING,
    CLOSED,
    ENDING,
    READING,
    STREAMING,
    TUNNELLING,
    ConnectionState,
)
from restow.httpserver.connection_writer import HAS_QUEUED_INPUT
from restow.httpserver.listener_state import ListenerState
from restow.httpserver.reader import HEAD, IDLE, ReaderPhase, RequestReader
from restow.httpserver.request import HttpRequest, Peer
from restow.httpserver.request_head import RequestRefused
from restow.httpserver.response import (
    CONTINUE,
    LENGTH_ENDS,
    AppResult,
    HttpResponse,
    encode_response,
    length_end,
)
from restow.httpserver.response_writer import ResponseWriter

# The wording of kube-apiserver.
OVERDUE: Final = "Timeout: request did not complete within the allotted timeout"
# A write is not cancelled half-way, so its outcome is unknown at the deadline.
OUTCOME_UNKNOWN: Final = f"{OVERDUE}; whether it was applied is unknown"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class ServerConnection(ResponseWriter):
    """The asyncio protocol of one connection."""

    __slots__ = (
        "_advancing",
        "_defer_timer",
        "_dropped_bytes",
        "_gated_request",
        "_idle_seconds",
        "_phase",
        "_queued_data",
    )

    def __init__(self, shared: ListenerState) -> None:
        super().__init__(shared)
        self._phase = IDLE
        # Data of an idle connection that waits for the work budget, and is not parsed yet.
        self._queued_data = b""
        self._idle_seconds = shared.limits.idle_seconds
        # Set while the loop in `_advance` runs: the end of a response must not start a second one.
        self._advancing = False
        self._defer_timer: Timer | None = None
        self._dropped_bytes = 0
        # The request whose body is awaited, once the gate has accepted it.
        self._gated_request: HttpRequest | None = None

    # --- called by the event loop ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No check of the class: uvloop's transports do not inherit from asyncio's.
        self._transport = transport  # type: ignore[assignment]
        shared = self._shared
        counters = shared.counters
        counters.connections_total += 1
        counters.connections_open += 1
        self._transport.set_write_buffer_limits(high=shared.limits.write_high_water_bytes)
        name = transport.get_extra_info("peername")
        address, port = name[:2] if isinstance(name, tuple) else ("", 0)
        self.peer = Peer(
            counters.connections_total,
            address=str(address),
            port=int(port),
            ssl_object=transport.get_extra_info("ssl_object"),
            classes=shared.classes,
        )
        self._reader = RequestReader(
            shared.limits, budgets=shared.budgets, peer=self.peer, lines=shared.lines
        )
        self.deadline_seconds = self._monotonic() + shared.limits.head_seconds
        if not shared.add(self):
            counters.connections_refused += 1
            self._refuse(RequestRefused(503, "too many connections, please try again"))

    def connection_lost(self, exc: Exception | None) -> None:
        shared = self._shared
        shared.remove(self)
        shared.counters.connections_open -= 1
        if self._defer_timer is not None:
            self._defer_timer.cancel()
        self._abandon(CLOSED)
        self._reader.close()

    def eof_received(self) -> None:
        # A client that has closed its half is treated as disconnected, as the two cannot be
        # distinguished. Written data is still flushed before the transport closes.
        if self.is_deferred and self._defer_timer is None:
            # Its request was complete, and waited for others.
            self._shared.work.of(self.peer).run_now(self.advance_deferred)
        if self.state is READING and self._reader.phase is not IDLE:
            self._refuse(RequestRefused(400, "the connection closed before the request ended"))
        self._abandon(ENDING)
        self.deadline_seconds = self._monotonic() + self._shared.limits.stall_seconds

    def data_received(self, data: bytes) -> None:
        self._counters.received_bytes += len(data)
        peer = self.peer
        if not self._direct or not peer.is_known:
            begin = self._monotonic()
            self._receive(data)
            self._note_step(begin)
        elif peer.is_privileged:
            self._receive_directly(data)
        elif not self._shared.work.authenticated.run(self._receive_directly, data):
            self._direct, self.is_deferred, self._queued_data = False, True, data
            self._shared.work.authenticated.wait(self.advance_deferred, key=peer.key, is_new=True)

    def _receive_directly(self, data: bytes) -> None:
        """Fast path: a request whose bytes are all cached, and its response at once. Inlined,
        because it is the most frequent path of the server. `_receive_whole` and `_receive` handle
        every other case. Its step is not measured: it does a fixed amount of work."""
        shared, counters = self._shared, self._counters
        now = self._monotonic()
        block = self._reader.block
        quick = shared.quick
        if quick is not None and block is not None and data.endswith(block.raw) and block.is_plain:
            line = shared.lines.known.get(data[: -block.raw_bytes])
            if line is not None:
                try:
                    answered = quick.answer_of(line, block.headers, now)
                except Exception:  # noqa: BLE001  (the normal path raises it again, and logs it)
                    answered = None
                except InvariantViolation as violation:
                    shared.fatal(violation)
                    raise
                if answered is not None:
                    lines, body = answered
                    counters.requests_total += 1
                    self.deadline_seconds = now + self._idle_seconds
                    length = len(body)
                    end = LENGTH_ENDS.get(length) or length_end(length)
                    encoded = b"".join((shared.quick_head, lines, end, body))
                    counters.sent_bytes += len(encoded)
                    self._transport.write(encoded)
                    return
        self._receive_whole(data, now)
        self._note_step(now)

    def _note_step(self, begin: float) -> None:
        """Note a step of this connection that took long."""
        end = self._monotonic()
        if end - begin >= LONG_SECONDS:
            self._shared.steps.note(self._shared.connection_steps, begin, end, self)

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._direct = False
        self._stalled_seconds = self._monotonic()
        if self._writer is not None:
            self._writer.writable = False
        elif self._tunnel is not None:
            self._tunnel.writable = False

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._stalled_seconds = math.inf
        if self._writer is not None or self._tunnel is not None:
            peer = self.peer
            self._shared.work.of(peer).take(self._continue_output, key=peer.key)
        elif self._pull is not None:
            self._pump()
        elif self._close_when_drained:
            self._close_transport()
        else:
            self._advance()

    # --- reading and answering at once -------------------------------------------------------

    def _receive_whole(self, data: bytes, now: float) -> None:
        """Fast path: one whole request and a synchronous response."""
        request = self._reader.whole_request(data, now)
        if request is None:
            self._receive(data)
            return
        counters = self._counters
        counters.requests_total += 1
        self._ticket += 1
        self.deadline_seconds = now + self._idle_seconds
        shared = self._shared
        answer: AppResult
        try:
            answer = shared.app(request)
            if answer.__class__ is HttpResponse and not answer.close and not shared.stopping:
                head_only = request.method == "HEAD"
                lines = request.answer_lines
                encoded = encode_response(answer, shared.date_line, lines, head_only=head_only)
                counters.sent_bytes += len(encoded)
                self._transport.write(encoded)
                if answer.status >= 400 or self._refusals:
                    self._count_refusal(answer.status)
                return
        except Exception as error:  # noqa: BLE001  (the boundary of a request: logged inside)
            answer = self._internal_error(request, error)
        except InvariantViolation as violation:
            shared.fatal(violation)
            raise
        self._direct = False
        out: list[bytes] = []
        self._send_or_start(answer, request, out)
        self._flush(out)
        self._advance()

    def _receive(self, data: bytes) -> None:
        if self._queued_data:
            self._queued_data += data
            if len(self._queued_data) > self._shared.limits.pipelined_bytes_max:
                self._pause_reading()
            return
        if self.state is not READING or self._writing_paused or self._reading_paused:
            self._receive_while_busy(data)
            return
        self._direct = False
        try:
            self._reader.feed(data)
        except RequestRefused as refused:
            self._refuse(refused)
            return
        peer = self.peer
        if peer.is_privileged:
            self._advance()
        elif not self._shared.work.of(peer).take(
            self.advance_deferred, key=peer.key, is_new=peer.is_known
        ):
            self.is_deferred = True
            self._pause_reading()

    def _advance(self) -> None:
        """Handle whole requests until one has to wait or no bytes are left."""
        if self._advancing or not self._may_advance:
            return
        self._advancing = True
        now = self._monotonic()
        answered = 0
        try:
            answered = self._answer_all(now)
        except RequestRefused as refused:
            self._refuse(refused)
        finally:
            self._advancing = False
        reader = self._reader
        if self.state is ANSWERING and self._reading_paused and not reader.unread_bytes:
            self._resume_reading()  # only a read shows that the client has disconnected
        if self.state is not READING:
            return
        if answered or reader.phase is not self._phase:
            self._set_deadline(now, reader.phase)
        if self.is_deferred or self._writing_paused:
            return
        if self._reading_paused:
            self._resume_reading()
        self._direct = reader.is_empty

    @property
    def _may_advance(self) -> bool:
        return self.state is READING and not self.is_deferred

    def _answer_all(self, now: float) -> int:
        limits = self._shared.limits
        reader = self._reader
        answered = 0
        by_seconds = now + limits.pipelined_seconds
        out: list[bytes] = []
        out_bytes = 0
        try:
            while self.state is READING and not self._writing_paused and not self.is_deferred:
                is_enough = answered >= self._answered_at_once_max
                if reader.unread_bytes and (
                    is_enough or (answered > 0 and self._monotonic() >= by_seconds)
                ):
                    self._defer(0)
                    break
                request = reader.next_request(now)
                if request is None:
                    if self._continue_body(out):
                        continue
                    break
                self._gated_request = None
                answered += 1
                self._ticket += 1
                self._send_or_start(self._call_app(request), request, out)
                out_bytes = out_bytes + len(out[-1]) if out else 0
                if out_bytes > limits.write_high_water_bytes:
                    self._flush(out)  # then the transport shows whether the client is slow
        finally:
            self._counters.requests_total += answered
            self._flush(out)
        return answered

    def _continue_body(self, out: list[bytes]) -> bool:
        """Whether to continue with the received bytes now. The gate decides on a request before its
        body is read, and other connections are served while a long body is read."""
        reader = self._reader
        request = reader.half_read
        if request is not None and request is not self._gated_request:
            self._flush(out)  # earlier responses go before one of the gate
            self._check_head(request)
            return reader.has_unread_body
        if reader.has_unread_body:
            self._defer(0)
        return False

    def _call_app(self, request: HttpRequest) -> AppResult:
        try:
            return self._shared.app(request)
        except Exception as error:  # noqa: BLE001  (the boundary of a request: logged inside)
            return self._internal_error(request, error)
        except InvariantViolation as violation:
            self._shared.fatal(violation)
            raise

    def _send_or_start(self, answer: AppResult, request: HttpRequest, out: list[bytes]) -> None:
        """Append a response to `out`, or start what else the result needs."""
        try:
            if isinstance(answer, HttpResponse):
                self._respond(answer, request, out)
                return
            # Earlier responses must be written before anything else writes.
            self._flush(out)
            self._start_response(answer, request)
        except Exception as error:  # noqa: BLE001  (the boundary of a request: logged inside)
            self._respond(self._internal_error(request, error), request, out)

    @property
    def _answered_at_once_max(self) -> int:
        limits = self._shared.limits
        if self.peer.is_known:
            return limits.pipelined_requests_max
        return limits.unauthenticated_pipelined_requests_max

    def _defer(self, seconds: float) -> None:
        """Continue with the received bytes later: after `seconds`, or when others were served."""
        self.is_deferred = True
        self._direct = False
        self._pause_reading()
        if seconds > 0:
            self._defer_timer = self._shared.clock.call_later(seconds, self.advance_deferred)
        elif self.peer.is_privileged:
            asyncio.get_running_loop().call_soon(self.advance_deferred)
        else:
            peer = self.peer
            self._shared.work.of(peer).wait(
                self.advance_deferred, key=peer.key, is_new=peer.is_known
            )

    def advance_deferred(self) -> None:
        begin = self._monotonic()
        self._defer_timer = None
        self.is_deferred = False
        data, self._queued_data = self._queued_data, b""
        if data and self.state is READING:
            if self._reading_paused:
                self._resume_reading()
            self._direct = True
            self._receive_directly(data)
        else:
            self._advance()
            self._note_step(begin)

    def _receive_while_busy(self, data: bytes) -> None:
        limits = self._shared.limits
        if self.state is ENDING:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > limits.linger_bytes_max:
                self._transport.abort()
            return
        if self.state is CLOSED:
            return
        if self.state is TUNNELLING:
            self._call_back(lambda: self._pass_on(data))
            return
        try:
            self._reader.feed(data)
        except RequestRefused as refused:
            self._refuse(refused)
            return
        if self.state is not STREAMING:
            self._pause_reading()
        elif self._reader.unread_bytes > limits.pipelined_bytes_max:
            # Reading continues during a stream, because only a read shows that the client has
            # disconnected.
            self._transport.abort()

    def _check_head(self, request: HttpRequest) -> None:
        """Check a head whose body has not arrived: reject the request, or ask for the body."""
        self._gated_request = request
        gate = self._shared.gate
        if gate is not None:
            try:
                refusal = gate(request)
            except Exception as error:  # noqa: BLE001  (the boundary of a request: logged inside)
                refusal = self._internal_error(request, error)
            if refusal is not None:
                self._respond_and_end(refusal, request)
                return
        if self._reader.expects_continue:
            self._write(CONTINUE)

    def _set_deadline(self, now: float, phase: ReaderPhase) -> None:
        self._phase = phase
        limits = self._shared.limits
        if phase is IDLE:
            self.deadline_seconds = now + limits.idle_seconds
        elif phase is HEAD:
            self.deadline_seconds = now + limits.head_seconds
        else:
            self.deadline_seconds = now + limits.body_seconds

    def _on_response_sent(self) -> None:
        """After a response: continue with what has arrived meanwhile."""
        if self.state is not READING or self._advancing:
            return
        self._set_deadline(self._monotonic(), IDLE)
        if self._reader.is_empty and not self._writing_paused and not self._reading_paused:
            self._direct = True  # nothing arrived: the usual case, without `_advance`
        else:
            self._advance()

    # --- called by the listener --------------------------------------------------------------

    @property
    def is_served(self) -> bool:
        """Whether a response is pending or being sent."""
        return self.state is ANSWERING or self.state is STREAMING

    @property
    def busy(self) -> bool:
        """Whether a request is partly read or being handled."""
        match self.state:
            case ConnectionState.READING:
                has_begun = self._reader.phase is not IDLE or self._reader.unread_bytes > 0
                return has_begun or self._has_queued_input
            case ConnectionState.STREAMING:
                return self._pull is not None or not self._may_end
            case state:
                return state is ANSWERING

    @property
    def _has_queued_input(self) -> bool:
        """Whether received bytes wait for the work budget, here or in the TLS layer."""
        return bool(self._queued_data) or bool(self._transport.get_extra_info(HAS_QUEUED_INPUT))

    def check(self, now_seconds: float) -> None:
        """Enforce the deadlines. Called for every connection, about once a second."""
        limits = self._shared.limits
        if now_seconds - self._stalled_seconds > limits.stall_seconds:
            self._transport.abort()
        elif now_seconds >= self.deadline_seconds:
            self._overdue()

    def _check_deadlines(self) -> None:
        self.check(self._monotonic())

    def _overdue(self) -> None:
        match self.state:
            case ConnectionState.READING if self._writing_paused:
                pass  # a client that does not read has a separate limit
            case ConnectionState.READING if self._reader.phase is IDLE and self._has_queued_input:
                pass  # its request arrived in time, and waits for others
            case ConnectionState.READING if self._reader.phase is IDLE:
                self._close_transport()
            case ConnectionState.READING:
                self._refuse(
                    RequestRefused(408, f"{self._reader.phase.value} did not arrive in time")
                )
            case ConnectionState.ANSWERING:
                request = self._request
                self._abandon(READING)
                is_safe = request is None or request.method in _SAFE_METHODS
                response = self._error(504, OVERDUE if is_safe else OUTCOME_UNKNOWN)
                self._respond_and_end(response, request)
            case ConnectionState.ENDING if not self._transport.is_closing():
                # Only now: a rejected client should not reconnect at once.
                self._transport.close()
                self.deadline_seconds += self._shared.limits.linger_seconds
            case ConnectionState.ENDING:
                self._transport.abort()
            case _:
                pass

    def close_if_idle(self) -> None:
        if self.state is READING and not self.busy:
            self._close_transport()

    @property
    def _may_end(self) -> bool:
        """Whether there is a pushed stream that can be ended at any point."""
        return self._writer is not None and self._writer.may_end

    def end_push_stream(self) -> None:
        """End a pushed stream as its producer would, and notify the producer; or a tunnel that
        supports it."""
        if self._may_end:
            self.stream_done()
        elif self._tunnel is not None and self._tunnel.on_leave is not None:
            self._call_back(self._tunnel.on_leave)

    def close(self) -> None:
        """Abandon unfinished requests, and close after written data was flushed."""
        if self.state is not CLOSED:
            self._abandon(ENDING)
            self._close_transport()

    def abort(self) -> None:
        """Close immediately, without flushing."""
        self._transport.abort()
