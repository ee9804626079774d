"""HTTP connections through the whole server: pipelined, kept alive, closed, chunked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import orjson
import pytest_asyncio

from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import (
    CONFIG_MAPS,
    TOKEN,
    RunningServer,
    config_map,
    start_server,
)

WAIT_SECONDS = 10.0


@pytest_asyncio.fixture
async def server() -> AsyncIterator[RunningServer]:
    """An in-memory server with a namespace."""
    storage = MemoryStorage()
    made = await start_server(storage)
    await made.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    yield made
    await made.stop()
    await storage.close()


class Connection:
    """One connection, at the level of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def head(self) -> tuple[int, bytes]:
        async with asyncio.timeout(WAIT_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        return int(head[9:12]), head

    async def answer(self) -> tuple[int, bytes]:
        """Returns status and body of a response with Content-Length."""
        code, head = await self.head()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        async with asyncio.timeout(WAIT_SECONDS):
            return code, await self.reader.readexactly(length)

    async def is_over(self) -> bool:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.reader.read() == b""


@pytest_asyncio.fixture
async def connection(server: RunningServer) -> AsyncIterator[Connection]:
    made = Connection(*await asyncio.open_connection("127.0.0.1", server.port))
    yield made
    await made.close()


def request(method: str, path: str, body: bytes = b"", *lines: str) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


async def test_pipelined_requests_are_processed_in_order(
    server: RunningServer, connection: Connection
) -> None:
    """Writes and reads sent at once are processed in order and answered in that order, as if
    each had waited for the response before; a refused one does not affect the others."""
    one, two = (orjson.dumps(config_map("a", {"v": value})) for value in ("1", "2"))
    connection.writer.write(
        b"".join(
            (
                request("POST", CONFIG_MAPS, one),
                request("GET", f"{CONFIG_MAPS}/a"),
                request("POST", CONFIG_MAPS, one),
                request("PUT", f"{CONFIG_MAPS}/a", two),
                request("GET", f"{CONFIG_MAPS}/a"),
                request("POST", CONFIG_MAPS, b"{"),
                request("DELETE", f"{CONFIG_MAPS}/a"),
                request("GET", f"{CONFIG_MAPS}/a", b"", "Connection: close"),
                request("DELETE", "/api/v1/namespaces/default"),
            )
        )
    )
    answers = [await connection.answer() for _ in range(8)]
    assert [code for code, _ in answers] == [201, 200, 409, 200, 200, 400, 200, 404]
    assert [orjson.loads(answers[at][1])["data"]["v"] for at in (1, 4)] == ["1", "2"]
    assert await connection.is_over(), "behind the last one nothing is done"
    namespace = await server.client.get("/api/v1/namespaces/default")
    assert "deletionTimestamp" not in namespace.json["metadata"]


async def test_chunked_body_with_expect_continue(connection: Connection) -> None:
    """A client that expects it gets 100 Continue, its chunks make an object, and the connection
    is kept; a request that would be refused anyway gets the refusal instead."""
    lines = ("Transfer-Encoding: chunked", "Expect: 100-continue", "Content-Type: application/json")
    connection.writer.write(request("POST", CONFIG_MAPS, b"", *lines))
    assert (await connection.head())[0] == 100
    body = orjson.dumps(config_map("a"))
    for piece in (body[:7], body[7:]):
        connection.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await connection.writer.drain()
    connection.writer.write(b"0\r\n\r\n" + request("GET", f"{CONFIG_MAPS}/a"))
    assert [(await connection.answer())[0] for _ in range(2)] == [201, 200]
    refused = request("POST", CONFIG_MAPS, b"", *lines).replace(TOKEN.encode(), b"wrong")
    connection.writer.write(refused)
    assert (await connection.head())[0] == 401


async def test_a_connection_is_used_again_behind_a_watch(connection: Connection) -> None:
    """A request sent while a watch is open is answered when the watch has ended."""
    watch = f"{CONFIG_MAPS}?watch=1&resourceVersion=0&timeoutSeconds=1"
    connection.writer.write(request("GET", watch) + request("GET", "/healthz"))
    code, head = await connection.head()
    assert (code, b"transfer-encoding: chunked" in head) == (200, True)
    async with asyncio.timeout(WAIT_SECONDS):
        assert await connection.reader.readuntil(b"0\r\n\r\n") == b"0\r\n\r\n"
    assert await connection.answer() == (200, b"ok")
