"""A small HTTP server for probes and scrapers: `/healthz`, `/readyz`, `/metrics`, without TLS.

It serves GET and HEAD of a few fixed paths, one request per connection, and nothing else: no
bodies, no authentication, no stored input. So it listens on loopback by default.

Not here: health and metrics themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from restow.aio import Runtime, TasksClosed, TasksFull

CONNECTIONS_MAX: Final = 64
HEAD_BYTES_MAX: Final = 16 * 1024
REQUEST_SECONDS_MAX: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"
_WORDS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str = _TEXT


class ProbeServer:
    """A listening server. Created by `start`."""

    def __init__(self, pages: Mapping[str, Callable[[], ProbeAnswer]], runtime: Runtime) -> None:
        self._pages = pages
        self._clock = runtime.clock
        self._tasks = runtime.tasks("probes", tasks_max=CONNECTIONS_MAX)
        self._server: asyncio.Server | None = None
        self._number = 0
        self.port = 0

    @classmethod
    async def start(
        cls,
        pages: Mapping[str, Callable[[], ProbeAnswer]],
        *,
        runtime: Runtime,
        bind: str,
        port: int,
    ) -> ProbeServer:
        """Listen; port 0 selects a free one. Raises OSError if that fails."""
        made = cls(pages, runtime)
        made._server = await asyncio.start_server(made._connected, bind, port, limit=HEAD_BYTES_MAX)
        made.port = made._server.sockets[0].getsockname()[1]
        return made

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._tasks.close()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number += 1
        try:
            self._tasks.spawn(f"connection-{self._number}", self._serve(reader, writer))
        except (TasksFull, TasksClosed):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._clock.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                method, page = self._answer(head)
                writer.write(_encode(page, has_body=method != "HEAD"))
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            writer.transport.abort()  # the peer disconnected, is too slow, or sends no request
        finally:
            writer.close()

    def _answer(self, head: bytes) -> tuple[str, ProbeAnswer]:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return "", ProbeAnswer(400, b"not an HTTP request\n")
        method = words[0].decode("latin-1")
        path = words[1].partition(b"?")[0].decode("latin-1")
        make = self._pages.get(path)
        if make is None:
            known = ", ".join(sorted(self._pages))
            return method, ProbeAnswer(404, f"not found; paths: {known}\n".encode())
        if method not in {"GET", "HEAD"}:
            return method, ProbeAnswer(405, b"method not allowed; use GET or HEAD\n")
        try:
            return method, make()
        except Exception:  # the edge of a task: a failing page must not end the process
            logger.exception("the page %s failed", path)
            return method, ProbeAnswer(500, b"internal error; see the log\n")


def _encode(page: ProbeAnswer, *, has_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {_WORDS[page.status]}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (page.body if has_body else b"")
