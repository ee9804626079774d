"""In-flight limits: 429 over the limit, fairness between users, and release of every slot."""

from __future__ import annotations

import asyncio

import pytest

from restow.endpoints.handlers import get
from restow.request.limits import InFlightOptions, RequestLimits
from tests.conformance.api.servers import CONFIG_MAPS, config_map
from tests.conformance.limits.servers import MASTER, Limited, limited, until
from tests.support.api_client import ApiClient, Reply

FUTURE = f"{CONFIG_MAPS}?resourceVersion=1000000000000"


def limits(**options: int) -> RequestLimits:
    return RequestLimits(in_flight=InFlightOptions(**options))


class Flood:
    """Blocked writes of one user, each on a separate connection."""

    def __init__(self, server: Limited, user: str) -> None:
        self._server = server
        self._user = user
        self.clients: list[ApiClient] = []
        self.replies: list[asyncio.Task[Reply]] = []

    async def send(self, count: int) -> None:
        """Send this number of writes, and wait until each holds a slot."""
        before = self._server.hold.waiting
        for _ in range(count):
            client = self._server.client(self._user)
            self.clients.append(client)
            body = config_map(f"held-{self._user}-{len(self.clients)}")
            self.replies.append(asyncio.ensure_future(client.post(CONFIG_MAPS, body)))
        await until(lambda: self._server.hold.waiting == before + count)

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        await asyncio.gather(*self.replies, return_exceptions=True)


def assert_rejected(reply: Reply) -> None:
    assert (reply.status, reply.json["reason"]) == (429, "TooManyRequests")
    assert reply.json["message"] == "Too many requests, please try again later."
    assert reply.header("retry-after") == "1"


async def test_writes_in_flight() -> None:
    """One more write than allowed gets a 429 with Retry-After, and is not executed; reads, health
    checks, system:masters and leader election are not limited; when some are done, writes
    continue."""
    async with limited(limits(writes_max=3)) as server:
        flood = Flood(server, "alice")
        await flood.send(3)
        assert server.slots_taken == [0, 3, 0]
        bob, root = server.client("bob"), server.client(MASTER)
        assert_rejected(await bob.post(CONFIG_MAPS, config_map("one-more")))
        assert (await bob.get(CONFIG_MAPS)).names == []
        assert (await bob.get("/readyz")).status == 200
        assert (await root.post(CONFIG_MAPS, config_map("of-root"))).status == 201
        lease = {"metadata": {"name": "leader"}}
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        await root.post("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
        assert (await root.post(leases, lease)).status == 201
        assert (await bob.get(f"{leases}/leader")).status == 200
        found = (await bob.get(f"{leases}/leader")).json
        assert (await bob.put(f"{leases}/leader", found)).status == 200
        metrics = (await root.get("/metrics")).body.decode()
        assert 'apiserver_current_inflight_requests{request_kind="mutating"} 3.0' in metrics
        server.hold.go.set()
        assert [(await each).status for each in flood.replies] == [201] * 3
        assert (await bob.post(CONFIG_MAPS, config_map("one-more"))).status == 201
        await flood.close()
        await bob.close()
        await root.close()


async def test_reads_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more read than allowed is a 429; waiting reads release their slots when they time out."""
    monkeypatch.setattr(get, "FUTURE_SECONDS_MAX", 0.3)
    async with limited(limits(reads_max=2)) as server:
        clients = [server.client("alice") for _ in range(3)]
        waiting = [asyncio.ensure_future(client.get(FUTURE)) for client in clients[:2]]
        await until(lambda: server.slots_taken == [2, 0, 0])
        assert_rejected(await clients[2].get(FUTURE))
        assert (await clients[2].post(CONFIG_MAPS, config_map("a"))).status == 201
        for each in waiting:
            assert (await each).status == 504
        assert (await clients[2].get(f"{CONFIG_MAPS}/a")).status == 200
        for client in clients:
            await client.close()


async def test_a_flood_of_one_user_leaves_slots() -> None:
    """While one user floods, another is served at once; after a 429, that user gets a slot before
    the flooding one."""
    async with limited(limits(writes_max=16)) as server:
        flood, bob = Flood(server, "alice"), server.client("bob")
        await flood.send(14)
        extra = server.client("alice")
        assert_rejected(await extra.post(CONFIG_MAPS, config_map("extra")))
        assert (await bob.post(CONFIG_MAPS, config_map("of-bob"))).status == 201
        await extra.close()
        await flood.close()
        await bob.close()


async def test_disconnects_release_slots() -> None:
    """The slot of a read is released when its client disconnects; that of a write when it is
    done."""
    async with limited(limits(reads_max=4, writes_max=4, streams_max=4)) as server:
        flood = Flood(server, "alice")
        await flood.send(2)
        reader, watcher = server.client("alice"), server.client("alice")
        asked = asyncio.ensure_future(reader.get(FUTURE))
        await watcher.watch(CONFIG_MAPS)
        await until(lambda: server.slots_taken == [1, 2, 1])
        await reader.close()
        await watcher.close()
        await until(lambda: server.slots_taken == [0, 2, 0])
        await flood.close()
        assert server.slots_taken == [0, 2, 0]
        server.hold.go.set()
        await until(lambda: server.slots_taken == [0, 0, 0])
        await asyncio.gather(asked, return_exceptions=True)


async def test_watches_of_one_user() -> None:
    """The watches of a user are limited; one more is a 429, that of another user is not; when one
    ends, however it ends, another is accepted."""
    async with limited(limits(streams_per_user_max=2)) as server:
        target = f"{CONFIG_MAPS}?watch=1"
        clients = [server.client("alice") for _ in range(2)]
        for client in clients:
            await client.watch(CONFIG_MAPS)
        assert server.slots_taken == [0, 0, 2]
        alice, bob = server.client("alice"), server.client("bob")
        refused = await alice.get(target)
        assert (refused.status, refused.json["reason"]) == (429, "TooManyRequests")
        assert refused.header("retry-after") == "1"
        await bob.watch(CONFIG_MAPS)
        await clients[0].close()
        await until(lambda: server.slots_taken == [0, 0, 2])
        assert (await alice.get(f"{target}&timeoutSeconds=1")).status == 200
        gone = await alice.get(f"{target}&resourceVersion=1&fieldSelector=spec.x%3Dy")
        assert gone.status == 400
        for client in (*clients, alice, bob):
            await client.close()


async def test_waiting_gets_hold_a_slot() -> None:
    """Gets with identical bytes, on the fast path, release their slots too."""
    async with limited(limits(reads_max=2)) as server:
        alice = server.client("alice")
        for number in range(20):
            name = f"a{number}"
            assert (await alice.post(CONFIG_MAPS, config_map(name))).status == 201
            for _ in range(3):
                assert (await alice.get(f"{CONFIG_MAPS}/{name}")).status == 200
        assert server.slots_taken == [0, 0, 0]
        await alice.close()
