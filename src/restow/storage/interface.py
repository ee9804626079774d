"""The storage contract: keys, values, one revision, transactions with guards, and watches.

Three drivers implement it (`memory`, `sqlite`, `etcd`) and one suite tests all three
(`restow.testing.storage_suite`). Values are opaque here: no objects, no versions, no HTTP, and no
I/O.

The contract in short:

- A store has one *revision*, a number that only grows. An empty store is at revision 1. Each
  transaction that changes something gets the next revision, shared by all its writes.
- `commit` is the only way to change a store. It is atomic and guarded, and has three outcomes:
  `Done`, `Refused`, and `Unknown` when the reply was lost and reading could not settle it.
- A read sees one revision, now or in the past, until `compact` discards that past.
- A watch yields every change of a span of keys after a revision: in order, once, and all changes
  of one revision together, so that a watch cannot resume between them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, NamedTuple, NewType, Protocol, Self

from msgspec import Struct

__all__ = [
    "EVERYTHING",
    "KEY_BYTES_MAX",
    "OPERATIONS_MAX",
    "REVISION_FIRST",
    "REVISION_MAX",
    "SEALED_PREFIX",
    "SEAL_BYTES_MAX",
    "TRANSACTION_BYTES_MAX",
    "Absent",
    "Batch",
    "Delete",
    "Done",
    "Event",
    "Guard",
    "Item",
    "Key",
    "Outcome",
    "Present",
    "Put",
    "RangePage",
    "Refused",
    "Revision",
    "RevisionIs",
    "Span",
    "Storage",
    "Transaction",
    "Unknown",
    "ValueIs",
    "Watch",
    "Write",
]

# Guards, writes and outcomes are made for every write: as Structs they cost a third of what frozen
# dataclasses do, and are equal only to their own kind, as tuples would not be.

Key = NewType("Key", str)
Revision = NewType("Revision", int)

REVISION_FIRST: Final = Revision(1)
"""The revision of an empty store, as in etcd."""
REVISION_MAX: Final = Revision((1 << 56) - 1)
"""The largest revision that every driver can store; no cluster reaches it."""

OPERATIONS_MAX: Final = 120
"""Guards and writes of one transaction together; etcd's own limit is 128."""

KEY_BYTES_MAX: Final = 1024
TRANSACTION_BYTES_MAX: Final = 1_500_000
"""Keys and values of one transaction together; etcd refuses requests above 1.5 MiB."""
SEALED_PREFIX: Final = b"k8s:enc:"
"""Prefix of every encrypted value, and of no other."""
SEAL_BYTES_MAX: Final = 8 * 1024
"""Maximum that encryption adds to a value: one that fitted before must fit under every key."""


class Item(NamedTuple):
    """A key with its value: `revision` wrote this value, `created` is the key's creation."""

    key: Key
    value: bytes
    revision: Revision
    created: Revision


class Event(NamedTuple):
    """One change of one key; `value` is None when the key was deleted."""

    key: Key
    value: bytes | None
    revision: Revision
    created: Revision
    """The revision that created the key, also for a deletion."""
    previous: Item | None
    """The previous item of the key; None when this event created it."""


class Batch(NamedTuple):
    """Result of a watch: all its events after the last batch and up to `revision`.

    A batch without events is a progress mark. Resume a watch with `after=batch.revision`.
    """

    revision: Revision
    events: tuple[Event, ...]


class RangePage(NamedTuple):
    """Result of a range: items in order of key, all as they were at `revision`."""

    items: list[Item]
    revision: Revision
    more: bool
    """Whether the span holds more keys after the last item."""
    total: int | None
    """Number of keys in the whole span, if `with_total` was set."""


@dataclass(frozen=True, slots=True)
class Span:
    """The keys from `start` up to, but not including, `end`; None means no upper bound."""

    start: str
    end: str | None

    @classmethod
    def of_prefix(cls, prefix: str) -> Self:
        """All keys that begin with `prefix`."""
        return cls(prefix, _after_prefix(prefix))

    @classmethod
    def of_key(cls, key: Key) -> Self:
        """This key alone; no key contains NUL, so no other key is between the two bounds."""
        return cls(key, key + "\0")

    def starting_at(self, start: str) -> Span:
        """The part of this span that begins at `start`: the next page of a range."""
        return Span(max(self.start, start), self.end)

    def __contains__(self, key: str) -> bool:
        return self.start <= key and (self.end is None or key < self.end)


