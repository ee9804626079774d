"""A server with the namespace `default`, and a webhook that allows everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.api.conftest import StartServer
from tests.conformance.api.servers import RunningServer, catalog_of
from tests.support.admission_webhook import AdmissionWebhook
from tests.support.api_client import ApiClient

BASE = "/apis/admissionregistration.k8s.io/v1"

Configure = Callable[..., Awaitable[None]]


@pytest.fixture
def driver() -> str:
    """These tests do not depend on the store."""
    return "memory"


@pytest_asyncio.fixture
async def server(start: StartServer) -> RunningServer:
    """A server that also serves widgets, in two versions."""
    made = await start(catalog_of("x+2"))
    reply = await made.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    assert reply.status == 201
    return made


@pytest_asyncio.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[AdmissionWebhook]:
    made = await AdmissionWebhook.start(tmp_path / "webhook")
    yield made
    await made.stop()


@pytest.fixture
def configure(api: ApiClient) -> Configure:
    """Stores a configuration of webhooks: `kind` is Mutating or Validating."""

    async def store(kind: str, *hooks: dict[str, Any], name: str = "c") -> None:
        plural = f"{kind.lower()}webhookconfigurations"
        reply = await api.post(
            f"{BASE}/{plural}", {"metadata": {"name": name}, "webhooks": list(hooks)}
        )
        assert reply.status == 201, reply.body

    return store
