"""Requests of every kind, and every way to abandon them, drawn from a seed."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from urllib.parse import quote

import orjson

from tests.conformance.aggregation.proxy.proxies import FLUNDERS
from tests.conformance.api.servers import CONFIG_MAPS, OTHER_TOKEN, config_map

NEVER: Final = "resourceVersion=1000000000000"
"""A revision that a read waits for until its deadline."""
PATIENCE_SECONDS: Final = 0.6
"""Longer than the deadlines of the server under test."""
KUBERNETES: Final = "application/vnd.kubernetes.protobuf"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
WEBSOCKET: Final = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    "Origin: https://localhost",
)

Draw = random.Random
Build = Callable[[Draw], bytes]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
End = Callable[[Streams, Draw], Awaitable[None]]


def head(method: str, target: str, *lines: str, version: str = "1.1", token: str = "") -> bytes:
    credential = f"Authorization: Bearer {token or OTHER_TOKEN}"
    whole = (f"{method} {target} HTTP/{version}", "Host: localhost", credential, *lines, "", "")
    return "\r\n".join(whole).encode()


def fixed(method: str, target: str, body: bytes, *lines: str) -> bytes:
    return head(method, target, *lines, f"Content-Length: {len(body)}") + body


def chunked(method: str, target: str, body: bytes, *lines: str) -> bytes:
    step = max(1, len(body) // 7)
    parts = [body[begin : begin + step] for begin in range(0, len(body), step)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head(method, target, "Transfer-Encoding: chunked", *lines) + chunks + b"0\r\n\r\n"


def _body(draw: Draw) -> bytes:
    name = draw.choice(("held", "new", "a", "b")) + str(draw.randrange(50))
    return orjson.dumps(config_map(name, {"k": "x" * draw.choice((10, 5_000, 200_000))}))


def get(draw: Draw) -> bytes:
    query = draw.choice(("", f"?{NEVER}", f"?{NEVER}&timeout=100ms", "?pretty=true"))
    lines = draw.choice(((), ("Accept: application/yaml",), (f"Accept: {KUBERNETES}",)))
    return head(draw.choice(("GET", "HEAD")), f"{CONFIG_MAPS}/a{query}", *lines)


def listing(draw: Draw) -> bytes:
    query = draw.choice(("", "?limit=2", f"?{NEVER}", "?pretty=true", "?labelSelector=a%3Db"))
    form = draw.choice(("application/json", "application/yaml", KUBERNETES, TABLE))
    version = draw.choice(("1.1", "1.1", "1.0"))
    return head("GET", CONFIG_MAPS + query, f"Accept: {form}", version=version)


def write(draw: Draw) -> bytes:
    make = draw.choice((fixed, chunked))
    line = "Content-Type: application/json"
    expect = draw.choice(((), ("Expect: 100-continue",)))
    query = draw.choice(("", "?dryRun=All", "?timeout=100ms"))
    target, method = CONFIG_MAPS + query, "POST"
    if draw.random() < 0.3:
        method, target = "PUT", f"{CONFIG_MAPS}/a{query}"
    return make(method, target, _body(draw), line, *expect)


def patch(draw: Draw) -> bytes:
    form, body = draw.choice(
        (
            ("application/merge-patch+json", b'{"data":{"x":"y"}}'),
            ("application/json-patch+json", b'[{"op":"add","path":"/data/x","value":"y"}]'),
            ("application/apply-patch+yaml", b"apiVersion: v1\nkind: ConfigMap\ndata: {x: z}\n"),
        )
    )
    query = "?fieldManager=me"
    make = draw.choice((fixed, chunked))
    return make("PATCH", f"{CONFIG_MAPS}/a{query}", body, f"Content-Type: {form}")


def watch(draw: Draw) -> bytes:
    query = draw.choice(("", "&timeoutSeconds=1", "&resourceVersion=1", f"&{NEVER}"))
    form = draw.choice(("application/json", f"{KUBERNETES};stream=watch", TABLE))
    version = draw.choice(("1.1", "1.1", "1.0"))
    return head("GET", f"{CONFIG_MAPS}?watch=1{query}", f"Accept: {form}", version=version)


def websocket_watch(draw: Draw) -> bytes:
    tail = draw.choice((b"", b"\x88\x80\0\0\0\0", b"\x81\x85\0\0\0\0hello", b"\xff" * 20))
    return head("GET", f"{CONFIG_MAPS}?watch=1", *WEBSOCKET) + tail


def bundle(draw: Draw) -> bytes:
    count = draw.randrange(1, 12)
    watches = [f"{CONFIG_MAPS}?watch=1", "/api/v1/secrets?watch=1", f"{FLUNDERS}?watch=true"]
    query = "&".join("watch=" + quote(draw.choice(watches), safe="") for _ in range(count))
    lines = WEBSOCKET if draw.random() < 0.5 else ()
    return head("GET", f"/dashboard/watch?{query}", *lines)


def proxied(draw: Draw) -> bytes:
    query = draw.choice(("", "?hang", "?watch=true", "?watch=true&hang", "?cut"))
    if draw.random() < 0.3:
        return draw.choice((fixed, chunked))("POST", FLUNDERS + query, _body(draw))
    return head("GET", FLUNDERS + query)


def tunnel(draw: Draw) -> bytes:
    query = draw.choice(("", "?hang", "?cut"))
    lines = draw.choice((WEBSOCKET, ("Connection: Upgrade", "Upgrade: SPDY/3.1")))
    return head("GET", f"{FLUNDERS}/a/exec{query}", *lines) + b"early bytes"


def refused_upgrade(draw: Draw) -> bytes:
    target = draw.choice((f"{CONFIG_MAPS}/a", CONFIG_MAPS, "/version", "/nothing"))
    return head("GET", target, *WEBSOCKET)


def unauthenticated(draw: Draw) -> bytes:
    whole = head("POST", CONFIG_MAPS, "Content-Length: 100000", token="wrong")
    return draw.choice((whole + b"x" * 50_000, whole, b"GET / HT", b"\r\n", b"\0\1\2 garbage\r\n"))


def pipelined(draw: Draw) -> bytes:
    kinds = (get, listing, write, patch, watch)
    return b"".join(draw.choice(kinds)(draw) for _ in range(draw.randrange(2, 8)))


KINDS: Final[tuple[Build, ...]] = (
    *(get, listing, write, patch, watch, websocket_watch, bundle, proxied, tunnel),
    *(refused_upgrade, unauthenticated, pipelined),
)


async def reset(streams: Streams, _draw: Draw) -> None:
    sock = streams[1].get_extra_info("socket")
    with suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    streams[1].transport.abort()


async def close(streams: Streams, _draw: Draw) -> None:
    streams[1].close()


async def half_close(streams: Streams, _draw: Draw) -> None:
    if streams[1].can_write_eof():
        streams[1].write_eof()
    await asyncio.sleep(PATIENCE_SECONDS / 3)


async def wait(streams: Streams, _draw: Draw) -> None:
    """Until the deadlines of the server."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await streams[0].read(1 << 16):
                pass


