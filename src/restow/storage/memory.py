"""The store in memory: the reference model of the contract, and the store of simulations.

Written to be obviously correct rather than fast. Nothing waits here: a commit happens in one step
of the event loop, so a simulator controls the order of all events.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple

from restow.storage.checks import check_key, check_span, check_transaction, holds
from restow.storage.errors import Compacted, FutureRevision, StorageClosed
from restow.storage.feed import BATCH_EVENTS_MAX, Chunk, Feed, RevisionEvents, revision_of
from restow.storage.interface import (
    REVISION_FIRST,
    Done,
    Event,
    Item,
    Key,
    Outcome,
    Put,
    RangePage,
    Refused,
    Revision,
    Span,
    Transaction,
    Watch,
    Write,
)

__all__ = [
    "MemoryStorage",
]


class _Version(NamedTuple):
    """The item of a key from a revision on; item None means that it was deleted then."""

    revision: Revision
    item: Item | None


class MemoryStorage:
    """Satisfies `interface.Storage`."""

    def __init__(self) -> None:
        self._revision = REVISION_FIRST
        self._compacted = Revision(0)
        self._keys: list[Key] = []  # sorted; every key that has a version left
        self._versions: dict[Key, list[_Version]] = {}
        self._log: list[RevisionEvents] = []
        self._feed = Feed(position=REVISION_FIRST, open_backlog=self._open_backlog)
        self._closed = False

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        check_key(key)
        return self._item_at(key, self._readable(revision))

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> RangePage:
        check_span(span)
        at = self._readable(revision)
        items = self._items_at(span, at)
        page = items[:limit] if limit else items
        return RangePage(page, at, len(page) < len(items), len(items) if with_total else None)

    async def count(self, span: Span, *, revision: Revision | None = None) -> int:
        check_span(span)
        return len(self._items_at(span, self._readable(revision)))

    async def revision(self) -> Revision:
        self._check_open()
        return self._revision

    def revision_now(self) -> Revision | None:
        self._check_open()
        return self._revision

    async def commit(self, transaction: Transaction) -> Outcome:
        self._check_open()
        check_transaction(transaction)
        for guard in transaction.guards:
            current = self._item_at(guard.key, self._revision)
            if not holds(guard, current):
                return Refused(guard, current, self._revision)
        revision = Revision(self._revision + 1)
        events = tuple(
            event
            for write in transaction.writes
            if (event := self._write(write, revision)) is not None
        )
        if not events:
            return Done(self._revision)
        self._revision = revision
        entry = RevisionEvents(revision, events)
        self._log.append(entry)
        self._feed.append([entry])
        return Done(revision)

    def watch(self, span: Span, *, after: Revision) -> Watch:
        self._check_open()
        check_span(span)
        return self._feed.watch(span, after=after)

    async def compact(self, revision: Revision) -> None:
        self._check_open()
        if revision <= self._compacted:
            raise Compacted(self._compacted)
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        self._compacted = revision
        del self._log[: bisect_right(self._log, revision, key=revision_of)]
        self._feed.forget_upto(revision)
        for key in list(self._keys):
            self._forget_versions(key, revision)

    async def close(self) -> None:
        self._closed = True
        self._feed.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed("the store has been closed")

    def _readable(self, revision: Revision | None) -> Revision:
        self._check_open()
        if revision is None:
            return self._revision
        if revision < self._compacted:
            raise Compacted(self._compacted)
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        return revision

    def _item_at(self, key: Key, revision: Revision) -> Item | None:
        for version in reversed(self._versions.get(key, [])):
            if version.revision <= revision:
                return version.item
        return None

    def _items_at(self, span: Span, revision: Revision) -> list[Item]:
        first = bisect_left(self._keys, span.start)
        last = len(self._keys) if span.end is None else bisect_left(self._keys, span.end)
        items = (self._item_at(key, revision) for key in self._keys[first:last])
        return [item for item in items if item is not None]

    def _write(self, write: Write, revision: Revision) -> Event | None:
        key = write.key
        previous = self._item_at(key, self._revision)
        if isinstance(write, Put):
            created = previous.created if previous else revision
            item = Item(key, write.value, revision, created)
            self._add_version(key, _Version(revision, item))
            return Event(key, write.value, revision, created, previous)
        if previous is None:
            return None
        self._add_version(key, _Version(revision, None))
        return Event(key, None, revision, previous.created, previous)

    def _add_version(self, key: Key, version: _Version) -> None:
        if key not in self._versions:
            insort(self._keys, key)
            self._versions[key] = []
        self._versions[key].append(version)

    def _forget_versions(self, key: Key, revision: Revision) -> None:
        versions = self._versions[key]
        superseded = sum(version.revision <= revision for version in versions) - 1
        if superseded > 0:
            del versions[:superseded]
        if versions[0].item is None and versions[0].revision <= revision:
            del versions[0]
        if not versions:
            del self._versions[key]
            self._keys.remove(key)

    def _open_backlog(self, span: Span, after: Revision) -> _MemoryBacklog:
        return _MemoryBacklog(self, after)

    def log_after(self, after: Revision) -> Chunk:
        """Part of the log after a revision."""
        if after < self._compacted:
            raise Compacted(self._compacted)
        first = bisect_right(self._log, after, key=revision_of)
        entries = self._log[first : first + BATCH_EVENTS_MAX]
        whole = first + len(entries) == len(self._log)
        return Chunk(entries, self._revision if whole else entries[-1].revision)


class _MemoryBacklog:
    """Satisfies `feed.Backlog`."""

    def __init__(self, storage: MemoryStorage, after: Revision) -> None:
        self._storage = storage
        self._after = after

    async def read(self) -> Chunk:
        chunk = self._storage.log_after(self._after)
        self._after = chunk.upto
        return chunk

    async def close(self) -> None:
        pass