EVERYTHING: Final = Span("", None)


class RevisionIs(Struct, frozen=True):
    """Guard: the key exists and was last written at this revision."""

    key: Key
    revision: Revision


class Absent(Struct, frozen=True):
    """Guard: the key does not exist."""

    key: Key


class Present(Struct, frozen=True):
    """Guard: the key exists, with any value."""

    key: Key


class ValueIs(Struct, frozen=True):
    """Guard: the key exists and holds exactly this value."""

    key: Key
    value: bytes


Guard = RevisionIs | Absent | Present | ValueIs


class Put(Struct, frozen=True):
    """Write: set the value of the key."""

    key: Key
    value: bytes


class Delete(Struct, frozen=True):
    """Write: remove the key; a no-op if it does not exist."""

    key: Key


Write = Put | Delete


class Transaction(Struct, frozen=True):
    """If all guards hold, all writes are applied at one revision; otherwise none is."""

    guards: tuple[Guard, ...] = ()
    writes: tuple[Write, ...] = ()
    in_background: bool = False
    """Low priority: the driver executes others first, and few such at a time. It is a hint; the
    effect of the transaction is the same."""


class Done(Struct, frozen=True):
    """The transaction was applied, and is durable.

    `revision` is its own, or the store's current one when nothing had to change.
    After a lost reply (etcd), another transaction with the same guards and the same values is
    indistinguishable from it, and counts as it. A caller that must know that its own transaction
    was applied writes a value that no other writes: with its own name, or a nonce.
    """

    revision: Revision


class Refused(Struct, frozen=True):
    """A guard did not hold, so nothing was written. It is the first such guard in their order."""

    guard: Guard
    current: Item | None
    """The item of the guard's key at that moment."""
    revision: Revision
    """The store's revision at that moment."""


class Unknown(Struct, frozen=True):
    """The transaction may have been applied, or may still be; reading could not settle it.

    The caller must not report success, nor failure, nor send the same again blindly.
    """

    reason: str


Outcome = Done | Refused | Unknown


class Watch(Protocol):
    """A running watch. Iterate over it; close it when done.

    Iteration raises `Compacted` when changes that were not yet yielded have been compacted: read
    the span again and watch from there. A lost connection is reopened internally and raises no
    error. A watch has no queue of its own: a slow reader is served from the store's log.
    """

    def __aiter__(self) -> AsyncIterator[Batch]: ...

    async def __anext__(self) -> Batch: ...

    def expect(self, revision: Revision) -> None:
        """Request a batch (at least a mark) as soon as all up to `revision` has been yielded."""

    async def close(self) -> None: ...


class Storage(Protocol):
    """The contract. Every method may raise `Unavailable`, and `StorageClosed` after `close`."""

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        """The key's item now (linearizable), or as it was at a revision."""

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> RangePage:
        """The span's items in order of key; `limit` 0 means all of them.

        Raises `Compacted` or `FutureRevision` for a revision that was compacted or does not exist
        yet.
        """

    async def count(self, span: Span, *, revision: Revision | None = None) -> int:
        """How many keys the span holds."""

    async def revision(self) -> Revision:
        """The store's current revision: at least that of every commit that has returned."""

    def revision_now(self) -> Revision | None:
        """The current revision, if the driver has it without sending a request; otherwise None."""

    async def commit(self, transaction: Transaction) -> Outcome:
        """Apply the transaction. The one function through which anything changes.

        Raises `InvalidTransaction` for one that is invalid for every store, `StoreFull` when there
        is no space. Any exception means: nothing was written. A driver passes the changes to its
        watches before it returns, if it can.
        """

    def watch(self, span: Span, *, after: Revision) -> Watch:
        """All changes of the span after a revision (which may lie in the future)."""

    async def compact(self, revision: Revision) -> None:
        """Discard versions superseded at or before `revision`, which itself stays readable.

        Raises `Compacted` if that revision is compacted already, `FutureRevision` beyond now.
        """

    async def close(self) -> None:
        """End the watches, finish pending commits, release everything."""


def _after_prefix(prefix: str) -> str | None:
    """The smallest text above all texts that begin with `prefix`."""
    for position in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[position])
        if code < 0x10FFFF:
            # Surrogates are not characters and cannot be encoded as UTF-8.
            following = 0xE000 if code == 0xD7FF else code + 1
            return prefix[:position] + chr(following)
    return None
