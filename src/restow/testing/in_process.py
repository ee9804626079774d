"""Runs a real API server in the process of a test, on a loopback port, with a client.

    async with running_server(tmp_path, kinds=[WIDGETS]) as server:
        widget = await server.client.create(widgets, {...}, namespace="default")

Not here: servers in separate processes, and faults.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from restow.aio import Runtime
from restow.apiserver.options import ServeOptions
from restow.apiserver.server import ApiServer
from restow.client import ApiClient, HttpTransport, read_kubeconfig
from restow.registry.resource import Resource

__all__ = ["RunningServer", "running_server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that is ready, and a client with all permissions."""

    client: ApiClient
    kubeconfig: Path
    """For kubectl and other clients."""
    port: int


@asynccontextmanager
async def running_server(
    data_dir: Path,
    *,
    kinds: Sequence[Resource] = (),
    store: str = "memory:",
    runtime: Runtime | None = None,
) -> AsyncIterator[RunningServer]:
    """Start a server with kinds of your own (`restow.apiserver.declare_kind`); stop it on exit.

    Certificates and the kubeconfig are written to `data_dir`, which must be private to the user.
    """
    runtime = runtime or Runtime.system()
    options = ServeOptions(data_dir=data_dir, store=store, port=0)
    server = await ApiServer.start(options, runtime, kinds=kinds)
    try:
        transport = HttpTransport(read_kubeconfig([server.kubeconfig]), clock=runtime.clock)
        client = ApiClient(transport, runtime=runtime)
        try:
            yield RunningServer(client=client, kubeconfig=server.kubeconfig, port=server.port)
        finally:
            await client.close()
    finally:
        await server.stop()
