"""A minimal client: one connection, one request at a time, whole responses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from benchmarks.api.target import Target


class Connection:
    """A kept-alive connection to a target."""

    def __init__(
        self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._target = target
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, target: Target, *, address: str | None = None) -> Connection:
        """Connect, from a certain address of this machine if it is given."""
        local = None if address is None else (address, 0)
        streams = await asyncio.open_connection(
            target.host, target.port, ssl=target.tls(), limit=1 << 24, local_addr=local
        )
        return cls(target, *streams)

    async def send(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Send a request; return the status and the whole body."""
        content = b"" if body is None else json.dumps(body).encode()
        return await self.send_bytes(method, path, content)

    async def send_bytes(
        self, method: str, path: str, content: bytes, *, form: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send a request with an encoded body; return the status and the whole body."""
        self._writer.write(self._head(method, path, len(content), form) + content)
        head = await self._reader.readuntil(b"\r\n\r\n")
        return int(head[9:12]), await self._body(head.lower())

    async def begin_watch(self, path: str) -> asyncio.StreamReader:
        """Send a request with an endless response; return the stream after its head."""
        self._writer.write(self._head("GET", path, 0))
        head = await self._reader.readuntil(b"\r\n\r\n")
        if int(head[9:12]) != 200:
            raise SystemExit(f"watch refused: {head!r}")
        return self._reader

    def close(self) -> None:
        self._writer.close()

    def _head(self, method: str, path: str, length: int, form: str = "application/json") -> bytes:
        return (
            f"{method} {path} HTTP/1.1\r\nHost: {self._target.host}\r\n"
            f"Authorization: Bearer {self._target.token}\r\nAccept: application/json\r\n"
            f"Content-Type: {form}\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    async def _body(self, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" not in head:
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            return await self._reader.readexactly(length)
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)


async def fill(target: Target, *, items: int, path: str, data: dict[str, str]) -> None:
    """Create a namespace and `items` objects in it."""
    first = await Connection.open(target)
    namespace = path.split("/")[4]
    code, body = await first.send("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    if code not in (201, 409):
        raise SystemExit(f"{target.name}: namespace: {code} {body[:200]!r}")
    numbers = iter(range(items))

    async def work() -> None:
        connection = await Connection.open(target)
        for number in numbers:
            obj = {"metadata": {"name": f"item-{number:06d}"}, "data": data}
            code, body = await connection.send("POST", path, obj)
            if code not in (201, 409):
                raise SystemExit(f"{target.name}: create: {code} {body[:200]!r}")
        connection.close()

    await asyncio.gather(*(work() for _ in range(32)))
    first.close()
