"""Opening a store by its address: `memory:`, `sqlite:FILE` or `etcd://HOST:PORT[,HOST:PORT…]`.

The one place that knows all drivers. A driver is imported when it is asked for, so that nobody
pays for gRPC who uses SQLite.
"""

from __future__ import annotations

from typing import Final

from restow.runtime import Runtime
from restow.storage.errors import OpenRefused
from restow.storage.interface import Storage

ADDRESS_FORMS: Final = "memory: | sqlite:FILE | etcd://HOST:PORT[,HOST:PORT…]"


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

            return await open_etcd(parse_address(address), runtime)
        case _:
            raise OpenRefused(f"{address!r} is no address of a store: {ADDRESS_FORMS}")
