"""Reads: one key, a range, a count, a part of the log, each at one revision.

They run on the event loop. A long one yields after each slice of rows, and keeps its snapshot on a
connection of its own meanwhile; threads would only compete with the loop for each row. The size of
a slice, or of a part of the log, depends on the size of the values: see `work_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

import apsw

from restow.aio import Clock
from restow.storage.errors import Compacted, FutureRevision, StorageClosed, StoreDamaged
from restow.storage.feed import Chunk, RevisionEvents
from restow.storage.interface import Event, Item, Key, RangePage, Revision, Span
from restow.storage.sqlite import file_setup, schema
from restow.storage.sqlite.batch import (
    item_of,
    read_compacted,
    read_revision,
    work_of,
    work_of_event,
)

SLICE_WORK: Final = 1024 * 1024
LOG_WORK: Final = 2 * 1024 * 1024
LOG_REVISIONS_MAX: Final = 10_000
"""Maximum of revisions in a part of the log, even if none of them belongs to the span."""
CHANGES_PER_SLICE: Final = 2_000
KEYS_PER_SLICE: Final = 5_000
READERS_MAX: Final = 16
IDLE_READERS_MAX: Final = 4

_Replaced = tuple[Key, int, Revision]  # a key, the place of what it held, its creation
_NO_LIMIT = -1  # as in SQLite


class SqliteReaders:
    """Connections for snapshots that last longer than one iteration of the event loop."""

    def __init__(self, path: Path, clock: Clock, *, vfs: str | None = None) -> None:
        self._path = path
        self._clock = clock
        self._vfs = vfs
        self._idle: list[apsw.Connection] = []
        self._places = asyncio.Semaphore(READERS_MAX)
        self._closed = False

    async def range(
        self, span: Span, *, limit: int, revision: Revision | None, with_total: bool
    ) -> RangePage:
        async with self._places:
            self._check_open()
            return await self._range(span, limit=limit, revision=revision, with_total=with_total)

    async def _range(
        self, span: Span, *, limit: int, revision: Revision | None, with_total: bool
    ) -> RangePage:
        with self._snapshot() as connection:
            at, now = readable(connection, revision)
            if at == now:
                rows = _rows_now(connection, span, limit=limit)
            else:
                replaced = await self._replaced(connection, span, at=at, now=now)
                rows = _rows_then(connection, span, at=at, replaced=replaced)
            items: list[Item] = []
            work = 0
            for item in rows:
                work += work_of(None if item is None else item.value)
                if work > SLICE_WORK:
                    work = 0
                    await self._yield_to_loop()
                if item is not None:
                    items.append(item)
                    if limit and len(items) > limit:
                        break
            more = bool(limit) and len(items) > limit
            if more:
                items.pop()
            total = len(items) if with_total else None
            if with_total and more:
                total = await self._count(connection, span, at=at, now=now)
            return RangePage(items, at, more, total)

    async def _replaced(
        self, connection: apsw.Connection, span: Span, *, at: Revision, now: Revision
    ) -> list[_Replaced]:
        """Values that existed at a revision and were replaced or deleted since, in order of key."""
        found: list[_Replaced] = []
        then, end = (at + 1) << schema.SUB_BITS, (now + 1) << schema.SUB_BITS
        step = CHANGES_PER_SLICE << schema.SUB_BITS
        query = schema.replaced_between(bounded=span.end is not None)
        for first in range(then, end, step):
            wanted = {**_bounds(span), "then": then, "first": first, "behind": first + step}
            found += cast("list[_Replaced]", connection.execute(query, wanted).fetchall())
            await self._yield_to_loop()
        found.sort()
        return found

    async def count(self, span: Span, *, revision: Revision | None) -> int:
        async with self._places:
            self._check_open()
            with self._snapshot() as connection:
                at, now = readable(connection, revision)
                return await self._count(connection, span, at=at, now=now)

    async def _count(
        self, connection: apsw.Connection, span: Span, *, at: Revision, now: Revision
    ) -> int:
        counted = 0
        if at != now:
            counted = len(await self._replaced(connection, span, at=at, now=now))
        query = schema.count_slice(bounded=span.end is not None)
        then = (at + 1) << schema.SUB_BITS
        while True:
            wanted = {**_bounds(span), "then": then, "limit": KEYS_PER_SLICE}
            row: Any = connection.execute(query, wanted).fetchone()
            keys, older, last = row
            counted += int(older)
            if keys < KEYS_PER_SLICE:
                return counted
            span = span.starting_at(last + "\0")
            await self._yield_to_loop()

    async def _yield_to_loop(self) -> None:
        """Yield to the event loop, and raise if the store was closed meanwhile."""
        await self._clock.sleep(0)
        self._check_open()

    async def get_then(self, key: Key, *, revision: Revision) -> Item | None:
        """The key as it was at a revision."""
        page = await self.range(Span.of_key(key), limit=0, revision=revision, with_total=False)
        return page.items[0] if page.items else None

    async def read_backlog(self, span: Span, after: Revision) -> Chunk:
        """Like `read_log`, for a caller that reads one part after the other."""
        await self._yield_to_loop()
        return self.read_log(span, after)

    def read_log(self, span: Span, after: Revision) -> Chunk:
        """The next part of the log after a revision."""
        with self._snapshot() as connection:
            compacted = read_compacted(connection)
            if after < compacted:
                raise Compacted(compacted)
            return read_changes(connection, span, after)

    async def close(self) -> None:
        """End the running reads: no snapshot may outlive the handle's `ChangeCounter`."""
        self._closed = True
        for _ in range(READERS_MAX):
            await self._places.acquire()
        while self._idle:
            file_setup.disconnect(self._idle.pop())

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed("the store has been closed")

    @contextmanager
    def _snapshot(self) -> Iterator[apsw.Connection]:
        connection = self._idle.pop() if self._idle else connect_reader(self._path, vfs=self._vfs)
        sound = False
        try:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
            sound = True
        except (Compacted, FutureRevision):
            connection.execute("ROLLBACK")
            sound = True
            raise
        finally:
            if sound and not self._closed and len(self._idle) < IDLE_READERS_MAX:
                self._idle.append(connection)
            else:
                file_setup.disconnect(connection)


