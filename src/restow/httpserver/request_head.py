"""The head of a request: a strict request line, and header lines that llhttp has accepted.

The line is matched here, by an expression that accepts less than the standard, so that both paths
through the reader see the same line. Header lines are parsed by httptools; what it accepts and this
server does not is rejected here. Bodies are not handled here.
"""

from __future__ import annotations

import re
from typing import Final

import httptools

from restow.httpserver.limits import Limits
from restow.httpserver.request import Headers

CHUNKED: Final = -1

METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}
# Valid methods that no path supports.
METHODS_REFUSED: Final = frozenset({b"CONNECT", b"TRACE"})

# A method, a path with an optional query, a version. No fragment, no absolute form, single spaces.
REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,24}) (/[!\"$-~]*) HTTP/1\.([01])\r\n")
# The prefix of a valid request line.
LINE_BEGIN: Final = re.compile(rb"[A-Z]{1,24}(?: |\Z)")
_LINE_SHAPE = re.compile(rb"([A-Z]{1,24}) (\S+) (HTTP/\d+\.\d+)")
_HOST = re.compile(r"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")
# More digits than any length that could be accepted.
LENGTH_DIGITS_MAX: Final = 18
LENGTH_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_LENGTH_LINE = re.compile(rb"(?:\A|\r\n)content-length:[ \t]*([0-9]{1,18})\r\n", re.IGNORECASE)

# Common header names, interned.
_NAMES = {
    name.encode(): name.lower()
    for name in (
        *("Host", "User-Agent", "Accept", "Accept-Encoding", "Authorization", "Content-Type"),
        *("Content-Length", "Connection", "Transfer-Encoding", "Kubectl-Command"),
        *("Kubectl-Session", "host", "user-agent", "accept", "authorization", "content-type"),
    )
}


class RequestRefused(Exception):
    """A request that is not passed to the application. The response is sent and the connection
    closed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class HeaderBlock:
    """Header lines, and the framing of the message that they define."""

    __slots__ = (
        "after",
        "before",
        "expects_continue",
        "headers",
        "is_plain",
        "keep_alive",
        "length",
        "minor",
        "raw",
        "raw_bytes",
        "version_minor",
    )

    def __init__(self, raw: bytes, collector: HeaderCollector, *, minor: bytes) -> None:
        headers = Headers(collector.lines)
        self.raw = raw
        self.raw_bytes = len(raw)
        self.headers = headers
        # As in the request line; empty if the lines must be parsed for each request.
        self.minor = minor
        version_minor = int(minor)
        self.version_minor = version_minor
        self.length = _length_of(headers, collector.lengths, version_minor=version_minor)
        # Before and after the digits of Content-Length: writes repeat all lines except for these.
        self.before, self.after = raw, b""
        if self.length > 0 and (digits := _LENGTH_LINE.search(raw)) is not None:
            self.before, self.after = raw[: digits.start(1)], raw[digits.end(1) :]
        self.keep_alive = _keeps_alive(headers, version_minor=version_minor)
        self.expects_continue = _expects_continue(headers) and version_minor == 1
        # No body and nothing special: most requests.
        self.is_plain = self.length == 0 and self.keep_alive and version_minor == 1
        _check_host(headers, version_minor=version_minor)
        if len(headers.get_all("authorization")) > 1:
            # Two parts of a system could use different ones.
            raise RequestRefused(400, "a request must have at most one Authorization header")


class HeaderCollector:
    """The callbacks that httptools calls while it parses one message. Enforces limits."""

    __slots__ = (
        "_headers_max",
        "_trailers",
        "body",
        "body_bytes_max",
        "complete",
        "in_body",
        "lengths",
        "lines",
        "refused",
    )

    def __init__(self, limits: Limits) -> None:
        self._headers_max = limits.headers_max
        self._trailers = 0
        self.body_bytes_max = limits.body_bytes_max
        self.lines: list[tuple[str, str]] = []
        # Content-Length is used by the listener only: the body has a length.
        self.lengths: list[str] = []
        self.body = bytearray()
        self.in_body = False
        self.complete = False
        self.refused: RequestRefused | None = None

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_body:
            # Trailers are not used, and must not overwrite a header.
            self._trailers += 1
            if self._trailers > self._headers_max:
                self._refuse(RequestRefused(431, f"more than {self._headers_max} trailer lines"))
            return
        lines = self.lines
        if len(lines) >= self._headers_max:
            self._refuse(RequestRefused(431, f"more than {self._headers_max} header lines"))
        key = _NAMES.get(name) or name.decode().lower()
        # llhttp does not strip the space after a value.
        text = value.decode("latin-1").rstrip(" \t")
        if key == "content-length":
            self.lengths.append(text)
        else:
            lines.append((key, text))

    def on_headers_complete(self) -> None:
        self.in_body = True

    def on_body(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > self.body_bytes_max:
            self._refuse(too_large(self.body_bytes_max))

    def on_message_complete(self) -> None:
        self.complete = True

    def _refuse(self, refused: RequestRefused) -> None:
        self.refused = refused
        raise refused  # stops the parser, which replaces the exception


class HeadParser:
    """httptools for one message: the whole head at once, then the chunks of its body."""

    __slots__ = ("_parser", "collector")

    def __init__(self, limits: Limits) -> None:
        self.collector = HeaderCollector(limits)
        self._parser = httptools.HttpRequestParser(self.collector)

    def parse_head(self, head: bytes, *, raw: bytes, minor: bytes) -> HeaderBlock:
        """The header lines `raw` at the end of `head`."""
        upgrade = self.feed(head)
        collector = self.collector
        block = HeaderBlock(raw, collector, minor=minor)
        if upgrade and block.length != 0:
            # llhttp reads no body here, but proxies may: this would permit request smuggling.
            raise RequestRefused(400, "an upgrade request must not have a body")
        if not collector.in_body or collector.complete != (block.length == 0):
            raise RequestRefused(400, "the end of the message is ambiguous")
        return block

    def feed(self, data: bytes) -> bool:
        """Continue to parse; whether an upgrade was requested, which is not supported here."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserError as error:
            raise self.collector.refused or RequestRefused(
                400, f"malformed request: {error}"
            ) from None
        return False


def too_large(body_bytes_max: int) -> RequestRefused:
    return RequestRefused(413, f"Request entity too large: limit is {body_bytes_max}")


def refuse_line(line: bytes) -> RequestRefused:
    """The error for a request line that was not accepted."""
    shape = _LINE_SHAPE.fullmatch(line)
    if shape is None:
        return RequestRefused(400, "malformed request line")
    method, target, version = shape.groups()
    if version not in {b"HTTP/1.0", b"HTTP/1.1"}:
        if version.startswith(b"HTTP/0"):
            return RequestRefused(400, "malformed request line")
        return RequestRefused(505, "only HTTP/1.1 and HTTP/1.0 are supported")
    if method not in METHODS:
        return refuse_method(method)
    if not target.startswith(b"/"):
        return RequestRefused(400, "the request target must be a path")
    return RequestRefused(400, "the request target contains invalid characters")


def refuse_method(method: bytes) -> RequestRefused:
    name = method.decode("ascii", "replace")
    if method in METHODS_REFUSED:
        return RequestRefused(405, f"method {name} is not allowed")
    return RequestRefused(501, f"method {name} is not supported")


def _length_of(headers: Headers, lengths: list[str], *, version_minor: int) -> int:
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if lengths or version_minor == 0:
            raise RequestRefused(400, "the length of the body is ambiguous")
        if len(headers.get_all("transfer-encoding")) > 1 or coding.lower() != "chunked":
            raise RequestRefused(501, "the only supported transfer coding is chunked")
        return CHUNKED
    if not lengths:
        return 0
    length = lengths[0]
    if len(lengths) > 1 or not (length.isascii() and length.isdigit()):
        raise RequestRefused(400, "the length of the body is ambiguous")
    if len(length) > LENGTH_DIGITS_MAX:
        raise RequestRefused(413, "Request entity too large")
    return int(length)


def _keeps_alive(headers: Headers, *, version_minor: int) -> bool:
    if "connection" not in headers:
        return version_minor == 1
    tokens = {
        token.strip().lower()
        for value in headers.get_all("connection")
        for token in value.split(",")
    }
    if "close" in tokens:
        return False
    return version_minor == 1 or "keep-alive" in tokens


def _expects_continue(headers: Headers) -> bool:
    expected = headers.get("expect")
    if expected is None:
        return False
    if expected.lower() != "100-continue":
        raise RequestRefused(417, "the only supported expectation is 100-continue")
    return True


def _check_host(headers: Headers, *, version_minor: int) -> None:
    hosts = headers.get_all("host")
    if len(hosts) > 1 or (not hosts and version_minor == 1):
        raise RequestRefused(400, "a request must have exactly one Host header")
    if hosts and _HOST.fullmatch(hosts[0]) is None:
        raise RequestRefused(400, "malformed Host header")
