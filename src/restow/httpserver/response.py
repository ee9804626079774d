"""Results of the application, and the encoding of responses.

A result is a response, a stream (stream.py) or a tunnel (tunnel.py), or an awaitable of one, for
which a task is started. Bodies and their headers are up to the application.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from restow.httpserver.request import Headers, HttpRequest, RequestLine
    from restow.httpserver.stream import PullStream, PushStream
    from restow.httpserver.tunnel import Tunnel

CLOSE_LINE: Final = b"Connection: close\r\n"
KEEP_LINE: Final = b"Connection: keep-alive\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
NOSNIFF_LINE: Final = ("X-Content-Type-Options", "nosniff")
"""For every response: browsers must not guess another content type, such as that of a script."""
# Responses without a body and without Content-Length.
BODILESS: Final = frozenset({204, 304})
# Lines for lengths seen before; sizes of objects repeat.
LENGTHS_KEPT_MAX: Final = 4_096

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


LENGTH_ENDS: Final[dict[int, bytes]] = {}

STATUS_LINES: Final = {status: _status_line(status) for status in range(200, 600)}


def header_block(lines: Iterable[tuple[str, str]]) -> bytes:
    """Encoded header lines. ValueError for characters that could end a line or cannot be
    encoded."""
    made = []
    for name, value in lines:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"not a valid header name: {name!r}")
        if _VALUE_FORBIDDEN.search(value) is not None:
            raise ValueError(f"header {name} has the invalid value {value!r}")
        made.append(f"{name}: {value}\r\n")
    return "".join(made).encode("latin-1")


class HttpResponse:
    """A whole response. `headers` is an encoded block of lines, from `header_block`.

    The listener adds the status line, Date, Content-Length and Connection, and nothing else.
    """

    __slots__ = ("body", "close", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes | Sequence[bytes] = b"",
        headers: bytes = b"",
        *,
        close: bool = False,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.close = close


def close_awaitable(awaitable: Awaitable[Answer]) -> None:
    """Close an awaitable that no task will await: coroutines warn otherwise, others hold
    resources."""
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()


def close_unused(answer: Answer) -> None:
    """Close an answer that will not be sent. A stream or a tunnel may hold an in-flight slot or a
    connection, and releases them only when it ends or is closed."""
    if not isinstance(answer, HttpResponse):
        answer.close()


Answer: TypeAlias = "HttpResponse | PushStream | PullStream | Tunnel"
AppResult: TypeAlias = "Answer | Awaitable[Answer]"
App: TypeAlias = "Callable[[HttpRequest], AppResult]"
# Called when a head is complete and its body is not: if it returns a response, the body is not
# read.
Gate: TypeAlias = "Callable[[HttpRequest], HttpResponse | None]"
GivenUp: TypeAlias = "Callable[[HttpRequest, HttpResponse], HttpResponse]"
"""Called for a request whose body is not read further, with the error response; returns the
response to send."""

Refused: TypeAlias = "Callable[[HttpRequest, HttpResponse], None]"
"""Called for a request that was refused before its head was accepted, with the response. Method
and target are empty if its first line is invalid, and it has no headers. It may set the header
lines of the response."""


class Quick(NamedTuple):
    """The application's fast path: called first, if the whole head of a request is cached.

    `answer_of` (the line, the headers, the time of receipt) returns the additional header lines and
    the body of a response with status 200 and these headers. If it returns None or raises an error,
    the request takes the normal path. Lines for which `may_answer` is False never take the fast
    path, and are not cached; without it, all lines may.
    """

    answer_of: Callable[[RequestLine, Headers, float], tuple[bytes, bytes] | None]
    headers: bytes
    may_answer: Callable[[RequestLine], bool] | None = None


# (status, message) -> (content type, body), for error responses of the listener itself.
ErrorBody: TypeAlias = Callable[[int, str], tuple[str, bytes]]


def plain_error_body(status: int, message: str) -> tuple[str, bytes]:
    """The default body of an error response."""
    return "text/plain; charset=utf-8", f"{status} {message}\n".encode()


def encode_response(
    response: HttpResponse, date_line: bytes, connection_line: bytes, *, head_only: bool
) -> bytes:
    """The bytes of a response, in one piece: one write, one TLS record if it fits."""
    body = response.body
    status = response.status
    if not isinstance(body, bytes):
        body = b"".join(body)
    if status in BODILESS:
        parts = (STATUS_LINES[status], date_line, connection_line, response.headers, b"\r\n")
        return b"".join(parts)
    length = len(body)
    return b"".join(
        (
            STATUS_LINES[status],
            date_line,
            connection_line,
            response.headers,
            LENGTH_ENDS.get(length) or length_end(length),
            b"" if head_only else body,
        )
    )


def length_end(length: int) -> bytes:
    """The last line of a head and the empty line after it."""
    line = b"Content-Length: %d\r\n\r\n" % length
    if len(LENGTH_ENDS) < LENGTHS_KEPT_MAX:
        LENGTH_ENDS[length] = line
    return line


def encode_stream_head(
    status: int, headers: bytes, *, date_line: bytes, connection_line: bytes, framing: bytes
) -> bytes:
    """The head of a stream. `framing` determines its end: a length, chunks, or the close."""
    line = STATUS_LINES[status]
    return b"%b%b%b%b%b\r\n" % (line, date_line, connection_line, headers, framing)
