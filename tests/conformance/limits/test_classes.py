"""Classes of connections: exhausting the limits of one does not touch a more privileged one.

In each test ten users and hundreds of unauthenticated connections use up one kind of limit, and an
administrator connects, writes a large object and watches it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from restow.httpserver import Limits
from restow.request.limits import InFlightOptions, RequestLimits
from tests.conformance.api.servers import CONFIG_MAPS, config_map
from tests.conformance.limits.servers import MASTER, WAIT_SECONDS, Limited, limited, until
from tests.support.certificates import CertificateFiles

USERS = tuple(f"user-{number}" for number in range(10))
UNAUTHENTICATED = 500
LARGE = {"data": "x" * 600_000}
KIB, MIB = 1024, 1024 * 1024


@dataclass(slots=True)
class Crowd:
    """Connections that send some bytes, and keep open what the server leaves open."""

    server: Limited
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def add(self, data: bytes) -> asyncio.StreamReader:
        context = self.server.tls
        name = "localhost" if context else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.server.port, ssl=context, server_hostname=name
        )
        writer.write(data)
        self.writers.append(writer)
        return reader

    async def status(self, data: bytes) -> int:
        """Send a request on a new connection, which stays open; its status."""
        reader = await self.add(data)
        async with asyncio.timeout(WAIT_SECONDS):
            return int((await reader.readuntil(b"\r\n\r\n"))[9:12])

    async def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def crowd(server: Limited) -> AsyncIterator[Crowd]:
    made = Crowd(server)
    try:
        yield made
    finally:
        await made.close()


def head(method: str, target: str, user: str = "", *lines: str) -> bytes:
    credential = (f"Authorization: Bearer {user}",) if user else ()
    whole = (f"{method} {target} HTTP/1.1", "Host: localhost", *credential, *lines, "", "")
    return "\r\n".join(whole).encode()


async def assert_can_work(server: Limited, user: str = MASTER) -> None:
    """A new client of a user connects, writes a large object, watches, and sees an event."""
    client, writer = server.client(user), server.client(user)
    name = f"large-of-{user}"
    created = await client.post(CONFIG_MAPS, config_map(name, LARGE))
    assert created.status == 201
    version = created.json["metadata"]["resourceVersion"]
    watch = await client.watch(f"{CONFIG_MAPS}?resourceVersion={version}")
    assert (await writer.delete(f"{CONFIG_MAPS}/{name}")).status == 200
    async with asyncio.timeout(WAIT_SECONDS):
        event = await watch.next()
    assert event is not None
    assert event["type"] == "DELETED"
    for each in (client, writer):
        await each.close()


async def unauthenticated_flood(many: Crowd, data: bytes = b"GET / HT") -> None:
    for _ in range(UNAUTHENTICATED // 50):
        await asyncio.gather(*(many.add(data) for _ in range(50)))


@pytest.mark.parametrize("is_tls", [False, True])
async def test_connections(certificates: CertificateFiles, *, is_tls: bool) -> None:
    """Ten users have all connections that users may have, each at most its share, and
    unauthenticated clients all of theirs; an administrator still connects, and has a limit too."""
    limits = Limits(
        connections_max=30,
        connections_per_user_max=6,
        unauthenticated_connections_max=100,
        privileged_connections_max=5,
    )
    files = certificates if is_tls else None
    async with (
        limited(listener_limits=limits, names=USERS, certificates=files) as server,
        crowd(server) as many,
    ):
        get = [head("GET", CONFIG_MAPS, user) for user in USERS]
        assert [await many.status(get[0]) for _ in range(7)] == [200] * 6 + [429]
        assert await many.status(get[1]) == 200  # one user cannot use up those of another
        for each in get[1:]:
            for _ in range(6):
                assert await many.status(each) in {200, 429}
        await unauthenticated_flood(many)
        classes = server.server.listener._shared.classes
        assert classes.authenticated == 30
        await until(lambda: classes.unauthenticated == 100)
        await assert_can_work(server)
        kept = [await many.status(head("GET", CONFIG_MAPS, MASTER)) for _ in range(6)]
        assert (kept[0], kept[-1]) == (200, 429)


@pytest.mark.parametrize("is_tls", [False, True])
async def test_bytes_of_unfinished_requests(
    certificates: CertificateFiles, *, is_tls: bool
) -> None:
    """Ten users have half-sent bodies, each at most its share, and unauthenticated clients
    half-sent heads; an administrator still sends a large body, also as the first request of a
    connection."""
    limits = Limits(
        bodies_bytes_max=4 * MIB,
        user_bytes_max=MIB,
        unauthenticated_bytes_max=2 * MIB,
        unauthenticated_address_bytes_max=2 * MIB,
    )
    files = certificates if is_tls else None
    async with (
        limited(listener_limits=limits, names=USERS, certificates=files) as server,
        crowd(server) as many,
    ):
        budgets = server.server.listener._shared.budgets
        body = b"x" * (400 * KIB)
        for user in USERS:
            for _ in range(3):
                whole = head("POST", CONFIG_MAPS, user, f"Content-Length: {MIB}")
                await many.add(whole + body)
        await until(lambda: budgets.authenticated.bytes_held > 3 * MIB)
        await unauthenticated_flood(many, b"GET / HTTP/1.1\r\nX: " + b"x" * 50_000)
        await until(lambda: budgets.unauthenticated.displaced > 400)
        assert max(map(budgets.authenticated.bytes_of, USERS)) <= MIB
        assert budgets.unauthenticated.bytes_held <= 2 * MIB
        for _ in range(3):
            await assert_can_work(server)
        listener = server.server.listener
        await many.close()
        await until(lambda: listener.counters.connections_open <= 1)
        assert budgets.bytes_held == 0


async def test_slots_in_flight() -> None:
    """Ten users have all slots for writes, each its share, and unauthenticated clients send
    requests; an administrator's write is executed."""
    options = InFlightOptions(reads_max=20, writes_max=20)
    async with limited(RequestLimits(in_flight=options), names=USERS) as server:
        clients = [server.client(user) for user in USERS for _ in range(4)]
        writes = [
            asyncio.ensure_future(client.post(CONFIG_MAPS, config_map(f"held-{number}")))
            for number, client in enumerate(clients)
        ]
        await until(lambda: server.in_flight.writes.taken == 20)
        async with crowd(server) as many:
            await unauthenticated_flood(many, head("GET", CONFIG_MAPS))
            await assert_can_work(server)
            assert server.in_flight.writes.taken == 20
        server.hold.go.set()
        assert {(await each).status for each in writes} == {201, 429}
        for client in clients:
            await client.close()


