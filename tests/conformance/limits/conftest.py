"""The event loop of servers, and a certificate for them."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.support.certificates import CertificateFiles, make_certificate


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificate(tmp_path_factory.mktemp("certificates"), name="localhost")
