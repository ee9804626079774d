"""Old changes for one watch, read from etcd until the feed covers the rest."""

from __future__ import annotations

from restow.aio import TaskHandle, Tasks
from restow.storage.errors import StorageClosed, StorageError
from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.errors import EtcdCallFailed
from restow.storage.etcd.stream import EventStream
from restow.storage.etcd.stream_recovery import recover, wait_after
from restow.storage.feed import Chunk
from restow.storage.interface import Revision


class EtcdBacklog:
    """Satisfies `feed.Backlog`."""

    def __init__(
        self,
        connection: EtcdConnection,
        tasks: Tasks,
        *,
        after: Revision,
        backlogs: set[EtcdBacklog],
    ) -> None:
        self._connection = connection
        self._tasks = tasks
        self._after = after
        self._backlogs = backlogs
        self._stream: EventStream | None = None
        self._reading: TaskHandle | None = None
        self._read_last: Chunk | StorageError | None = None
        self._ended = False

    async def read(self) -> Chunk:
        """The next part. A cancelled read continues, and the next caller gets its result.

        Otherwise each cancelled read would cost a new stream, and etcd needs 0.1 s to fill one.
        """
        if self._ended:
            raise StorageClosed("the watch has been closed")
        if self._reading is None:
            self._reading = self._tasks.spawn("backlog", self._read())
        await self._reading.wait()
        chunk, self._read_last, self._reading = self._read_last, None, None
        if chunk is None:  # cancelled: this watch, or the whole store, was closed
            raise StorageClosed("the watch has been closed")
        if isinstance(chunk, StorageError):
            raise chunk
        return chunk

    async def close(self) -> None:
        self.end()

    def end(self) -> None:
        """Stop reading permanently."""
        self._ended = True
        if self._reading is not None:
            self._reading.cancel()
        self._drop_stream()
        self._backlogs.discard(self)

    async def _read(self) -> None:
        """Read further changes. The feed does not cover them yet, so a timeout is a fault."""
        failures = 0
        while True:
            try:
                async with self._connection.runtime.clock.timeout(
                    self._connection.options.stall_timeout_seconds
                ):
                    if self._stream is None:
                        self._stream = await EventStream.open(self._connection, after=self._after)
                    entries = await self._stream.read()
            except TimeoutError:
                self._drop_stream()
            except EtcdCallFailed as failed:
                self._drop_stream()
                await recover(self._connection, failed, failures)
                await wait_after(self._connection, failures)
            except StorageError as error:
                self._read_last = error
                return
            else:
                self._after = entries[-1].revision
                self._read_last = Chunk(entries, self._after)
                return
            failures += 1

    def _drop_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
