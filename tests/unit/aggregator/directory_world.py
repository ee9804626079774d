"""A directory of APIs over a store in memory, with functions as backends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from restow.aggregator.directory import ApiDirectory
from restow.aggregator.interface import RemoteApi
from restow.client.transport import (
    ClientRequest,
    ClientResponse,
    InProcessResponse,
    InProcessTransport,
)
from tests.unit.controllers.world import World, open_world

GROUP = "apiregistration.k8s.io"
Handler = Callable[[str, str, Mapping[str, str], bytes], Awaitable[InProcessResponse]]


class FunctionBackends:
    """Calls a function for each API. Implements `Backends`."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []

    def send(
        self, api: RemoteApi, request: ClientRequest
    ) -> AbstractAsyncContextManager[ClientResponse]:
        async def handle(
            method: str, target: str, headers: Mapping[str, str], body: bytes
        ) -> InProcessResponse:
            self.asked.append((api.name, target, dict(headers)))
            handler = self.handlers.get(api.name)
            if handler is None:
                raise ConnectionRefusedError(111, "Connection refused")
            return await handler(method, target, headers, body)

        return InProcessTransport(handle, server=f"https://{api.service.name}").send(request)

    async def close(self) -> None:
        return None


async def well(
    _method: str, _target: str, _headers: Mapping[str, str], _body: bytes
) -> InProcessResponse:
    """A backend that serves its discovery document."""
    return InProcessResponse(200, b"{}")


@asynccontextmanager
async def open_directory() -> AsyncIterator[tuple[World, ApiDirectory]]:
    async with open_world() as world:
        directory = ApiDirectory(world.catalog, world.store)
        await directory.start()
        try:
            yield world, directory
        finally:
            directory.close()


async def register(
    world: World, version: str, group: str, *, service: str | None = "s", **spec: Any
) -> str:
    """Create an APIService; returns its name."""
    name = f"{version}.{group}"
    whole = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
        **spec,
    }
    if service is not None:
        whole["service"] = {"namespace": "n", "name": service, "port": 443}
    await world.create("APIService", name, group=GROUP, spec=whole)
    await world.caches.freshen()
    return name


async def serve(world: World, name: str = "s", *addresses: str, port: int = 443) -> None:
    """Create a Service in namespace `n`, and an EndpointSlice with its servers' addresses."""
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    await world.create("Service", name, "n", spec={"type": "ClusterIP", "ports": ports})
    if addresses:
        await world.create(
            "EndpointSlice",
            name,
            "n",
            group="discovery.k8s.io",
            metadata={"labels": {"kubernetes.io/service-name": name}},
            addressType="IPv4",
            endpoints=[{"addresses": [each]} for each in addresses],
            ports=[{"name": "https", "port": 8443, "protocol": "TCP"}],
        )
    await world.caches.freshen()
