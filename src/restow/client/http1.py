"""HTTP/1.1 as a client writes and reads it: one request out, one answer in.

Strict where two readings would be possible, since a confused client takes one answer for another:
an answer with two lengths, a folded header, or an unknown coding is refused, never guessed at.

Not here: connections and their reuse (`connections`), TLS, credentials.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from restow.client.errors import ProtocolBroken

HEAD_BYTES_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 256
INTERIM_ANSWERS_MAX: Final = 8
CHUNK_LINE_BYTES_MAX: Final = 1024
TRAILERS_MAX: Final = 64
READ_BYTES: Final = 64 * 1024
LINES_KEPT_MAX: Final = 512
# The reader's own limit, for `readuntil`, must hold a whole head.
STREAM_BYTES_MAX: Final = 2 * HEAD_BYTES_MAX

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DIGITS: Final = re.compile(r"[0-9]{1,18}", flags=re.ASCII)
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f]")
_UNSAFE_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer. Names of headers are in lower case; repeated ones are joined."""

    status: int
    headers: dict[str, str]
    has_body: bool
    length: int | None
    is_chunked: bool
    is_kept: bool
    """Whether the connection can be used again once the body has been read."""

    @property
    def is_small(self) -> bool:
        """Whether the body is none, or can be read in one go."""
        return not self.has_body or (self.length is not None and self.length <= READ_BYTES)


def encode_request(
    method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes
) -> bytes:
    """The bytes of a request; ValueError if something in it would end a line."""
    if _UNSAFE.search(target) or not target.startswith("/") or not method.isalpha():
        raise ValueError(f"no request line: {method} {target[:256]!r}")
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [_header_line(name, value) for name, value in headers]
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(body)}")
    # Names of users may have any letter; the server reads the bytes as UTF-8.
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def encode_passed_request(
    method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes
) -> bytes:
    """The same for a request of somebody else: values are texts as `latin-1` reads bytes, so that
    each byte leaves as it came, and no line is remembered."""
    if _UNSAFE.search(target) or not target.startswith("/") or not method.isalpha():
        raise ValueError(f"no request line: {method} {target[:256]!r}")
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [_checked_line(name, value) for name, value in headers]
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


@lru_cache(maxsize=LINES_KEPT_MAX)
def _header_line(name: str, value: str) -> str:
    """A client says the same in nearly all its requests, so it is checked once."""
    return _checked_line(name, value)


def _checked_line(name: str, value: str) -> str:
    if not _NAME.fullmatch(name.encode()) or _UNSAFE_VALUE.search(value):
        raise ValueError(f"no header: {name[:256]!r}")
    return f"{name}: {value}"


async def read_head(reader: asyncio.StreamReader, *, method: str) -> Head:
    """The head of the answer; interim ones (1xx) are passed over."""
    for _ in range(INTERIM_ANSWERS_MAX):
        version, status, headers = _parse_head(await _raw_head(reader))
        if status == 101:
            raise ProtocolBroken("it wants to speak another protocol")
        if status >= 200:
            return _framed(version, status, headers, method=method)
    raise ProtocolBroken("it has too many interim answers")


async def read_passed_head(
    reader: asyncio.StreamReader, *, method: str, is_upgrade: bool
) -> tuple[Head, list[tuple[str, str]]]:
    """The head of an answer for somebody else, and its lines one by one.

    Its body may be compressed: whoever asked said how. A 101 is an answer only to who asked for an
    upgrade; what follows it is no HTTP.
    """
    for _ in range(INTERIM_ANSWERS_MAX):
        raw = await _raw_head(reader)
        version, status, headers = _parse_head(raw)
        if status == 101 and not is_upgrade:
            raise ProtocolBroken("it wants to speak another protocol, unasked")
        if status == 101:
            return Head(status, headers, False, None, False, False), _lines(raw)
        if status >= 200:
            head = _framed(version, status, headers, method=method, may_be_coded=True)
            return head, _lines(raw)
    raise ProtocolBroken("it has too many interim answers")


async def _raw_head(reader: asyncio.StreamReader) -> bytes:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise ProtocolBroken("its head does not end") from error
    if len(raw) > HEAD_BYTES_MAX:
        raise ProtocolBroken("its head is too long")
    return raw[:-4]


