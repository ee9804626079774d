"""Long work of one user: it refuses no stored write, and disturbs no watch of another user."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from restow.apimachinery import status
from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.registry.catalog import builtin_catalog
from restow.request.context import Context
from restow.request.offload import Offload
from restow.storage.interface import Outcome, Transaction
from restow.storage.memory import MemoryStorage
from tests.conformance.api.rights import client_of, give, rule
from tests.conformance.api.servers import RunningServer, start_server
from tests.support.api_client import TABLE

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    storage = MemoryStorage()
    running = await start_server(storage, builtin_catalog())
    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}
    await running.client.post("/api/v1/namespaces", namespace)
    yield running
    await running.stop()
    await storage.close()


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", PROTOBUF])
async def test_a_stored_write_is_not_refused(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    """After the commit of a long object, its response does not wait for a thread of the user: a 429
    would say that nothing was stored."""
    is_stored = False
    commit, run = server.storage.commit, Offload.run

    async def noted(transaction: Transaction) -> Outcome:
        nonlocal is_stored
        outcome = await commit(transaction)
        is_stored = True
        return outcome

    async def busy(self: Offload, context: Context, work: Callable[[], Any]) -> Any:
        if is_stored:
            raise status.too_many_requests("no thread is free")
        return await run(self, context, work)

    monkeypatch.setattr(server.storage, "commit", noted)
    monkeypatch.setattr(Offload, "run", busy)
    body = {"metadata": {"name": "a"}, "data": {"k": "x" * (LONG_BODY_SIZE + 1)}}
    reply = await server.client.request("POST", CONFIG_MAPS, body, accept=accept)
    assert reply.status == 201, reply.body[:300]
    is_stored = False
    patch = {"data": {"n": "1"}}
    reply = await server.client.request(
        "PATCH",
        f"{CONFIG_MAPS}/a",
        patch,
        content_type="application/merge-patch+json",
        accept=accept,
    )
    assert reply.status == 200, reply.body[:300]
    is_stored = False
    reply = await server.client.request("DELETE", CONFIG_MAPS, accept=accept)
    assert reply.status == 200, reply.body[:300]


async def test_a_user_without_a_thread_fails_its_own_watches_only(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watches of other users get a long event in the same form."""
    run = Offload.run

    async def busy(self: Offload, context: Context, work: Callable[[], Any]) -> Any:
        if context.user.name == "jane" and context.info.verb == "watch":
            raise status.too_many_requests("no thread is free")
        return await run(self, context, work)

    monkeypatch.setattr(Offload, "run", busy)
    await give(server, "watcher", rule("watch", "configmaps"))
    jane = client_of(server)
    streams = [
        await client.watch(f"{CONFIG_MAPS}?resourceVersion=1", accept=TABLE)
        for client in (jane, server.client)
    ]
    body = {"metadata": {"name": "a"}, "data": {"k": "x" * (LONG_BODY_SIZE + 1)}}
    assert (await server.client.post(CONFIG_MAPS, body)).status == 201
    events = [await stream.next() for stream in streams]
    assert [event and event["type"] for event in events] == ["ERROR", "ADDED"]
    await jane.close()
