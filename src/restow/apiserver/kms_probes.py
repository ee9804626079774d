"""Stores the probes of KMS plug-ins: one value for each key of each plug-in.

The first server creates the value, and it never changes. Not here: the meaning of a probe
(`restow.encryption.kms_probes`).
"""

from __future__ import annotations

from restow.storage.errors import Unavailable
from restow.storage.interface import Absent, Done, Key, Put, Storage, Transaction


class StoredProbes:
    """Implements `restow.encryption.kms_probes.KmsProbes`."""

    def __init__(self, storage: Storage) -> None:
        """`storage` reads and writes values as they are stored."""
        self._storage = storage

    async def leave(self, key: Key, value: bytes) -> bytes:
        item = await self._storage.get(key)
        if item is None:
            outcome = await self._storage.commit(Transaction((Absent(key),), (Put(key, value),)))
            if isinstance(outcome, Done):
                return value
            item = await self._storage.get(key)
        if item is None:
            raise Unavailable(f"{key} could neither be created nor read")
        return item.value
