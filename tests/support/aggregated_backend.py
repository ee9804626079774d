"""A scripted server of an aggregated API for tests: real TLS, responses right or wrong.

It records each request with its verified client certificate. Not for production use, and no example
of a good API server: it responds to any path.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import orjson

from tests.support.certificates import CertificateFiles, make_certificate

HEAD_BYTES_MAX: Final = 2 * 1024 * 1024
JSON: Final = ("Content-Type", "application/json")


@dataclass(slots=True)
class Asked:
    """One request, as received."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    """Names in their original case; values decoded as `latin-1`."""
    body: bytes
    user: str
    """The common name of the client certificate; empty without one."""
    connection: int
    """The number of its connection, counted from one."""

    def all(self, name: str) -> list[str]:
        """All values of a header, whatever its case."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


class BackendConnection:
    """One connection, for a script that writes its own response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(
        self, body: bytes = b"", *, status: str = "200 OK", headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """A whole response."""
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
        lines.append(f"Content-Length: {len(body)}")
        await self.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)

    async def write(self, data: bytes) -> None:
        """Any bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """A chunk of a chunked response, which is never completed."""
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def closed(self) -> None:
        """Wait until the client has closed it."""
        with suppress(OSError):
            while await self.reader.read(1024):
                pass

    def abort(self) -> None:
        """Reset the connection."""
        self.writer.transport.abort()


Script = Callable[[Asked, BackendConnection], Awaitable[None]]


async def echo(asked: Asked, line: BackendConnection) -> None:
    """Respond with the request."""
    shown: dict[str, Any] = {
        "method": asked.method,
        "target": asked.target,
        "headers": asked.headers,
        "body": asked.body.decode("latin-1"),
        "user": asked.user,
    }
    await line.answer(orjson.dumps(shown), headers=[JSON])


@dataclass(slots=True)
class AggregatedBackend:
    """A server on a loopback port."""

    files: CertificateFiles
    client_ca_file: Path | None
    script: Script = echo
    """The script for each request; may be changed at any time."""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    """Connections opened since the start."""
    connections_open: int = 0
    _server: asyncio.Server | None = None
    _lines: set[BackendConnection] = field(default_factory=set)
    _one_gone: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @classmethod
    async def start(
        cls, directory: Path, *, host_names: Sequence[str], client_ca_file: Path | None = None
    ) -> Self:
        files = make_certificate(directory, name="backend", host_names=host_names)
        made = cls(files, client_ca_file)
        await made.listen()
        return made

    @property
    def ca_pem(self) -> str:
        return self.files.ca_file.read_text()

    async def listen(self) -> None:
        """Listen; after `stop` again at the same port."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.files.cert_file, self.files.key_file)
        if self.client_ca_file is not None:
            context.load_verify_locations(self.client_ca_file)
            context.verify_mode = ssl.CERT_OPTIONAL
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=context, limit=HEAD_BYTES_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections, and stop listening."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for line in list(self._lines):
            line.abort()
        while self._lines:
            self._one_gone.clear()
            await self._one_gone.wait()
        if server is not None:
            await server.wait_closed()

    def reset(self) -> None:
        """Restore the initial state, except for the connections."""
        self.script = echo
        self.asked.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # stopped during the handshake
            writer.transport.abort()
            return
        line = BackendConnection(reader, writer)
        self.connections += 1
        self.connections_open += 1
        self._lines.add(line)
        number = self.connections
        try:
            while (asked := await _read(reader, _user_of(writer), number)) is not None:
                self.asked.append(asked)
                await self.script(asked, line)
                if writer.is_closing():
                    return
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._lines.discard(line)
            self._one_gone.set()
            self.connections_open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader, user: str, number: int) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = [(name, value.strip()) for name, _, value in pairs]
    asked = Asked(method, target, headers, b"", user, number)
    if lengths := asked.all("content-length"):
        asked.body = await reader.readexactly(int(lengths[0]))
    return asked


def _user_of(writer: asyncio.StreamWriter) -> str:
    shown: Any = writer.get_extra_info("peercert") or {}
    for pairs in shown.get("subject", ()):
        for key, value in pairs:
            if key == "commonName":
                return str(value)
    return ""