def _lines(raw: bytes) -> list[tuple[str, str]]:
    """The lines of a head that was parsed: each as it came, repeated ones too."""
    pairs = (line.partition(b":") for line in raw.split(b"\r\n")[1:])
    return [
        (name.decode().lower(), value.decode("latin-1").strip(" \t")) for name, _, value in pairs
    ]


async def body_pieces(reader: asyncio.StreamReader, head: Head) -> AsyncGenerator[bytes, None]:
    """The body in pieces as they come; IncompleteReadError if it breaks off."""
    if not head.has_body:
        return
    if head.is_chunked:
        async for piece in _chunks(reader):
            yield piece
    elif head.length is not None:
        async for piece in _exactly(reader, head.length):
            yield piece
    else:
        while piece := await reader.read(READ_BYTES):
            yield piece


async def read_small(reader: asyncio.StreamReader, head: Head) -> bytes:
    """The body of an answer that `is_small`; IncompleteReadError if it breaks off."""
    return await reader.readexactly(head.length) if head.has_body and head.length else b""


def _parse_head(raw: bytes) -> tuple[int, int, dict[str, str]]:
    first, *lines = raw.split(b"\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise ProtocolBroken(f"it begins with {first[:64]!r}")
    if len(lines) > HEADERS_MAX:
        raise ProtocolBroken("it has too many headers")
    if raw.count(b"\n") != len(lines) or raw.count(b"\r") != len(lines):
        raise ProtocolBroken("it has a line that does not end as lines do")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or (key := _header_name(name)) is None:
            raise ProtocolBroken(f"it has a header {line[:64]!r}")
        text = value.decode("latin-1").strip(" \t")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return int(found[1]), int(found[2]), headers


@lru_cache(maxsize=LINES_KEPT_MAX)
def _header_name(name: bytes) -> str | None:
    return name.decode().lower() if _NAME.fullmatch(name) else None


def _framed(
    version: int, status: int, headers: dict[str, str], *, method: str, may_be_coded: bool = False
) -> Head:
    coding = headers.get("transfer-encoding", "").lower()
    if coding not in {"", "chunked"}:
        raise ProtocolBroken(f"it has a transfer coding {coding[:64]!r}")
    content_coding = headers.get("content-encoding", "identity").lower()
    if content_coding not in {"", "identity"} and not may_be_coded:
        raise ProtocolBroken(f"it is compressed, unasked: {content_coding[:64]!r}")
    length = _length(headers)
    if coding and (length is not None or version == 0):
        raise ProtocolBroken("its length is said twice")
    has_body = method != "HEAD" and status not in _WITHOUT_BODY
    connection = headers.get("connection")
    options = {each.strip() for each in connection.lower().split(",")} if connection else ()
    ends_by_itself = not has_body or bool(coding) or length is not None
    return Head(
        status=status,
        headers=headers,
        has_body=has_body,
        length=length,
        is_chunked=bool(coding),
        is_kept=version == 1 and "close" not in options and ends_by_itself,
    )


def _length(headers: dict[str, str]) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if _DIGITS.fullmatch(text):
        return int(text)
    values = {each.strip() for each in text.split(",")}
    value = values.pop()
    if values or not _DIGITS.fullmatch(value):
        raise ProtocolBroken(f"its length is {text[:64]!r}")
    return int(value)


async def _exactly(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    rest = length
    while rest:
        piece = await reader.read(min(rest, READ_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", rest)
        rest -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await _line(reader)
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise ProtocolBroken(f"it has a chunk {line[:64]!r}")
        size = int(found[1], 16)
        if not size:
            break
        async for piece in _exactly(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise ProtocolBroken("it has a chunk that is longer than it said")
    for _ in range(TRAILERS_MAX):
        if await _line(reader) == b"\r\n":
            return
    raise ProtocolBroken("it has too many trailers")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError as error:
        raise ProtocolBroken("it has a line that does not end") from error
    if len(line) > CHUNK_LINE_BYTES_MAX:
        raise ProtocolBroken("it has a line that is too long")
    return line