def connect_reader(path: Path, *, vfs: str | None) -> apsw.Connection:
    """A connection for the event loop, which must not wait inside SQLite."""
    connection = file_setup.connect(path, cache_kib=file_setup.READER_CACHE_KIB, vfs=vfs)
    connection.set_busy_timeout(file_setup.BUSY_ON_LOOP_MILLISECONDS)
    return connection


def readable(connection: apsw.Connection, revision: Revision | None) -> tuple[Revision, Revision]:
    """The revision to read at, and the current one; raises when it cannot be read."""
    now = read_revision(connection)
    if revision is None:
        return now, now
    if revision > now:
        raise FutureRevision(revision, now)
    compacted = read_compacted(connection)
    if revision < compacted:
        raise Compacted(compacted)
    return revision, now


def _rows_now(connection: apsw.Connection, span: Span, *, limit: int) -> Iterator[Item | None]:
    wanted = {**_bounds(span), "limit": limit + 1 if limit else _NO_LIMIT}
    rows: Any = connection.execute(schema.range_now(bounded=span.end is not None), wanted)
    return map(item_of, rows)


def _rows_then(
    connection: apsw.Connection, span: Span, *, at: Revision, replaced: list[_Replaced]
) -> Iterator[Item | None]:
    """The rows at a past revision: unchanged keys, and the replaced values of changed ones.

    None stands for a key that is skipped, which takes time as well.
    """
    olds = iter(replaced)
    old = next(olds, None)
    wanted = {**_bounds(span), "then": (at + 1) << schema.SUB_BITS}
    rows: Any = connection.execute(schema.range_then(bounded=span.end is not None), wanted)
    for key, value, revision, created in rows:
        while old is not None and old[0] <= key:
            yield _version(connection, *old)
            old = next(olds, None)
        yield None if value is None else Item(key, value, revision, created)
    while old is not None:
        yield _version(connection, *old)
        old = next(olds, None)


def read_changes(connection: apsw.Connection, span: Span, after: Revision) -> Chunk:
    """All of the span's changes up to some revision, and that revision."""
    now = read_revision(connection)
    if after >= now:
        return Chunk([], after)
    upto = Revision(min(now, after + LOG_REVISIONS_MAX))
    wanted = {
        "start": span.start,
        "end": span.end,
        "first": (after + 1) << schema.SUB_BITS,
        "behind": (upto + 1) << schema.SUB_BITS,
    }
    rows: Any = connection.execute(schema.changes_between(bounded=span.end is not None), wanted)
    events: list[Event] = []
    work = 0
    for row in rows:
        event = _event(row)
        if work > LOG_WORK and event.revision != events[-1].revision:
            upto = events[-1].revision
            rows.close(True)
            break
        events.append(event)
        work += work_of_event(event)
    entries = [
        RevisionEvents(revision, tuple(group))
        for revision, group in groupby(events, key=lambda event: event.revision)
    ]
    return Chunk(entries, upto)


def _bounds(span: Span) -> dict[str, Any]:
    return {"start": span.start, "end": span.end}


def _version(connection: apsw.Connection, key: Key, place: int, created: Revision) -> Item:
    """The item of a key at a place in the history."""
    row: Any = connection.execute(schema.GET_VERSION, (place,)).fetchone()
    revision = Revision(place >> schema.SUB_BITS)
    if row is None:
        raise StoreDamaged(f"the version of {key} at revision {revision} is missing")
    return Item(key, row[0], revision, created)


def _event(row: tuple[Any, ...]) -> Event:
    place, key, deleted, created, replaced, value, old_value = row
    revision = Revision(place >> schema.SUB_BITS)
    if (value is None) != bool(deleted) or (old_value is None) != (replaced is None):
        raise StoreDamaged(f"a version of {key} is missing at revision {revision}")
    if replaced is None:
        return Event(key, value, revision, created, None)
    old = Item(key, old_value, Revision(replaced >> schema.SUB_BITS), created)
    return Event(key, value, revision, created, old)
