"""Orphans: processes of an earlier supervisor that still run. They are found and stopped.

A process id alone is not sufficient, because it can be reused. A process is identified by its id,
its start tick and the boot id of the machine, as recorded in the state.
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
"""Index in /proc/PID/stat after the process name, which can contain any character."""


def boot_id() -> str | None:
    """The boot id, which changes at each boot; None where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def started_ticks(pid: int) -> int | None:
    """The start of a process in ticks since boot; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[_STARTED_FIELD])


def is_alive(record: ProcessRecord) -> bool:
    """Whether exactly this process still runs."""
    return (
        record.boot_id != BOOT_ID_UNKNOWN
        and record.boot_id == boot_id()
        and started_ticks(record.pid) == record.started_ticks
    )


async def end_orphans(records: Iterable[ProcessRecord], clock: Clock) -> list[str]:
    """Stop processes that still run, by SIGTERM, then SIGKILL; return their names."""
    alive = [record for record in records if is_alive(record)]
    names = [record.name for record in alive]
    for number, seconds in ((signal.SIGTERM, PATIENCE_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        for record in alive:
            _signal(record, number)
        deadline = clock.monotonic() + seconds
        while alive and clock.monotonic() < deadline:
            await clock.sleep(POLL_SECONDS)
            alive = [record for record in alive if is_alive(record)]
    if alive:
        left = ", ".join(f"{record.name} (process {record.pid})" for record in alive)
        raise ClusterFailed(f"processes of an earlier run cannot be stopped: {left}")
    return names


def _signal(record: ProcessRecord, number: signal.Signals) -> None:
    """Signal through a pidfd: the id cannot be reused between the check and the signal."""
    with suppress(ProcessLookupError, PermissionError):
        file = os.pidfd_open(record.pid)
        try:
            if is_alive(record):
                signal.pidfd_send_signal(file, number)
        finally:
            os.close(file)
