"""Building a server, and cleaning up after a failure."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery.status_error import StatusError
from restow.apiserver.build import assemble, build
from restow.apiserver.build_inputs import AccessOptions, EndpointOptions, Foundation, Secrets
from restow.apiserver.feature_gates import FeatureGates
from restow.apiserver.subscriptions import assembly_subscriptions
from restow.registry.catalog import builtin_catalog
from restow.storage.errors import StorageError, Unavailable
from restow.storage.memory import MemoryStorage

ACCESS = AccessOptions(secrets=Secrets(tokens={}, continue_key=bytes(32)))


class Unreadable(MemoryStorage):
    """A store that exists, but whose objects are unreadable."""

    async def range(self, *_: Any, **__: Any) -> Any:
        raise Unavailable("the disk is gone")


@pytest.mark.parametrize("is_on", [True, False])
async def test_the_gate_of_the_hash_reaches_discovery(is_on: bool) -> None:
    """With the feature gate StorageVersionHash disabled, discovery contains no hash."""
    storage = MemoryStorage()
    assembly = await assemble(
        Foundation(storage=storage, catalog=builtin_catalog(), runtime=Runtime.system()),
        ACCESS,
        EndpointOptions(address="127.0.0.1:6443", gates=FeatureGates(storage_version_hash=is_on)),
    )
    document = assembly.discovery.plain("/api/v1")
    assert document is not None
    hashes = [each.get("storageVersionHash") for each in orjson.loads(document)["resources"]]
    assert any(hashes) is is_on
    await assembly.close()
    await storage.close()


async def test_a_server_that_cannot_start_leaves_nothing() -> None:
    """If RBAC cannot be read, the start fails, and no part keeps running."""
    storage, before = Unreadable(), asyncio.all_tasks()
    with pytest.raises((StatusError, StorageError)):
        await assemble(
            Foundation(storage=storage, catalog=builtin_catalog(), runtime=Runtime.system()),
            ACCESS,
            EndpointOptions(address="127.0.0.1:6443"),
        )
    assert asyncio.all_tasks() == before
    await storage.close()


async def test_a_server_that_is_built_does_nothing_yet() -> None:
    """Building reads nothing and starts no task; every subscription has a reason."""
    storage, before = Unreadable(), asyncio.all_tasks()
    assembly = build(
        Foundation(storage=storage, catalog=builtin_catalog(), runtime=Runtime.system()),
        ACCESS,
        EndpointOptions(address="127.0.0.1:6443"),
    )
    assert asyncio.all_tasks() == before
    assert all(row.reason for row in assembly_subscriptions(assembly))
    await storage.close()
