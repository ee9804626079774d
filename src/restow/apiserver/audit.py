"""The audit log of one server: its file, its metrics, and its policy, which is reloaded.

Not here: the audit events (`restow.audit`).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Final

from restow.aio import Runtime, Tasks, in_own_thread
from restow.aio.events import EventChannel
from restow.apiserver.audit_options import AuditOptions
from restow.audit import (
    LEVEL_NAMES,
    Auditor,
    AuditPolicy,
    PolicyError,
    default_policy,
    read_policy,
)
from restow.audit.log_file import LogFile, Rotation
from restow.audit.sink import BatchSink, BlockingSink
from restow.request.metrics import Metrics

POLL_SECONDS: Final = 2.0
"""Interval of checks whether the policy file has changed."""
TASKS_MAX: Final = 16

logger = logging.getLogger(__name__)


class Audit:
    """A server's audit log. Create it with `open_audit`."""

    def __init__(
        self, policy: AuditPolicy, sink: BatchSink | BlockingSink, tasks: Tasks, runtime: Runtime
    ) -> None:
        self.policy = policy
        self.policy_changed: Final = EventChannel[[AuditPolicy]]()
        self.sink: Final = sink
        self._tasks = tasks
        self._clock = runtime.clock

    def follow(self, path: Path, signature: object, *, poll_seconds: float) -> None:
        """Reload the policy whenever its file changes."""
        following = self._follow(path, signature, poll_seconds)
        self._tasks.spawn_loop("audit policy reload", following)

    async def _follow(self, path: Path, seen: object, poll_seconds: float) -> None:
        while True:
            await self._clock.sleep(poll_seconds)
            found = await in_own_thread("audit policy", partial(_signature, path))
            if found is None or found == seen:
                continue
            seen = found
            try:
                read = partial(read_policy, path)
                self.policy = await in_own_thread("audit policy", read)
            except PolicyError as error:
                # No traceback: the message is complete.
                logger.warning(
                    "audit policy not reloaded, the previous one stays in effect: %s", error
                )
            else:
                self.policy_changed.emit(self.policy)
                logger.info("reloaded the audit policy %s", path)

    def publish(self, auditor: Auditor, metrics: Metrics) -> None:
        """Export the metrics of the audit log."""
        sink = self.sink
        metrics.counter(
            "apiserver_audit_event_total",
            "Audit events that were written to the log.",
            (),
            lambda: [((), float(sink.written))],
        )
        metrics.counter(
            "apiserver_audit_level_total",
            "Requests by the level at which they were audited.",
            ("level",),
            lambda: [((LEVEL_NAMES[each],), float(n)) for each, n in enumerate(auditor.levels)],
        )
        metrics.counter(
            "restow_audit_events_dropped_total",
            "Audit events that were lost: the queue was full, the disk failed, or encoding failed.",
            ("cause",),
            lambda: [
                (("buffer",), float(sink.dropped_full)),
                (("disk",), float(sink.dropped_disk)),
                (("encoding",), float(auditor.failures)),
            ],
        )

    async def close(self) -> None:
        """Write the queued events. The servers that add events have stopped before."""
        await self.sink.close()
        await self._tasks.close()


async def open_audit(
    options: AuditOptions, runtime: Runtime, *, poll_seconds: float = POLL_SECONDS
) -> Audit | None:
    """Open the audit log if one is configured. Raises PolicyError or LogRefused."""
    if not options.path:
        return None
    policy, signature, path = default_policy(), None, options.policy_file
    if path is not None:
        signature = await asyncio.to_thread(_signature, path)
        policy = await asyncio.to_thread(read_policy, path)
    rotation = Rotation(
        size_max_megabytes=options.size_max_megabytes,
        age_max_days=options.age_max_days,
        backups_max=options.backups_max,
        compress=options.compress,
    )
    file = await asyncio.to_thread(LogFile, options.path, runtime.clock, rotation)
    tasks = runtime.tasks("audit", tasks_max=TASKS_MAX)
    sink: BatchSink | BlockingSink
    if options.mode == "blocking":
        sink = BlockingSink(file, runtime.clock, tasks)
    else:
        sink = BatchSink(file, runtime.clock, tasks)
    audit = Audit(policy, sink, tasks, runtime)
    if path is not None:
        audit.follow(path, signature, poll_seconds=poll_seconds)
    return audit


def _signature(path: Path) -> tuple[int, ...] | None:
    """A value that changes whenever the file does; None while the file is not accessible."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_ctime_ns
