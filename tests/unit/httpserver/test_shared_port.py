"""The front port: sockets that several listeners share."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from restow.aio import Runtime
from restow.httpserver import (
    HttpResponse,
    PushStream,
    StreamWriter,
    TlsMaterial,
    open_front_sockets,
)
from tests.support.certificates import CertificateFiles
from tests.unit.httpserver.conftest import (
    WAIT_SECONDS,
    Client,
    Harness,
    client_context,
    until,
)

CONNECTIONS = 40


class Front:
    """The sockets of the parent process, which stay open, and copies for each server."""

    def __init__(self, count: int) -> None:
        self.sockets = open_front_sockets("127.0.0.1", 0, count=count)
        self.port: int = self.sockets[0].getsockname()[1]

    def for_server(self, index: int) -> list[socket.socket]:
        copies = [each.dup() for each in self.sockets]
        return [*copies[index:], *copies[:index]]

    def close(self) -> None:
        for each in self.sockets:
            each.close()


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    made = Front(3)
    yield made
    made.close()


async def ask(port: int, path: str = "/") -> tuple[int, str]:
    """One request on a new connection: status, and the Connection header."""
    client = await Client.connect(port)
    client.get(path)
    answer = await client.answer()
    await client.close()
    return answer.status, answer.headers.get("connection", "")


async def test_one_serves_all_queues(harness: Harness, front: Front) -> None:
    """Connections in the queue of a socket without a server are served by another server."""
    listener = await harness.start()
    listener.open_front(front.for_server(1), Runtime.system(), is_shared=True)
    found = await asyncio.gather(*(ask(front.port) for _ in range(CONNECTIONS)))
    assert found == [(200, "")] * CONNECTIONS


async def test_queued_connections_wait_for_a_server(harness: Harness, front: Front) -> None:
    """Connections made while no server runs are served when one starts."""
    clients = [await Client.connect(front.port) for _ in range(CONNECTIONS)]
    for client in clients:
        client.get()
    listener = await harness.start()
    listener.open_front(front.for_server(0), Runtime.system(), is_shared=True)
    for client in clients:
        assert (await client.answer()).status == 200
        await client.close()


async def test_no_request_is_lost_when_servers_change(harness: Harness, front: Front) -> None:
    """While servers leave and others start, each request gets its response."""
    runtime, ended, failures = Runtime.system(), asyncio.Event(), []

    async def hammer() -> int:
        count = 0
        while not ended.is_set():
            status, _ = await ask(front.port)
            count += 1
            if status != 200:
                failures.append(status)
        return count

    servers = []
    for index in range(3):
        servers.append(await harness.start())
        servers[index].open_front(front.for_server(index), runtime, is_shared=True)
    hammers = [asyncio.create_task(hammer()) for _ in range(4)]
    for index in (0, 1, 2, 0):
        await servers[index].retire(seconds=0.05)
        await servers[index].stop(grace_seconds=1)
        servers[index] = await harness.start()
        servers[index].open_front(front.for_server(index), runtime, is_shared=True)
    ended.set()
    counts = await asyncio.gather(*hammers)
    assert failures == []
    assert all(counts)


async def test_a_leaving_server_closes_its_connections(harness: Harness, front: Front) -> None:
    """After leaving, a response is the last of its connection, and watches end cleanly."""
    writers: list[StreamWriter] = []
    harness.app.paths["/watch"] = lambda _: PushStream(200, writers.append)
    listener = await harness.start()
    listener.open_front(front.for_server(0), Runtime.system(), is_shared=True)
    kept, watch = await Client.connect(front.port), await Client.connect(front.port)
    kept.get("/one")
    assert "connection" not in (await kept.answer()).headers
    watch.get("/watch")
    await until(lambda: bool(writers))
    leaving = asyncio.create_task(listener.retire(seconds=0.5))
    head = await watch.answer()
    assert (head.status, head.body) == (200, b"")
    kept.get("/two")
    answer = await kept.answer()
    assert (answer.body, answer.headers["connection"]) == (b"/two|", "close")
    assert await kept.rest() == b""
    await leaving
    await kept.close()
    await watch.close()


async def test_a_client_with_an_unfinished_handshake_is_served(
    harness: Harness, front: Front, certificates: CertificateFiles
) -> None:
    """A connection accepted before the server left is served, even if its handshake ends later."""
    from restow.httpserver import TlsFiles

    files = TlsFiles(cert_file=certificates.cert_file, key_file=certificates.key_file)
    listener = await harness.start(tls=TlsMaterial(files))
    listener.open_front(front.for_server(0), Runtime.system(), is_shared=True)
    raw = socket.create_connection(("127.0.0.1", front.port), timeout=WAIT_SECONDS)
    raw.setblocking(False)
    port = listener._front
    assert port is not None
    await until(lambda: port.handshakes_open == 1)
    leaving = asyncio.create_task(listener.retire(seconds=0))
    await asyncio.sleep(0)
    reader, writer = await asyncio.open_connection(
        sock=raw, ssl=client_context(certificates.ca_file), server_hostname="localhost"
    )
    client = Client(reader, writer)
    client.get("/late")
    assert (await client.answer()).status == 200
    await client.close()
    await leaving


async def test_a_server_alone_answers_its_queue_before_it_closes(harness: Harness) -> None:
    """Without a parent, connections in the queue at the end are still accepted."""
    sockets = open_front_sockets("127.0.0.1", 0, count=1)
    port = sockets[0].getsockname()[1]
    raws = [socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) for _ in range(9)]
    listener = await harness.start()
    listener.open_front(sockets, Runtime.system(), is_shared=False)
    leaving = asyncio.create_task(listener.retire(seconds=0.2))
    for raw in raws:
        raw.setblocking(False)
        client = Client(*await asyncio.open_connection(sock=raw))
        client.get()
        assert (await client.answer()).status == 200
        await client.close()
    await leaving
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(port)


async def test_the_own_port_is_served_until_the_stop(harness: Harness, front: Front) -> None:
    """Leaving the front port does not close the server's own port."""
    listener = await harness.start(app=lambda _: HttpResponse(200, b"own"))
    listener.open_front(front.for_server(0), Runtime.system(), is_shared=True)
    leaving = asyncio.create_task(listener.retire(seconds=0.2))
    assert await ask(listener.port) == (200, "close")
    await leaving
