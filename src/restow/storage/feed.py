"""An in-memory feed of the store's changes, from which all watches of a process are served.

A driver appends each revision's events once, in order. The newest stay in memory; a watch is a
cursor into them, without a queue of its own. A watch that begins, or falls, behind what is in
memory reads the driver's *backlog* until it has caught up. So a slow reader costs no memory, and
loses nothing unless the store itself was compacted past it.

No I/O here, and nothing specific to a driver.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from restow.storage.errors import StorageClosed, StorageError
from restow.storage.interface import REVISION_FIRST, Batch, Event, Revision, Span

ENTRIES_MAX: Final = 8192
BYTES_MAX: Final = 16 * 1024 * 1024
BATCH_EVENTS_MAX: Final = 1000
TRIMMED_PART: Final = 64
"""A full feed drops 1/TRIMMED_PART of its entries, the oldest."""


class RevisionEvents(NamedTuple):
    """All events of one revision."""

    revision: Revision
    events: tuple[Event, ...]


class Chunk(NamedTuple):
    """A part of the backlog: every event of the requested span up to `upto`."""

    entries: list[RevisionEvents]
    upto: Revision


class Backlog(Protocol):
    """Reads changes that are no longer in memory."""

    async def read(self) -> Chunk:
        """The next part; waits until it is not empty. Raises `Compacted` if it was compacted."""

    async def close(self) -> None: ...


class Feed:
    """The newest changes of the store, and the watches that follow them."""

    def __init__(
        self,
        *,
        position: Revision,
        open_backlog: Callable[[Span, Revision], Backlog],
        on_expect: Callable[[Revision], None] | None = None,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._open_backlog = open_backlog
        self._on_expect = on_expect
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries: list[RevisionEvents] = []
        self._base = 0  # absolute index of _entries[0]; cursors are absolute indexes
        self._bytes = 0
        self._floor = position  # every entry in memory is above this
        self._position = position
        # Ordered, unlike sets: the order of notification must not depend on memory addresses.
        self._watches: dict[FeedWatch, None] = {}
        self._waiting: dict[FeedWatch, None] = {}
        self._refusal: StorageError | None = None

    @property
    def position(self) -> Revision:
        """All changes up to this revision have been appended."""
        return self._position

    @property
    def watch_count(self) -> int:
        return len(self._watches)

    def watch(self, span: Span, *, after: Revision) -> FeedWatch:
        # Nothing can have happened before the first revision, so no watch is too old for it.
        watch = FeedWatch(self, span, after=max(after, REVISION_FIRST))
        self._watches[watch] = None
        if self._refusal is not None:
            watch.fail(self._refusal)
        return watch

    def append(self, entries: Iterable[RevisionEvents]) -> None:
        """Append the next revisions. Known ones are ignored, so repeats do no harm."""
        added: list[RevisionEvents] = []
        for entry in entries:
            if entry.revision > self._position:
                self._position = entry.revision
                self._bytes += _size(entry)
                added.append(entry)
        if not added:
            return
        self._entries += added
        self._trim()
        end = self._base + len(self._entries)
        keys: list[str] = [event.key for entry in added for event in entry.events]
        first, last = (min(keys), max(keys)) if keys else ("", "")
        for watch in self._waiting:
            # Most watches are of other keys than all of these: check the bounds first.
            watch.offer(keys if watch.may_want(first, last) else (), added[-1].revision, end)

    def forget_upto(self, revision: Revision) -> None:
        """Drop entries at or below a revision: the store itself has been compacted there."""
        count = bisect_right(self._entries, revision, key=revision_of)
        self._drop(count)
        self._floor = max(self._floor, revision)

    def reset(self, position: Revision, error: StorageError) -> None:
        """Changes were missed: end the watches with `error` and start again at `position`."""
        self._base += len(self._entries)
        self._entries.clear()
        self._bytes = 0
        self._floor = self._position = position
        self.fail(error)

    def fail(self, error: StorageError) -> None:
        """End every watch with `error`."""
        for watch in list(self._watches):
            watch.fail(error)

    def close(self) -> None:
        """End every watch, and reject new ones."""
        self.block(_closed())

    def block(self, error: StorageError) -> None:
        """End every watch with `error`, and reject new ones with it until `unblock`."""
        self._refusal = error
        self.fail(error)

    def unblock(self) -> None:
        """Accept watches again."""
        self._refusal = None

    def _trim(self) -> None:
        if len(self._entries) <= self._entries_max and self._bytes <= self._bytes_max:
            return
        # Removing the head of a list moves the rest, so make room for several entries at once; but
        # not many, since freeing their memory blocks the event loop.
        entries_max = self._entries_max - self._entries_max // TRIMMED_PART
        bytes_max = self._bytes_max - self._bytes_max // TRIMMED_PART
        count, left, size = 0, len(self._entries), self._bytes
        while left > 1 and (left > entries_max or size > bytes_max):
            size -= _size(self._entries[count])
            count, left = count + 1, left - 1
        self._drop(count)

    def _drop(self, count: int) -> None:
        if count:
            self._floor = self._entries[count - 1].revision
            self._bytes -= sum(map(_size, self._entries[:count]))
            del self._entries[:count]
            self._base += count

    # Methods for the watches.

    def covers(self, after: Revision) -> bool:
        """Whether all changes after this revision are in memory."""
        return after >= self._floor

    def seek(self, after: Revision) -> int:
        """The cursor of the first entry after a revision that the feed covers."""
        return self._base + bisect_right(self._entries, after, key=revision_of)

    def read(self, cursor: int, span: Span) -> tuple[int, Revision, list[Event]]:
        """Events of the span from a cursor on: the next cursor, its revision, the events."""
        entries = self._entries
        index, end = cursor - self._base, len(entries)
        events: list[Event] = []
        while index < end and len(events) < BATCH_EVENTS_MAX:
            for event in entries[index].events:
                if event.key in span:
                    events.append(event)
            index += 1
        upto = entries[index - 1].revision if 0 < index < end else self._position
        return self._base + index, upto, events

    def has_cursor(self, cursor: int) -> bool:
        """Whether nothing at or after this cursor has been dropped from memory."""
        return cursor >= self._base

    def backlog(self, span: Span, after: Revision) -> Backlog:
        return self._open_backlog(span, after)

    def expected(self, revision: Revision) -> None:
        """Note that a watch expects a revision that may not have been appended yet."""
        if self._on_expect is not None and revision > self._position:
            self._on_expect(revision)

    def wait(self, watch: FeedWatch) -> None:
        self._waiting[watch] = None

    def wait_over(self, watch: FeedWatch) -> None:
        self._waiting.pop(watch, None)

    def forget(self, watch: FeedWatch) -> None:
        self._watches.pop(watch, None)
        self._waiting.pop(watch, None)


class FeedWatch:
    """A cursor into a feed: satisfies `interface.Watch`."""

    def __init__(self, feed: Feed, span: Span, *, after: Revision) -> None:
        self._feed = feed
        self._span = span
        self._after = after  # all events up to here have been yielded
        self._cursor: int | None = feed.seek(after) if feed.covers(after) else None
        self._expected: list[Revision] = []  # sorted; revisions for which a mark is due
        self._backlog: Backlog | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: StorageError | None = None

    def __aiter__(self) -> FeedWatch:
        return self

    async def __anext__(self) -> Batch:
        while True:
            if self._error is not None:
                raise self._error
            if self._cursor is not None and not self._feed.has_cursor(self._cursor):
                self._cursor = None
            if self._cursor is None:
                batch = await self._read_backlog()
                waits = False  # memory may hold more already
            else:
                batch = self._read_feed(self._cursor)
                waits = batch is None
            if batch is not None:
                return batch
            if waits:
                await self._wait()

    def expect(self, revision: Revision) -> None:
        if revision not in self._expected:
            insort(self._expected, revision)
        self._feed.expected(revision)
        if self._feed.position >= revision:
            self.wake()

    async def close(self) -> None:
        self.fail(StorageClosed("the watch has been closed"))
        await self._close_backlog()

    # Methods for the feed.

    def may_want(self, first: str, last: str) -> bool:
        """Whether the span may contain keys between these two, inclusive."""
        end = self._span.end
        return last >= self._span.start and (end is None or first < end)

    def offer(self, keys: Sequence[str], newest: Revision, end: int) -> None:
        """Wake this waiting watch if the changes concern it; otherwise advance its cursor."""
        if self._waiter is None or self._waiter.done():
            return
        if (self._expected and newest >= self._expected[0]) or any(
            map(self._span.__contains__, keys)
        ):
            self.wake()
        else:
            # Nothing before `end` matches; a compaction up to there must not end this watch.
            self._cursor = end
            self._after = max(self._after, newest)

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: StorageError) -> None:
        if self._error is None:
            self._error = error
        self._feed.forget(self)
        self.wake()

    # How the next batch is produced.

    def _read_feed(self, cursor: int) -> Batch | None:
        self._cursor, upto, events = self._feed.read(cursor, self._span)
        if upto <= self._after:
            # A watch from a future revision: skip what lies before it.
            upto, events = self._after, []
        elif events and events[0].revision <= self._after:
            events = [event for event in events if event.revision > self._after]
        return self._advance(upto, events)

    async def _read_backlog(self) -> Batch | None:
        if self._backlog is None:
            self._backlog = self._feed.backlog(self._span, self._after)
        try:
            chunk = await self._backlog.read()
        except StorageError as error:
            self.fail(error)
            await self._close_backlog()
            raise
        events = [
            event
            for entry in chunk.entries
            if self._after < entry.revision <= chunk.upto
            for event in entry.events
            if event.key in self._span
        ]
        upto = max(self._after, chunk.upto)
        if self._feed.covers(upto):
            await self._close_backlog()
        # No await from here on: if the caller is cancelled, the batch must not be lost.
        if self._error is None and self._feed.covers(upto):
            self._cursor = self._feed.seek(upto)
        return self._advance(upto, events)

    def _advance(self, upto: Revision, events: list[Event]) -> Batch | None:
        self._after = upto
        marked = bisect_right(self._expected, upto)
        del self._expected[:marked]
        if not events and not marked:
            return None
        return Batch(upto, tuple(events))

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        self._feed.wait(self)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._feed.wait_over(self)

    async def _close_backlog(self) -> None:
        if self._backlog is not None:
            backlog, self._backlog = self._backlog, None
            await backlog.close()


def _closed() -> StorageClosed:
    return StorageClosed("the store has been closed")


def revision_of(entry: RevisionEvents) -> Revision:
    return entry.revision


def _size(entry: RevisionEvents) -> int:
    size = 0
    for event in entry.events:
        size += len(event.value or b"") + 200
        if event.previous is not None:
            size += len(event.previous.value)
    return size
