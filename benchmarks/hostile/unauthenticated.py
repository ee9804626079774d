"""Attacks on the layers below a request: connections, TLS, heads and bodies.

Most need no credential. Each holds one connection, and returns when it is closed.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.hostile.opening import READ_BYTES, connect, context_of, drain, head
from benchmarks.hostile.stage import Stage
from tests.support.key_updates import keep_secrets
from tests.support.key_updates import key_updates as made_key_updates

DRIP_SECONDS: Final = 0.5
PIPELINED: Final = 500
KEY_UPDATES: Final = 2_000
SHORT_RECORDS: Final = 20_000
HALF_HEAD_BYTES: Final = 60_000
CRLF_BYTES: Final = 250_000
"""Behind a head that is refused."""
AUTHENTICATED_CRLF_BYTES: Final = 3_000_000
PATH: Final = "/api/v1/namespaces/restow-bench/configmaps/item-000000"
COLLECTION: Final = PATH.rpartition("/")[0]
NDJSON_WATCHES: Final = "&".join(["watch=/api/v1/configmaps%3Fwatch%3D1"] * 10)


def _get(token: str = "", path: str = PATH, lines: str = "") -> bytes:
    return head("GET", path, token, *lines.splitlines())


async def _drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    for byte in data:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(DRIP_SECONDS)


async def slow_head(stage: Stage, _number: int) -> None:
    """A request head, byte by byte."""
    _reader, writer = await connect(stage.target)
    await _drip(writer, _get("wrong", lines="X-Slow: " + "x" * 1000 + "\r\n"))


async def slow_body(stage: Stage, _number: int) -> None:
    """A request body, byte by byte, of an authorized client."""
    _reader, writer = await connect(stage.target)
    head = f"POST {PATH.rpartition('/')[0]} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
    writer.write(f"{head}Authorization: Bearer {stage.target.token}\r\n\r\n".encode())
    await _drip(writer, b" " * 1000)


async def half_handshake(stage: Stage, _number: int) -> None:
    """The beginning of a TLS handshake, and then nothing."""
    reader, writer = await connect(stage.target, tls=False)
    writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(32))
    await reader.read(READ_BYTES)


async def silence(stage: Stage, _number: int) -> None:
    """A connection that sends nothing at all."""
    reader, _writer = await connect(stage.target)
    await reader.read(READ_BYTES)


async def garbage(stage: Stage, _number: int) -> None:
    """Bytes that are not a request."""
    reader, writer = await connect(stage.target)
    writer.write(os.urandom(2000))
    while await reader.read(READ_BYTES):
        pass
    writer.close()


async def huge_heads(stage: Stage, _number: int) -> None:
    """Heads of the maximum size, one after another."""
    reader, writer = await connect(stage.target)
    head = _get("wrong", lines="X-Large: " + "x" * 900_000 + "\r\n")
    while True:
        writer.write(head)
        await writer.drain()
        if not await reader.read(READ_BYTES):
            return


async def deaf_watch(stage: Stage, _number: int) -> None:
    """A watch whose events are not read."""
    _reader, writer = await connect(stage.target)
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    writer.write(_get(stage.target.token, f"{PATH.rpartition('/')[0]}?watch=1"))
    await writer.wait_closed()


async def pipelined_flood(stage: Stage, _number: int) -> None:
    """Many unauthenticated requests in one write."""
    reader, writer = await connect(stage.target)
    while True:
        writer.write(_get() * PIPELINED)
        await writer.drain()
        if not await reader.read(READ_BYTES):
            return


async def wrong_tokens(stage: Stage, _number: int) -> None:
    """A new invalid token each time, as fast as responses come."""
    reader, writer = await connect(stage.target)
    while True:
        writer.write(_get(os.urandom(24).hex()))
        if not await reader.read(READ_BYTES):
            return


async def wrong_jwts(stage: Stage, _number: int) -> None:
    """The same with invalid tokens in the form of a service account's."""
    reader, writer = await connect(stage.target)
    while True:
        parts = ("eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ", "eyJpc3MiOiJ4In0", os.urandom(256).hex())
        writer.write(_get(".".join(parts)))
        if not await reader.read(READ_BYTES):
            return


async def key_updates(stage: Stage, _number: int) -> None:
    """Only KeyUpdate messages after a handshake: each costs the server two updates of its own."""
    context = stage.target.tls()
    with tempfile.TemporaryDirectory(prefix="restow-keys-") as path:
        keep_secrets(context, Path(path) / "keys")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname=stage.target.host)
        reader, writer = await connect(stage.target, tls=False)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(READ_BYTES))
        records = made_key_updates(Path(path) / "keys", client, KEY_UPDATES)
    writer.write(outgoing.read() + records)
    while await reader.read(READ_BYTES):
        pass


async def short_records(stage: Stage, _number: int) -> None:
    """A long request in TLS records of one byte."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context_of(stage.target).wrap_bio(
        incoming, outgoing, server_hostname=stage.target.host
    )
    reader, writer = await connect(stage.target, tls=False)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(READ_BYTES))
    for byte in _get("wrong", lines="X-Short: " + "x" * SHORT_RECORDS + "\r\n"):
        client.write(bytes([byte]))
    writer.write(outgoing.read())
    await writer.drain()
    await reader.read(READ_BYTES)
    writer.close()


async def handshakes(stage: Stage, _number: int) -> None:
    """A handshake, and the end of the connection."""
    _reader, writer = await connect(stage.target)
    writer.close()


async def half_heads(stage: Stage, _number: int) -> None:
    """Most of a large head, and then nothing."""
    streams = await connect(stage.target)
    streams[1].write(_get("wrong", lines="X-Large: " + "x" * HALF_HEAD_BYTES)[:-2])
    await drain(streams)


async def crlf_chunks(stage: Stage, number: int) -> None:
    """A chunked body of line ends only: half of the clients are authenticated."""
    token = stage.viewers[number % len(stage.viewers)] if number % 2 else ""
    nbytes = AUTHENTICATED_CRLF_BYTES if token else CRLF_BYTES
    streams = await connect(stage.target)
    line = "Transfer-Encoding: chunked"
    streams[1].write(head("POST", COLLECTION, token, line) + b"\r\n" * (nbytes // 2))
    await drain(streams)


async def anonymous_bundles(stage: Stage, _number: int) -> None:
    """Bundles of ten watches without a credential, one after another."""
    streams = await connect(stage.target)
    while True:
        streams[1].write(head("GET", f"/dashboard/watch?{NDJSON_WATCHES}"))
        await drain(streams, 1)


ATTACKS: Final = (
    slow_head,
    slow_body,
    half_handshake,
    silence,
    garbage,
    huge_heads,
    half_heads,
    crlf_chunks,
    deaf_watch,
    pipelined_flood,
    wrong_tokens,
    wrong_jwts,
    key_updates,
    short_records,
    handshakes,
    anonymous_bundles,
)
