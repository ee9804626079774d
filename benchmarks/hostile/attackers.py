"""Hostile clients of several kinds. Run as a process: `... attackers KUBECONFIG N`.

Each kind holds its share of N connections, and reconnects whenever one is closed. The process runs
at a low priority, so that its own CPU use is not counted as the server's.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.api.target import Target, of_kubeconfig, on_other_cores
from tests.support.key_updates import keep_secrets
from tests.support.key_updates import key_updates as made_key_updates

NICENESS: Final = 19
AGAIN_SECONDS: Final = 0.05
"""Delay before a closed connection is opened again."""
DRIP_SECONDS: Final = 0.5
READ_BYTES: Final = 1 << 16
PIPELINED: Final = 500
KEY_UPDATES: Final = 2_000
SHORT_RECORDS: Final = 20_000
PATH: Final = "/api/v1/namespaces/restow-bench/configmaps/item-000000"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Attack = Callable[[Target], Awaitable[None]]
_opened: list[int] = []
"""One element for each connection so far."""


@cache
def _context(target: Target) -> ssl.SSLContext:
    return target.tls()


async def _open(target: Target, *, tls: bool = True) -> Streams:
    context = _context(target) if tls else None
    opened = await asyncio.open_connection(target.host, target.port, ssl=context, limit=1 << 24)
    _opened.append(1)
    return opened


def _get(token: str = "", path: str = PATH, lines: str = "") -> bytes:
    credential = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{credential}{lines}\r\n".encode()


async def _drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    for byte in data:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(DRIP_SECONDS)


async def slow_head(target: Target) -> None:
    """A request head, byte by byte."""
    _reader, writer = await _open(target)
    await _drip(writer, _get("wrong", lines="X-Slow: " + "x" * 1000 + "\r\n"))


async def slow_body(target: Target) -> None:
    """A request body, byte by byte, of an authorized client."""
    _reader, writer = await _open(target)
    head = f"POST {PATH.rpartition('/')[0]} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
    writer.write(f"{head}Authorization: Bearer {target.token}\r\n\r\n".encode())
    await _drip(writer, b" " * 1000)


async def half_handshake(target: Target) -> None:
    """The beginning of a TLS handshake, and then nothing."""
    reader, writer = await _open(target, tls=False)
    writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(32))
    await reader.read(READ_BYTES)


async def silence(target: Target) -> None:
    """A connection that sends nothing at all."""
    reader, _writer = await _open(target)
    await reader.read(READ_BYTES)


async def garbage(target: Target) -> None:
    """Bytes that are not a request."""
    reader, writer = await _open(target)
    writer.write(os.urandom(2000))
    while await reader.read(READ_BYTES):
        pass
    writer.close()


async def huge_heads(target: Target) -> None:
    """Heads of the maximum size, one after another."""
    reader, writer = await _open(target)
    head = _get("wrong", lines="X-Large: " + "x" * 900_000 + "\r\n")
    while True:
        writer.write(head)
        await writer.drain()
        if not await reader.read(READ_BYTES):
            return


async def deaf_watch(target: Target) -> None:
    """A watch whose events are not read."""
    _reader, writer = await _open(target)
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    writer.write(_get(target.token, f"{PATH.rpartition('/')[0]}?watch=1"))
    await writer.wait_closed()


async def pipelined_flood(target: Target) -> None:
    """Many unauthenticated requests in one write."""
    reader, writer = await _open(target)
    while True:
        writer.write(_get() * PIPELINED)
        await writer.drain()
        if not await reader.read(READ_BYTES):
            return


async def wrong_tokens(target: Target) -> None:
    """A new invalid token each time, as fast as responses come."""
    reader, writer = await _open(target)
    while True:
        writer.write(_get(os.urandom(24).hex()))
        if not await reader.read(READ_BYTES):
            return


async def wrong_jwts(target: Target) -> None:
    """The same with invalid tokens in the form of a service account's."""
    reader, writer = await _open(target)
    while True:
        parts = ("eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ", "eyJpc3MiOiJ4In0", os.urandom(256).hex())
        writer.write(_get(".".join(parts)))
        if not await reader.read(READ_BYTES):
            return


async def key_updates(target: Target) -> None:
    """Only KeyUpdate messages after a handshake: each costs the server two updates of its own."""
    context = target.tls()
    with tempfile.TemporaryDirectory(prefix="restow-keys-") as path:
        keep_secrets(context, Path(path) / "keys")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname=target.host)
        reader, writer = await _open(target, tls=False)
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


async def short_records(target: Target) -> None:
    """A long request in TLS records of one byte."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = _context(target).wrap_bio(incoming, outgoing, server_hostname=target.host)
    reader, writer = await _open(target, tls=False)
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


async def handshakes(target: Target) -> None:
    """A handshake, and the end of the connection."""
    _reader, writer = await _open(target)
    writer.close()


ATTACKS: Final[tuple[Attack, ...]] = (
    slow_head,
    slow_body,
    half_handshake,
    silence,
    garbage,
    huge_heads,
    deaf_watch,
    pipelined_flood,
    wrong_tokens,
    wrong_jwts,
    key_updates,
    short_records,
    handshakes,
)


async def attack(target: Target, connections: int, names: frozenset[str]) -> None:
    """Attack until the process is terminated."""
    attacks = [each for each in ATTACKS if not names or each.__name__ in names]

    async def go_on(one: Attack) -> None:
        while True:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError):
                await one(target)
            await asyncio.sleep(AGAIN_SECONDS)

    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(go_on(attacks[number % len(attacks)]))
        while len(_opened) < connections:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(AGAIN_SECONDS)
        print("ready", flush=True)


def main() -> None:
    kubeconfig, connections, *names = sys.argv[1:]
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # independent of the parent
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    on_other_cores()
    target = of_kubeconfig(Path(kubeconfig), "attacked")
    asyncio.run(attack(target, int(connections), frozenset(names)))


if __name__ == "__main__":
    main()
