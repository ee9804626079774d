"""Reads: one key, a range, a count, a part of the log, each at one revision.

They run on the event loop. A long one gives way after each slice of rows, with its snapshot
held on a connection of its own meanwhile; threads would only fight the loop for each row. How
much is a slice, or a part of the log, depends on the size of the values: see `work_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import apsw

from restow.runtime import Clock
from restow.storage.errors import Compacted, FutureRevision, StorageClosed, StoreDamaged
from restow.storage.feed import Chunk, Entry
from restow.storage.interface import Event, Item, Key, Page, Revision, Span
from restow.storage.sqlite import opening, schema
from restow.storage.sqlite.batch import read_compacted, read_revision, work_of, work_of_event

SLICE_WORK: Final = 1024 * 1024
LOG_WORK: Final = 2 * 1024 * 1024
LOG_REVISIONS_MAX: Final = 10_000
"""How far a part of the log reaches, even if nothing in it belongs to the span."""
READERS_MAX: Final = 16
IDLE_READERS_MAX: Final = 4

_NO_LIMIT = -1  # SQLite's word for it


class Readers:
    """Connections for snapshots that outlast a turn of the loop."""

    def __init__(self, path: Path, clock: Clock, *, vfs: str | None = None) -> None:
        self._path = path
        self._clock = clock
        self._vfs = vfs
        self._idle: list[apsw.Connection] = []
        self._places = asyncio.Semaphore(READERS_MAX)
        self._closed = False

    async def range(
        self, span: Span, *, limit: int, revision: Revision | None, with_total: bool
    ) -> Page:
        async with self._places:
            self._check_open()
            return await self._range(span, limit=limit, revision=revision, with_total=with_total)

    async def _range(
        self, span: Span, *, limit: int, revision: Revision | None, with_total: bool
    ) -> Page:
        with self._snapshot() as connection:
            at, now = readable(connection, revision)
            wanted = {"start": span.start, "end": span.end, "at": at}
            bounded = span.end is not None
            build = schema.range_now if at == now else schema.range_then
            rows: Any = connection.execute(
                build(bounded=bounded), {**wanted, "limit": limit + 1 if limit else _NO_LIMIT}
            )
            items: list[Item] = []
            work = 0
            for row in rows:
                items.append(Item(*row))
                work += work_of(row[1])
                if work > SLICE_WORK:
                    work = 0
                    await self._clock.sleep(0)
                    self._check_open()
            more = bool(limit) and len(items) > limit
            if more:
                items.pop()
            total = len(items) if with_total else None
            if with_total and more:
                total = read_count(connection, span, at=at, now=now)
            return Page(items, at, more, total)

    async def count(self, span: Span, *, revision: Revision | None) -> int:
        with self._snapshot() as connection:
            at, now = readable(connection, revision)
            return read_count(connection, span, at=at, now=now)

    async def get_then(self, key: Key, *, revision: Revision) -> Item | None:
        """The key as it was at a revision."""
        page = await self.range(Span.of_key(key), limit=0, revision=revision, with_total=False)
        return page.items[0] if page.items else None

    async def read_backlog(self, span: Span, after: Revision) -> Chunk:
        """The same, for one who reads part after part."""
        await self._clock.sleep(0)
        self._check_open()
        return self.read_log(span, after)

    def read_log(self, span: Span, after: Revision) -> Chunk:
        """The next part of the log after a revision."""
        with self._snapshot() as connection:
            compacted = read_compacted(connection)
            if after < compacted:
                raise Compacted(compacted)
            return read_changes(connection, span, after)

    async def close(self) -> None:
        """End the reads that are under way: no snapshot may outlast the handle's `Pulse`."""
        self._closed = True
        for _ in range(READERS_MAX):
            await self._places.acquire()
        while self._idle:
            opening.disconnect(self._idle.pop())

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
                opening.disconnect(connection)


def connect_reader(path: Path, *, vfs: str | None) -> apsw.Connection:
    """A connection for the event loop, which must not wait inside SQLite."""
    connection = opening.connect(path, cache_kib=opening.READER_CACHE_KIB, vfs=vfs)
    connection.set_busy_timeout(opening.BUSY_ON_LOOP_MILLISECONDS)
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


def read_count(connection: apsw.Connection, span: Span, *, at: Revision, now: Revision) -> int:
    build = schema.count_now if at == now else schema.count_then
    wanted = {"start": span.start, "end": span.end, "at": at}
    row: Any = connection.execute(build(bounded=span.end is not None), wanted).fetchone()
    return int(row[0])


def read_changes(connection: apsw.Connection, span: Span, after: Revision) -> Chunk:
    """All of the span's changes up to some revision, and which one that is."""
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
        Entry(revision, tuple(group))
        for revision, group in groupby(events, key=lambda event: event.revision)
    ]
    return Chunk(entries, upto)


def _event(row: tuple[Any, ...]) -> Event:
    place, key, deleted, created, replaced, value, old_value = row
    revision = Revision(place >> schema.SUB_BITS)
    if (value is None) != bool(deleted) or (old_value is None) != (replaced is None):
        raise StoreDamaged(f"a version of {key} is missing at revision {revision}")
    if replaced is None:
        return Event(key, value, revision, created, None)
    old = Item(key, old_value, Revision(replaced >> schema.SUB_BITS), created)
    return Event(key, value, revision, created, old)
