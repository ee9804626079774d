"""Protocol upgrades through an aggregated API: only if the backend agrees, then byte for byte."""

from __future__ import annotations

import asyncio

from tests.conformance.aggregation.proxy.proxies import FLUNDERS, RawClient, Rig, wait_until
from tests.support.aggregated_backend import Asked, BackendConnection

WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: y\r\n\r\n"
)


async def _repeat(asked: Asked, line: BackendConnection) -> None:
    """Agree, and then send everything twice until `bye`."""
    assert asked.all("upgrade") == ["websocket"]
    assert asked.all("connection") == ["Upgrade"]
    await line.write(SWITCHED + b"hello")
    while (data := await line.reader.read(65_536)) and data != b"bye":
        await line.write(data * 2)
    line.writer.close()


async def test_bytes_go_both_ways(rig: Rig, client: RawClient) -> None:
    """After the backend's 101, bytes pass in both directions, and closing one end closes both."""
    rig.backend.script = _repeat
    client.ask(f"{FLUNDERS}/x/exec", *WEBSOCKET, method="POST")
    code, headers = await client.head()
    assert (code, headers["upgrade"], headers["sec-websocket-accept"]) == (101, "websocket", "y")
    assert headers["connection"] == "Upgrade"
    assert await client.read(5) == b"hello"
    client.writer.write(b"GET / HTTP/1.1\r\n\r\n")  # in a tunnel this is not a request
    assert await client.read(36) == b"GET / HTTP/1.1\r\n\r\n" * 2
    assert rig.server.listener.counters.tunnels_open == 1
    assert len(rig.backend.asked) == 1
    client.writer.write(b"bye")
    assert await client.rest() == b""
    await wait_until(lambda: rig.server.listener.counters.tunnels_open == 0)
    await wait_until(lambda: rig.proxy.streams_open == 0)


async def test_a_client_that_leaves_ends_the_tunnel(rig: Rig, client: RawClient) -> None:
    """The last bytes of the client arrive, and then the backend's connection is closed."""
    got = bytearray()

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.write(SWITCHED)
        while data := await line.reader.read(1024):
            got.extend(data)

    rig.backend.script = script
    client.ask(FLUNDERS, *WEBSOCKET)
    await client.head()
    client.writer.write(b"last words")
    await client.close()
    await wait_until(lambda: rig.backend.connections_open == 0)
    assert got == b"last words"


async def test_both_ends_are_waited_for(rig: Rig, client: RawClient) -> None:
    """Much data arrives completely though each end reads late, with bounded buffers."""
    size = 8 * 1024 * 1024
    go = asyncio.Event()
    got = 0

    async def script(_asked: Asked, line: BackendConnection) -> None:
        nonlocal got
        await line.write(SWITCHED)
        await go.wait()
        while got < size:
            got += len(await line.reader.read(65_536))
        await line.write(b"y" * size)

    rig.backend.script = script
    client.ask(FLUNDERS, *WEBSOCKET)
    await client.head()
    client.writer.write(b"x" * size)
    go.set()
    await client.writer.drain()
    assert await client.read(size) == b"y" * size
    assert got == size


async def test_early_bytes_belong_to_the_tunnel(rig: Rig, client: RawClient) -> None:
    """Bytes that a client sends before the response are forwarded once there is a tunnel."""
    rig.backend.script = _repeat
    client.ask(FLUNDERS, *WEBSOCKET)
    client.writer.write(b"early")
    assert (await client.head())[0] == 101
    assert await client.read(15) == b"helloearlyearly"


async def test_another_protocol_than_asked_for_opens_nothing(rig: Rig, client: RawClient) -> None:
    """A 101 to another protocol, or to none, is an invalid response."""
    for answer in (
        SWITCHED.replace(b"websocket", b"SPDY/3.1"),
        SWITCHED.replace(b"Upgrade: websocket\r\n", b""),
    ):

        async def script(_asked: Asked, line: BackendConnection, answer: bytes = answer) -> None:
            await line.write(answer)

        rig.backend.script = script
        client.ask(FLUNDERS, *WEBSOCKET)
        assert (await client.answer())[0] == 503


async def test_another_http_is_not_asked_for(rig: Rig, client: RawClient) -> None:
    """An upgrade to h2c is an ordinary request: requests inside it would not be authorized."""
    client.ask(FLUNDERS, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: A")
    assert (await client.answer())[0] == 200
    [asked] = rig.backend.asked
    assert asked.all("upgrade") == asked.all("connection") == asked.all("http2-settings") == []


async def test_a_stop_ends_tunnels(rig: Rig, client: RawClient) -> None:
    """A server that stops closes its tunnels, on both sides."""
    rig.backend.script = _repeat
    client.ask(FLUNDERS, *WEBSOCKET)
    assert (await client.head())[0] == 101
    assert await client.read(5) == b"hello"
    await rig.server.listener.stop(grace_seconds=5)
    assert await client.rest() == b""
    await wait_until(lambda: rig.backend.connections_open == 0)


async def test_a_token_among_the_protocols_stays_here(rig: Rig, client: RawClient) -> None:
    """A bearer token is removed from the offered protocols; the others are forwarded."""
    token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    rig.backend.script = _repeat
    offered = f"Sec-WebSocket-Protocol: {token}, v5.channel.k8s.io , v4.channel.k8s.io"
    client.ask(FLUNDERS, *WEBSOCKET, offered, f"Sec_WebSocket_Protocol: {token.upper()}")
    assert (await client.head())[0] == 101
    [asked] = rig.backend.asked
    assert asked.all("sec-websocket-protocol") == ["v5.channel.k8s.io, v4.channel.k8s.io"]
    assert "c2vjcmv0" not in str(asked.headers).lower()


async def test_a_token_is_no_protocol_to_agree_on(rig: Rig, client: RawClient) -> None:
    """A backend that selects a protocol that was not forwarded has not agreed."""
    line = b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0\r\n\r\n"

    async def script(_asked: Asked, answer: BackendConnection) -> None:
        await answer.write(SWITCHED.removesuffix(b"\r\n") + line)

    rig.backend.script = script
    client.ask(FLUNDERS, *WEBSOCKET)
    assert (await client.answer())[0] == 503
