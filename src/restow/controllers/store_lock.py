"""Leader election by a key of the store, for the controllers of the servers themselves.

A Lease would be an object of the API, which a server cannot write before it has registered.

Not here: the election (`restow.aio.leader_election`), and the work of the leader.
"""

from __future__ import annotations

from typing import Final

import orjson

from restow.aio import Runtime
from restow.aio.leader_election import (
    LeaderElector,
    LeaderTiming,
    LockConflict,
    LockRecord,
    LockUnavailable,
)
from restow.registry.stored_bytes import to_keep
from restow.storage.errors import StorageError
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Guard,
    Key,
    Put,
    Refused,
    RevisionIs,
    Storage,
    Transaction,
)

LOCKS_PREFIX: Final = "/restow/turns/"
LEASE_SECONDS: Final = 10.0
"""Shorter than the leases of servers: a lock that is taken too early only causes work to be done
twice, and until it is taken no controller runs. A much shorter lease would cause more writes."""
_RENEW_SHARE: Final = 0.8
_INTERVAL_SHARE: Final = 0.5
_RETRY_SECONDS_MAX: Final = 0.5
_UNREADABLE: Final = "(unreadable)"


class StoreLock:
    """A lock in one key of the store. Implements `Lock`."""

    is_lost_when_deleted = True
    """Only a leader deletes its key. If the key is missing, the store was replaced or emptied, and
    the controllers start again with the current content."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.name = f"lock {name}"
        self._storage = storage
        self._key = Key(LOCKS_PREFIX + name)
        self._renewals = 0

    async def read(self) -> LockRecord:
        try:
            item = await self._storage.get(self._key)
        except StorageError as error:
            raise LockUnavailable(str(error)) from error
        if item is None:
            return LockRecord()
        return LockRecord(
            holder=_holder_of(item.value), renewal=item.revision, handle=item.revision
        )

    async def write(self, seen: LockRecord, *, holder: str, lease_seconds: float) -> LockRecord:
        self._renewals += 1
        value = to_keep({"holder": holder, "beat": self._renewals})
        revision = await self._commit(seen, Put(self._key, value))
        return LockRecord(holder=holder, renewal=revision, handle=revision)

    async def release(self, seen: LockRecord) -> None:
        await self._commit(seen, Delete(self._key))

    async def _commit(self, seen: LockRecord, write: Put | Delete) -> int:
        guard: Guard = (
            Absent(self._key) if seen.handle is None else RevisionIs(self._key, seen.handle)
        )
        try:
            outcome = await self._storage.commit(Transaction((guard,), (write,)))
        except StorageError as error:
            raise LockUnavailable(str(error)) from error
        match outcome:
            case Done(revision):
                return revision
            case Refused():
                raise LockConflict
            case unknown:
                raise LockUnavailable(str(unknown))


def store_elector(
    storage: Storage,
    runtime: Runtime,
    *,
    name: str,
    identity: str,
    lease_seconds: float = LEASE_SECONDS,
) -> LeaderElector:
    """Return a candidate for a key of the store. The identity must be unique to the process."""
    timing = LeaderTiming(
        lease_seconds=lease_seconds,
        renew_seconds=lease_seconds * _RENEW_SHARE,
        retry_seconds=min(_RETRY_SECONDS_MAX, lease_seconds / 10),
        interval_seconds=lease_seconds * _INTERVAL_SHARE,
    )
    return LeaderElector(StoreLock(storage, name), runtime, identity=identity, timing=timing)


def _holder_of(value: bytes) -> str:
    """Return the holder; an unreadable value is respected for the lease time like any other."""
    try:
        holder = orjson.loads(value)["holder"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return _UNREADABLE
    return holder if isinstance(holder, str) and holder else _UNREADABLE
