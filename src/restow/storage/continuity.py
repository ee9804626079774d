"""Checks that all replies come from one store whose revision never decreases.

Each etcd reply carries the cluster id and the revision of the store. A reply from another cluster,
or one with an older revision than was known when the request was sent, comes from a store that was
replaced or went back to an earlier state. So does a reply to a write without a new revision, and
one with another store identity than expected. From then on every call is rejected.

Not here: the identity that a store holds, and accepting a replaced store (`identity`).
"""

from __future__ import annotations

from typing import Protocol

from restow.aio.events import EventChannel
from restow.storage.errors import StoreReplaced
from restow.storage.identity import ACCEPT_ADVICE, IdentityRecord, Seen
from restow.storage.interface import REVISION_FIRST, Absent, Put, Revision, Transaction


class Header(Protocol):
    """The header of an etcd reply."""

    @property
    def cluster_id(self) -> int: ...

    @property
    def revision(self) -> int: ...


class Continuity:
    """Tracks cluster id and revision over all replies of one store."""

    def __init__(self) -> None:
        self.newest = REVISION_FIRST
        """The newest revision of any reply."""
        self.cluster_id = 0
        """etcd's cluster id; 0 before the first reply."""
        self.identity = ""
        """The id that the store must have (`identity`); empty: none was compared yet."""
        self.replaced: StoreReplaced | None = None
        """Why all calls are rejected: another etcd replied, or its revision decreased."""
        self.replacements: EventChannel[[StoreReplaced]] = EventChannel()
        """Emits why all calls are rejected, when that begins."""

    def check_usable(self) -> None:
        """Raises `StoreReplaced` while the store is not the one that was opened."""
        if self.replaced is not None:
            raise StoreReplaced(str(self.replaced))

    def note(self, header: Header, *, before: Revision) -> Revision:
        """Record the revision of a linearizable reply.

        Raises `StoreReplaced` for another cluster, or a revision below `before`, the newest one
        that was known when the request was sent.
        """
        return self._note(header, before=before, lowest=before)

    def note_commit(
        self, header: Header, transaction: Transaction, *, before: Revision
    ) -> Revision:
        """Record the reply to a successful transaction. If it changed something, its revision must
        be above `before`."""
        there = {each.key for each in transaction.guards if not isinstance(each, Absent)}
        changes = any(isinstance(each, Put) or each.key in there for each in transaction.writes)
        return self._note(header, before=before, lowest=before + changes)

    def saw(self, revision: Revision) -> None:
        """Record a revision that a watch has delivered."""
        self.newest = max(self.newest, revision)

    def _note(self, header: Header, *, before: Revision, lowest: int) -> Revision:
        revision = Revision(header.revision)
        self.check_cluster(header)
        if revision < lowest:
            self.block(
                f"etcd is at revision {revision:,}, and revision {before:,} was seen before: its"
                f" data were replaced by an older copy or emptied. To go on, {ACCEPT_ADVICE}"
            )
        self.check_usable()
        self.newest = max(self.newest, revision)
        return revision

    def check_cluster(self, header: Header) -> None:
        """Raises `StoreReplaced` for a reply of another cluster than that of the first reply."""
        found = header.cluster_id
        if found != self.cluster_id:
            if self.cluster_id:
                self.block(
                    f"etcd has cluster id {found:x}, and {self.cluster_id:x} was expected: it was"
                    f" restored from a snapshot or replaced. To go on, {ACCEPT_ADVICE}"
                )
                self.check_usable()
            self.cluster_id = found

    def check_identity(self, record: IdentityRecord | None, *, expected: str) -> None:
        """Raises `StoreReplaced` if the store has another id than was `expected` when the request
        was sent."""
        found = "" if record is None else record.id
        if not expected or found == expected:
            return
        text = (
            f"the identity of the store is {found or 'missing'}, and {expected} was expected: it"
            f" was replaced, or accepted in place of another one. To go on, {ACCEPT_ADVICE}"
        )
        if self.identity == expected:
            self.block(text)
        raise StoreReplaced(text)

    def block(self, text: str) -> None:
        """Reject every call from now on."""
        if self.replaced is None:
            self.replaced = StoreReplaced(text)
            self.replacements.emit(self.replaced)

    def resume(self, seen: Seen) -> None:
        """Accept the store as it was seen, and allow calls again."""
        self.newest = seen.revision
        self.cluster_id = int(seen.cluster_id, 16)
        self.identity = "" if seen.record is None else seen.record.id
        self.replaced = None
