"""The identity of a store, with which a server detects that its store was replaced.

A store holds a random id under `IDENTITY_KEY`. A server saves that id and the newest revision that
it has seen outside of the store (`store_mark`), and compares. A store with another id, another
cluster id of etcd, or an older revision is not the one that acknowledged the server's writes: it
was replaced, emptied, or went back to an earlier state.

An operator who wants servers to use such a store accepts it: `accept` gives it a new id that is
marked as accepted. A server takes an accepted id that it has not had before.

Not here: when servers compare, and what they do then (`restow.apiserver.store_guard`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from restow.aio import Ids
from restow.storage.errors import Compacted, StoreReplaced, Unavailable
from restow.storage.interface import (
    Absent,
    Done,
    Key,
    Outcome,
    Put,
    Revision,
    Storage,
    Transaction,
    ValueIs,
)

IDENTITY_KEY: Final = Key("/restow/store-identity")
ID_BYTES: Final = 16
ATTEMPTS_MAX: Final = 5
RAISE_MAX: Final = 100_000
"""Maximum of writes made to raise the revision of an accepted store; etcd handles some thousands
per second."""
RAISED_AT_ONCE: Final = 64
AHEAD: Final = 10_000
"""How far an accepted store begins above the newest revision that a server has seen: clients may
have newer ones from other servers, which wrote while this one was paused or disconnected."""

ACCEPT_ADVICE: Final = (
    "restore the original store; or, to use this one and lose what it lacks: restow store"
    " accept --store ADDRESS"
)

logger = logging.getLogger(__name__)


class IdentityRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value under `IDENTITY_KEY`."""

    id: str
    accepted: bool = False
    """Whether an operator chose this store in place of another one."""


class Seen(NamedTuple):
    """Identity and revision of a store, as read now."""

    record: IdentityRecord | None
    revision: Revision
    cluster_id: str
    """etcd's; empty for a file."""


class FileLocation(NamedTuple):
    """Identifies a file in the file system."""

    device: int
    inode: int


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Identity and newest revision of a store, which a server saves outside of it."""

    id: str
    revision: int
    """The newest revision that was seen. Every acknowledged write is at or below it."""
    address: str
    cluster_id: str = ""
    file: FileLocation | None = None
    log: FileLocation | None = None
    """Location of the SQLite write-ahead log; `file` is that of the store file."""
    suspect: str = ""
    """Why a store with this id was found to be in another state; only `accept` clears it, since
    its revision may have grown past `revision` meanwhile."""
    former: tuple[str, ...] = ()
    """Ids of stores that this one replaced, oldest first."""


@runtime_checkable
class IdentifiedStorage(Storage, Protocol):
    """A storage that can be replaced while it is open: SQLite and etcd, not memory."""

    @property
    def newest(self) -> Revision:
        """The newest revision that this handle has seen."""

    @property
    def blocked(self) -> StoreReplaced | None:
        """Why every call is rejected now; None if it is not."""

    @property
    def places(self) -> tuple[FileLocation | None, FileLocation | None]:
        """The store file and its write-ahead log; None where there is no file."""

    async def look(self) -> Seen:
        """Read the store's identity and revision, even while it is blocked.

        Raises `StoreReplaced`, and blocks, if the driver itself detects a replacement.
        """

    def block(self, problem: StoreReplaced) -> None:
        """Reject every call with this error until `unblock`; watches end with it."""

    def unblock(self, seen: Seen) -> None:
        """Continue with the store as it was read. Data read from another state are discarded."""


def decode_record(value: bytes | None) -> IdentityRecord | None:
    """The record; None for one that cannot be decoded."""
    try:
        return None if value is None else msgspec.json.decode(value, type=IdentityRecord)
    except msgspec.MsgspecError:
        return None


async def ensure_identity(storage: Storage, ids: Ids) -> None:
    """Give a store without an id a new one."""
    value = msgspec.json.encode(IdentityRecord(ids.nonce(ID_BYTES)))
    await _write(storage, Transaction((Absent(IDENTITY_KEY),), (Put(IDENTITY_KEY, value),)))


async def accept(storage: Storage, ids: Ids) -> str:
    """Give a store a new id that servers accept instead of the recorded one; return the id."""
    record = IdentityRecord(ids.nonce(ID_BYTES), accepted=True)
    put = Put(IDENTITY_KEY, msgspec.json.encode(record))
    outcome = await _write(storage, Transaction((), (put,)))
    assert isinstance(outcome, Done)
    return record.id


async def expire_revisions(storage: Storage, *, upto: int) -> None:
    """Invalidate all revisions of the store that this one replaced: raise the revision above
    those, and compact. Clients then get 410 and list again."""
    item, now = await storage.get(IDENTITY_KEY), await storage.revision()
    if upto - now > RAISE_MAX:
        logger.warning(
            "the store is %d revisions behind, too many to raise its revision: restart clients that"
            " watch, or they may miss changes",
            upto - now,
        )
    elif item is not None:
        same = ValueIs(IDENTITY_KEY, item.value)
        write = Transaction((same,), (Put(IDENTITY_KEY, item.value),))
        while now <= upto:
            count = min(RAISED_AT_ONCE, upto + 1 - now)
            await asyncio.gather(*(storage.commit(write) for _ in range(count)))
            before, now = now, await storage.revision()
            if now == before:
                break  # accepted once more meanwhile: the next check detects that
    with suppress(Compacted):
        await storage.compact(now)


async def _write(storage: Storage, transaction: Transaction) -> Outcome:
    for _ in range(ATTEMPTS_MAX):
        outcome = await storage.commit(transaction)
        if isinstance(outcome, Done) or transaction.guards:
            return outcome  # refused: it has an identity already
    raise Unavailable("it is unknown whether the store's identity was written: try again")


def difference(mark: Mark, seen: Seen, *, address: str) -> str | None:
    """Why a store is not the one that a server has recorded; None if it is, or was accepted."""
    record = seen.record
    if record is None:
        if mark.address != address:
            return None
        return f"it has no identity, and {mark.id} was expected: it was emptied or replaced"
    if record.id != mark.id:
        if mark.address != address or is_accepted(mark, record):
            return None
        return f"its identity is {record.id}, and {mark.id} was expected: it was replaced"
    if mark.suspect:
        return mark.suspect
    if mark.cluster_id != seen.cluster_id:
        return (
            f"its etcd cluster id is {seen.cluster_id}, and {mark.cluster_id} was expected: etcd"
            " was restored from a snapshot or replaced"
        )
    if seen.revision < mark.revision:
        return (
            f"it is at revision {seen.revision:,}, and revision {mark.revision:,} was seen before:"
            " it was replaced by an older copy, or lost its write-ahead log"
        )
    return None


def is_accepted(mark: Mark, record: IdentityRecord) -> bool:
    """Whether an operator chose this store in place of the recorded one."""
    return record.accepted and record.id not in mark.former


def explain(address: str, why: str) -> str:
    """The message for operators: what, why, and what to do."""
    return (
        f"the store {address} is not the one that acknowledged this server's writes: {why}."
        f" Nothing is read or written until you {ACCEPT_ADVICE}"
    )
