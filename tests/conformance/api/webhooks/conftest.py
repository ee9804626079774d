"""A server whose gears are converted by a webhook, and that webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio

from restow.apiserver.webhooks import WebhookConversion
from restow.registry.resource import Resource
from tests.conformance.api.conftest import StartServer
from tests.conformance.api.servers import RunningServer
from tests.conformance.api.webhooks.gears import (
    OLD,
    Object,
    catalog_with,
    convert,
    gear,
    gears,
)
from tests.support.api_client import ApiClient
from tests.support.conversion_webhook import ConversionWebhook


@pytest_asyncio.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[ConversionWebhook]:
    made = await ConversionWebhook.start(tmp_path / "webhook", convert)
    yield made
    await made.stop()


Host = Callable[..., Any]


@pytest_asyncio.fixture
async def host(start: StartServer) -> AsyncIterator[Host]:
    """Starts a server that serves gears, with the namespace `default`."""
    hosted: list[Resource] = []

    async def host_gears(conversion: Object, **options: Any) -> RunningServer:
        resource = gears(conversion, **options)
        hosted.append(resource)
        server = await start(catalog_with(resource))
        await server.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        return server

    yield host_gears
    for resource in hosted:
        assert isinstance(resource.remote, WebhookConversion)
        await resource.remote.close()


@pytest_asyncio.fixture
async def server(host: Host, webhook: ConversionWebhook) -> RunningServer:
    made: RunningServer = await host(webhook.definition_part())
    return made


async def make(api: ApiClient, count: int, **metadata: Any) -> None:
    for number in range(count):
        reply = await api.post(OLD, gear(f"g-{number:04}", number, **metadata))
        assert reply.status == 201, reply.body
