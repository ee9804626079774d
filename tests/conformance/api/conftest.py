"""A server over each kind of store; SQLite unless a test selects another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import uvloop

from restow.aio import Runtime
from restow.registry.catalog import Catalog
from restow.storage.drivers import open_storage
from restow.storage.interface import Storage
from restow.testing.storage_suite.harness import wipe
from tests.conformance.api.servers import BUILTIN, RunningServer, start_server
from tests.support.api_client import ApiClient

StartServer = Callable[..., Awaitable[RunningServer]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that servers run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """The store; tests that run on several are parametrized with it."""
    return str(getattr(request, "param", "sqlite"))


@pytest_asyncio.fixture
async def open_store(
    driver: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Callable[[], Awaitable[Storage]]]:
    """Opens the test's store: each call returns a handle of its own, as for each server."""
    address = {"sqlite": f"sqlite:{tmp_path / 'store'}"}.get(driver, "memory:")
    if driver == "etcd":
        address = str(request.getfixturevalue("etcd_one").url)
    handles: list[Storage] = []

    async def open_one() -> Storage:
        if driver == "memory" and handles:
            return handles[0]  # in memory, the object is the store
        handles.append(await open_storage(address, Runtime.system()))
        return handles[-1]

    if driver == "etcd":
        await wipe(await open_one())
    yield open_one
    for handle in handles:
        await handle.close()


@pytest_asyncio.fixture
async def start(open_store: Callable[[], Awaitable[Storage]]) -> AsyncIterator[StartServer]:
    """Starts servers on the test's store; they are stopped at the end of the test."""
    running: list[RunningServer] = []

    async def start_one(catalog: Catalog = BUILTIN) -> RunningServer:
        server = await start_server(await open_store(), catalog)
        running.append(server)
        return server

    yield start_one
    for server in running:
        await server.stop()


@pytest_asyncio.fixture
async def server(start: StartServer) -> RunningServer:
    """A server with the namespace `default`."""
    made = await start()
    reply = await made.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    assert reply.status == 201
    return made


@pytest.fixture
def api(server: RunningServer) -> ApiClient:
    return server.client
