"""Opening a store by its address: `memory:`, `sqlite:FILE` or `etcd://HOST:PORT[,HOST:PORT…]`.

The one place that knows all drivers. A driver is imported when it is asked for, so that nobody
pays for gRPC who uses SQLite.
"""

from __future__ import annotations

import os
from typing import Final

from restow.aio import Runtime
from restow.storage.errors import OpenRefused
from restow.storage.interface import Key, Storage

ADDRESS_FORMS: Final = "memory: | sqlite:FILE | etcd://HOST:PORT[,HOST:PORT…]"

UNFINISHED_RESTORE_KEY: Final = Key("/restow/unfinished-restore")
"""There while a backup is being restored into etcd, and after a restore that was stopped."""


async def open_storage(address: str, runtime: Runtime) -> Storage:
    """Open the store at this address; `OpenRefused` when there is none such."""
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
            raise OpenRefused(f"{address!r} is no address of a store: {ADDRESS_FORMS}")


def place_name(address: str) -> str:
    """What tells the place of this store from others, however its address is written; without
    credentials. For etcd, the members in order."""
    scheme, _, rest = address.partition(":")
    if scheme == "sqlite":
        return f"sqlite:{os.path.realpath(rest)}"
    if scheme in {"etcd", "etcds"} and rest:
        from restow.storage.etcd import parse_address

        return f"etcd://{','.join(sorted(parse_address(address).endpoints))}"
    return address


async def _check_restored(storage: Storage, address: str) -> None:
    """Refuse a store that holds a part of a backup. (A file of SQLite is whole or not there.)"""
    try:
        if await storage.get(UNFINISHED_RESTORE_KEY) is None:
            return
    except BaseException:
        await storage.close()
        raise
    await storage.close()
    raise OpenRefused(
        f"a backup is being restored into {address}, or that was stopped: run `restow restore`"
        " with the same backup again, and wait for its end"
    )
