"""A server for the tests of the client, and clients for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Final

import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionResource
from restow.client import ApiClient, read_kubeconfig
from tests.support.server_process import ServerProcess

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
_NUMBERS: Final = count(1)


@pytest.fixture(scope="session")
def client_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server on SQLite; a test that stops it starts it again."""
    with ServerProcess(tmp_path_factory.mktemp("client")) as server:
        yield server


@pytest.fixture
async def client(client_server: ServerProcess) -> AsyncIterator[ApiClient]:
    """The administrator, by token."""
    config = read_kubeconfig([client_server.kubeconfig])
    async with ApiClient.connect(config, runtime=Runtime.system()) as found:
        yield found


@pytest.fixture
async def namespace(client: ApiClient) -> str:
    """A new namespace."""
    name = f"client-{next(_NUMBERS)}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    return name
