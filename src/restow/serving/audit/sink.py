"""From lines to a file: together and later, or one by one and at once.

In batches the answer does not wait for the disk: lines wait in memory, up to a limit, and a task
hands them to a thread. What finds no room, or no disk, is lost; it is counted, and logged once
until it goes well again. A process that is killed loses what waits: a fraction of a second.

Blocking, each line is with the system before its answer goes out. A slow disk makes a slow server.

Neither ever fails a request. Not here: what is in a line.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from restow.runtime import Clock, Tasks, TasksClosed, TasksFull
from restow.serving.audit.log_file import LogFile

BATCH_SECONDS: Final = 0.2
"""How long lines wait for others."""
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024

logger = logging.getLogger(__name__)


class _Counting:
    """What both ways count."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self.written = 0
        self.dropped_full = 0
        """Lines that found no room to wait."""
        self.dropped_disk = 0
        """Lines that the disk did not take."""
        self._in_trouble = 0

    def _note(self, taken: int, lost: int) -> None:
        """Count what has become of some lines, and say when that changes."""
        self.written += taken
        self.dropped_disk += lost
        if lost:
            if not self._in_trouble:
                logger.error("the audit log cannot be written: events are lost until it can be")
            self._in_trouble += lost
        elif self._in_trouble and taken:
            logger.warning("the audit log is written again; %d events are lost", self._in_trouble)
            self._in_trouble = 0


class BatchSink(_Counting):
    """Writes lines later, many at once."""

    def __init__(
        self,
        file: LogFile,
        clock: Clock,
        tasks: Tasks,
        *,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        super().__init__(file)
        self._clock = clock
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._waiting_bytes_max = waiting_bytes_max
        self._wake = asyncio.Event()
        self._is_awake = False
        self._is_closed = False
        self._is_overfull = False
        self._writer = tasks.spawn("write", self._run())

    def put(self, line: bytes) -> None:
        nbytes = self._waiting_bytes + len(line)
        if nbytes > self._waiting_bytes_max:
            self._drop()
            return
        self._waiting_bytes = nbytes
        self._waiting.append(line)
        if not self._is_awake:
            self._is_awake = True
            self._wake.set()

    def _drop(self) -> None:
        self.dropped_full += 1
        if not self._is_overfull:
            self._is_overfull = True
            logger.error("the audit log is not written as fast as events come: some are lost")

    async def close(self) -> None:
        """Write what waits, and close the file. Others stop putting lines before."""
        self._is_closed = True
        self._wake.set()
        await self._writer.wait()
        self._file.close()

    async def _run(self) -> None:
        while not self._is_closed or self._waiting:
            await self._wake.wait()
            if not self._is_closed:
                await self._clock.sleep(BATCH_SECONDS)
            self._wake.clear()
            self._is_awake = False
            if self._is_closed:
                self._wake.set()
            lines, self._waiting = self._waiting, []
            before = self._file.rotations
            lost = await asyncio.to_thread(self._file.write, lines)
            # Only now: what is being written is still in memory.
            self._waiting_bytes -= sum(map(len, lines))
            self._is_overfull = False
            self._note(len(lines) - lost, lost)
            if self._file.rotations != before:
                await asyncio.to_thread(_tidy, self._file)


class BlockingSink(_Counting):
    """Writes each line at once."""

    def __init__(self, file: LogFile, tasks: Tasks) -> None:
        super().__init__(file)
        self._tasks = tasks

    def put(self, line: bytes) -> None:
        before = self._file.rotations
        lost = self._file.write((line,))
        self._note(1 - lost, lost)
        if self._file.rotations != before:
            try:
                self._tasks.spawn("tidy", asyncio.to_thread(_tidy, self._file))
            except (TasksFull, TasksClosed):
                logger.info("full audit logs are tidied up another time")

    async def close(self) -> None:
        self._file.close()


def _tidy(file: LogFile) -> None:
    try:
        file.tidy()
    except OSError as error:
        logger.warning("full audit logs cannot be tidied up: %s", error)
