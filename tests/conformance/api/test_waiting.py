"""A server of a release that cannot read what is stored: it waits, and says so.

Until a server has registered a resource, an object in a version that it does not know is nothing
that is wrong: others are about to migrate it. Once it has, such an object is damage.
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
"""Tests renew when it suits them."""


def widget(version: str) -> dict[str, Any]:
    metadata = {"name": "old", "namespace": "default", "uid": "u"}
    return {"kind": "Widget", "apiVersion": f"example.com/{version}", "metadata": metadata}


@dataclass(slots=True)
class Waiting:
    """A server that knows v2 alone, on a store with an object in v1."""

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
        """Why nothing can be written."""
        reply = await self.api.post(WIDGETS, widget("v2"))
        assert reply.status == 503
        return reply.message

    async def error_of_watch(self, target: str) -> dict[str, Any]:
        """The Status with which a watch ends at once."""
        watch = await self.api.watch(target)
        [event] = await watch.rest()
        assert event["type"] == "ERROR"
        found: dict[str, Any] = event["object"]
        return found

    async def codes(self) -> set[int]:
        """Of all ways to read the object."""
        found = {(await self.api.get(target)).status for target in READS}
        return found | {(await self.error_of_watch(f"{WIDGETS}?resourceVersion=0"))["code"]}


@pytest_asyncio.fixture(params=["report", "strict"])
async def it(request: pytest.FixtureRequest) -> AsyncIterator[Waiting]:
    storage, catalog, runtime = MemoryStorage(), catalog_of("x+3"), Runtime.system()
    membership = MembershipOptions(host="h", mode=request.param, renew_seconds=RENEW_SECONDS)
    coordinator = Coordinator(storage, catalog, runtime, CoordinatorOptions(membership=membership))
    server = await start_server(
        storage, catalog, policy=coordinator.policy, barrier=WriteBarrier(coordinator)
    )
    await server.put_raw(KEY, widget("v1"))
    registration = asyncio.create_task(coordinator.start())
    try:
        yield Waiting(server, coordinator, registration)
    finally:
        registration.cancel()
        await asyncio.gather(registration, return_exceptions=True)
        await coordinator.close()
        await server.stop()
        await storage.close()


async def test_reads_wait_with_a_503(it: Waiting) -> None:
    """Get, list and watch say when to come again, which object it is and what is waited for, until
    it was migrated; then all is served."""
    async with asyncio.timeout(20):
        while "cannot read" not in await it.refusal():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)
    for target in READS:
        reply = await it.api.get(target)
        assert (reply.status, reply.reason) == (503, "ServiceUnavailable"), reply.body
        assert reply.header("retry-after") == "1"
        assert "default/old: it is stored in version 'example.com/v1'" in reply.message
        assert "wait for storage version registration to complete for resource:" in reply.message
        assert "let a release that knows them migrate it" in reply.message
    ended = await it.error_of_watch(f"{WIDGETS}?resourceVersion=0")
    assert (ended["code"], ended["reason"]) == (503, "ServiceUnavailable")
    assert (await it.api.get(f"{WIDGETS}/none")).status == 404
    await it.server.put_raw(KEY, widget("v2"))
    await it.registered()
    assert (await it.api.get(WIDGETS)).names == ["old"]


async def test_what_changes_under_a_watch(it: Waiting) -> None:
    """A watch that meets a version that is not known yet ends with a 503; who resumes before it
    when all can be read is sent to list anew."""
    revision = await it.server.put_raw(KEY, widget("v1"))
    watch = await it.api.watch(f"{WIDGETS}?resourceVersion={revision}")
    revision = await it.server.put_raw(KEY, widget("v1"))
    [event] = await watch.rest()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 503)
    await it.server.put_raw(KEY, widget("v2"))
    await it.registered()
    ended = await it.error_of_watch(f"{WIDGETS}?resourceVersion={revision - 1}")
    assert (ended["code"], ended["reason"]) == (410, "Expired")
    assert (await it.api.get(WIDGETS)).names == ["old"]


async def test_damage_stays_damage(it: Waiting) -> None:
    """What is no object at all, or comes in a version that this server does not know although it is
    registered, is a 500 that names it: in the second case once the server is sure that it is."""
    await it.server.put_raw(KEY, b"{}")
    assert await it.codes() == {500}
    await it.registered()
    assert await it.codes() == {500}
    await it.server.put_raw(KEY, widget("v2"))
    assert (await it.api.get(WIDGETS)).names == ["old"]
    await it.server.put_raw(KEY, widget("v1"))
    assert await it.codes() == {503}
    await it.coordinator.membership.renew()
    assert await it.codes() == {500}
    reply = await it.api.get(WIDGETS)
    assert reply.reason == "InternalError"
    assert "default/old: it is stored in version 'example.com/v1'" in reply.message


async def test_a_server_that_was_taken_for_dead(it: Waiting) -> None:
    """Others may store what it cannot read, and it may hear of that first: that is no damage."""
    await it.server.put_raw(KEY, widget("v2"))
    await it.registered()
    gone = Delete(server_key(it.coordinator.membership.id))
    await it.server.storage.commit(Transaction(writes=(gone,)))
    await it.server.put_raw(KEY, widget("v1"))
    assert await it.codes() == {503}
    assert not await it.coordinator.membership.renew()
    assert await it.codes() == {503}


async def test_the_past_in_a_version_that_is_gone(it: Waiting) -> None:
    """Who goes on with a list, or resumes a watch, from before the migration is sent to list anew:
    what is now can be read."""
    before = await it.server.put_raw(KEY, widget("v1"))
    await it.server.put_raw(KEY, widget("v2"))
    await it.registered()
    # Memory begins here; what was before is asked of the store.
    assert (await it.api.get(WIDGETS)).names == ["old"]
    past = await it.api.get(f"{WIDGETS}?resourceVersion={before}&resourceVersionMatch=Exact")
    assert (past.status, past.reason) == (410, "Expired")
    ended = await it.error_of_watch(f"{WIDGETS}?resourceVersion={before}")
    assert (ended["code"], ended["reason"]) == (410, "Expired")
