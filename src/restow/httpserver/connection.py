"""One connection: reads requests, asks the application, writes answers in the same order.

An answer that is ready is written in the same call that read its request: no task, no future.
While an answer is outstanding the next request of the connection is not looked at. What requests
mean is not known here.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from restow.aio import InvariantViolation, Timer
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

# In the words of kube-apiserver.
OVERDUE: Final = "Timeout: request did not complete within the allotted timeout"
# What was begun is not given up half-way, so nobody can say yet how it ends.
OUTCOME_UNKNOWN: Final = f"{OVERDUE}; whether it was done is not known"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class ServerConnection(ResponseWriter):
    """The protocol object of one connection."""

    __slots__ = (
        "_advancing",
        "_dropped_bytes",
        "_idle_seconds",
        "_met",
        "_phase",
        "_turn_timer",
    )

    def __init__(self, shared: ListenerState) -> None:
        super().__init__(shared)
        self._phase = IDLE
        self._idle_seconds = shared.limits.idle_seconds
        # Set while the loop in `_advance` runs: who ends an answer then must not start another.
        self._advancing = False
        self._turn_timer: Timer | None = None
        self._dropped_bytes = 0
        # The request whose body is awaited, once the gate has seen it.
        self._met: HttpRequest | None = None

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
        if self._turn_timer is not None:
            self._turn_timer.cancel()
        self._abandon(CLOSED)
        self._reader.close()

    def eof_received(self) -> None:
        # A client that has stopped sending is treated as gone: it could not be told from one that
        # has vanished. What is written already is still flushed before the transport closes.
        if self.turn_pending and self._turn_timer is None:
            self.take_turn()  # it stood in line, and what it asked was whole
        if self.state is READING and self._reader.phase is not IDLE:
            self._refuse(RequestRefused(400, "the request ended early"))
        self._abandon(ENDING)
        self.deadline_seconds = self._monotonic() + self._shared.limits.stall_seconds

    def data_received(self, data: bytes) -> None:
        counters = self._counters
        counters.received_bytes += len(data)
        if not self._direct or not self.peer.is_known:
            self._receive(data)
            return
        # The shortest way: a request of which every byte is known, and its answer at once. Written
        # out, for it is the most travelled way of the whole server. `_receive_whole` and `_receive`
        # do the same for every other case.
        shared = self._shared
        now = self._monotonic()
        block = self._reader.block
        quick = shared.quick
        if quick is not None and block is not None and data.endswith(block.raw) and block.is_plain:
            line = shared.lines.known.get(data[: -block.raw_bytes])
            if line is not None:
                try:
                    answered = quick.answer_of(line, block.headers, now)
                except Exception:  # noqa: BLE001  (the usual way meets it again, and says so)
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
        writer = self._writer
        if writer is not None:
            writer.writable = True
            if writer.on_writable is not None:
                self._call_back(writer.on_writable)
        elif self._pull is not None:
            self._pump()
        elif self._tunnel is not None:
            self._tunnel.writable = True
            if self._tunnel.on_writable is not None:
                self._call_back(self._tunnel.on_writable)
        elif self._close_when_drained:
            self._close_transport()
        else:
            self._advance()

    # --- reading and answering at once -------------------------------------------------------

    def _receive_whole(self, data: bytes, now: float) -> None:
        """The short way: one whole request, its answer at once."""
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
                    self._note(answer.status)
                return
        except Exception as error:  # noqa: BLE001  (the edge of a request: logged inside)
            answer = self._internal_error(request, error)
        except InvariantViolation as violation:
            shared.fatal(violation)
            raise
        self._direct = False
        out: list[bytes] = []
        self._give(answer, request, out)
        self._flush(out)
        self._advance()

    def _receive(self, data: bytes) -> None:
        if self.state is not READING or self._writing_paused or self._reading_paused:
            self._receive_while_busy(data)
            return
        self._direct = False
        try:
            self._reader.feed(data)
        except RequestRefused as refused:
            self._refuse(refused)
            return
        if self.peer.is_known:
            self._advance()
        elif not self._shared.unauthenticated_work.take(self.take_turn):
            self.turn_pending = True
            self._pause_reading()

    def _advance(self) -> None:
        """Answer whole requests until one has to wait or the bytes run out."""
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
        if self.state is not READING:
            return
        reader = self._reader
        if answered or reader.phase is not self._phase:
            self._set_deadline(now, reader.phase)
        if self.turn_pending or self._writing_paused:
            return
        if self._reading_paused:
            self._resume_reading()
        self._direct = reader.is_empty

    @property
    def _may_advance(self) -> bool:
        return self.state is READING and not self.turn_pending

    def _answer_all(self, now: float) -> int:
        limits = self._shared.limits
        reader = self._reader
        answered = 0
        by_seconds = now + limits.pipelined_seconds
        out: list[bytes] = []
        out_bytes = 0
        try:
            while self.state is READING and not self._writing_paused and not self.turn_pending:
                is_enough = answered >= self._answered_at_once_max
                if reader.unread_bytes and (
                    is_enough or (answered > 0 and self._monotonic() >= by_seconds)
                ):
                    self._wait_for_turn(0)
                    break
                request = reader.next_request(now)
                if request is None:
                    if self._reads_on(out):
                        continue
                    break
                self._met = None
                answered += 1
                self._ticket += 1
                self._give(self._ask(request), request, out)
                out_bytes = out_bytes + len(out[-1]) if out else 0
                if out_bytes > limits.write_high_water_bytes:
                    self._flush(out)  # the transport now says whether the client keeps up
        finally:
            self._counters.requests_total += answered
            self._flush(out)
        return answered

    def _reads_on(self, out: list[bytes]) -> bool:
        """Whether the rest of what came is to be read now. The gate decides on a request before its
        body is read, and a body that takes long to read gives way to other connections."""
        reader = self._reader
        request = reader.half_read
        if request is not None and request is not self._met:
            self._flush(out)  # older answers are out before one of the gate
            self._meet(request)
            return reader.has_unread_body
        if reader.has_unread_body:
            self._wait_for_turn(0)
        return False

    def _ask(self, request: HttpRequest) -> AppResult:
        try:
            return self._shared.app(request)
        except Exception as error:  # noqa: BLE001  (the edge of a request: logged inside)
            return self._internal_error(request, error)
        except InvariantViolation as violation:
            self._shared.fatal(violation)
            raise

    def _give(self, answer: AppResult, request: HttpRequest, out: list[bytes]) -> None:
        """Put an answer into `out`, or do what else it needs."""
        try:
            if isinstance(answer, HttpResponse):
                self._respond(answer, request, out)
                return
            # What is older must be out before anything else writes.
            self._flush(out)
            self._take(answer, request)
        except Exception as error:  # noqa: BLE001  (the edge of a request: logged inside)
            self._respond(self._internal_error(request, error), request, out)

    @property
    def _answered_at_once_max(self) -> int:
        limits = self._shared.limits
        if self.peer.is_known:
            return limits.pipelined_requests_max
        return limits.unauthenticated_pipelined_requests_max

    def _wait_for_turn(self, seconds: float) -> None:
        """Other connections first, for so long; then the rest of what this one has sent."""
        self.turn_pending = True
        self._direct = False
        self._pause_reading()
        if seconds > 0:
            self._turn_timer = self._shared.clock.call_later(seconds, self.take_turn)
        elif self.peer.is_known:
            asyncio.get_running_loop().call_soon(self.take_turn)
        else:
            self._shared.unauthenticated_work.wait(self.take_turn)

    def take_turn(self) -> None:
        self._turn_timer = None
        self.turn_pending = False
        self._advance()

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
            # Reading goes on during a stream, because it alone shows that the client left.
            self._transport.abort()

    def _meet(self, request: HttpRequest) -> None:
        """A head whose body is still to come: refuse it now, or ask for the body."""
        self._met = request
        gate = self._shared.gate
        if gate is not None:
            try:
                refusal = gate(request)
            except Exception as error:  # noqa: BLE001  (the edge of a request: logged inside)
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

    def _go_on(self) -> None:
        """An answer is out: look at what came meanwhile."""
        if self.state is not READING or self._advancing:
            return
        self._set_deadline(self._monotonic(), IDLE)
        if self._reader.is_empty and not self._writing_paused and not self._reading_paused:
            self._direct = True  # nothing came: the usual case, in short
        else:
            self._advance()

    # --- called by the listener --------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a request is half-read or being answered."""
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
        """Whether TLS has received something and not delivered it."""
        return bool(self._transport.get_extra_info(HAS_QUEUED_INPUT))

    def check(self, now_seconds: float) -> None:
        """Enforce the deadlines. Called for every connection, about once a second."""
        limits = self._shared.limits
        if now_seconds - self._stalled_seconds > limits.stall_seconds:
            self._transport.abort()
        elif now_seconds >= self.deadline_seconds:
            self._overdue()

    def _look_at_time(self) -> None:
        self.check(self._monotonic())

    def _overdue(self) -> None:
        match self.state:
            case ConnectionState.READING if self._writing_paused:
                pass  # its client does not read: that has a limit of its own
            case ConnectionState.READING if self._reader.phase is IDLE and self._has_queued_input:
                pass  # it has asked in time, and waits for others
            case ConnectionState.READING if self._reader.phase is IDLE:
                self._close_transport()
            case ConnectionState.READING:
                self._refuse(
                    RequestRefused(408, f"{self._reader.phase.value} did not come in time")
                )
            case ConnectionState.ANSWERING:
                request = self._request
                self._abandon(READING)
                is_safe = request is None or request.method in _SAFE_METHODS
                response = self._error(504, OVERDUE if is_safe else OUTCOME_UNKNOWN)
                self._respond_and_end(response, request)
            case ConnectionState.ENDING if not self._transport.is_closing():
                # Not before: who is sent away should not come back at once.
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
        """Whether there is a pushed stream that can be ended at any place."""
        return self._writer is not None and self._writer.may_end

    def end_push_stream(self) -> None:
        """End a pushed stream as its producer would, and tell the producer; or a tunnel whose
        maker knows how."""
        if self._may_end:
            self.stream_done()
        elif self._tunnel is not None and self._tunnel.on_leave is not None:
            self._call_back(self._tunnel.on_leave)

    def close(self) -> None:
        """Give up on what is unfinished, and close after what was written has gone out."""
        if self.state is not CLOSED:
            self._abandon(ENDING)
            self._close_transport()

    def abort(self) -> None:
        """Cut it, now."""
        self._transport.abort()
