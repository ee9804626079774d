"""The watch hub: one etcd watch stream that feeds all watches of this process.

It is started by the first watch, and reopened at its position when it fails. Changes that are no
longer in memory are read as a `backlog`, over a stream for each watch.
"""

from __future__ import annotations

import logging

from restow.aio import Tasks
from restow.storage.errors import Compacted, StorageError
from restow.storage.etcd.backlog import EtcdBacklog
from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.errors import EtcdCallFailed, EtcdFailureCause
from restow.storage.etcd.reader import EtcdReader
from restow.storage.etcd.stream import EventStream
from restow.storage.etcd.stream_recovery import recover, wait_after
from restow.storage.feed import Feed
from restow.storage.interface import Revision, Span

logger = logging.getLogger(__name__)


class Hub:
    """Owns the feed and the stream that fills it."""

    def __init__(self, connection: EtcdConnection, reader: EtcdReader, tasks: Tasks) -> None:
        self._connection = connection
        self._reader = reader
        self._tasks = tasks
        self._stream: EventStream | None = None
        self._backlogs: set[EtcdBacklog] = set()
        self._expected = Revision(0)
        self._is_guarded = False
        self._restarts = 0
        self.feed = Feed(
            position=connection.newest,
            open_backlog=self._open_backlog,
            on_expect=self._on_expect,
        )
        tasks.spawn_loop("hub", self._run())

    def close(self) -> None:
        """End all watches. The owner of the hub ends its task."""
        self.feed.close()
        self._end_backlogs()

    def block(self, error: StorageError) -> None:
        """End all watches with `error`, and new ones until `restart`."""
        self.feed.block(error)
        self._end_backlogs()

    def restart(self, position: Revision) -> None:
        """Resume at a revision of the current store; it may be below the previous ones."""
        self._restarts += 1
        self._expected = position
        self._end_backlogs()
        self.feed.unblock()
        self.feed.reset(position, Compacted(position))
        if self._stream is not None:
            self._stream.close()

    def _end_backlogs(self) -> None:
        for backlog in list(self._backlogs):
            backlog.end()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                restarts = self._restarts
                stream = await EventStream.open(self._connection, after=self.feed.position)
                self._stream = stream
                if restarts != self._restarts:
                    raise EtcdCallFailed(
                        EtcdFailureCause.LOST, "the watch began at a revision that is void"
                    )
                await self._check_store()
                while True:
                    self.feed.append(await stream.read())
                    failures = 0
            except Compacted as compacted:
                if await self._restart(compacted):
                    continue
            except EtcdCallFailed as failed:
                await recover(self._connection, failed, failures)
            finally:
                if self._stream is not None:
                    self._stream.close()
                    self._stream = None
            await wait_after(self._connection, failures)
            failures += 1

    async def _check_store(self) -> None:
        """Check that the stream is from the opened store, before it delivers anything."""
        try:
            await self._reader.revision()
        except StorageError as error:
            raise EtcdCallFailed(EtcdFailureCause.LOST, str(error)) from error

    async def _restart(self, compacted: Compacted) -> bool:
        """Changes were missed: end all watches, and resume at the current revision."""
        try:
            current = await self._reader.revision()
        except StorageError:
            return False
        logger.warning("watch of etcd fell behind: %s; restarted at %d", compacted, current)
        self.feed.reset(max(current, compacted.compacted), compacted)
        return True

    def _on_expect(self, revision: Revision) -> None:
        self._expected = max(self._expected, revision)
        if not self._is_guarded:
            self._is_guarded = True
            self._tasks.spawn("stall-guard", self._guard_expectation())

    async def _guard_expectation(self) -> None:
        """While a revision is expected, check that the stream delivers it."""
        stall_seconds = self._connection.options.stall_timeout_seconds
        try:
            while self.feed.position < self._expected:
                before = self.feed.position
                await self._connection.runtime.clock.sleep(stall_seconds)
                if self.feed.position > before or self._stream is None:
                    continue
                try:
                    current = await self._reader.revision()
                except StorageError:
                    continue
                # Between reply and event lies no more than a moment; the stall was far longer.
                if before == self.feed.position < current and self._stream is not None:
                    logger.warning("watch of etcd is silent at %d; opening a new one", before)
                    self._stream.close()
        finally:
            self._is_guarded = False

    def _open_backlog(self, span: Span, after: Revision) -> EtcdBacklog:
        # All keys, not the span's alone: only then is every revision visible.
        backlog = EtcdBacklog(self._connection, self._tasks, after=after, backlogs=self._backlogs)
        self._backlogs.add(backlog)
        return backlog
