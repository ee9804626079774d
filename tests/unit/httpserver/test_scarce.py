"""Limits on connections and handshakes, and throttling after repeated rejections."""

from __future__ import annotations

import asyncio

import pytest

from restow.httpserver import HttpRequest, HttpResponse, PushStream, StreamWriter, TlsMaterial
from tests.support.certificates import CertificateFiles
from tests.unit.httpserver.conftest import (
    WAIT_SECONDS,
    Client,
    Harness,
    client_context,
    request_bytes,
    short,
    until,
)

HALF_A_CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)


def known(request: HttpRequest) -> HttpResponse:
    request.peer.admit("someone", is_privileged=False)
    return HttpResponse(200, b"known")


async def asked(client: Client, path: str) -> int:
    client.get(path)
    return (await client.answer()).status


async def test_new_connections_displace_unauthenticated_ones(harness: Harness) -> None:
    """At the limit a new connection replaces the oldest unauthenticated one; authenticated ones
    stay open, and do not count."""
    harness.app.paths["/known"] = known
    listener = await harness.start(limits=short(unauthenticated_connections_max=3))
    first = await harness.connect()
    assert await asked(first, "/known") == 200
    unauthenticated = [await harness.connect() for _ in range(3)]
    assert await asked(unauthenticated[1], "/") == 200
    newcomer = await harness.connect()
    assert await unauthenticated[0].rest() == b""
    assert await asked(newcomer, "/known") == 200
    for client in (first, unauthenticated[1], unauthenticated[2], newcomer):
        assert await asked(client, "/known") == 200
    assert listener.counters.connections_displaced == 1
    last = await harness.connect()
    assert await asked(last, "/") == 200


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Le"])
async def test_a_flood_of_silent_connections(harness: Harness, begun: bytes) -> None:
    """However many connections send nothing or half a request, a client with a request is
    served."""
    listener = await harness.start(limits=short(unauthenticated_connections_max=20))
    for _ in range(60):
        client = await harness.connect()
        if begun:
            client.send(begun)
    speaker = await harness.connect()
    assert await asked(speaker, "/") == 200
    await until(lambda: listener.counters.connections_open <= 20)
    assert listener.counters.connections_refused == 0


async def test_connections_in_use_are_not_displaced(harness: Harness) -> None:
    """An unauthenticated connection whose request is in progress is not replaced."""
    writers: list[StreamWriter] = []
    done = asyncio.Event()

    async def work() -> HttpResponse:
        await done.wait()
        return HttpResponse(200, b"done")

    harness.app.paths["/watch"] = lambda _: PushStream(200, writers.append)
    harness.app.paths["/work"] = lambda _: work()
    await harness.start(limits=short(unauthenticated_connections_max=2))
    watcher, worker = await harness.connect(), await harness.connect()
    watcher.get("/watch")
    await watcher.reader.readuntil(b"\r\n\r\n")
    worker.get("/work")
    await until(lambda: len(harness.app.seen) == 2)
    refused = await harness.connect()
    assert (await refused.answer()).status == 503
    writers[0].write(b"event")
    assert await watcher.chunk() == b"event"
    done.set()
    assert (await worker.answer()).body == b"done"


async def half_handshake(harness: Harness, *, address: str = "127.0.0.1") -> Client:
    """A client that starts a TLS handshake and does not finish it."""
    port = harness.listeners[-1].port
    streams = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    client = Client(*streams)
    harness.clients.append(client)
    client.send(HALF_A_CLIENT_HELLO)
    return client


