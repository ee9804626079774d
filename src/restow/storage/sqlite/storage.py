"""The SQLite driver, assembled: `SqliteStorage` satisfies `interface.Storage`.

One connection serves point reads and the current revision; `reader` does longer reads, `writer` all
writes. A task appends the commits of other processes to the feed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from restow.aio import Runtime, TaskHandle
from restow.storage.checks import check_key, check_span, check_transaction
from restow.storage.errors import (
    Compacted,
    FutureRevision,
    StorageClosed,
    StorageError,
    StoreDamaged,
    StoreReplaced,
)
from restow.storage.feed import Chunk, Feed
from restow.storage.identity import IDENTITY_KEY, FileLocation, Seen, decode_record
from restow.storage.interface import (
    EVERYTHING,
    Item,
    Key,
    Outcome,
    RangePage,
    Revision,
    Span,
    Transaction,
    Watch,
)
from restow.storage.sqlite import file_setup, schema
from restow.storage.sqlite.batch import (
    Applied,
    read_compacted,
    read_item,
    read_revision,
)
from restow.storage.sqlite.change_counter import HEADER_BYTES, ChangeCounter
from restow.storage.sqlite.commit_notifications import CommitNotifications
from restow.storage.sqlite.errors import FOREIGN, translate
from restow.storage.sqlite.file_identity import FileIdentity
from restow.storage.sqlite.locks import FileLock, WriteLock
from restow.storage.sqlite.reader import SqliteReaders, connect_reader
from restow.storage.sqlite.writer import SqliteWriter

T = TypeVar("T")

POLL_SECONDS: Final = 0.04
"""Polling interval for commits of other processes whose notification was lost."""

FORGET_ROWS_PER_JOB: Final = 500
VACUUM_PAGES_PER_JOB: Final = 200


async def open_sqlite(
    path: Path | str, runtime: Runtime, *, vfs: str | None = None
) -> SqliteStorage:
    """Open the store in this file, or create it. Raises `OpenRefused` with the reason.

    `vfs` names an SQLite file layer other than the default one; fault tests use it.
    """
    # Symbolic links are resolved once: SQLite follows them too, so its log and the peers'
    # directory must be those of the file itself, whatever name was used to open it.
    file = Path(await asyncio.to_thread(os.path.realpath, path))
    try:
        users = await asyncio.to_thread(file_setup.prepare, file, vfs=vfs)
    except (*FOREIGN, OSError) as error:
        raise translate(error) from error
    try:
        return SqliteStorage(file, runtime, users=users, vfs=vfs)
    except (*FOREIGN, OSError) as error:
        users.close()
        raise translate(error) from error


class SqliteStorage:
    """One process's handle on the file. Use `open_sqlite`."""

    def __init__(self, path: Path, runtime: Runtime, *, users: FileLock, vfs: str | None) -> None:
        directory = file_setup.peers_directory(path)
        self._clock = runtime.clock
        self._path, self._vfs = path, vfs
        self._file_revision = Revision(0)
        """The newest revision that was seen in the file without its log."""
        self._users = users
        with ExitStack() as undo:
            self._lock = WriteLock(directory)
            undo.callback(self._lock.close)
            self._notices = CommitNotifications(directory, runtime.ids.nonce(8))
            undo.callback(self._notices.close)
            self._connection = connect_reader(path, vfs=vfs)
            undo.callback(file_setup.disconnect, self._connection)
            self._revision = read_revision(self._connection)
            self._newest = self._revision
            self._change_counter = ChangeCounter(path)
            undo.callback(self._change_counter.close)
            self._file = FileIdentity(path)
            undo.callback(self._file.close)
            self._tasks = runtime.tasks("sqlite-storage")
            self._writer = SqliteWriter(
                path,
                lock=self._lock,
                tasks=self._tasks,
                in_thread_after_commit=self._notices.send,
                on_commit=self._committed,
                file=self._file,
                in_thread_when_replaced=self._note_replaced,
                on_replaced=self._block_first,
                vfs=vfs,
            )
            undo.pop_all()  # all is open: `close` is responsible from here on
        self._readers = SqliteReaders(path, runtime.clock, vfs=vfs)
        self._seen = b""
        self._closed = False
        self._refusal: StorageError | None = None
        """Why calls are rejected: the store was closed, or the file was replaced."""
        self._closers = runtime.tasks("sqlite-close")
        self._closing: TaskHandle | None = None
        self._feed = Feed(
            position=self._current_revision(),
            open_backlog=partial(_SqliteBacklog, self._readers),
            on_expect=lambda _revision: self._news.set(),
        )
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._notices.fileno(), self._noticed)
        self._tasks.spawn_loop("follow", self._follow())

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        check_key(key)
        self._check_open()
        if revision is not None:
            return await self._patiently(partial(self._readers.get_then, key, revision=revision))
        return await self._patiently(partial(self._get_now, key))

    async def _get_now(self, key: Key) -> Item | None:
        return read_item(self._connection.execute, key)

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> RangePage:
        self._check_open()
        check_span(span)
        return await self._patiently(
            partial(
                self._readers.range, span, limit=limit, revision=revision, with_total=with_total
            )
        )

    async def count(self, span: Span, *, revision: Revision | None = None) -> int:
        self._check_open()
        check_span(span)
        return await self._patiently(partial(self._readers.count, span, revision=revision))

    async def revision(self) -> Revision:
        self._check_open()
        return await self._patiently(self._revision_async)

    async def _revision_async(self) -> Revision:
        return self._current_revision()

    def revision_now(self) -> Revision | None:
        # Called for every read.
        if self._refusal is not None:
            self._check_open()
        if self._change_counter.memory[:HEADER_BYTES] == self._seen:
            return self._revision
        try:
            return self._current_revision()
        except apsw.BusyError:
            return None
        except FOREIGN as error:
            raise self._translated(error) from error

    async def commit(self, transaction: Transaction) -> Outcome:
        check_transaction(transaction)
        if self._refusal is not None:
            self._check_open()
        return await self._writer.submit(transaction)

    def watch(self, span: Span, *, after: Revision) -> Watch:
        if self._closed:
            self._check_open()
        check_span(span)
        return self._feed.watch(span, after=after)

    async def compact(self, revision: Revision) -> None:
        self._check_open()
        await self._writer.run(partial(_note_compaction, revision))
        self._feed.forget_upto(revision)
        # In small steps, so that no write waits for long.
        while await self._writer.run(partial(_forget, revision)):
            pass
        while await self._writer.run(_return_pages):
            pass

    async def close(self) -> None:
        """Close the store. A cancelled call leaves the close running, and may be repeated."""
        if not self._closed:
            self._closed = True
            self._refusal = StorageClosed("the store has been closed")
            self._closing = self._closers.spawn("close", self._close())
        if self._closing is not None:
            await self._closing.wait()
        await self._closers.close()

    async def _close(self) -> None:
        self._feed.close()
        try:
            await self._tasks.close()
        finally:
            await self._release()

    async def _release(self) -> None:
        await self._writer.close()
        self._loop.remove_reader(self._notices.fileno())
        self._notices.close()
        await self._readers.close()
        # The last process that closes the file makes a checkpoint, which waits for the disk.
        await asyncio.to_thread(file_setup.disconnect, self._connection)
        self._change_counter.close()
        self._file.close()
        self._lock.close()
        self._users.close()

    def _check_open(self) -> None:
        refusal = self._refusal
        if refusal is not None:
            raise type(refusal)(str(refusal))  # a new one: each keeps the traceback of its caller

    # Whether it is still the file that was opened (`identity.IdentifiedStorage`).

    @property
    def newest(self) -> Revision:
        self._newest = max(self._newest, self._revision, self._writer.newest)
        return self._newest

    @property
    def blocked(self) -> StoreReplaced | None:
        return self._refusal if isinstance(self._refusal, StoreReplaced) else None

    @property
    def places(self) -> tuple[FileLocation, FileLocation | None]:
        return self._file.file, self._file.log

    async def look(self) -> Seen:
        if self._closed:
            self._check_open()
        try:
            self._file.check()
            await asyncio.to_thread(self._check_overwritten)
        except StoreReplaced as error:
            self.block(error)
            raise
        return await self._patiently(partial(asyncio.to_thread, self._look))

    def _check_overwritten(self) -> None:
        """The revision of the file without its log grows by checkpoints only; raises
        `StoreReplaced` if it decreased, since pages of another state are in the file."""
        known = self._file_revision  # read first: another check may run in between
        found = file_setup.read_file_revision(self._path, vfs=self._vfs)
        if found is None:
            return
        if found < known:
            raise StoreReplaced(
                f"{self._path} was overwritten by an older copy while it was in use: without its"
                f" write-ahead log it is at revision {found:,}, and was at {known:,}. Stop all"
                " servers of this store, move it and its -wal away, and restore a backup with"
                " `restow restore`"
            )
        self._file_revision = max(found, self._file_revision)

    def _translated(self, error: Exception) -> StorageError:
        """The storage error. A damaged file is neither read nor written from here on."""
        found = translate(error)
        if isinstance(found, StoreDamaged) and self._refusal is None:
            self.block(
                StoreReplaced(
                    f"{self._path} was damaged or overwritten while it was in use ({error}). Stop"
                    " all servers of this store, move it and its -wal away, and restore a backup"
                    " with `restow restore`"
                )
            )
        return found

    def _look(self) -> Seen:
        """Read the identity with a new connection: cached pages of an open one hide that the file
        was overwritten after a checkpoint."""
        connection = connect_reader(self._path, vfs=self._vfs)
        try:
            item = read_item(connection.execute, IDENTITY_KEY)
            record = decode_record(None if item is None else item.value)
            return Seen(record, read_revision(connection), cluster_id="")
        finally:
            file_setup.disconnect(connection)

    def block(self, problem: StoreReplaced) -> None:
        if not self._closed:
            self._refusal = problem
            self._feed.block(problem)

    def _block_first(self, problem: StoreReplaced) -> None:
        """Block, unless it is blocked already with a more specific reason."""
        if self._refusal is None:
            self.block(problem)

    def unblock(self, seen: Seen) -> None:
        if self._closed:
            return
        self._refusal = None
        self._feed.unblock()
        if seen.revision < self.newest:
            self._newest = seen.revision
            self._writer.accept(seen.revision)
            self._feed.reset(seen.revision, Compacted(seen.revision))

    def _note_replaced(self) -> None:
        """Block before the callers of the batch get a reply. Runs in the writer's thread."""
        try:
            self._file.check()
        except StoreReplaced as error:
            self._loop.call_soon_threadsafe(self.block, error)

    async def _patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read, with retries while another process locks the whole file, as after a crash."""
        deadline = self._clock.monotonic() + file_setup.BUSY_MILLISECONDS / 1000
        while True:
            try:
                return await read()
            except apsw.BusyError as error:
                if self._clock.monotonic() > deadline:
                    raise translate(error) from error
            except FOREIGN as error:
                raise self._translated(error) from error
            await self._clock.sleep(POLL_SECONDS)

    def _current_revision(self) -> Revision:
        seen = self._change_counter.read()
        if seen != self._seen:
            # Read after the header: a commit in between only causes one more check.
            self._revision = read_revision(self._connection)
            self._seen = seen
        return self._revision

    # How changes reach the feed.

    def _committed(self, applied: Applied) -> None:
        if self._feed.position == applied.before:
            self._feed.append(applied.entries)
        else:
            self._news.set()  # others have committed in between: read all from the file

    def _noticed(self) -> None:
        self._notices.drain()
        self._news.set()

    async def _follow(self) -> None:
        """Append the commits of other processes to the feed, until cancelled."""
        while True:
            timer = self._clock.call_later(POLL_SECONDS, self._news.set)
            await self._news.wait()
            timer.cancel()
            self._news.clear()
            try:
                while self._feed.position < self._current_revision():
                    chunk = self._readers.read_log(EVERYTHING, self._feed.position)
                    self._feed.append(chunk.entries)
                    await self._clock.sleep(0)
            except Compacted as error:
                # The state at the compacted revision can be read, and all changes after it.
                self._feed.reset(error.compacted, error)
            except (StorageError, *FOREIGN) as error:
                await self._note_trouble(self._translated(error))

    async def _note_trouble(self, error: StorageError) -> None:
        if isinstance(error, StoreDamaged):
            self._feed.fail(error)
        await self._clock.sleep(POLL_SECONDS)


class _SqliteBacklog:
    """Satisfies `feed.Backlog`: the changes of a span from the file's log."""

    def __init__(self, readers: SqliteReaders, span: Span, after: Revision) -> None:
        self._readers = readers
        self._span = span
        self._after = after

    async def read(self) -> Chunk:
        try:
            chunk = await self._readers.read_backlog(self._span, self._after)
        except FOREIGN as error:
            raise translate(error) from error
        self._after = chunk.upto
        return chunk

    async def close(self) -> None:
        pass


def _note_compaction(revision: Revision, connection: apsw.Connection) -> None:
    compacted, current = read_compacted(connection), read_revision(connection)
    if revision <= compacted:
        raise Compacted(compacted)
    if revision > current:
        raise FutureRevision(revision, current)
    connection.execute(schema.SET_COMPACTED, (revision,))


def _forget(revision: Revision, connection: apsw.Connection) -> bool:
    """Delete some changes up to a revision, and the values they replaced; whether more are left."""
    upto = (revision + 1) << schema.SUB_BITS
    rows: Any = connection.execute(schema.CHANGES_UPTO, (upto, FORGET_ROWS_PER_JOB)).fetchall()
    if not rows:
        return False
    replaced = [(old,) for _place, old in rows if old is not None]
    connection.executemany(schema.REMOVE_VERSION, replaced)
    connection.execute(schema.REMOVE_CHANGES, (rows[-1][0],))
    return True


def _return_pages(connection: apsw.Connection) -> bool:
    """Return some unused pages to the file system; whether more may be left."""
    row: Any = connection.execute("PRAGMA freelist_count").fetchone()
    if row[0] <= VACUUM_PAGES_PER_JOB:
        return False
    connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES_PER_JOB})").fetchall()
    return True
