"""Checkpoints: moving the pages of the write-ahead log to the file without stopping writes.

SQLite reuses the log from its start only when a commit finds all of it moved, which never happens
beside constant writes. So there are two steps: the long one on a connection and a thread of its
own, beside the writers; then a short one for the commits since then, while writers are blocked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import apsw

from restow.aio import Tasks, TasksClosed
from restow.storage.errors import StorageError
from restow.storage.sqlite import file_setup

logger = logging.getLogger(__name__)


class Checkpointer:
    """Runs one checkpoint at a time, on request."""

    def __init__(
        self,
        path: Path,
        *,
        finish: Callable[[Callable[[], None]], Awaitable[None]],
        tasks: Tasks,
        check_file: Callable[[], None],
        vfs: str | None = None,
    ) -> None:
        """`finish` runs the short step in the writer's thread, under the write lock. `check_file`
        raises when the path names another file, which pages of this log would damage."""
        self._path = path
        self._finish = finish
        self._tasks = tasks
        self._check_file = check_file
        self._vfs = vfs
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="restow-sqlite-checkpoint")
        self._running = False

    def start(self) -> None:
        """Start a checkpoint, unless one is running."""
        if not self._running:
            self._running = True
            with suppress(TasksClosed):  # the close makes a checkpoint of its own
                self._tasks.spawn("checkpoint", self._checkpoint())

    def close(self) -> None:
        """Wait for a running step; the owner of the tasks has ended the rest."""
        self._thread.shutdown(wait=True)

    async def _checkpoint(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._step)
            await self._finish(self._step)
        except (apsw.Error, StorageError) as error:
            # The log stays longer and nothing is lost; the next commits try again.
            logger.warning("checkpoint of %s failed: %s", self._path, error)
        finally:
            self._running = False

    def _step(self) -> None:
        self._check_file()
        connection = file_setup.connect(self._path, cache_kib=1000, vfs=self._vfs)
        try:
            with suppress(apsw.BusyError):  # another process is checkpointing
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        finally:
            connection.close()
