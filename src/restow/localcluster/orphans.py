"""Processes that a supervisor has left behind: found by what was written down, and ended.

A process number alone says nothing: it may belong to somebody else by now. A process is taken for
ours only if it began at the very tick that was written down, since the same start of the machine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from restow.aio import Clock
from restow.localcluster.errors import ClusterFailed
from restow.localcluster.state import ProcessRecord

PATIENCE_SECONDS: Final = 12.0
KILL_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.02
BOOT_ID_UNKNOWN: Final = ""
_STARTED_FIELD: Final = 19
"""Of /proc/PID/stat, counted from the field after the name, which may hold anything."""


def boot_id() -> str | None:
    """Changes with each start of the machine; None where there is no such thing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def started_ticks(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None for one that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[_STARTED_FIELD])


def is_alive(record: ProcessRecord) -> bool:
    """Whether this very process still runs."""
    return (
        record.boot_id != BOOT_ID_UNKNOWN
        and record.boot_id == boot_id()
        and started_ticks(record.pid) == record.started_ticks
    )


async def end_orphans(records: Iterable[ProcessRecord], clock: Clock) -> list[str]:
    """End those that still run, in good order if they can; their names."""
    living = [record for record in records if is_alive(record)]
    names = [record.name for record in living]
    for number, seconds in ((signal.SIGTERM, PATIENCE_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        for record in living:
            _signal(record, number)
        deadline = clock.monotonic() + seconds
        while living and clock.monotonic() < deadline:
            await clock.sleep(POLL_SECONDS)
            living = [record for record in living if is_alive(record)]
    if living:
        left = ", ".join(f"{record.name} (process {record.pid})" for record in living)
        raise ClusterFailed(f"left from an earlier run, and cannot be ended: {left}")
    return names


def _signal(record: ProcessRecord, number: signal.Signals) -> None:
    """Through a descriptor: between the check and the signal the number cannot change hands."""
    with suppress(ProcessLookupError, PermissionError):
        file = os.pidfd_open(record.pid)
        try:
            if is_alive(record):
                signal.pidfd_send_signal(file, number)
        finally:
            os.close(file)
