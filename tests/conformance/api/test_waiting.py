"""A server of a release that cannot decode stored objects waits and reports it.

Until a server has registered a resource, an object in an unknown version is no error: other servers
are about to migrate it. After registration, such an object is damaged data.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.endpoints.barrier import WriteBarrier
from restow.storage.interface import Delete, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.identity import server_key
from restow.storageversion.membership import MembershipOptions
from tests.conformance.api.servers import RunningServer, catalog_of, start_server
from tests.support.api_client import ApiClient

WIDGETS = "/apis/example.com/v2/namespaces/default/widgets"
KEY = "/registry/example.com/widgets/default/old"
READS = (f"{WIDGETS}/old", WIDGETS, f"{WIDGETS}?limit=1", f"{WIDGETS}?labelSelector=x")
RENEW_SECONDS = 3600.0
"""Leases are renewed only when a test does it."""


def widget(version: str) -> dict[str, Any]:
    metadata = {"name": "old", "namespace": "default", "uid": "u"}
    return {"kind": "Widget", "apiVersion": f"example.com/{version}", "metadata": metadata}


@dataclass(slots=True)
class WaitingServer:
    """A server that supports only v2, on a store with an object in v1."""

    server: RunningServer
    coordinator: Coordinator
    registration: asyncio.Task[None]

    @property
    def api(self) -> ApiClient:
        return self.server.client

    async def registered(self) -> None:
        async with asyncio.timeout(20):
            await self.registration

    async def refusal(self) -> str:
        """Returns the message of a refused write."""
        reply = await self.api.post(WIDGETS, widget("v2"))
        assert reply.status == 503
        return reply.message

    async def error_of_watch(self, target: str) -> dict[str, Any]:
        """Returns the Status with which a watch ends at once."""
        watch = await self.api.watch(target)
        [event] = await watch.rest()
        assert event["type"] == "ERROR"
        found: dict[str, Any] = event["object"]
        return found

    async def codes(self) -> set[int]:
        """Returns the status codes of every way to read the object."""
        found = {(await self.api.get(target)).status for target in READS}
        return found | {(await self.error_of_watch(f"{WIDGETS}?resourceVersion=0"))["code"]}


@pytest_asyncio.fixture(params=["report", "strict"])
async def waiting(request: pytest.FixtureRequest) -> AsyncIterator[WaitingServer]:
    storage, catalog, runtime = MemoryStorage(), catalog_of("x+3"), Runtime.system()
    membership = MembershipOptions(host="h", mode=request.param, renew_seconds=RENEW_SECONDS)
    coordinator = Coordinator(storage, catalog, runtime, CoordinatorOptions(membership=membership))
    server = await start_server(
        storage, catalog, policy=coordinator.policy, barrier=WriteBarrier(coordinator)
    )
    await server.put_raw(KEY, widget("v1"))
    registration = asyncio.create_task(coordinator.start())
    try:
        yield WaitingServer(server, coordinator, registration)
    finally:
        registration.cancel()
        await asyncio.gather(registration, return_exceptions=True)
        await coordinator.close()
        await server.stop()
        await storage.close()


async def test_reads_wait_with_a_503(waiting: WaitingServer) -> None:
    """Get, list and watch return Retry-After, the object and the reason until it is migrated;
    then all is served."""
    async with asyncio.timeout(20):
        while "cannot read" not in await waiting.refusal():  # noqa: ASYNC110 - a client can only poll
            await asyncio.sleep(0.01)
    for target in READS:
        reply = await waiting.api.get(target)
        assert (reply.status, reply.reason) == (503, "ServiceUnavailable"), reply.body
        assert reply.header("retry-after") == "1"
        assert "default/old: it is stored in version 'example.com/v1'" in reply.message
        assert "wait for storage version registration to complete for resource:" in reply.message
        assert "let a release that knows them migrate it" in reply.message
    ended = await waiting.error_of_watch(f"{WIDGETS}?resourceVersion=0")
    assert (ended["code"], ended["reason"]) == (503, "ServiceUnavailable")
    assert (await waiting.api.get(f"{WIDGETS}/none")).status == 404
    await waiting.server.put_raw(KEY, widget("v2"))
    await waiting.registered()
    assert (await waiting.api.get(WIDGETS)).names == ["old"]


async def test_a_watch_reaches_an_unknown_version(waiting: WaitingServer) -> None:
    """A watch that reaches an object in an unknown version ends with 503; one resumed from
    before it must relist once the object is readable."""
    revision = await waiting.server.put_raw(KEY, widget("v1"))
    watch = await waiting.api.watch(f"{WIDGETS}?resourceVersion={revision}")
    revision = await waiting.server.put_raw(KEY, widget("v1"))
    [event] = await watch.rest()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 503)
    await waiting.server.put_raw(KEY, widget("v2"))
    await waiting.registered()
    ended = await waiting.error_of_watch(f"{WIDGETS}?resourceVersion={revision - 1}")
    assert (ended["code"], ended["reason"]) == (410, "Expired")
    assert (await waiting.api.get(WIDGETS)).names == ["old"]


async def test_damage_stays_damage(waiting: WaitingServer) -> None:
    """An object that cannot be parsed, or has an unknown version after registration, causes a
    500 that names it: in the second case once the server has confirmed that it is registered."""
    await waiting.server.put_raw(KEY, b"{}")
    assert await waiting.codes() == {500}
    await waiting.registered()
    assert await waiting.codes() == {500}
    await waiting.server.put_raw(KEY, widget("v2"))
    assert (await waiting.api.get(WIDGETS)).names == ["old"]
    await waiting.server.put_raw(KEY, widget("v1"))
    assert await waiting.codes() == {503}
    await waiting.coordinator.membership.renew()
    assert await waiting.codes() == {500}
    reply = await waiting.api.get(WIDGETS)
    assert reply.reason == "InternalError"
    assert "default/old: it is stored in version 'example.com/v1'" in reply.message


async def test_a_server_with_an_expired_lease(waiting: WaitingServer) -> None:
    """Others may store versions it cannot decode, and it may see those objects before it notices
    its expiry: that is no damage."""
    await waiting.server.put_raw(KEY, widget("v2"))
    await waiting.registered()
    gone = Delete(server_key(waiting.coordinator.membership.id))
    await waiting.server.storage.commit(Transaction(writes=(gone,)))
    await waiting.server.put_raw(KEY, widget("v1"))
    assert await waiting.codes() == {503}
    assert not await waiting.coordinator.membership.renew()
    assert await waiting.codes() == {503}


async def test_history_in_a_removed_version(waiting: WaitingServer) -> None:
    """A list continued, or a watch resumed, from before the migration must relist: the current
    objects are readable."""
    before = await waiting.server.put_raw(KEY, widget("v1"))
    await waiting.server.put_raw(KEY, widget("v2"))
    await waiting.registered()
    # The history in memory starts here; older events are read from the store.
    assert (await waiting.api.get(WIDGETS)).names == ["old"]
    past = await waiting.api.get(f"{WIDGETS}?resourceVersion={before}&resourceVersionMatch=Exact")
    assert (past.status, past.reason) == (410, "Expired")
    ended = await waiting.error_of_watch(f"{WIDGETS}?resourceVersion={before}")
    assert (ended["code"], ended["reason"]) == (410, "Expired")
