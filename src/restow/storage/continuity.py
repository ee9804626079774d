"""Whether answers come from one store that only moves forward.

Each answer of etcd names the cluster id and the revision of the store. An answer of another
cluster, or one with an older revision than was known when the question was sent, comes from a store
that was replaced or went back to an earlier state. So does the answer to a write that has no
revision of its own, and one that names another identity than the store had. From then on every call
is refused.

Not here: what a store says of itself, and what an operator accepts (`identity`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from restow.storage.errors import StoreReplaced
from restow.storage.identity import ACCEPT_ADVICE, IdentityRecord
from restow.storage.interface import REVISION_FIRST, Absent, Put, Revision, Transaction


class Header(Protocol):
    """What each answer of a store says about it."""

    @property
    def cluster_id(self) -> int: ...

    @property
    def revision(self) -> int: ...


class Continuity:
    """What the answers of one store have said so far."""

    def __init__(self) -> None:
        self.newest = REVISION_FIRST
        """The newest revision that any answer has named."""
        self.cluster_id = 0
        """Of the etcd that has answered; 0 before the first answer."""
        self.identity = ""
        """The id that the store must have (`identity`); empty: none was compared yet."""
        self.replaced: StoreReplaced | None = None
        """Why nothing may be read or written: another etcd answers, or it went back."""
        self.on_replaced: Callable[[StoreReplaced], None] = lambda _error: None

    def check_usable(self) -> None:
        """Raises `StoreReplaced` while the store is not the one that was opened."""
        if self.replaced is not None:
            raise StoreReplaced(str(self.replaced))

    def note(self, header: Header, *, before: Revision) -> Revision:
        """Remember the revision that a linearizable answer named.

        Raises `StoreReplaced` when another cluster answered, or when the revision is below
        `before`, the newest one that was known when the question was sent.
        """
        return self._note(header, before=before, lowest=before)

    def note_commit(
        self, header: Header, transaction: Transaction, *, before: Revision
    ) -> Revision:
        """The same for a transaction that succeeded. One that changes something has a revision of
        its own, above all that were known when it was sent."""
        there = {each.key for each in transaction.guards if not isinstance(each, Absent)}
        changes = any(isinstance(each, Put) or each.key in there for each in transaction.writes)
        return self._note(header, before=before, lowest=before + changes)

    def saw(self, revision: Revision) -> None:
        """Remember a revision that a watch has shown."""
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
        """Raises `StoreReplaced` for an answer of another cluster than the first answer's."""
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
        """Raises `StoreReplaced` for an answer of a store with another id than was `expected` when
        the question was sent."""
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
        """Refuse every call from here on."""
        if self.replaced is None:
            self.replaced = StoreReplaced(text)
            self.on_replaced(self.replaced)
