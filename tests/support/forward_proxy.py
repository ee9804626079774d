"""A forward proxy on loopback for tests: CONNECT over http or https, or SOCKS5.

It opens tunnels to loopback only, whatever name is requested, and records what was requested.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import suppress
from typing import Final, Self

from restow.aio import Runtime, TaskFailure

_READ_BYTES: Final = 65_536


class ForwardProxy:
    """Listens on a loopback port. With a password, the user is `user`."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        scheme: str = "http",
        password: str = "",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.scheme = scheme
        self.requested: list[tuple[str, int]] = []
        """Host and port of each tunnel."""
        self.refuses = False
        """Whether tunnels are refused."""
        self._password = password
        self._context = context
        self._tasks = runtime.tasks("forward-proxy", on_failure=_ignore)
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        host = "localhost" if self.scheme == "https" else "127.0.0.1"
        return f"{self.scheme}://{host}:{self.port}"

    def url_of(self, password: str) -> str:
        return self.url.replace("://", f"://user:{password}@")

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._tasks.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.spawn("tunnel", self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = self._socks if self.scheme.startswith("socks") else self._http
        try:
            with suppress(asyncio.IncompleteReadError):
                target = await answer(reader, writer)
                if target is not None:
                    await self._relay(reader, writer, target)
        finally:
            writer.transport.abort()

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        assert method == "CONNECT", head
        host, _, port = target.rpartition(":")
        expected = base64.b64encode(f"user:{self._password}".encode()).decode()
        if self._password and f"Proxy-Authorization: Basic {expected}\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        elif self.refuses:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        else:
            self.requested.append((host.strip("[]"), int(port)))
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
            return int(port)
        await writer.drain()
        writer.write_eof()
        await reader.read()
        return None

    async def _socks(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int | None:
        version, count = await reader.readexactly(2)
        assert version == 5
        offered = await reader.readexactly(count)
        method = 2 if self._password else 0
        if method not in offered:
            writer.write(b"\x05\xff")
            return None
        writer.write(bytes([5, method]))
        if self._password:
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            is_right = (user, password) == (b"user", self._password.encode())
            writer.write(b"\x01" + bytes([not is_right]))
            if not is_right:
                await writer.drain()
                return None
        _, _, _, kind = await reader.readexactly(4)
        length = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
        raw = await reader.readexactly(length)
        port = int.from_bytes(await reader.readexactly(2), "big")
        host = raw.decode() if kind == 3 else ".".join(map(str, raw))
        self.requested.append((host, port))
        code = 2 if self.refuses else 0
        writer.write(bytes([5, code, 0, 1, 0, 0, 0, 0, 0, 0]))
        await writer.drain()
        return None if self.refuses else port

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, target_writer))
                group.create_task(_copy(target_reader, writer))
        finally:
            target_writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
        writer.close()


def _ignore(failure: TaskFailure) -> None:
    """A broken tunnel is what some tests want."""
