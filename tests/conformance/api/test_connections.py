"""Connections as clients use them, through the whole server: pipelined, kept, closed, chunked."""

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
    """A server in memory, with a namespace."""
    storage = MemoryStorage()
    made = await start_server(storage)
    await made.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    yield made
    await made.stop()
    await storage.close()


class Line:
    """One connection, byte by byte."""

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
        """Status and body of an answer that has a length."""
        code, head = await self.head()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        async with asyncio.timeout(WAIT_SECONDS):
            return code, await self.reader.readexactly(length)

    async def is_over(self) -> bool:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.reader.read() == b""


@pytest_asyncio.fixture
async def line(server: RunningServer) -> AsyncIterator[Line]:
    made = Line(*await asyncio.open_connection("127.0.0.1", server.port))
    yield made
    await made.close()


def request(method: str, path: str, body: bytes = b"", *lines: str) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


async def test_each_pipelined_request_sees_those_before(server: RunningServer, line: Line) -> None:
    """Writes and reads sent in one piece are done one after the other and answered in that order,
    as if each had waited for the answer before; a refused one does not end the others."""
    one, two = (orjson.dumps(config_map("a", {"v": value})) for value in ("1", "2"))
    line.writer.write(
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
    answers = [await line.answer() for _ in range(8)]
    assert [code for code, _ in answers] == [201, 200, 409, 200, 200, 400, 200, 404]
    assert [orjson.loads(answers[at][1])["data"]["v"] for at in (1, 4)] == ["1", "2"]
    assert await line.is_over(), "behind the last one nothing is done"
    namespace = await server.client.get("/api/v1/namespaces/default")
    assert "deletionTimestamp" not in namespace.json["metadata"]


async def test_a_body_in_chunks_that_waits_to_be_asked_for(line: Line) -> None:
    """A client that waits is told to go on, its chunks make an object, and the connection is kept;
    who would be refused anyway is told that instead."""
    lines = ("Transfer-Encoding: chunked", "Expect: 100-continue", "Content-Type: application/json")
    line.writer.write(request("POST", CONFIG_MAPS, b"", *lines))
    assert (await line.head())[0] == 100
    body = orjson.dumps(config_map("a"))
    for piece in (body[:7], body[7:]):
        line.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await line.writer.drain()
    line.writer.write(b"0\r\n\r\n" + request("GET", f"{CONFIG_MAPS}/a"))
    assert [(await line.answer())[0] for _ in range(2)] == [201, 200]
    refused = request("POST", CONFIG_MAPS, b"", *lines).replace(TOKEN.encode(), b"wrong")
    line.writer.write(refused)
    assert (await line.head())[0] == 401


async def test_a_connection_is_used_again_behind_a_watch(line: Line) -> None:
    """A request that was sent while a watch was open is answered when the watch is over."""
    watch = f"{CONFIG_MAPS}?watch=1&resourceVersion=0&timeoutSeconds=1"
    line.writer.write(request("GET", watch) + request("GET", "/healthz"))
    code, head = await line.head()
    assert (code, b"transfer-encoding: chunked" in head) == (200, True)
    async with asyncio.timeout(WAIT_SECONDS):
        assert await line.reader.readuntil(b"0\r\n\r\n") == b"0\r\n\r\n"
    assert await line.answer() == (200, b"ok")
