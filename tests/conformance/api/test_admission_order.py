"""When admission runs for a write: only if needed, and repeated only for a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from restow.registry.encoding import Encoding, FixedPolicy
from restow.registry.resource import Resource
from restow.storage.interface import Guard, Key, Revision, RevisionIs, Storage
from tests.conformance.api.plugins import Plugin
from tests.conformance.api.servers import CONFIG_MAPS, RunningServer, start_server
from tests.conformance.api.test_service_accounts import RULES
from tests.support.api_client import ApiClient

OpenStore = Callable[[], Awaitable[Storage]]
Started = Callable[..., Awaitable[ApiClient]]
NEVER_HOLDS = RevisionIs(Key("/registry/nothing"), Revision(5))


@pytest.fixture
def driver() -> str:
    return "memory"


class MovingFence(FixedPolicy):
    """A fence that has moved: it holds again after a number of refreshes."""

    def __init__(self) -> None:
        super().__init__()
        self.guards: tuple[Guard, ...] = ()
        self.refreshes_left = 0
        self.refreshed: list[str] = []

    def encoding(self, resource: Resource) -> Encoding:
        guards = self.guards if resource.plural == "configmaps" else ()
        return Encoding(super().encoding(resource).api_version, guards)

    async def refresh(self, resource: Resource) -> None:
        self.refreshed.append(resource.plural)
        self.refreshes_left -= 1
        if self.refreshes_left <= 0:
            self.guards = ()


@pytest_asyncio.fixture
async def started(open_store: OpenStore) -> AsyncIterator[Started]:
    """Starts servers; they are stopped at the end of the test."""
    servers: list[RunningServer] = []

    async def start(**options: Any) -> ApiClient:
        servers.append(await start_server(await open_store(), **options))
        return servers[-1].client

    yield start
    for server in servers:
        await server.stop()


async def test_a_pod_in_a_missing_or_terminating_namespace(started: Started) -> None:
    """A pod is refused for its namespace before its service account is looked up, which waits
    for an account that may still be created: 404 without the namespace, 403 while it is
    terminating."""
    client = await started(accounts=RULES)
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    missing = await client.post("/api/v1/namespaces/nope/pods", pod)
    assert (missing.status, missing.message) == (404, 'namespaces "nope" not found')
    await client.post("/api/v1/namespaces", {"metadata": {"name": "going"}})
    held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    await client.post("/api/v1/namespaces/going/configmaps", held)
    await client.delete("/api/v1/namespaces/going")
    going = await client.post("/api/v1/namespaces/going/pods", pod)
    assert going.status == 403
    assert going.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize("refreshes", [1, 5])
async def test_a_moved_fence(started: Started, refreshes: int) -> None:
    """A write whose fence has moved is encoded again; admission is not repeated, since neither
    the object nor its old state has changed."""
    policy, plugin = MovingFence(), Plugin(waits=True)
    client = await started(policy=policy, admission=(plugin,))
    await client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    changed = {"metadata": {"name": "a"}, "data": {"x": "1"}}
    for write in (
        partial(client.post, CONFIG_MAPS, {"metadata": {"name": "a"}}),
        partial(client.put, f"{CONFIG_MAPS}/a", changed),
        partial(client.delete, f"{CONFIG_MAPS}/a"),
    ):
        plugin.asked.clear()
        policy.refreshed.clear()
        policy.guards, policy.refreshes_left = (NEVER_HOLDS,), refreshes
        reply = await write()
        assert reply.status in (200, 201), reply.json
        assert policy.refreshed == ["configmaps"] * refreshes
        assert len(plugin.asked) == 1