async def test_pending_answers() -> None:
    """Ten users wait for as many responses as the server keeps for users, without a slot, as for
    leader election; an administrator's request is executed."""
    limits = Limits(answers_pending_max=5, unauthenticated_answers_pending_max=5)
    async with limited(listener_limits=limits, names=USERS) as server, crowd(server) as many:
        await server.server.client.post("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
        future = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/none"
        for user in USERS:
            for _ in range(3):
                await many.add(head("GET", f"{future}?resourceVersion=1000000000000", user))
        tasks = server.server.listener._shared.tasks
        await until(lambda: len(tasks.authenticated) == 5)
        waiting = asyncio.ensure_future(
            server.server.client.get(f"{CONFIG_MAPS}?resourceVersion=1000000000000")
        )
        await until(lambda: len(tasks.privileged) == 1)
        await assert_can_work(server)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_watches() -> None:
    """Ten users have all watches that users may have; an administrator still watches."""
    options = InFlightOptions(streams_max=20, streams_per_user_max=4)
    async with (
        limited(RequestLimits(in_flight=options), names=USERS) as server,
        crowd(server) as many,
    ):
        for user in USERS:
            for _ in range(6):
                assert await many.status(head("GET", f"{CONFIG_MAPS}?watch=1", user)) in {200, 429}
        assert server.in_flight.streams.taken >= 18
        await unauthenticated_flood(many, head("GET", f"{CONFIG_MAPS}?watch=1"))
        await assert_can_work(server)


async def test_a_user_leaves_bytes_for_others() -> None:
    """When one user has used up its share of the bytes of unfinished requests, it gets a 503, and
    another user sends a large body."""
    limits = Limits(bodies_bytes_max=4 * MIB, user_bytes_max=MIB)
    async with limited(listener_limits=limits, names=USERS) as server, crowd(server) as many:
        half = head("POST", CONFIG_MAPS, USERS[0], f"Content-Length: {MIB}") + b"x" * (400 * KIB)
        await many.add(half)
        await many.add(half)
        budgets = server.server.listener._shared.budgets
        await until(lambda: budgets.authenticated.bytes_held == 800 * KIB)
        assert await many.status(half) == 503
        await assert_can_work(server, USERS[1])