async def do_not_read(streams: Streams, _draw: Draw) -> None:
    # No check of the class: uvloop's transports do not inherit from asyncio's.
    streams[1].transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(PATIENCE_SECONDS)


async def read_some(streams: Streams, draw: Draw) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS / 4):
            await streams[0].read(draw.choice((1, 100, 1 << 16)))


ENDS: Final[tuple[End, ...]] = (reset, close, half_close, wait, do_not_read, read_some)


async def abandon(port: int, draw: Draw, tls: ssl.SSLContext | None) -> str:
    """Send a request of some kind, wholly or in part, and abandon it in some way; what was done."""
    build, end = draw.choice(KINDS), draw.choice(ENDS)
    data = build(draw)
    is_cut = draw.random() < 0.3
    if is_cut:
        data = data[: draw.randrange(len(data))]
    done = f"{build.__name__}, {end.__name__}{', cut' if is_cut else ''}"
    name = "localhost" if tls else None
    with suppress(OSError, ssl.SSLError, EOFError):
        streams = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
        try:
            middle = draw.choice((0, len(data) // 2))
            streams[1].write(data[:middle])
            if middle:
                await asyncio.sleep(draw.choice((0.0, 0.01)))
            streams[1].write(data[middle:])
            await asyncio.sleep(draw.choice((0.0, 0.0, 0.01, 0.05)))
            await end(streams, draw)
        finally:
            streams[1].transport.abort()
    return done
