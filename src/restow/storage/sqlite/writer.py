"""Group commit: waiting transactions go together into one SQLite transaction.

The statements run on the event loop, where they cost microseconds and no switch between threads.
Slow steps run in a thread of the writer's own: the sync to disk, and waiting for the write lock of
another process. So the loop never waits for a disk or a lock.

A failed commit is settled before any caller gets a reply: see `_settle`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import apsw

from restow.aio import Tasks
from restow.storage.errors import StorageClosed, StorageError, StoreReplaced, Unavailable
from restow.storage.interface import Outcome, Revision, Transaction, Unknown
from restow.storage.sqlite import file_setup, schema
from restow.storage.sqlite.batch import Applied, apply, read_revision
from restow.storage.sqlite.checkpoints import Checkpointer
from restow.storage.sqlite.errors import is_settled, translate
from restow.storage.sqlite.file_identity import FileIdentity
from restow.storage.sqlite.locks import WriteLock

T = TypeVar("T")

WAITING_MAX: Final = 4096
BATCH_TRANSACTIONS_MAX: Final = 64
BACKGROUND_MAX: Final = 16
"""Maximum of low-priority transactions in a batch: a later one waits for the whole batch, and
for its effects on the loop. Some are always executed, however many others there are."""
BATCH_WORK_MAX: Final = 2 * 1024 * 1024
"""Maximum work of one batch, which blocks the event loop; in units of `batch.work_of`."""
CHECKPOINT_PAGES: Final = 4000

logger = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    transaction: Transaction
    answer: asyncio.Future[Outcome]


class _Job(NamedTuple):
    work: Callable[[], Any]
    answer: asyncio.Future[Any]


class SqliteWriter:
    """The only writer to the file in this process."""

    def __init__(
        self,
        path: Path,
        *,
        lock: WriteLock,
        tasks: Tasks,
        in_thread_after_commit: Callable[[], None],
        on_commit: Callable[[Applied], None],
        file: FileIdentity,
        in_thread_when_replaced: Callable[[], None],
        on_replaced: Callable[[StoreReplaced], None],
        vfs: str | None = None,
    ) -> None:
        self._path = path
        self._vfs = vfs
        self._lock = lock
        self._in_thread_after_commit = in_thread_after_commit
        self._on_commit = on_commit
        self._file = file
        self._in_thread_when_replaced = in_thread_when_replaced
        self._on_replaced = on_replaced
        self.newest = Revision(0)
        """The newest revision that this process has committed."""
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="restow-sqlite-writer")
        self._waiting: deque[_Waiting] = deque()
        self._background: deque[_Waiting] = deque()
        """Low-priority transactions: they are added to a batch after the others."""
        self._jobs: deque[_Job] = deque()
        self._job_was_last = False
        self._busy = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._log_pages = 0
        self._connection: apsw.Connection | None = self._connect()
        self._checkpointer = Checkpointer(
            path, finish=self.run_locked, tasks=tasks, check_file=file.check, vfs=vfs
        )

    def submit(self, transaction: Transaction) -> asyncio.Future[Outcome]:
        """Put a transaction into the next batch."""
        self._check_open()
        lane = self._background if transaction.in_background else self._waiting
        if len(lane) >= WAITING_MAX:
            raise Unavailable(f"{WAITING_MAX} transactions are waiting for the disk already")
        answer: asyncio.Future[Outcome] = self._loop.create_future()
        lane.append(_Waiting(transaction, answer))
        self._begin()
        return answer

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do other work on the tables, in the thread and in an SQLite transaction of its own."""
        return await self.run_locked(partial(self._in_transaction, work))

    async def run_locked(self, work: Callable[[], T]) -> T:
        """Do other work in the thread, while no process writes."""
        self._check_open()
        answer: asyncio.Future[T] = self._loop.create_future()
        self._jobs.append(_Job(work, answer))
        self._begin()
        return await answer

    async def close(self) -> None:
        """Finish pending transactions, then release the file."""
        self._closed = True
        await self._idle.wait()
        await self._loop.run_in_executor(self._thread, self._checkpointer.close)
        await self._loop.run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=True)

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed("the store has been closed")

    # On the loop: take pending transactions, and pass the slow part to the thread.

    def _begin(self) -> None:
        if not self._busy:
            self._busy = True
            self._idle.clear()
            # What this iteration of the event loop and the next one submit shares the sync: a write
            # that waited for the cache is resumed one iteration later than one that did not wait.
            self._loop.call_soon(self._loop.call_soon, self._next)

    def _next(self) -> None:
        if self._log_pages > CHECKPOINT_PAGES:
            self._log_pages = 0
            self._checkpointer.start()
        is_waiting = bool(self._waiting or self._background)
        if self._jobs and not (is_waiting and self._job_was_last):
            self._job_was_last = True
            job = self._jobs.popleft()
            self._hand_over(partial(self._do_job, job.work), partial(self._job_done, job))
        elif is_waiting:
            self._job_was_last = False  # jobs and batches alternate
            self._next_batch(self._take())
        else:
            self._busy = False
            self._idle.set()

    def _take(self) -> list[_Waiting]:
        taken: list[_Waiting] = []
        _move(self._waiting, taken, count_max=BATCH_TRANSACTIONS_MAX)
        _move(self._background, taken, count_max=len(taken) + BACKGROUND_MAX)
        return taken

    def _put_back(self, batch: list[_Waiting], applied: Applied) -> None:
        """Put the transactions back that were not begun because the work limit was reached."""
        for waiting in reversed(batch[len(applied.outcomes) :]):
            lane = self._background if waiting.transaction.in_background else self._waiting
            lane.appendleft(waiting)
        del batch[len(applied.outcomes) :]

    def _next_batch(self, batch: list[_Waiting]) -> None:
        transactions = [waiting.transaction for waiting in batch]
        done = partial(self._batch_done, batch)
        connection = self._connection
        try:
            mine = connection is not None and self._lock.try_acquire()
        except OSError as error:
            self._hand_over(partial(_raise, translate(error)), done)
            return
        if connection is None or not mine:
            self._hand_over(partial(self._whole_batch, transactions), done)
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            # Another process writes without our lock, perhaps a tool: wait in the thread.
            self._lock.release()
            self._hand_over(partial(self._whole_batch, transactions), done)
            return
        except apsw.Error as error:
            self._hand_over(partial(self._abandon, error), done)
            return
        try:
            applied = self._apply(connection, transactions)
        except Exception as error:  # noqa: BLE001 - whatever it is, the batch is answered with it
            self._hand_over(partial(self._abandon, error), done)
            return
        self._put_back(batch, applied)
        self._hand_over(partial(self._commit, connection, applied), done)

    def _apply(self, connection: apsw.Connection, transactions: list[Transaction]) -> Applied:
        try:
            applied = apply(connection, transactions, work_max=BATCH_WORK_MAX)
        except apsw.ConstraintError:  # as when it holds changes of later revisions
            self._check_forward(read_revision(connection))
            raise
        self._check_forward(applied.before)
        return applied

    def accept(self, revision: Revision) -> None:
        """Continue from an accepted file at an older revision."""
        self.newest = revision

    def _check_forward(self, revision: Revision) -> None:
        """Raises `StoreReplaced` for a file that is older than what was acknowledged."""
        if revision < self.newest:
            raise StoreReplaced(
                f"{self._path} is at revision {revision:,}, and revision {self.newest:,} was"
                " acknowledged: it was replaced by an older copy. Stop all servers of this store"
                " and restore a backup with `restow restore`"
            )

    def _hand_over(self, work: Callable[[], T], done: Callable[[ThreadFuture[T]], None]) -> None:
        future = self._thread.submit(work)
        future.add_done_callback(
            lambda future: self._loop.call_soon_threadsafe(self._done, done, future)
        )

    def _done(self, done: Callable[[ThreadFuture[T]], None], future: ThreadFuture[T]) -> None:
        try:
            done(future)
        finally:
            self._next()  # whatever failed in this one, the others must not wait for ever

    def _batch_done(
        self, batch: list[_Waiting], future: ThreadFuture[tuple[Applied | None, Unknown | None]]
    ) -> None:
        error = future.exception()
        if isinstance(error, StoreReplaced):
            self._on_replaced(error)
        if error is not None:
            for waiting in batch:
                if not waiting.answer.done():
                    waiting.answer.set_exception(translate(_as_exception(error)))
            return
        applied, unknown = future.result()
        if applied is not None:
            self._put_back(batch, applied)
        try:
            if applied is not None and applied.entries:
                self.newest = applied.after
                self._on_commit(applied)
        finally:  # the outcome is known, even if a listener fails
            _answer(batch, applied, unknown)

    def _job_done(self, job: _Job, future: ThreadFuture[Any]) -> None:
        if job.answer.done():
            return
        error = future.exception()
        if error is None:
            job.answer.set_result(future.result())
        else:
            job.answer.set_exception(translate(_as_exception(error)))

    # In the thread, under the write lock.

    def _whole_batch(
        self, transactions: list[Transaction]
    ) -> tuple[Applied | None, Unknown | None]:
        self._lock.acquire()
        try:
            connection = self._connection = self._connection or self._connect()
            connection.set_busy_timeout(file_setup.BUSY_MILLISECONDS)
            connection.execute("BEGIN IMMEDIATE")
            applied = self._apply(connection, transactions)
        except Exception as error:  # noqa: BLE001 - as above
            return self._abandon(error)
        finally:
            if self._connection is not None:
                self._connection.set_busy_timeout(0)
        return self._commit(connection, applied)

    def _commit(
        self, connection: apsw.Connection, applied: Applied
    ) -> tuple[Applied | None, Unknown | None]:
        try:
            if not applied.entries:
                connection.execute("ROLLBACK")
                return applied, None
            if not self._file.has_whole_log():
                connection.execute("ROLLBACK")
                self._in_thread_when_replaced()
                raise StoreReplaced(f"the log of {self._path} was truncated or replaced")
            try:
                connection.execute("COMMIT")
            except apsw.Error as error:
                return None, self._settle(error, applied)
        finally:
            self._lock.release()
        if not self._file.is_in_place():  # in a few µs, for a whole batch
            self._in_thread_when_replaced()
            return None, Unknown(f"{self._path} was replaced, moved or linked while it was written")
        self._in_thread_after_commit()
        return applied, None

    def _abandon(self, error: Exception) -> tuple[Applied | None, Unknown | None]:
        """Nothing was committed: roll back, and drop a handle that had an I/O error."""
        try:
            connection = self._connection
            if connection is not None and connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error as second:
            logger.warning("rollback of %s failed: %s", self._path, second)
            self._disconnect()
        if isinstance(error, apsw.IOError):
            self._disconnect()
        self._lock.release()
        raise translate(error) from error

    def _settle(self, error: Exception, applied: Applied) -> Unknown:
        """Determine the outcome of a failed commit; the write lock is still held.

        The handle is dropped: after a failed sync its state cannot be trusted. If the batch is not
        visible to a new one, a small commit overwrites the place in the log where it may still be,
        so that no recovery can restore it; then nothing was written, and the error says so. If that
        fails as well, the outcome is unknown.
        """
        logger.error("commit to %s failed: %s", self._path, error)
        self._disconnect()
        try:
            self._connection = connection = self._connect()
            if read_revision(connection) == applied.before:
                connection.execute(schema.SETTLE)
                raise translate(error) from error
        except StorageError:
            raise
        except apsw.Error as second:
            logger.warning("cannot settle the commit to %s: %s", self._path, second)
            self._disconnect()
            if is_settled(error):
                raise translate(error) from error
        return Unknown(f"the commit failed, and its outcome is unknown: {error}")

    def _do_job(self, work: Callable[[], T]) -> T:
        self._lock.acquire()
        try:
            return work()
        except apsw.IOError:
            self._disconnect()
            raise
        finally:
            self._lock.release()

    def _in_transaction(self, work: Callable[[apsw.Connection], T]) -> T:
        connection = self._connection = self._connection or self._connect()
        connection.set_busy_timeout(file_setup.BUSY_MILLISECONDS)
        try:
            with connection:
                result = work(connection)
        finally:
            connection.set_busy_timeout(0)
        return result

    def _connect(self) -> apsw.Connection:
        self._file.check()
        connection = file_setup.connect(
            self._path, cache_kib=file_setup.WRITER_CACHE_KIB, vfs=self._vfs
        )
        connection.set_busy_timeout(0)
        connection.set_wal_hook(self._note_log_pages)
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close(True)
            except apsw.Error as error:
                logger.warning("closing %s failed: %s", self._path, error)

    def _note_log_pages(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK


def _move(lane: deque[_Waiting], batch: list[_Waiting], *, count_max: int) -> None:
    """Move the first waiting transactions to a batch, until it has `count_max`."""
    while lane and len(batch) < count_max:
        waiting = lane.popleft()
        if not waiting.answer.done():  # else the caller was cancelled, and nothing was written
            batch.append(waiting)


def _answer(batch: list[_Waiting], applied: Applied | None, unknown: Unknown | None) -> None:
    """Pass the outcomes of a batch to the callers that still wait."""
    for index, waiting in enumerate(batch):
        if waiting.answer.done():
            continue
        if unknown is not None:
            waiting.answer.set_result(unknown)
        elif applied is not None:
            waiting.answer.set_result(applied.outcomes[index])


def _raise(error: StorageError) -> NoReturn:
    raise error


def _as_exception(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    raise error
