"""How attackers connect, and what they send."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from typing import Final

from benchmarks.api.target import Target

READ_BYTES: Final = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
opened: Final[list[int]] = []
"""One element for each connection so far."""


@cache
def context_of(target: Target) -> ssl.SSLContext:
    return target.tls()


async def connect(target: Target, *, tls: bool = True) -> Streams:
    context = context_of(target) if tls else None
    streams = await asyncio.open_connection(target.host, target.port, ssl=context, limit=1 << 24)
    opened.append(1)
    return streams


def head(method: str, path: str, token: str = "", *lines: str) -> bytes:
    credential = (f"Authorization: Bearer {token}",) if token else ()
    every = (f"{method} {path} HTTP/1.1", "Host: x", *credential, *lines, "", "")
    return "\r\n".join(every).encode()


async def drain(streams: Streams, nbytes: int | None = None) -> None:
    """Read a number of bytes, or until the server closes."""
    left = nbytes
    while left is None or left > 0:
        data = await streams[0].read(READ_BYTES)
        if not data:
            raise EOFError
        if left is not None:
            left -= len(data)


async def whole_answer(reader: asyncio.StreamReader) -> int:
    """Read one response and drop its body; return its status."""
    lines = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in lines:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    else:
        length = lines.partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length or b"0"))
    return int(lines[9:12])
