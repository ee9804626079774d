"""Deadlines of requests, and the outcome of a write that exceeds its deadline."""

from __future__ import annotations

import asyncio

import pytest

from restow.request.limits import RequestLimits
from restow.request.parameters import Deadlines
from tests.conformance.api.servers import CONFIG_MAPS, config_map
from tests.conformance.limits.servers import limited, until
from tests.support.api_client import Reply

FUTURE = f"{CONFIG_MAPS}?resourceVersion=1000000000000"
OVERDUE = "Timeout: request did not complete within the allotted timeout"


def assert_overdue(reply: Reply, message: str = OVERDUE) -> None:
    assert (reply.status, reply.json["reason"]) == (504, "Timeout")
    assert reply.json["message"] == message


@pytest.mark.parametrize("requested", ["", "&timeout=1h", "&timeout=0s", "&timeout=-1s"])
async def test_timeouts_are_capped(requested: str) -> None:
    """A longer `timeout`, a missing one, zero and negative ones get the maximum."""
    async with limited(RequestLimits(deadlines=Deadlines(request_seconds=0.1))) as server:
        assert_overdue(await server.server.client.get(f"{FUTURE}{requested}"))


async def test_an_overdue_write_is_executed_once() -> None:
    """At its deadline a write gets a Timeout that says that its outcome is unknown; the write still
    completes, and a retry gets AlreadyExists."""
    deadlines = Deadlines(write_seconds=0.2)
    async with limited(RequestLimits(deadlines=deadlines)) as server:
        alice = server.client("alice")
        unknown = f"{OVERDUE}; whether it was applied is unknown"
        body = config_map("held-back")
        assert_overdue(await alice.post(CONFIG_MAPS, body), unknown)
        assert_overdue(await alice.post(f"{CONFIG_MAPS}?timeout=100ms", body), unknown)
        assert server.hold.waiting == 2
        assert (await alice.get(f"{CONFIG_MAPS}/held-back")).status == 404
        server.hold.go.set()
        await until(lambda: server.slots_taken == [0, 0, 0])
        assert (await alice.get(CONFIG_MAPS)).names == ["held-back"]
        again = await alice.post(CONFIG_MAPS, body)
        assert (again.status, again.json["reason"]) == (409, "AlreadyExists")
        await alice.close()


async def test_lists_and_deletecollection_may_take_longer() -> None:
    """Only writes of one object have the shorter limit."""
    async with limited(RequestLimits(deadlines=Deadlines(write_seconds=0.05))) as server:
        alice = server.client("alice")
        asked = asyncio.ensure_future(alice.get(f"{FUTURE}&timeout=150ms"))
        await until(lambda: server.slots_taken == [1, 0, 0])
        assert_overdue(await asked)
        assert (await alice.request("DELETE", CONFIG_MAPS)).status == 200
        await alice.close()


@pytest.mark.parametrize("path", [CONFIG_MAPS, f"{CONFIG_MAPS}/a", "/apis", "/version"])
async def test_an_invalid_timeout(path: str) -> None:
    """It is a 400 with the message of Kubernetes, on every path."""
    async with limited(RequestLimits()) as server:
        reply = await server.server.client.get(f"{path}?timeout=soon")
        assert (reply.status, reply.json["reason"]) == (400, "BadRequest")
        expected = 'invalid timeout specified in the request URL - time: invalid duration "soon"'
        assert reply.json["message"] == expected
