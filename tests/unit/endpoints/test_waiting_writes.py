"""Writes while the cache is behind the store: executed when it has caught up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from restow.registry.catalog import builtin_catalog
from restow.registry.committer import ObjectCommitter
from restow.registry.errors import ResourceReplaced
from restow.registry.long_work import WorkRunner
from restow.registry.write_plans import WritePlan, Written
from restow.storage.errors import StorageError, Unavailable
from restow.storage.interface import Revision
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import CONFIG_MAPS, RunningServer, config_map, start_server
from tests.support.api_client import Reply

PATH = f"{CONFIG_MAPS}/a"
CHANGED = config_map("a", {"b": "2"})


class _Behind(MemoryStorage):
    """A store that can be switched to block reads of its revision."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ahead = False
        self.may_answer = asyncio.Event()
        self.asked = asyncio.Event()
        self.error: StorageError | None = None

    def revision_now(self) -> Revision | None:
        return None if self.is_ahead else super().revision_now()

    async def revision(self) -> Revision:
        if self.is_ahead:
            self.asked.set()
            await self.may_answer.wait()
            if self.error is not None:
                raise self.error
        return await super().revision()


@pytest.fixture
async def storage() -> AsyncIterator[_Behind]:
    storage = _Behind()
    yield storage
    await storage.close()


@pytest.fixture
async def server(storage: _Behind) -> AsyncIterator[RunningServer]:
    server = await start_server(storage, builtin_catalog())
    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}
    assert (await server.client.post("/api/v1/namespaces", namespace)).status == 201
    assert (await server.client.post(CONFIG_MAPS, config_map("a", {"b": "1"}))).status == 201
    assert (await server.client.get(PATH)).status == 200
    yield server
    storage.is_ahead = False
    await server.stop()


async def _begun(
    server: RunningServer, storage: _Behind, method: str = "PUT", path: str = PATH
) -> asyncio.Task[Reply]:
    """Start a write of an object that waits for the cache."""
    body = {**CHANGED, "metadata": {"name": path.rpartition("/")[2]}}
    storage.is_ahead = True
    form = "application/merge-patch+json" if method == "PATCH" else "application/json"
    begun = asyncio.create_task(server.client.request(method, path, body, content_type=form))
    await asyncio.wait_for(storage.asked.wait(), 5)
    return begun


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_write_waits_for_memory(
    server: RunningServer, storage: _Behind, method: str
) -> None:
    """The write is executed when the cache has every write acknowledged before it."""
    begun = await _begun(server, storage, method)
    storage.may_answer.set()
    answer = await asyncio.wait_for(begun, 5)
    assert (answer.status, answer.json["data"]) == (200, {"b": "2"})
    assert not server.assembly.app.in_flight.writes.taken


async def test_a_write_that_waits_for_a_store_that_fails(
    server: RunningServer, storage: _Behind
) -> None:
    """The error of the store is the response."""
    begun = await _begun(server, storage)
    storage.error = Unavailable("no")
    storage.may_answer.set()
    assert (await asyncio.wait_for(begun, 5)).status == 503


async def test_a_write_to_nothing_that_has_waited(server: RunningServer, storage: _Behind) -> None:
    """An object that does not exist when the cache has caught up is a 404."""
    begun = await _begun(server, storage, path=f"{CONFIG_MAPS}/none")
    storage.may_answer.set()
    assert (await asyncio.wait_for(begun, 5)).status == 404


async def test_the_catalog_changes_while_a_write_waits(
    server: RunningServer, storage: _Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that has waited is repeated if its path may mean another resource now."""
    begun = await _begun(server, storage)
    commit, calls = ObjectCommitter.commit, 0

    async def replaced(self: ObjectCommitter, plan: WritePlan, runner: WorkRunner) -> Written:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ResourceReplaced
        return await commit(self, plan, runner)

    monkeypatch.setattr(ObjectCommitter, "commit", replaced)
    storage.may_answer.set()
    assert (await asyncio.wait_for(begun, 5)).status == 200
    assert calls == 2


async def test_a_refusal_after_waiting(server: RunningServer, storage: _Behind) -> None:
    """A write that the cache would reject is rejected once the cache is current."""
    body = config_map("a", {"b": "2"}, resourceVersion="1")
    storage.is_ahead = True
    begun = asyncio.create_task(server.client.put(PATH, body))
    await storage.asked.wait()
    storage.may_answer.set()
    assert (await asyncio.wait_for(begun, 5)).status == 409
