"""Servers that leave their Service during requests: hanging ones do not block clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest_asyncio

from restow.aggregator.pools import BackendLimits
from restow.aggregator.services import ServiceEndpoint
from tests.conformance.aggregation.proxy.conftest import StartRig
from tests.conformance.aggregation.proxy.proxies import (
    FLUNDERS,
    RawClient,
    Rig,
    wait_until,
)
from tests.support.aggregated_backend import AggregatedBackend, Asked, BackendConnection

AT_ONCE = BackendLimits(left_seconds_max=0.0)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


async def _hang(_asked: Asked, line: BackendConnection) -> None:
    await line.closed()


async def _begin_and_hang(asked: Asked, line: BackendConnection) -> None:
    await line.write(SWITCHED if asked.all("upgrade") else CHUNKED)
    await line.closed()


@pytest_asyncio.fixture
async def other(rig: Rig) -> AsyncIterator[AggregatedBackend]:
    """Another server of the same API, not yet an endpoint."""
    made = AggregatedBackend(rig.backend.files, rig.backend.client_ca_file)
    await made.listen()
    yield made
    await made.stop()


def _leave(rig: Rig, *places: ServiceEndpoint) -> None:
    """Reduce the endpoints; the change is detected as by a server that checks every second."""
    rig.services.found = list(places)
    rig.backends.settle({rig.api.name: places})


async def test_a_read_is_repeated_elsewhere(
    rig: Rig, other: AggregatedBackend, client: RawClient
) -> None:
    """A read that hangs at a server that leaves is repeated at another one, at once."""
    rig.backend.script = _hang
    client.ask(FLUNDERS)
    await wait_until(lambda: bool(rig.backend.asked))
    _leave(rig, ServiceEndpoint("127.0.0.1", other.port))
    assert (await client.answer())[0] == 200
    assert [asked.method for asked in other.asked] == ["GET"]
    await wait_until(lambda: rig.backend.connections_open == 0)


async def test_a_write_is_not_repeated(start_rig: StartRig) -> None:
    """A write that hangs at a server that leaves is a 503, and is not sent to another server."""
    rig = await start_rig(backend_limits=AT_ONCE)
    rig.backend.script = _hang
    asking = asyncio.create_task(rig.server.client.post(FLUNDERS, {}))
    await wait_until(lambda: bool(rig.backend.asked))
    _leave(rig, ServiceEndpoint("127.0.0.1", 1))
    rig.backends.settle({})
    reply = await asking
    assert (reply.status, reply.reason) == (503, "ServiceUnavailable")


async def test_responses_that_end_in_time_are_complete(rig: Rig) -> None:
    """A server that stops normally completes its responses."""
    go = asyncio.Event()

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await go.wait()
        await line.answer(b"done")

    rig.backend.script = script
    asking = asyncio.create_task(rig.server.client.post(FLUNDERS, {}))
    await wait_until(lambda: bool(rig.backend.asked))
    _leave(rig)
    rig.backends.settle({rig.api.name: ()})
    go.set()
    reply = await asking
    assert (reply.status, reply.body) == (200, b"done")
    await wait_until(lambda: rig.backend.connections_open == 0)


async def test_streams_end(start_rig: StartRig) -> None:
    """Watches, long responses and tunnels of a server that is gone end."""
    rig = await start_rig(backend_limits=AT_ONCE)
    rig.backend.script = _begin_and_hang
    clients = [await RawClient.connect(rig.server.port) for _ in range(3)]
    clients[0].ask(f"{FLUNDERS}?watch=true")
    clients[1].ask(FLUNDERS)
    clients[2].ask(FLUNDERS, "Connection: Upgrade", "Upgrade: websocket")
    assert [(await each.head())[0] for each in clients] == [200, 200, 101]
    _leave(rig)
    rig.backends.settle({})
    for each in clients:
        assert not (await each.rest()).endswith(b"0\r\n\r\n")
        await each.close()
    await wait_until(lambda: rig.backend.connections_open == 0 and rig.proxy.streams_open == 0)


async def test_a_deleted_or_redirected_api_ends_its_watches(start_rig: StartRig) -> None:
    """A watch ends when its APIService is deleted, or refers to another Service."""
    rig = await start_rig(backend_limits=AT_ONCE)
    rig.backend.script = _begin_and_hang
    api = rig.api
    for changed in (None, replace(api, is_unverified=True, ca_pem=None)):
        rig.directory.api = api
        client = await RawClient.connect(rig.server.port)
        client.ask(f"{FLUNDERS}?watch=true")
        assert (await client.head())[0] == 200
        rig.directory.api = changed
        rig.directory.changed.emit()
        if changed is not None:  # detected by the next request
            rig.backend.script = _hang
            rig.services.found = [ServiceEndpoint("127.0.0.1", 1)]
            assert (await rig.server.client.get(FLUNDERS)).status == 503
        rig.backends.settle({})
        await client.rest()
        await client.close()
        await wait_until(lambda: rig.backend.connections_open == 0)


async def test_one_that_hangs_leaves_time_for_another(start_rig: StartRig) -> None:
    """A server that accepts connections but never responds, as a paused one, leaves time for
    others."""
    rig = await start_rig(backend_limits=BackendLimits(connect_seconds_max=1.0))
    deaf = await asyncio.start_server(_say_nothing, "127.0.0.1", 0)
    port = deaf.sockets[0].getsockname()[1]
    good = ServiceEndpoint("127.0.0.1", rig.backend.port)
    rig.services.found = [ServiceEndpoint("127.0.0.1", port), good]
    for _ in range(4):  # in any order
        assert (await rig.server.client.post(FLUNDERS, {})).status == 200
        await rig.backend.stop()
        await rig.backend.listen()
    deaf.close()


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1024):
        pass
    writer.close()
