"""Workloads of the storage benchmarks: guarded puts, ranges, watches."""

from __future__ import annotations

import asyncio

from restow.storage.interface import (
    Absent,
    Done,
    Guard,
    Item,
    Key,
    Put,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    Watch,
)

VALUE = bytes(range(256)) * 4  # 1 KiB
PREFIX = "/registry/configmaps/default/"


async def guarded_puts(storage: Storage, *, writers: int, each: int, name: str) -> None:
    """Each writer creates a key of its own and updates it, guarded by its last revision."""

    async def write(key: Key) -> None:
        guard: Guard = Absent(key)
        for _ in range(each):
            outcome = await storage.commit(Transaction((guard,), (Put(key, VALUE),)))
            assert isinstance(outcome, Done), outcome
            guard = RevisionIs(key, outcome.revision)

    keys = [Key(f"{PREFIX}{name}-{number}") for number in range(writers)]
    await asyncio.gather(*map(write, keys))


async def fill(storage: Storage, *, count: int) -> None:
    """Put `count` keys under the prefix, many at a time."""
    numbers = iter(range(count))

    async def write() -> None:
        for number in numbers:
            key = Key(f"{PREFIX}item-{number:06d}")
            await storage.commit(Transaction((), (Put(key, VALUE),)))

    await asyncio.gather(*(write() for _ in range(64)))


async def read_all(storage: Storage) -> list[Item]:
    return (await storage.range(Span.of_prefix(PREFIX))).items


async def receive(watch: Watch, *, events: int) -> Revision:
    """Receive `events` events from a watch."""
    seen = 0
    async for batch in watch:
        seen += len(batch.events)
        if seen >= events:
            return batch.revision
    raise AssertionError("the watch has ended")
