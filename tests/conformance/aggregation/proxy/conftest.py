"""A main server, a backend, and the client certificate between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvloop

from restow.aggregator.backends import ClientCertificate
from restow.aio import Runtime
from restow.storage.drivers import open_storage
from tests.conformance.aggregation.proxy.proxies import HOST_NAME, RawClient, Rig, join
from tests.conformance.api.servers import start_server
from tests.support.aggregated_backend import AggregatedBackend
from tests.support.certificates import CertificateFiles, make_certificate

StartRig = Callable[..., Awaitable[Rig]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that servers use."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def front_proxy(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    """The CA of the server's own client certificate, and that certificate."""
    return make_certificate(tmp_path_factory.mktemp("front-proxy"), name="front-proxy-client")


@pytest_asyncio.fixture
async def start_rig(front_proxy: CertificateFiles, tmp_path: Path) -> AsyncIterator[StartRig]:
    """Start servers with backends; all are stopped at the end of the test."""
    certificate = ClientCertificate(
        front_proxy.cert_file.read_text(), front_proxy.key_file.read_text()
    )
    rigs: list[Rig] = []

    async def start(**options: Any) -> Rig:
        storage = await open_storage("memory:", Runtime.system())
        server = await start_server(storage)
        backend = await AggregatedBackend.start(
            tmp_path / "backend", host_names=[HOST_NAME], client_ca_file=front_proxy.ca_file
        )
        rigs.append(join(server, backend, certificate=certificate, **options))
        return rigs[-1]

    yield start
    for rig in rigs:
        await rig.stop()
        await rig.server.storage.close()


@pytest_asyncio.fixture
async def rig(start_rig: StartRig) -> Rig:
    """A server and a backend with default settings."""
    return await start_rig()


@pytest_asyncio.fixture
async def client(rig: Rig) -> AsyncIterator[RawClient]:
    """A connection to the main server."""
    made = await RawClient.connect(rig.server.port)
    yield made
    await made.close()
