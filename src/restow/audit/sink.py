"""Writes events to a file, in batches or blocking.

In batch mode the response does not wait for the disk: events wait in memory, up to a limit, and a
task passes the lines of many events to a thread. Events beyond the limit, and events that the disk
rejects, are lost; they are counted, and logged once per outage. A killed process loses the waiting
events: a fraction of a second.

In blocking mode each line is passed to the operating system before the response is sent. A slow
disk slows down the server.

Neither mode fails a request.

Not here: the content of a line.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from restow.aio import Clock, Tasks, TasksClosed, TasksFull, Timer
from restow.audit.event_parts import Event, Stamps
from restow.audit.log_file import LogFile

BATCH_SECONDS: Final = 0.2
"""How long events wait to be batched."""
BATCH_TEXTS: Final = 8
"""Number of encoded batches that are written without waiting, so that their memory is reused."""
EVENT_BYTES: Final = 1_024
"""Approximate memory of an event besides its own parts: shared parts, audit ID and times."""
TEXT_BYTES: Final = 96 * EVENT_BYTES
"""Events of this size are encoded together: just below 128 KiB, above which the allocator requests
memory from the operating system each time."""
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024

logger = logging.getLogger(__name__)


class _Counting:
    """The counters of both modes."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self.written = 0
        self.dropped_full = 0
        """Events dropped because the memory limit was reached."""
        self.dropped_disk = 0
        """Events dropped because the disk rejected them."""
        self._lost_in_outage = 0

    def _note(self, taken: int, lost: int) -> None:
        """Count written and lost events, and log when writing starts to fail or succeeds again."""
        self.written += taken
        self.dropped_disk += lost
        if lost:
            if not self._lost_in_outage:
                logger.error(
                    "cannot write the audit log (%s): events are lost until it can be written",
                    self._file.problem,
                )
            self._lost_in_outage += lost
        elif self._lost_in_outage and taken:
            logger.warning(
                "the audit log can be written again; %d events were lost", self._lost_in_outage
            )
            self._lost_in_outage = 0


class BatchSink(_Counting):
    """Writes events later, in batches."""

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
        self._encode_events = Stamps(clock).encode_events
        self._events: list[Event] = []
        """The latest events, not yet encoded."""
        self._events_bytes = 0
        self._texts: list[bytes] = []
        """Encoded earlier events, many lines in each element."""
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
        """Encode the latest events while they are in the CPU cache."""
        text = self._encode_events(self._events)
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
            logger.error("the audit log is written more slowly than events arrive: events are lost")

    async def close(self) -> None:
        """Write the waiting events, and close the file. No events may be added any more."""
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
            # Only now, because events that are being written are still in memory.
            self._texts_bytes -= sum(map(len, texts))
            self._is_overfull = False
            self._note(count - lost, lost)
            if self._file.rotations != before:
                await asyncio.to_thread(_prune, self._file)


class BlockingSink(_Counting):
    """Writes each event immediately."""

    def __init__(self, file: LogFile, clock: Clock, tasks: Tasks) -> None:
        super().__init__(file)
        self._encode_events = Stamps(clock).encode_events
        self._tasks = tasks

    def put(self, event: Event, own_bytes: int) -> None:
        before = self._file.rotations
        lost = self._file.write((self._encode_events((event,)),))
        self._note(1 - lost, lost)
        if self._file.rotations != before:
            try:
                self._tasks.spawn("prune", asyncio.to_thread(_prune, self._file))
            except (TasksFull, TasksClosed):
                logger.info("rotated audit logs are pruned at the next rotation")

    async def close(self) -> None:
        self._file.close()


def _prune(file: LogFile) -> None:
    try:
        file.prune()
    except OSError as error:
        logger.warning("cannot prune rotated audit logs: %s", error)
