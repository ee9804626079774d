"""Streams and tunnels of an aggregated API end when their user loses the right."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from tests.conformance.aggregation.proxy.proxies import FLUNDERS, GROUP, RawClient, Rig, wait_until
from tests.conformance.aggregation.proxy.test_proxy import CHUNKED
from tests.conformance.aggregation.proxy.test_proxy_upgrades import SWITCHED, WEBSOCKET
from tests.conformance.api.rights import freshen, give, place, rule
from tests.conformance.api.servers import OTHER_TOKEN
from tests.support.aggregated_backend import Asked, BackendConnection

BINARY = CHUNKED.replace(b"application/json", b"application/vnd.kubernetes.protobuf;stream=watch")


def send(*pieces: bytes) -> Callable[[Asked, BackendConnection], Awaitable[None]]:
    """A backend that sends these bytes, and then nothing until the connection is closed."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        for piece in pieces:
            await line.write(piece)
        await line.closed()

    return script


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def revoke(rig: Rig) -> None:
    """Take jane's rights away, and check the running requests."""
    await rig.server.client.delete(f"{place('clusterrolebindings')}/flunders")
    await freshen(rig.server)
    await rig.server.assembly.app.revocation.check_all()


async def assert_all_ended(rig: Rig) -> None:
    await wait_until(lambda: rig.proxy.streams_open == 0)
    await wait_until(lambda: rig.backend.connections_open == 0)
    assert len(rig.server.assembly.app.revocation.requests) == 0


@pytest.fixture(autouse=True)
async def rights(rig: Rig) -> None:
    await give(rig.server, "flunders", rule("watch get create", "flunders flunders/exec", GROUP))


async def test_a_proxied_watch_ends_with_a_status(rig: Rig, client: RawClient) -> None:
    """A watch in JSON gets the 403 as its last event, ends cleanly, and so does the backend's
    stream; the connection of the client stays usable."""
    rig.backend.script = send(CHUNKED, chunk(b'{"n": 1}\n'))
    client.ask(f"{FLUNDERS}?watch=true", token=OTHER_TOKEN)
    assert (await client.head())[0] == 200
    assert await client.chunk() == b'{"n": 1}\n'
    await revoke(rig)
    event = orjson.loads(await client.chunk())
    assert (event["type"], event["object"]["code"]) == ("ERROR", 403)
    assert await client.chunk() == b""
    await assert_all_ended(rig)
    client.ask("/version", token=OTHER_TOKEN)
    assert (await client.answer())[0] == 200


@pytest.mark.parametrize(
    ("head", "piece"), [(CHUNKED, b'{"n": '), (BINARY, b"\x00\x01\n")], ids=["part", "binary"]
)
async def test_other_proxied_watches_end(
    rig: Rig, client: RawClient, head: bytes, piece: bytes
) -> None:
    """Nothing is added to half an event, nor to a stream that is not JSON: it ends there."""
    rig.backend.script = send(head, chunk(piece))
    client.ask(f"{FLUNDERS}?watch=true", token=OTHER_TOKEN)
    await client.head()
    assert await client.chunk() == piece
    await revoke(rig)
    assert await client.chunk() == b""
    await assert_all_ended(rig)


async def test_a_tunnel_is_closed(rig: Rig, client: RawClient) -> None:
    """A tunnel is closed at both ends, after the bytes that were already received."""
    rig.backend.script = send(SWITCHED + b"hello")
    client.ask(f"{FLUNDERS}/x/exec", *WEBSOCKET, method="POST", token=OTHER_TOKEN)
    assert (await client.head())[0] == 101
    assert await client.read(5) == b"hello"
    await revoke(rig)
    assert await client.rest() == b""
    await assert_all_ended(rig)


@pytest.mark.parametrize("end", ["client", "backend", "backend aborts"])
@pytest.mark.parametrize("kind", ["watch", "tunnel", "long answer"])
async def test_the_registry_is_empty_after_every_end(
    rig: Rig, client: RawClient, kind: str, end: str
) -> None:
    """A proxied stream or tunnel leaves the registry when either side ends it."""
    go = asyncio.Event()

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.write(SWITCHED if kind == "tunnel" else CHUNKED + chunk(b'{"n": 1}\n'))
        await go.wait()
        if end == "client":
            await line.closed()
        elif end == "backend":
            line.writer.close()
        else:
            line.abort()

    rig.backend.script = script
    lines = WEBSOCKET if kind == "tunnel" else ()
    target = f"{FLUNDERS}?watch=true" if kind == "watch" else f"{FLUNDERS}/x/exec"
    client.ask(target, *lines, token=OTHER_TOKEN)
    assert (await client.head())[0] in (200, 101)
    assert len(rig.server.assembly.app.revocation.requests) == 1
    go.set()
    if end == "client":
        client.writer.transport.abort()
    else:
        await client.rest() if kind == "tunnel" else await client.chunk()
    await assert_all_ended(rig)
