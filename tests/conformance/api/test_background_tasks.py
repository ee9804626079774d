"""A server whose background task failed reports it in its health checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from restow.aio import Runtime
from restow.apiserver.storage_probe import StorageProbe
from restow.registry.caches import Caches
from restow.storage.interface import Storage
from tests.conformance.api.servers import config_map, start_server

OpenStore = Callable[[], Awaitable[Storage]]
PROBES = ("/healthz", "/livez", "/readyz")


@pytest.mark.parametrize(
    ("owner", "method", "task"),
    [(Caches, "_advance", "watch-caches/follow"), (StorageProbe, "step", "server/probe")],
)
async def test_a_task_that_follows_the_store_fails(
    open_store: OpenStore,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    task: str,
) -> None:
    """An unexpected error in it makes the server not healthy, not live and not ready."""
    runtime = Runtime.system()
    server = await start_server(await open_store(), runtime=runtime)
    api = server.client
    try:
        for probe in PROBES:
            assert (await api.get(probe)).status == 200

        def fail(*_: object) -> None:
            raise RuntimeError("an unexpected error")

        monkeypatch.setattr(owner, method, fail)
        await server.put_raw("/registry/configmaps/default/a", config_map("a"))
        for _ in range(100):
            if task in runtime.failed_loops:
                break
            await runtime.clock.sleep(0.05)
        for probe in PROBES:
            reply = await api.get(probe)
            assert reply.status == 500
            assert b"[-]background-tasks failed" in reply.body
        why = (await api.get("/readyz/background-tasks")).body.decode()
        assert f"{task} has failed: RuntimeError: an unexpected error" in why
        assert "restart the server" in why
    finally:
        monkeypatch.undo()
        with pytest.raises(BaseExceptionGroup):
            await server.stop()
