"""From events to a file: together and later, or one by one and at once.

In batches the answer does not wait for the disk: events wait in memory, up to a limit, and a task
hands the lines of many to a thread. What finds no room, or no disk, is lost; it is counted, and
logged once until it goes well again. A process that is killed loses what waits: a fraction of a
second.

Blocking, each line is with the system before its answer goes out. A slow disk makes a slow server.

Neither ever fails a request. Not here: what is in a line.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from restow.aio import Clock, Tasks, TasksClosed, TasksFull, Timer
from restow.audit.event_parts import Event, Stamps
from restow.audit.log_file import LogFile

BATCH_SECONDS: Final = 0.2
"""How long events wait for others."""
BATCH_TEXTS: Final = 8
"""So many need not wait: the memory that they take is used again for the next ones."""
EVENT_BYTES: Final = 1_024
"""What an event takes at most, about, besides what was made for it alone: parts that it shares, its
id and times."""
TEXT_BYTES: Final = 96 * EVENT_BYTES
"""Of so much lines are made at once: with memory that need not be asked of the system each time,
which begins at 128 KiB."""
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024

logger = logging.getLogger(__name__)


class _Counting:
    """What both ways count."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self.written = 0
        self.dropped_full = 0
        """Events that found no room to wait."""
        self.dropped_disk = 0
        """Events that the disk did not take."""
        self._in_trouble = 0

    def _note(self, taken: int, lost: int) -> None:
        """Count what has become of some events, and say when that changes."""
        self.written += taken
        self.dropped_disk += lost
        if lost:
            if not self._in_trouble:
                logger.error(
                    "the audit log cannot be written (%s): events are lost until it can be",
                    self._file.problem,
                )
            self._in_trouble += lost
        elif self._in_trouble and taken:
            logger.warning("the audit log is written again; %d events are lost", self._in_trouble)
            self._in_trouble = 0


class BatchSink(_Counting):
    """Writes events later, many at once."""

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
        self._together = Stamps(clock).together
        self._events: list[Event] = []
        """The latest, of which no lines are made yet."""
        self._events_bytes = 0
        self._texts: list[bytes] = []
        """Lines of those before, many in each."""
        self._texts_count = 0
        self._texts_bytes = 0
        self._waiting_bytes_max = waiting_bytes_max
        self._wake = asyncio.Event()
        self._timer: Timer | None = None
        self._is_closed = False
        self._is_overfull = False
        self._writer = tasks.spawn_loop("write", self._run())

    def put(self, event: Event, own_bytes: int) -> None:
        nbytes = self._events_bytes + EVENT_BYTES + own_bytes
        if nbytes + self._texts_bytes > self._waiting_bytes_max:
            self._drop()
            return
        self._events_bytes = nbytes
        self._events.append(event)
        if nbytes >= TEXT_BYTES:
            self._make_text()
        if self._timer is None:
            self._timer = self._clock.call_later(BATCH_SECONDS, self._wake.set)

    def _make_text(self) -> None:
        """Make lines of the latest events, while they are at hand."""
        text = self._together(self._events)
        self._texts.append(text)
        self._texts_count += len(self._events)
        self._texts_bytes += len(text)
        self._events, self._events_bytes = [], 0
        if len(self._texts) >= BATCH_TEXTS:
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
        while not self._is_closed or self._events or self._texts:
            await self._wake.wait()
            if not self._is_closed:
                self._wake.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._events:
                self._make_text()
            texts, self._texts = self._texts, []
            count, self._texts_count = self._texts_count, 0
            before = self._file.rotations
            lost = await asyncio.to_thread(self._file.write, texts)
            # Only now: what is being written is still in memory.
            self._texts_bytes -= sum(map(len, texts))
            self._is_overfull = False
            self._note(count - lost, lost)
            if self._file.rotations != before:
                await asyncio.to_thread(_tidy, self._file)


class BlockingSink(_Counting):
    """Writes each event at once."""

    def __init__(self, file: LogFile, clock: Clock, tasks: Tasks) -> None:
        super().__init__(file)
        self._together = Stamps(clock).together
        self._tasks = tasks

    def put(self, event: Event, own_bytes: int) -> None:
        before = self._file.rotations
        lost = self._file.write((self._together((event,)),))
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
