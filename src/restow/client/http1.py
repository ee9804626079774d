"""HTTP/1.1 of a client: encode a request, read a response.

Ambiguous responses are rejected, because a wrong interpretation could assign a response to another
request: two lengths, a folded header, or an unknown transfer coding.

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
# The limit of the StreamReader for `readuntil`; it must exceed the size of a head.
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
    """The head of a response. Header names are in lower case; repeated ones are joined."""

    status: int
    headers: dict[str, str]
    has_body: bool
    length: int | None
    is_chunked: bool
    is_kept: bool
    """Whether the connection can be reused once the body has been read."""

    @property
    def is_small(self) -> bool:
        """Whether there is no body, or it can be read at once."""
        return not self.has_body or (self.length is not None and self.length <= READ_BYTES)


def encode_request(
    method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes
) -> bytes:
    """Encode a request; ValueError if a part of it contains a line break."""
    if _UNSAFE.search(target) or not target.startswith("/") or not method.isalpha():
        raise ValueError(f"invalid request line: {method} {target[:256]!r}")
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [_header_line(name, value) for name, value in headers]
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(body)}")
    # User names may contain any character; the server decodes the bytes as UTF-8.
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def encode_passed_request(
    method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes
) -> bytes:
    """Encode a proxied request: header values are decoded as `latin-1`, so that each byte is passed
    unchanged, and no line is cached."""
    if _UNSAFE.search(target) or not target.startswith("/") or not method.isalpha():
        raise ValueError(f"invalid request line: {method} {target[:256]!r}")
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [_checked_line(name, value) for name, value in headers]
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def encode_connect(authority: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Encode a CONNECT request, which asks a proxy for a tunnel to `host:port`."""
    if _UNSAFE.search(authority):
        raise ValueError(f"invalid address: {authority[:256]!r}")
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    lines += [_checked_line(name, value) for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@lru_cache(maxsize=LINES_KEPT_MAX)
def _header_line(name: str, value: str) -> str:
    """Encode a header line. Cached, because nearly all requests of a client have the same ones."""
    return _checked_line(name, value)


def _checked_line(name: str, value: str) -> str:
    if not _NAME.fullmatch(name.encode()) or _UNSAFE_VALUE.search(value):
        raise ValueError(f"invalid header: {name[:256]!r}")
    return f"{name}: {value}"


async def read_head(reader: asyncio.StreamReader, *, method: str) -> Head:
    """Read the head of the response; interim responses (1xx) are skipped."""
    for _ in range(INTERIM_ANSWERS_MAX):
        version, status, headers = _parse_head(await _raw_head(reader))
        if status == 101:
            raise ProtocolBroken("an unexpected protocol switch (101)")
        if status >= 200:
            return _framed(version, status, headers, method=method)
    raise ProtocolBroken("too many interim responses")


async def read_tunnel_status(reader: asyncio.StreamReader) -> int:
    """Read the response to CONNECT. After a 2xx, the following bytes are those of the server."""
    for _ in range(INTERIM_ANSWERS_MAX):
        _, status, _ = _parse_head(await _raw_head(reader))
        if status >= 200:
            return status
    raise ProtocolBroken("too many interim responses")


async def read_passed_head(
    reader: asyncio.StreamReader, *, method: str, is_upgrade: bool
) -> tuple[Head, list[tuple[str, str]]]:
    """Read the head of a proxied response, and its header lines.

    Its body can be compressed as the client requested. A 101 is valid only for an upgrade request;
    the following bytes are not HTTP.
    """
    for _ in range(INTERIM_ANSWERS_MAX):
        raw = await _raw_head(reader)
        version, status, headers = _parse_head(raw)
        if status == 101 and not is_upgrade:
            raise ProtocolBroken("an unexpected protocol switch (101)")
        if status == 101:
            return Head(status, headers, False, None, False, False), _lines(raw)
        if status >= 200:
            head = _framed(version, status, headers, method=method, may_be_coded=True)
            return head, _lines(raw)
    raise ProtocolBroken("too many interim responses")


async def _raw_head(reader: asyncio.StreamReader) -> bytes:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise ProtocolBroken("the head does not end") from error
    if len(raw) > HEAD_BYTES_MAX:
        raise ProtocolBroken("the head is too long")
    return raw[:-4]


def _lines(raw: bytes) -> list[tuple[str, str]]:
    """The header lines of a parsed head, unchanged, including repeated ones."""
    pairs = (line.partition(b":") for line in raw.split(b"\r\n")[1:])
    return [
        (name.decode().lower(), value.decode("latin-1").strip(" \t")) for name, _, value in pairs
    ]


async def body_pieces(reader: asyncio.StreamReader, head: Head) -> AsyncGenerator[bytes, None]:
    """Iterate over the body; IncompleteReadError if it breaks off."""
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
    """Read the body of a response that `is_small`; IncompleteReadError if it breaks off."""
    return await reader.readexactly(head.length) if head.has_body and head.length else b""


def _parse_head(raw: bytes) -> tuple[int, int, dict[str, str]]:
    first, *lines = raw.split(b"\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise ProtocolBroken(f"it begins with {first[:64]!r}")
    if len(lines) > HEADERS_MAX:
        raise ProtocolBroken("too many headers")
    if raw.count(b"\n") != len(lines) or raw.count(b"\r") != len(lines):
        raise ProtocolBroken("a header line with an invalid line end")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or (key := _header_name(name)) is None:
            raise ProtocolBroken(f"an invalid header {line[:64]!r}")
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
        raise ProtocolBroken(f"an unsupported transfer coding {coding[:64]!r}")
    content_coding = headers.get("content-encoding", "identity").lower()
    if content_coding not in {"", "identity"} and not may_be_coded:
        raise ProtocolBroken(f"an unexpected content coding {content_coding[:64]!r}")
    length = _length(headers)
    if coding and (length is not None or version == 0):
        raise ProtocolBroken("both a length and a transfer coding")
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
        raise ProtocolBroken(f"an invalid length {text[:64]!r}")
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
            raise ProtocolBroken(f"an invalid chunk {line[:64]!r}")
        size = int(found[1], 16)
        if not size:
            break
        async for piece in _exactly(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise ProtocolBroken("a chunk is longer than its size")
    for _ in range(TRAILERS_MAX):
        if await _line(reader) == b"\r\n":
            return
    raise ProtocolBroken("too many trailers")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError as error:
        raise ProtocolBroken("a line does not end") from error
    if len(line) > CHUNK_LINE_BYTES_MAX:
        raise ProtocolBroken("a line is too long")
    return line
