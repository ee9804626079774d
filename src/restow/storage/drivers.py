"""Opens a store by its address: `memory:`, `sqlite:FILE` or `etcd://HOST:PORT[,HOST:PORT…]`.

The only module that refers to all drivers. A driver is imported on first use, so that SQLite does
not load gRPC.
"""

from __future__ import annotations

import os
from typing import Final

from restow.aio import Runtime
from restow.storage.errors import OpenRefused
from restow.storage.interface import Key, Storage

ADDRESS_FORMS: Final = "memory: | sqlite:FILE | etcd://HOST:PORT[,HOST:PORT…]"

UNFINISHED_RESTORE_KEY: Final = Key("/restow/unfinished-restore")
"""Exists while a backup is being restored into etcd, and after an interrupted restore."""


async def open_storage(address: str, runtime: Runtime) -> Storage:
    """Open the store at this address; raises `OpenRefused` for an invalid address."""
    scheme, _, rest = address.partition(":")
    match scheme:
        case "memory" if not rest:
            from restow.storage.memory import MemoryStorage

            return MemoryStorage()
        case "sqlite" if rest:
            from restow.storage.sqlite import open_sqlite

            return await open_sqlite(rest, runtime)
        case "etcd" | "etcds" if rest:
            from restow.storage.etcd import open_etcd, parse_address

            storage = await open_etcd(parse_address(address), runtime)
            await _check_restored(storage, address)
            return storage
        case _:
            raise OpenRefused(f"invalid store address {address!r}: must be {ADDRESS_FORMS}")


def place_name(address: str) -> str:
    """A normalized name of the store's location, without credentials. For etcd, the sorted
    members."""
    scheme, _, rest = address.partition(":")
    if scheme == "sqlite":
        return f"sqlite:{os.path.realpath(rest)}"
    if scheme in {"etcd", "etcds"} and rest:
        from restow.storage.etcd import parse_address

        return f"etcd://{','.join(sorted(parse_address(address).endpoints))}"
    return address


async def _check_restored(storage: Storage, address: str) -> None:
    """Refuse a partially restored store. (A SQLite file gets its name only when it is complete.)"""
    try:
        if await storage.get(UNFINISHED_RESTORE_KEY) is None:
            return
    except BaseException:
        await storage.close()
        raise
    await storage.close()
    raise OpenRefused(
        f"a restore into {address} is running or was interrupted: run `restow restore` with the"
        " same backup again, and wait until it completes"
    )
