"""Parses bytes into whole requests, and finds the boundaries between them.

It uses no transport and no clock, so the same bytes yield the same requests, however they are
split. The parser is fed exactly one message at a time: a complete head, then the chunks of its
body, a few at a time. So nothing after a message is parsed before its response. If the body is
incomplete when its head is parsed, it is not read before `next_request` is called again: until then
the request can be rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from restow.httpserver.byte_budgets import Budgets
from restow.httpserver.chunks import ChunkScanner
from restow.httpserver.limits import Limits
from restow.httpserver.request import Headers, HttpRequest, Peer, RequestLine
from restow.httpserver.request_head import (
    CHUNKED,
    LENGTH_DIGITS,
    LINE_BEGIN,
    METHODS,
    REQUEST_LINE,
    HeaderBlock,
    HeadParser,
    RequestRefused,
    refuse_line,
    refuse_method,
    too_large,
)

_END: Final = b"\r\n\r\n"
LINES_KEPT_MAX: Final = 4_096
# Longer request lines are rare, and unlikely to be repeated.
LINE_BYTES_KEPT_MAX: Final = 512
# The size of a cached block of header lines is chosen by clients, of which there are many.
BLOCK_BYTES_KEPT_MAX: Final = 16 * 1024
# A request line has a method and a version beside its target.
_LINE_EXTRA_BYTES: Final = 64


class ReaderPhase(Enum):
    """What the reader waits for, in the wording of error messages."""

    IDLE = "a request"
    HEAD = "the rest of a head"
    BODY = "the rest of a body"


# Module constants: access to a member through its class costs more than the comparison.
IDLE: Final = ReaderPhase.IDLE
HEAD: Final = ReaderPhase.HEAD
BODY: Final = ReaderPhase.BODY


class RequestLineCache:
    """Request lines seen before, by their bytes; shared by all connections of a listener.

    `keeps` selects the lines that are worth caching; without it, all are.
    """

    __slots__ = ("_keeps", "known")

    def __init__(self, keeps: Callable[[RequestLine], bool] | None = None) -> None:
        self._keeps = keeps
        self.known: dict[bytes, RequestLine] = {}

    def note(self, raw: bytes, line: RequestLine) -> None:
        """Cache a line of any connection. It must have been accepted by the parser."""
        if self._keeps is not None and not self._keeps(line):
            return
        if len(raw) <= LINE_BYTES_KEPT_MAX and raw not in self.known:
            if len(self.known) >= LINES_KEPT_MAX:
                self.known.clear()
            self.known[raw] = line


class RequestReader:
    """The incoming half of one connection."""

    __slots__ = (
        "_body",
        "_budgets",
        "_chunks",
        "_chunks_bytes",
        "_data",
        "_head_bytes",
        "_head_end",
        "_length",
        "_limits",
        "_line_checked",
        "_lines",
        "_other",
        "_partial",
        "_peer",
        "_position",
        "_request",
        "_scanner",
        "_share",
        "_skipped",
        "block",
        "phase",
    )

    def __init__(
        self, limits: Limits, *, budgets: Budgets, peer: Peer, lines: RequestLineCache | None = None
    ) -> None:
        self._limits = limits
        self._lines = RequestLineCache() if lines is None else lines
        self._budgets = budgets
        # What the held bytes are charged to, until they are returned.
        self._share = budgets.share_of(peer)
        self._peer = peer
        self._data = b""
        self._position = 0
        # The end of the head at the beginning of the data, if it is known.
        self._head_end = 0
        # The incomplete head so far.
        self._partial = bytearray()
        self._line_checked = False
        # The latest header lines: clients repeat them, and equal bytes need no second parse.
        self.block: HeaderBlock | None = None
        # Size of the last head that was parsed.
        self._head_bytes = 0
        self._other: HeaderBlock | None = None
        # The request whose body is incomplete.
        self._request: HttpRequest | None = None
        self._length = 0
        self._body = bytearray()
        self._chunks: HeadParser | None = None
        self._chunks_bytes = 0
        self._scanner = ChunkScanner()
        # Whether an empty line was skipped, and no request has followed yet.
        self._skipped = False
        self.phase = IDLE

    @property
    def unread_bytes(self) -> int:
        """Received bytes that belong to no request yet."""
        return len(self._data) - self._position + len(self._partial)

    @property
    def has_unread_body(self) -> bool:
        """Whether bytes of an incomplete body are there that `next_request` would read."""
        return self._request is not None and self._position < len(self._data)

    @property
    def is_empty(self) -> bool:
        """Whether no byte of a request is held: the next one starts with the next data."""
        if self._data or self._partial or self._skipped:
            return False
        return self._request is None

    @property
    def half_read(self) -> HttpRequest | None:
        """The request whose body is incomplete."""
        return self._request

    def refused_request(self, now_seconds: float) -> HttpRequest:
        """What is known of a request whose head was refused: its line, if that is valid."""
        data, position = (self._partial, 0) if self._partial else (self._data, self._position)
        line = REQUEST_LINE.match(data, position)
        method, target = (b"", b"") if line is None else line.group(1, 2)
        if len(target) > self._limits.target_bytes_max:
            target = target[: self._limits.target_bytes_max]
        path, _, query = target.decode().partition("?")
        headers = Headers(())
        return HttpRequest(method.decode(), path, query, headers, b"", self._peer, now_seconds)

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends the body."""
        block = self.block
        if self._request is None or block is None or not block.expects_continue:
            return False
        return not self._body and self._chunks_bytes == 0 and not self.has_unread_body

    def feed(self, data: bytes) -> None:
        """Add received bytes. Then call `next_request` until it returns None."""
        if self._partial:
            self._extend_partial(data)
        elif self._position < len(self._data):
            self._data = self._data[self._position :] + data
            self._position = 0
        else:
            self._data = data
            self._position = 0

    def whole_request(self, data: bytes, now_seconds: float) -> HttpRequest | None:
        """Fast path: data that is one request with the same header lines as the one before.

        Only for a reader that waits for a request and holds nothing. None means that the data must
        be read with `feed`.
        """
        block = self.block
        if block is None or not block.is_plain or not data.endswith(block.raw):
            return None
        known = self._lines.known.get(data[: -block.raw_bytes])
        if known is not None:
            asked = (known.method, known.path, known.query)
            return HttpRequest(*asked, block.headers, b"", self._peer, now_seconds)
        line = REQUEST_LINE.fullmatch(data, 0, len(data) - block.raw_bytes)
        if line is None:
            return None
        method, target, minor = line.groups()
        name = METHODS.get(method)
        if name is None or minor != b"1" or len(target) > self._limits.target_bytes_max:
            return None
        path, _, query = target.decode().partition("?")
        self._lines.note(data[: -block.raw_bytes], RequestLine(name, path, query))
        return HttpRequest(name, path, query, block.headers, b"", self._peer, now_seconds)

    def next_request(self, now_seconds: float) -> HttpRequest | None:
        """The next whole request, or None if more bytes are needed; raises RequestRefused.

        Also None when a head was read and its body is incomplete, and when much of a body was read:
        if `has_unread_body`, call it again after other connections were served.
        """
        if self._request is not None:
            return self._read_body()
        data = self._data
        position = self._position
        if position == len(data):
            self._drop_data()
            return None
        line = REQUEST_LINE.match(data, position)
        if line is None:
            return self._no_line(now_seconds)
        self._skipped = False
        begin = line.end()
        # For data that arrived in pieces the end is known; its head is the first in the data.
        head_end, self._head_end = self._head_end, 0
        method, target, minor = line.groups()
        block, end, length = self._known_block(data, begin, minor)
        if block is None:
            end = head_end or data.find(_END, begin - 2) + 4
            if end < 4:
                self._hold_head()
                return None
            is_kept = end - begin <= BLOCK_BYTES_KEPT_MAX
            raw = data[begin:end] if is_kept else b""
            block = self._parse_block(data[position:end], raw=raw, line=line)
            length = block.length
        name = METHODS.get(method)
        if name is None:
            raise refuse_method(method)
        if len(target) > self._limits.target_bytes_max:
            raise RequestRefused(
                414, f"the request target is over {self._limits.target_bytes_max} bytes"
            )
        path, _, query = target.decode().partition("?")
        request = HttpRequest(
            name,
            path,
            query,
            block.headers,
            b"",
            self._peer,
            now_seconds,
            block.version_minor,
            block.keep_alive,
        )
        self._position = end
        if length == 0:
            self._forget_block()
            self.phase = IDLE
            return request
        return self._begin_body(request, length)

    def _forget_block(self) -> None:
        """Drop header lines that cannot be compared with those of the next request."""
        if self.block is not None and not self.block.minor:
            self.block = None

    def _known_block(
        self, data: bytes, begin: int, minor: bytes
    ) -> tuple[HeaderBlock | None, int, int]:
        """Cached header lines that the data repeats, the position of their end, and the length of
        the body.

        Cached lines end with the only end marker in them, so equal bytes have the same end. The two
        latest are cached: a client that alternates between reads and writes sends two kinds.
        """
        for block in (self.block, self._other):
            if block is None or minor != block.minor or not data.startswith(block.before, begin):
                continue
            end, length = begin + len(block.before), block.length
            if block.after:
                digits = LENGTH_DIGITS.match(data, end)
                if digits is None or not data.startswith(block.after, digits.end()):
                    continue
                end, length = digits.end() + len(block.after), int(digits[0])
            if block is self._other:
                self._other, self.block = self.block, block
            return block, end, length
        return None, 0, 0

    def take_rest(self) -> bytes:
        """The bytes after the last request, when the connection leaves HTTP."""
        rest = self._data[self._position :] + bytes(self._partial)
        self.close()
        return rest

    def close(self) -> None:
        """Return the budget of the held bytes."""
        self._give_back()
        self._body = bytearray()
        self._chunks = None
        self._request = None
        self._partial = bytearray()
        self._drop_data()

    def _drop_data(self) -> None:
        self._head_end = 0
        # The latest read can be large, and an idle connection should hold no memory.
        self._data = b""
        self._position = 0

    # --- heads -------------------------------------------------------------------------------

    def _parse_block(self, head: bytes, *, raw: bytes, line: re.Match[bytes]) -> HeaderBlock:
        method, target, minor = line.groups()
        if len(target) > self._limits.target_bytes_max:
            raise RequestRefused(
                414, f"the request target is over {self._limits.target_bytes_max} bytes"
            )
        if len(head) > self._head_bytes_max:
            raise self._head_too_large()
        if method not in METHODS:
            raise refuse_method(method)
        parser = HeadParser(self._limits)
        block = parser.parse_head(head, raw=raw, minor=minor)
        self._head_bytes = len(head)
        if not raw:
            block.minor = b""
            block.is_plain = False
        self._other, self.block = self.block, block
        self._chunks = None
        if block.length == CHUNKED:
            # The body goes through the same parser, so the next head needs a new one.
            self._chunks = parser
            block.minor = b""
        return block

    def _no_line(self, now_seconds: float) -> HttpRequest | None:
        # One empty line before a request is tolerated, as RFC 9112 recommends.
        if self._data.startswith(b"\r\n", self._position):
            self._skip_line()
            self._position += 2
            return self.next_request(now_seconds)
        self._hold_head()
        return None

    def _skip_line(self) -> None:
        """Skip an empty line; reject a second one, even if it arrives in other data."""
        if self._skipped:
            raise RequestRefused(400, "malformed request line")
        self._skipped = True

    def _hold_head(self) -> None:
        rest = self._data[self._position :]
        self._drop_data()
        self._line_checked = False
        self.phase = HEAD
        self._extend_partial(rest)

    def _extend_partial(self, data: bytes) -> None:
        """Add to an incomplete head; once it is complete, it becomes the data to read next."""
        partial = self._partial
        overlap = max(len(partial) - 3, 0)
        self._hold(len(data))
        # Bytes without a line end neither end a head nor contain a lone one. A search for one byte
        # is fast and for four is not, so a long value is searched for the one byte only.
        has_newline = b"\n" in data
        lone = data.count(b"\n") - data.count(b"\r\n") if has_newline else 0
        if has_newline and data.startswith(b"\n") and partial.endswith(b"\r"):
            lone -= 1
        partial += data
        if partial.startswith(b"\r\n"):
            self._skip_line()
            del partial[:2]
            overlap = 0
            if not partial:
                self._give_back()
                self.phase = IDLE
                return
        end = partial.find(_END, overlap) if has_newline else -1
        if end >= 0:
            if REQUEST_LINE.match(partial) is None:
                raise refuse_line(bytes(partial[: partial.index(b"\r\n")]))
            self._data = bytes(partial)
            self._position = 0
            self._head_end = end + len(_END)
            self._partial = bytearray()
            self._give_back()
            return
        if lone:
            raise RequestRefused(400, "a line ends without a carriage return")
        if len(partial) > self._head_bytes_max:
            raise self._head_too_large()
        if not self._line_checked:
            self._check_line(partial)

    def _check_line(self, partial: bytearray) -> None:
        end = partial.find(b"\r\n", 0, self._limits.target_bytes_max + _LINE_EXTRA_BYTES)
        if end >= 0:
            if REQUEST_LINE.match(partial) is None:
                raise refuse_line(bytes(partial[:end]))
            self._line_checked = True
        elif len(partial) >= self._limits.target_bytes_max + _LINE_EXTRA_BYTES:
            raise RequestRefused(
                414, f"the request target is over {self._limits.target_bytes_max} bytes"
            )
        elif LINE_BEGIN.match(partial) is None and partial != b"\r":  # half an empty line
            raise RequestRefused(400, "malformed request line")

    def take_head_bytes(self) -> int:
        """The size of the last head; 0 when it was taken already."""
        taken, self._head_bytes = self._head_bytes, 0
        return taken

    @property
    def _head_bytes_max(self) -> int:
        limits = self._limits
        if self._peer.is_known:
            return limits.head_bytes_max
        return min(limits.unauthenticated_head_bytes_max, limits.head_bytes_max)

    def _head_too_large(self) -> RequestRefused:
        why = "" if self._peer.is_known else ", the limit until a request is authenticated"
        return RequestRefused(431, f"the header lines are over {self._head_bytes_max} bytes{why}")

    # --- bodies ------------------------------------------------------------------------------

    def _begin_body(self, request: HttpRequest, length: int) -> HttpRequest | None:
        if length > self._limits.body_bytes_max:
            self._request = request  # a rejection needs its sender
            raise too_large(self._limits.body_bytes_max)
        begin = self._position
        end = begin + length
        if length != CHUNKED and end <= len(self._data):
            request.body = self._data[begin:end]
            self._position = end
            self._forget_block()
            self.phase = IDLE
            return request
        self._request = request
        self._length = length
        self._body = bytearray()
        self._chunks_bytes = 0
        self._scanner = ChunkScanner()
        self.phase = BODY
        if not self.has_unread_body:
            self._drop_data()
        return None

    def _read_body(self) -> HttpRequest | None:
        if self._chunks is not None:
            return self._read_chunks(self._chunks)
        position = self._position
        end = min(position + self._length - len(self._body), len(self._data))
        self._hold(end - position)
        self._body += self._data[position:end]
        self._position = end
        if len(self._body) < self._length:
            self._drop_data()
            return None
        return self._end_body(self._body)

    def _read_chunks(self, parser: HeadParser) -> HttpRequest | None:
        """Parse the next chunks of a body; bytes after the body are not parsed."""
        begin = self._position
        if begin == len(self._data):
            return None
        collector, scanner = parser.collector, self._scanner
        body_bytes = len(collector.body)
        end = scanner.scan(self._data, begin, chunks_max=self._limits.chunks_at_once_max)
        parser.feed(self._data[begin:end])
        if collector.complete != scanner.complete:
            raise RequestRefused(400, "the end of the message is ambiguous")
        self._position = end
        self._chunks_bytes += end - begin
        self._hold(len(collector.body) - body_bytes)
        overhead_bytes = self._chunks_bytes - len(collector.body)
        if overhead_bytes > self._limits.chunk_overhead_bytes_max:
            raise RequestRefused(400, "the chunks of the body are too small")
        if collector.complete:
            return self._end_body(collector.body)
        if not self.has_unread_body:
            self._drop_data()
        return None

    def _end_body(self, body: bytearray) -> HttpRequest:
        request = self._request
        assert request is not None
        request.body = bytes(body)
        self._request = None
        self._body = bytearray()
        self._chunks = None
        self._give_back()
        self._forget_block()
        self.phase = IDLE
        return request

    def _hold(self, nbytes: int) -> None:
        peer = self._peer
        if not self._share.bytes_held:
            self._share = self._budgets.share_of(peer)
        if not self._share.take(nbytes, peer.displacer):
            raise RequestRefused(503, "too many requests are being read, please try again")

    def _give_back(self) -> None:
        self._share.release()
