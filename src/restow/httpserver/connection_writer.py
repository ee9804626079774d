"""The outgoing half of a connection: writes, error responses, closing.

A connection has three layers: ConnectionWriter (here), ResponseWriter (response_writer.py) and
ServerConnection (connection.py). This one does not depend on what is written.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final

from restow.httpserver.connection_states import ENDING, READING
from restow.httpserver.listener_state import ListenerState
from restow.httpserver.reader import RequestReader
from restow.httpserver.request import HttpRequest, Peer
from restow.httpserver.request_head import RequestRefused
from restow.httpserver.response import (
    CLOSE_LINE,
    KEEP_LINE,
    NOSNIFF_LINE,
    HttpResponse,
    encode_response,
    header_block,
    plain_error_body,
)

RETRY_AFTER_SECONDS: Final = 1
HAS_QUEUED_INPUT: Final = "restow_has_queued_input"
"""For `get_extra_info` of a transport: whether it holds received bytes that it has not
delivered."""

UNNOTED: Final = frozenset({408, 503})
"""Statuses of the listener that say nothing about a request: too slow, or too many connections."""

logger = logging.getLogger(__name__)


class ConnectionWriter(asyncio.Protocol):
    """A transport, writes to it, and its closing."""

    __slots__ = (
        "_close_when_drained",
        "_counters",
        "_direct",
        "_monotonic",
        "_reader",
        "_reading_paused",
        "_shared",
        "_stalled_seconds",
        "_transport",
        "_writing_paused",
        "deadline_seconds",
        "peer",
        "state",
    )

    _transport: asyncio.Transport
    _reader: RequestReader

    def __init__(self, shared: ListenerState) -> None:
        self._shared = shared
        self._counters = shared.counters
        # Whether nothing is partly read, pending, paused or ending: the fast path may be taken.
        self._direct = False
        self._monotonic = shared.clock.monotonic
        self.state = READING
        self.deadline_seconds = math.inf
        self.peer = Peer(0)
        self._reading_paused = False
        self._writing_paused = False
        self._stalled_seconds = math.inf
        self._close_when_drained = False

    def _write(self, data: bytes) -> None:
        self._counters.sent_bytes += len(data)
        self._transport.write(data)

    def _pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        self._reading_paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _error(self, status: int, message: str) -> HttpResponse:
        try:
            content_type, body = self._shared.error_body(status, message)
        except Exception:  # an error response must be sent, in any form
            logger.exception("cannot make the body of a response with status %d", status)
            content_type, body = plain_error_body(status, message)
        lines = [("Content-Type", content_type), NOSNIFF_LINE]
        if status == 503:
            lines.append(("Retry-After", str(RETRY_AFTER_SECONDS)))
        return HttpResponse(status, body, header_block(lines))

    def _internal_error(self, request: HttpRequest, error: BaseException) -> HttpResponse:
        logger.error("%r failed", request, exc_info=error)
        return self._error(500, "Internal Server Error")

    def _refuse(self, refused: RequestRefused) -> None:
        """Send an error response, stop reading, and close."""
        response = self._error(refused.status, refused.message)
        request, given_up = self._reader.half_read, self._shared.given_up
        if request is None:
            if refused.status not in UNNOTED:
                request = self._note_refused(response)
        elif given_up is not None:
            try:
                response = given_up(request, response)
            except Exception as error:  # noqa: BLE001  (the boundary of a request: logged inside)
                response = self._internal_error(request, error)
        self._respond_and_end(response, request)

    def _note_refused(self, response: HttpResponse) -> HttpRequest | None:
        """Pass a request whose head was refused to the application, which records it."""
        note = self._shared.refused
        if note is None:
            return None
        request = self._reader.refused_request(self._monotonic())
        try:
            note(request, response)
        except Exception:  # the error response must be sent
            logger.exception("cannot record a refused request")
        return request

    def _respond_and_end(self, response: HttpResponse, request: HttpRequest | None) -> None:
        self._shared.counters.requests_refused += 1
        head_only = request is not None and request.method == "HEAD"
        date_line = self._shared.date_line
        lines = CLOSE_LINE if request is None else connection_line(request, keep=False)
        self._write(encode_response(response, date_line, lines, head_only=head_only))
        self._end(drop_input=True)

    def _end(self, *, drop_input: bool) -> None:
        """Close after written data was flushed.

        If input is unread the kernel sends a reset, which can overtake the response: so input is
        read and dropped for a limited time first.
        """
        self.state = ENDING
        self._direct = False
        self._reader.close()
        if not drop_input:
            self._close_transport()
            return
        limits = self._shared.limits
        is_behind = self._transport.get_write_buffer_size() > 0
        seconds = limits.stall_seconds if is_behind else limits.linger_seconds
        self.deadline_seconds = self._monotonic() + seconds
        if self._reading_paused:
            self._resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _close_transport(self) -> None:
        self.state = ENDING
        self._direct = False
        self.deadline_seconds = self._monotonic() + self._shared.limits.stall_seconds
        # A closing TLS transport has little time to flush, so a long response is flushed before.
        self._close_when_drained = self._writing_paused
        if not self._writing_paused:
            self._transport.close()


def connection_line(request: HttpRequest, *, keep: bool) -> bytes:
    """The Connection header of a response, with the header lines that the request has set for
    it."""
    if not keep:
        return request.answer_lines + CLOSE_LINE
    return request.answer_lines if request.version_minor else request.answer_lines + KEEP_LINE
