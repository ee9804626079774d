"""The store of a world: in memory, with invariant checks at every commit.

It can be replaced under running servers, as an etcd can: by an earlier state of itself, by a
snapshot that was restored under another cluster id, or by an empty store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from restow.registry.catalog import Catalog
from restow.registry.custom.crds import ROOT as DEFINITIONS
from restow.storage.errors import Unavailable
from restow.storage.feed import Feed, RevisionEvents, revision_of
from restow.storage.identity import IDENTITY_KEY
from restow.storage.interface import (
    EVERYTHING,
    REVISION_FIRST,
    Done,
    Event,
    Item,
    Key,
    Outcome,
    Revision,
    Span,
    Transaction,
)
from restow.storage.memory import MemoryStorage, _Version
from tests.support.sim.keys import open_value
from tests.support.sim.ledger import Ledger
from tests.support.storageversion_audit import AuditedStorage, PromiseBroken
from tests.support.wires import at_once

_AUDITED: Final = ("G1", "R5", "M2")
"""The checks of the coordination audit at every commit (`G1`, `E1`, `EP`)."""


class Header(NamedTuple):
    """The header of each reply of the store."""

    cluster_id: int
    revision: int


class Copy(NamedTuple):
    """A store, as a copy of its files has it."""

    header: Header
    compacted: Revision
    versions: Mapping[Key, Sequence[_Version]]
    log: Sequence[RevisionEvents]


class StreamEnded(Unavailable):
    """The store that this watch was opened on was replaced."""


class WatchedStorage(AuditedStorage):
    """See the module. A violation is recorded; the world continues to its next moment, and ends."""

    ledger: Ledger

    def __init__(
        self, catalogs: Iterable[Catalog], *, is_fenced: bool, is_audited: bool = True
    ) -> None:
        """`is_audited`: False in worlds whose operators do what the audit takes for a defect."""
        super().__init__(catalogs)
        self.is_fenced = is_fenced
        self._is_audited = is_audited
        self.cluster_id = self._clusters = 1
        self.on_commit: Callable[[str, tuple[Event, ...]], None] = lambda _sender, _events: None
        """Called with each commit of a process."""

    @property
    def header(self) -> Header:
        return Header(self.cluster_id, self._revision)

    def is_listed(self, sender: str, span: Span) -> None:
        """A process reads a part of the keys."""
        if span.start == DEFINITIONS:
            self.ledger.notice(f"definitions read by {sender.partition('-')[0]}")

    async def commit_by(self, sender: str, transaction: Transaction) -> Outcome:
        """Commit a transaction on behalf of a process."""
        before = self._revision
        try:
            if self._is_audited:
                outcome = await self.commit(transaction)
            else:
                outcome = await MemoryStorage.commit(self, transaction)
        except PromiseBroken as broken:
            self.ledger.problem(str(broken))
            return Done(self._revision)
        if isinstance(outcome, Done) and self._revision != before:
            events = self._log[-1].events
            self.ledger.checked.update(_AUDITED)
            self.ledger.commit(sender, tuple(map(_opened, events)))
            self.on_commit(sender, events)
        return outcome

    # Replaced stores.

    def all_items(self, revision: Revision | None = None) -> list[Item]:
        """All items now, or at a revision; the oldest change first."""
        found = at_once(self.range(EVERYTHING, revision=revision)).items
        return sorted(found, key=lambda item: item.revision)

    @property
    def oldest(self) -> Revision:
        """The oldest state that it can go back to."""
        return max(self._compacted, REVISION_FIRST)

    def go_back(
        self, revision: Revision, *, is_other_cluster: bool, bump: int = 0, identity: bytes = b""
    ) -> None:
        """Become an earlier state of this store; `bump`: with its revision raised by so many, and
        all history compacted; `identity`: with another identity."""
        for key in list(self._keys):
            kept = [each for each in self._versions[key] if each.revision <= revision]
            if kept:
                self._versions[key] = kept
            else:
                del self._versions[key]
                self._keys.remove(key)
        del self._log[bisect_right(self._log, revision, key=revision_of) :]
        if bump:
            self._log.clear()
            self._compacted = Revision(revision + bump)
        if identity:
            self._versions[IDENTITY_KEY] = [
                _Version(revision, Item(IDENTITY_KEY, identity, revision, revision))
            ]
            self._keys = sorted(self._versions)
        now = Revision(revision + bump)
        self._begin_at(now, floor=revision, is_other_cluster=is_other_cluster)

    def become_empty(self, revision: Revision = REVISION_FIRST) -> None:
        """Become another store, without any key, that begins at a revision."""
        self._keys.clear()
        self._versions.clear()
        self._log.clear()
        self._compacted = Revision(0)
        self._begin_at(revision, floor=0, is_other_cluster=True)

    def copy(self) -> Copy:
        """A copy of everything that identifies this store."""
        versions = {key: list(each) for key, each in self._versions.items()}
        return Copy(self.header, self._compacted, versions, list(self._log))

    def become(self, copy: Copy, *, floor: int) -> None:
        """Become a store that was copied; both are the same up to the revision `floor`."""
        self._versions = {key: list(each) for key, each in copy.versions.items()}
        self._keys = sorted(self._versions)
        self._log, self._compacted = list(copy.log), copy.compacted
        self._begin_at(Revision(copy.header.revision), floor=floor, is_other_cluster=False)
        self.cluster_id = copy.header.cluster_id

    def _begin_at(self, revision: Revision, *, floor: int, is_other_cluster: bool) -> None:
        self._revision = revision
        if is_other_cluster:
            self._clusters += 1
            self.cluster_id = self._clusters
        former = self._feed
        self._feed = Feed(position=revision, open_backlog=self._open_backlog)
        former.fail(StreamEnded("the store has ended the watch"))
        self.reset_ledger(floor=floor)

    def reset_ledger(self, *, floor: int) -> None:
        """The content was replaced, and is unchanged up to the revision `floor`: reset the
        ledger."""
        self.ledger.reload(map(_opened_item, self.all_items()), floor=floor)


def _opened_item(item: Item) -> Item:
    return item._replace(value=open_value(item.key, item.value).value)


def _opened(event: Event) -> Event:
    if event.value is None:
        return event
    return event._replace(value=open_value(event.key, event.value).value)
