"""One server for all tests of custom resources, and a group for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from typing import Final

import pytest
import pytest_asyncio
import uvloop

from tests.conformance.custom.servers import Custom, Place, place_of
from tests.support.api_client import ApiClient
from tests.support.server_process import ServerProcess

_NUMBERS: Final = count(1)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that servers run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The server, on SQLite."""
    with ServerProcess(tmp_path_factory.mktemp("custom")) as server:
        yield place_of(server)


@pytest_asyncio.fixture
async def api(place: Place) -> AsyncIterator[ApiClient]:
    client = place.client()
    yield client
    await client.close()


@pytest.fixture
def custom(api: ApiClient) -> Custom:
    return Custom(api)


@pytest.fixture
def group() -> str:
    """An API group that no other test uses."""
    return f"t{next(_NUMBERS)}.custom.example.org"
