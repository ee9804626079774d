"""Keeps the probes of KMS plug-ins in the store: one value for each key of each plug-in.

Whoever is first leaves it, and nobody changes it. Not here: what it proves
(`restow.encryption.kms_probes`).
"""

from __future__ import annotations

from restow.storage.errors import Unavailable
from restow.storage.interface import Absent, Done, Key, Put, Storage, Transaction


class StoredProbes:
    """Satisfies `restow.encryption.kms_probes.KmsProbes`."""

    def __init__(self, storage: Storage) -> None:
        """The storage is the one with values as they are stored."""
        self._storage = storage

    async def leave(self, key: Key, value: bytes) -> bytes:
        item = await self._storage.get(key)
        if item is None:
            outcome = await self._storage.commit(Transaction((Absent(key),), (Put(key, value),)))
            if isinstance(outcome, Done):
                return value
            item = await self._storage.get(key)
        if item is None:
            raise Unavailable(f"{key} was neither stored nor found")
        return item.value
