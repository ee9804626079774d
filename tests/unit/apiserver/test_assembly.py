"""Putting a server together, and what is left of one that cannot be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from restow.apiserver.assembly import Secrets, assemble
from restow.machinery.status_error import StatusError
from restow.resources.catalog import builtin_catalog
from restow.runtime import Runtime
from restow.storage.errors import StorageError, Unavailable
from restow.storage.memory import MemoryStorage


class Unreadable(MemoryStorage):
    """A store that is there, and whose objects cannot be read."""

    async def range(self, *_: Any, **__: Any) -> Any:
        raise Unavailable("the disk is gone")


async def test_a_server_that_cannot_start_leaves_nothing() -> None:
    """If roles cannot be read, there is no server, and nothing of it that goes on."""
    storage, before = Unreadable(), asyncio.all_tasks()
    with pytest.raises((StatusError, StorageError)):
        await assemble(
            storage,
            builtin_catalog(),
            Runtime.system(),
            secrets=Secrets(tokens={}, continue_key=bytes(32)),
            address="127.0.0.1:6443",
        )
    assert asyncio.all_tasks() == before
    await storage.close()
