"""The interface through which the suite opens the store of a driver under test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from restow.aio import Runtime
from restow.storage.checks import resource_of
from restow.storage.drivers import open_storage
from restow.storage.interface import (
    EVERYTHING,
    OPERATIONS_MAX,
    Delete,
    Done,
    Item,
    Storage,
    Transaction,
)
from restow.storage.memory import MemoryStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSizes:
    """Sizes of the larger tests."""

    workers: int
    """Concurrent writer tasks or processes."""
    increments: int
    """Increments of each writer."""
    commits: int
    """Length of a random history."""
    keys: int = 400
    """Keys of a range that is read in pages."""
    watchers: int = 100


class Harness(Protocol):
    """One store, empty at first, and ways to open it."""

    name: str
    sizes: SuiteSizes

    address: str | None
    """Address for `open_storage` in another process; None if the store cannot be shared."""

    async def open(self) -> Storage:
        """Open another handle on the same store, as a second server does."""

    async def reopen(self) -> Storage:
        """Close all handles, as if every server had stopped, and open the store again."""

    async def close(self) -> None:
        """Close all handles."""


class MemoryHarness:
    """Satisfies `Harness`. A store in memory has one handle: the object is the store.

    So each opening returns the same object, also after a stop: stopping every server would lose
    its data.
    """

    def __init__(self, sizes: SuiteSizes) -> None:
        self.name = "memory"
        self.address: str | None = None
        self.sizes = sizes
        self._storage = MemoryStorage()

    async def open(self) -> Storage:
        return self._storage

    async def reopen(self) -> Storage:
        return self._storage

    async def close(self) -> None:
        await self._storage.close()


class SharedHarness:
    """Satisfies `Harness` for a store that several processes can open by its address."""

    def __init__(self, name: str, address: str, sizes: SuiteSizes) -> None:
        self.name = name
        self.address: str | None = address
        self.sizes = sizes
        self._place = address
        self._handles: list[Storage] = []

    async def open(self) -> Storage:
        handle = await open_storage(self._place, Runtime.system())
        self._handles.append(handle)
        return handle

    async def reopen(self) -> Storage:
        await self.close()
        return await self.open()

    async def close(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            await handle.close()


async def wipe(storage: Storage) -> None:
    """Delete every key, so that a store which outlives a test is empty for the next one."""
    free: list[Item] = []
    for item in (await storage.range(EVERYTHING)).items:
        if resource_of(item.key) is None:
            free.append(item)
        else:
            await _delete_all(storage, [item])
    for first in range(0, len(free), OPERATIONS_MAX):
        await _delete_all(storage, free[first : first + OPERATIONS_MAX])


async def _delete_all(storage: Storage, items: list[Item]) -> None:
    outcome = await storage.commit(Transaction(writes=tuple(Delete(item.key) for item in items)))
    if not isinstance(outcome, Done):
        raise TypeError(f"could not wipe the store: {outcome}")
