"""Namespaces of the main servers: only objects in deleted namespaces are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery.status import NotFound
from restow.apiserver.aggregated_namespaces import MainNamespaces
from restow.client import NO_RETRY, ApiClient, InProcessResponse, InProcessTransport
from tests.unit.controllers.world import InterruptedStorage, World, open_world

FINALIZED = {"finalizers": ["example.com/keep"]}


class Main:
    """A main server with some namespaces."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.missing: dict[str, Any] | None = None
        """The response for a missing namespace, if not that of an API server."""

    async def __call__(
        self, _method: str, path: str, _headers: Mapping[str, str], _sent: bytes
    ) -> InProcessResponse:
        name = path.removeprefix("/api/v1/namespaces/")
        if name in self.names:
            return InProcessResponse(200, orjson.dumps({"metadata": {"name": name}}))
        missing = {"kind": "Status", "code": 404, "details": {"name": name, "kind": "namespaces"}}
        return InProcessResponse(
            404, orjson.dumps(missing if self.missing is None else self.missing)
        )


async def clear(world: World, main: Main) -> None:
    """Search once for objects in deleted namespaces."""
    runtime = Runtime.system()
    client = ApiClient(InProcessTransport(main), runtime=runtime, retry=NO_RETRY)
    try:
        await MainNamespaces(client, runtime).clear(world.store, world.catalog)
    finally:
        await client.close()


async def test_objects_in_a_deleted_namespace_are_deleted() -> None:
    """Objects are deleted, or marked if they have finalizers; other namespaces are unaffected."""
    async with open_world() as world:
        await world.create("ConfigMap", "a", "gone")
        await world.create("ConfigMap", "held", "gone", metadata=FINALIZED)
        await world.create("ConfigMap", "a", "there")
        await clear(world, Main("there"))
        assert not await world.has("ConfigMap", "gone/a")
        held = await world.get("ConfigMap", "gone/held")
        assert held is not None
        assert held["metadata"]["deletionTimestamp"]
        assert await world.has("ConfigMap", "there/a")
        revision = await world.storage.revision()
        await clear(world, Main("there"))
        assert await world.storage.revision() == revision, "a second look changes nothing"


async def test_any_404_is_no_reason_to_delete() -> None:
    """A 404 of a proxy, or of a server without namespaces, deletes nothing."""
    async with open_world() as world:
        await world.create("ConfigMap", "a", "there")
        main = Main()
        for main.missing in ({}, {"kind": "Status", "code": 404, "reason": "NotFound"}):
            with pytest.raises(NotFound):
                await clear(world, main)
            assert await world.has("ConfigMap", "there/a")


async def test_a_new_object_of_the_name_stays() -> None:
    """An object created meanwhile, in a namespace that exists again, is not deleted."""
    storage = InterruptedStorage()
    async with open_world(storage) as world:
        await world.create("ConfigMap", "a", "gone")

        async def give_away() -> None:
            await world.delete("ConfigMap", "gone/a")
            await world.create("ConfigMap", "a", "gone", data={"new": "yes"})

        storage.interruptions[world.kind("ConfigMap").key_of("gone/a")] = give_away
        await clear(world, Main())
        found = await world.get("ConfigMap", "gone/a")
        assert found is not None
        assert found["data"] == {"new": "yes"}
    await storage.close()
