"""A scenario for a store on a full disk, and for its recovery, for any such disk.

    python -m tests.support.sqlite_full_disk DIRECTORY

runs it on a small file system that is mounted there, and prints `ok`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from restow.aio import Runtime
from restow.storage.errors import StoreFull
from restow.storage.interface import EVERYTHING, Done, Key, Put, Revision, Storage, Transaction
from restow.storage.sqlite import open_sqlite

FREE_BYTES: Final = 200_000
"""Free space when the disk is `filled`."""
ATTEMPTS_MAX: Final = 60
SIZES: Final = (20_000, 300, 900_000, 9_000)


async def survive_full_disk(
    storage: Storage, *, fill: Callable[[], None], free: Callable[[], None]
) -> dict[Key, bytes]:
    """Fill the disk and free it, checking the store; return its content.

    Raises AssertionError for any violation."""
    held: dict[Key, bytes] = {}
    for number in range(20):
        assert await _put(storage, held, Key(f"/restow/before/{number}"), 500)
    fill()
    refused = await _write_until_full(storage, held)
    # There are no partial writes, and reads still work.
    assert await _content(storage) == held
    watch = storage.watch(EVERYTHING, after=Revision(await storage.revision() - 1))
    batch = await anext(aiter(watch))
    assert batch.revision == await storage.revision()
    await watch.close()
    free()
    # No restart, no delay: the next write works.
    for number in range(10):
        assert await _put(storage, held, Key(f"/restow/after/{number}"), 30_000)
    assert await _content(storage) == held
    assert not refused & set(held)
    return held


async def _write_until_full(storage: Storage, held: dict[Key, bytes]) -> set[Key]:
    refused: set[Key] = set()
    for attempt in range(ATTEMPTS_MAX):
        keys = [Key(f"/restow/full/{attempt}-{part}") for part in range(3)]
        size = SIZES[attempt % len(SIZES)]
        done = await asyncio.gather(*(_put(storage, held, key, size) for key in keys))
        refused |= {key for key, worked in zip(keys, done, strict=True) if not worked}
    assert refused, f"the disk never became full: {len(held)} keys"
    return refused


async def _put(storage: Storage, held: dict[Key, bytes], key: Key, size: int) -> bool:
    value = key.encode().ljust(size, b".")
    try:
        outcome = await storage.commit(Transaction((), (Put(key, value),)))
    except StoreFull:
        return False
    assert isinstance(outcome, Done), outcome
    held[key] = value
    return True


async def _content(storage: Storage) -> dict[Key, bytes]:
    return {item.key: item.value for item in (await storage.range(EVERYTHING)).items}


async def _on_file_system(directory: Path) -> None:
    path, ballast = directory / "db", directory / "ballast"

    def fill() -> None:
        state = os.statvfs(directory)
        ballast.write_bytes(bytes(max(state.f_bavail * state.f_frsize - FREE_BYTES, 0)))

    storage = await open_sqlite(path, Runtime.system())
    held = await survive_full_disk(storage, fill=fill, free=ballast.unlink)
    await storage.close()
    storage = await open_sqlite(path, Runtime.system())
    assert await _content(storage) == held
    await storage.close()
    os.write(1, b"ok\n")


if __name__ == "__main__":
    asyncio.run(_on_file_system(Path(sys.argv[1])))
