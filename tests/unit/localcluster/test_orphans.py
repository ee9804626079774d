"""Orphaned processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import msgspec
import pytest

from restow.aio import SystemClock
from restow.localcluster.orphans import boot_id, end_orphans, is_alive, started_ticks
from restow.localcluster.state import ProcessRecord


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def record_of(pid: int) -> ProcessRecord:
    ticks, boot = started_ticks(pid), boot_id()
    assert ticks is not None
    assert boot is not None
    return ProcessRecord(name="sleeper", pid=pid, started_ticks=ticks, boot_id=boot)


async def test_orphans_are_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    """A process that matches its record is stopped."""
    record = record_of(sleeper.pid)
    assert is_alive(record)
    assert await end_orphans([record], SystemClock()) == ["sleeper"]
    assert sleeper.wait() != 0
    assert not is_alive(record)


@pytest.mark.parametrize("change", ["started_ticks", "boot_id"])
async def test_others_are_never_touched(sleeper: subprocess.Popen[bytes], change: str) -> None:
    """A process with the same id but another start tick or boot id is not signalled."""
    record = record_of(sleeper.pid)
    other = (
        msgspec.structs.replace(record, started_ticks=record.started_ticks + 1)
        if change == "started_ticks"
        else msgspec.structs.replace(record, boot_id="another")
    )
    assert await end_orphans([other], SystemClock()) == []
    assert sleeper.poll() is None


async def test_ended_processes_are_not_alive(sleeper: subprocess.Popen[bytes]) -> None:
    """A process that has ended, reaped or not, is not alive."""
    record = record_of(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert not is_alive(record)
    sleeper.wait()
    assert not is_alive(record)
    assert started_ticks(sleeper.pid) is None