async def test_unfinished_handshakes_are_limited(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """Clients that do not finish their handshakes cannot lock out others: one more than the limit
    aborts the oldest."""
    listener = await harness.start(tls=tls, limits=short(handshakes_max=5, handshake_seconds=1000))
    counters = listener.counters
    unfinished = []
    for count in range(1, 21):
        unfinished.append(await half_handshake(harness))
        await until(lambda: counters.handshakes_displaced == max(0, count - 5))  # noqa: B023
    client = await harness.connect(context=client_context(certificates.ca_file))
    assert await asked(client, "/") == 200
    for each in unfinished[:16]:
        assert await each.rest() == b""
    assert (counters.handshakes_open, counters.handshakes_displaced) == (4, 16)
    assert counters.connections_total == 1


async def test_a_flood_of_handshakes_from_another_address(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """Handshakes of the address with the most are aborted, so a client from another address has the
    full time for its handshake."""
    listener = await harness.start(tls=tls, limits=short(handshakes_max=5, handshake_seconds=1000))
    counters = listener.counters
    slow = await harness.connect()
    await until(lambda: counters.handshakes_open == 1)
    flood = [await half_handshake(harness, address="127.0.0.2") for _ in range(20)]
    await until(lambda: counters.handshakes_displaced == 16)
    assert await flood[0].rest() == b""
    context = client_context(certificates.ca_file)
    await slow.writer.start_tls(context, server_hostname="localhost")
    assert await asked(slow, "/") == 200
    assert counters.handshakes_open == 4


async def test_an_unfinished_handshake_is_ended(
    harness: Harness, certificates: CertificateFiles, tls: TlsMaterial
) -> None:
    """A handshake has a deadline, even if its client sends something now and then, and other
    clients are served meanwhile."""
    listener = await harness.start(tls=tls, limits=short(handshake_seconds=0.3))
    slow = await half_handshake(harness)
    client = await harness.connect(context=client_context(certificates.ca_file))
    assert await asked(client, "/") == 200
    async with asyncio.timeout(WAIT_SECONDS):
        while not slow.writer.is_closing():
            slow.send(b"\0")
            await asyncio.sleep(0.02)
    assert await asked(client, "/") == 200
    counters = listener.counters
    assert (counters.handshakes_open, counters.handshakes_timed_out) == (0, 1)


async def test_connections_from_one_address(harness: Harness) -> None:
    """If a limit is set, one address may have that many; when one closes, another is accepted."""
    listener = await harness.start(limits=short(connections_per_address_max=2))
    first, second = await harness.connect(), await harness.connect()
    third = await harness.connect()
    assert (await third.answer()).status == 503
    assert await asked(second, "/") == 200
    await first.close()
    await third.close()
    await until(lambda: listener.counters.connections_open == 1)
    assert await asked(await harness.connect(), "/") == 200
    for client in harness.clients:
        await client.close()
    await until(lambda: listener.counters.connections_open == 0)
    assert listener._shared.addresses == {}
    assert listener._shared.classes.unauthenticated == 0


@pytest.mark.parametrize("status", [401, 403, 429])
@pytest.mark.parametrize("pipelined", [True, False])
async def test_repeated_rejections_throttle_a_connection(
    harness: Harness, status: int, pipelined: bool
) -> None:
    """After some rejections a connection is not read for a while; the others are, meanwhile."""
    harness.app.paths["/no"] = lambda _: HttpResponse(status)
    limits = short(refusals_free=3, refusal_seconds=60, refusal_seconds_max=60)
    listener = await harness.start(limits=limits)
    client, other = await harness.connect(), await harness.connect()
    if pipelined:
        client.send(request_bytes("GET", "/no") * 5)
    for _ in range(4):
        if not pipelined:
            client.get("/no")
        assert (await client.answer()).status == status
    if not pipelined:
        client.get("/no")
    assert listener.counters.requests_slowed == 1
    for _ in range(3):
        assert await asked(other, "/") == 200
    assert harness.app.lines().count("GET /no") == 4


async def test_throttled_requests_are_answered_in_the_end(harness: Harness) -> None:
    """Its requests are handled one by one, in order, and after that without delay again."""
    harness.app.paths["/no"] = lambda _: HttpResponse(401)
    limits = short(refusals_free=1, refusal_seconds=0.001, refusal_seconds_max=0.01)
    listener = await harness.start(limits=limits)
    client = await harness.connect()
    client.send(request_bytes("GET", "/no") * 9 + request_bytes("GET", "/last"))
    assert [(await client.answer()).status for _ in range(9)] == [401] * 9
    assert (await client.answer()).body == b"/last|"
    assert listener.counters.requests_slowed == 8
    assert await asked(client, "/") == 200


async def test_an_accepted_request_resets_throttling(harness: Harness) -> None:
    """Only consecutive rejections count."""
    harness.app.paths["/no"] = lambda _: HttpResponse(403)
    listener = await harness.start(limits=short(refusals_free=2))
    client = await harness.connect()
    for path, status in (("/no", 403), ("/no", 403), ("/", 200)) * 4:
        assert await asked(client, path) == status
    assert listener.counters.requests_slowed == 0


@pytest.mark.parametrize(("status", "slowed"), [(401, 3), (403, 0), (429, 0)])
async def test_authenticated_connections_may_be_rejected_often(
    harness: Harness, status: int, slowed: int
) -> None:
    """Missing permissions throttle no authenticated connection; only a credential that has become
    invalid does."""

    def refuse(request: HttpRequest) -> HttpResponse:
        request.peer.admit("someone", is_privileged=False)
        return HttpResponse(status)

    harness.app.paths["/no"] = refuse
    limits = short(refusals_free=1, refusal_seconds=0.001, refusal_seconds_max=0.01)
    listener = await harness.start(limits=limits)
    client = await harness.connect()
    client.send(request_bytes("GET", "/no") * 4 + request_bytes("GET", "/last"))
    assert [(await client.answer()).status for _ in range(4)] == [status] * 4
    assert (await client.answer()).body == b"/last|"
    assert listener.counters.requests_slowed == slowed


async def test_a_throttled_connection_ends_with_the_listener(harness: Harness) -> None:
    """The stop does not wait for the delayed requests of a throttled connection."""
    harness.app.paths["/no"] = lambda _: HttpResponse(401)
    limits = short(refusals_free=1, refusal_seconds=60, refusal_seconds_max=60)
    listener = await harness.start(limits=limits)
    client = await harness.connect()
    assert await asked(client, "/no") == 401
    assert await asked(client, "/no") == 401
    await listener.stop(grace_seconds=0.1)
    assert await client.rest() == b""


class Work:
    """An awaitable that records whether it was started, cancelled or closed."""

    def __init__(self, ended: list[str]) -> None:
        self._ended = ended

    def __await__(self):  # type: ignore[no-untyped-def]
        self._ended.append("begun")
        try:
            yield from asyncio.Event().wait().__await__()
        except asyncio.CancelledError:
            self._ended.append("cancelled")
            raise

    def close(self) -> None:
        self._ended.append("closed")


async def test_work_abandoned_early(harness: Harness) -> None:
    """Work of a client that disconnects at once is cancelled where it waits, and work without a
    task is closed."""
    ended: list[str] = []
    listener = await harness.start(limits=short(unauthenticated_answers_pending_max=1))
    harness.app.paths["/"] = lambda _: Work(ended)
    first, second = await harness.connect(), await harness.connect()
    first.get("/")
    await until(lambda: ended == ["begun"])
    second.get("/")
    assert (await second.answer()).status == 503
    assert ended == ["begun", "closed"]
    await first.close()
    await until(lambda: not listener._shared.tasks.running)
    connection = harness.connection
    ended.clear()
    connection.data_received(request_bytes("GET", "/"))
    connection.eof_received()
    await until(lambda: not listener._shared.tasks.running)
    assert ended == ["begun", "cancelled"]
