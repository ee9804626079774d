"""A real HTTPS server on a loopback port that answers reviews: the base of the test webhooks."""

from __future__ import annotations

import asyncio
import base64
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tests.support.certificates import CertificateFiles

HEAD_BYTES_MAX: Final = 64 * 1024

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Raw:
    """A response that is not a review."""

    body: bytes
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = ()


Answer = Object | Raw | Awaitable[Object | Raw]


@dataclass(slots=True, kw_only=True)
class WebhookServer(ABC):
    """Treats any request as a review, whatever its path."""

    files: CertificateFiles
    connections: int = 0
    """Connections opened since the start."""
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @abstractmethod
    def respond_to(self, review: Object, path: str) -> Answer:
        """Record a review received at a path, and return the response."""

    def complete(self, review: Object, answer: Object) -> Object:
        """The complete review of a response."""
        return answer

    async def listen(self, port: int = 0) -> None:
        """Listen; after `stop` again at the same port."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.files.cert_file, self.files.key_file)
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port or self.port, ssl=context, limit=HEAD_BYTES_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections, and stop listening."""
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    @property
    def ca_bundle(self) -> str:
        """The CA bundle for a client configuration."""
        return base64.b64encode(self.files.ca_file.read_bytes()).decode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                while True:
                    await self._answer(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        lengths = [line for line in lines if line.lower().startswith("content-length:")]
        review = orjson.loads(await reader.readexactly(int(lengths[0].split(":")[1])))
        found = self.respond_to(review, lines[0].split(" ")[1])
        answer = await found if isinstance(found, Awaitable) else found
        if not isinstance(answer, Raw):
            answer = Raw(orjson.dumps(self.complete(review, answer)))
        extra = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        head = f"HTTP/1.1 {answer.status}\r\nContent-Length: {len(answer.body)}\r\n{extra}\r\n"
        writer.write(head.encode() + answer.body)
        await writer.drain()
