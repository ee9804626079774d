"""Gets that wait for the store while the catalog changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from restow.registry.catalog import builtin_catalog
from restow.storage.interface import Revision
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import CONFIG_MAPS, RunningServer, config_map, start_server
from tests.unit.endpoints.custom_kinds import gadgets


class _Slow(MemoryStorage):
    """A store without a cached revision, whose reads of it block until the test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = asyncio.Event()

    def revision_now(self) -> Revision | None:
        return None

    async def revision(self) -> Revision:
        self.asked.set()
        await self.may_answer.wait()
        return await super().revision()


@pytest.fixture
async def storage() -> AsyncIterator[_Slow]:
    storage = _Slow()
    yield storage
    await storage.close()


@pytest.fixture
async def server(storage: _Slow) -> AsyncIterator[RunningServer]:
    server = await start_server(storage, builtin_catalog())
    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}
    assert (await server.client.post("/api/v1/namespaces", namespace)).status == 201
    assert (await server.client.post(CONFIG_MAPS, config_map("a", {"b": "1"}))).status == 201
    assert (await server.client.get(f"{CONFIG_MAPS}/a")).status == 200
    yield server
    await server.stop()


async def _begun(server: RunningServer, storage: _Slow) -> asyncio.Task[int]:
    """Start a get of the object that waits for the store; the task returns its status."""

    async def status() -> int:
        return (await server.client.get(f"{CONFIG_MAPS}/a")).status

    storage.may_answer.clear()
    storage.asked.clear()
    begun = asyncio.create_task(status())
    await storage.asked.wait()
    return begun


async def test_the_catalog_changes_while_a_get_waits(server: RunningServer, storage: _Slow) -> None:
    """A get that has waited is repeated if its path may mean another resource now."""
    begun = await _begun(server, storage)
    server.assembly.app._server.catalog.host(gadgets())
    storage.may_answer.set()
    assert await begun == 200
