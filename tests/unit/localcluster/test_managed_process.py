"""Managed processes, with minimal real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from restow.aio import Backoff, Runtime
from restow.localcluster.child_process import Launch, launcher
from restow.localcluster.errors import ClusterFailed
from restow.localcluster.logs import RotatingLog
from restow.localcluster.managed_process import FAILURES_UNREADY_MAX, ManagedProcess, ProcessState
from restow.localcluster.orphans import started_ticks

WAIT_SECONDS = 20.0
QUICK = Backoff(initial_seconds=0.01, factor=1, max_seconds=0.01, jitter=0)
LIVE = "echo ready; exec sleep 60"


class Kept:
    """A managed process, its task, and its state changes."""

    def __init__(self, log: Path, script: str) -> None:
        self.script = script
        self.states: list[ProcessState] = []
        runtime = Runtime.system()
        self._tasks = runtime.tasks("test")
        self.log = log
        self.managed = ManagedProcess(
            "one",
            lambda: Launch(command=("/bin/sh", "-c", self.script)),
            log=RotatingLog(self.log),
            runtime=runtime,
            on_change=lambda managed: self.states.append(managed.state),
            backoff=QUICK,
        )

    def start(self) -> ManagedProcess:
        self._tasks.spawn("managed", self.managed.run())
        return self.managed

    async def close(self) -> None:
        await self.managed.stop()
        await self._tasks.close()
        self.managed.log.close()


Keep = Callable[[str], Kept]


@pytest.fixture
async def keep(tmp_path: Path) -> AsyncIterator[Keep]:
    made: list[Kept] = []

    def make(script: str) -> Kept:
        made.append(Kept(tmp_path / "one.log", script))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110  (what is waited for has no event)
            await asyncio.sleep(0.01)


async def test_a_process_is_started_heard_and_stopped(keep: Keep) -> None:
    """It is ready when it prints so, its output is logged, and it stops on request."""
    kept = keep("echo before; echo ready: here; exec sleep 60")
    managed = kept.start()
    await managed.wait_ready()
    pid = managed.pid
    assert pid is not None
    await kept.close()
    assert kept.states == [
        ProcessState.STARTING,
        ProcessState.READY,
        ProcessState.STOPPING,
        ProcessState.STOPPED,
    ]
    assert kept.log.read_text() == "before\nready: here\n"
    assert started_ticks(pid) is None


async def test_a_killed_process_is_started_again(keep: Keep) -> None:
    """A process that exits is restarted as a new process."""
    kept = keep(LIVE)
    managed = kept.start()
    await managed.wait_ready()
    first = managed.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: managed.restarts == 1)
    await managed.wait_ready()
    assert managed.pid != first
    assert kept.states[2:] == [ProcessState.PAUSED, ProcessState.STARTING, ProcessState.READY]


async def test_one_that_never_starts_is_given_up(keep: Keep) -> None:
    """After some attempts the error has the exit code and the end of the log."""
    kept = keep("echo no disk; exit 1")
    managed = kept.start()
    with pytest.raises(ClusterFailed, match=r"(?s)given up: exited with code 1.*no disk"):
        await managed.wait_ready()
    assert kept.states.count(ProcessState.STARTING) == FAILURES_UNREADY_MAX


async def test_one_that_was_ready_is_never_given_up(keep: Keep, tmp_path: Path) -> None:
    """The cause of a failed restart may disappear: it is retried until it succeeds."""
    kept = keep(LIVE)
    managed = kept.start()
    await managed.wait_ready()
    kept.script = f"test -e {tmp_path / 'room'} || exit 1; {LIVE}"
    assert managed.pid is not None
    os.kill(managed.pid, signal.SIGKILL)
    await until(lambda: managed.restarts > 2 * FAILURES_UNREADY_MAX)
    assert ProcessState.FAILED not in kept.states
    (tmp_path / "room").touch()
    await managed.wait_ready()


async def test_wrong_usage_is_not_tried_again(keep: Keep) -> None:
    """A usage error is not retried."""
    kept = keep("exit 2")
    managed = kept.start()
    with pytest.raises(ClusterFailed, match="exited with code 2"):
        await managed.wait_ready()
    assert kept.states == [ProcessState.STARTING, ProcessState.FAILED]


async def test_a_cycle_starts_it_as_it_now_should_be(keep: Keep) -> None:
    """The new command replaces the first one, and does not count as a failure."""
    kept = keep(LIVE)
    managed = kept.start()
    await managed.wait_ready()
    kept.script = "echo second; echo ready; exec sleep 60"
    await managed.cycle()
    assert managed.state is ProcessState.READY
    assert managed.restarts == 0
    assert "second" in kept.log.read_text()


async def test_a_cycle_into_failure_can_be_undone(keep: Keep) -> None:
    """If the new command fails, `cycle` raises, and the next one restores the old command."""
    kept = keep(LIVE)
    managed = kept.start()
    await managed.wait_ready()
    kept.script = "echo cannot; exit 1"
    with pytest.raises(ClusterFailed, match="cannot"):
        await managed.cycle()
    assert managed.state is ProcessState.FAILED
    kept.script = LIVE
    await managed.cycle()
    assert managed.pid is not None


async def test_one_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    """After the grace period."""
    runtime = Runtime.system()
    managed = ManagedProcess(
        "stubborn",
        lambda: Launch(
            command=("/bin/sh", "-c", "trap '' TERM; echo ready; sleep 60 & wait; wait")
        ),
        log=RotatingLog(tmp_path / "stubborn.log"),
        runtime=runtime,
        on_change=lambda _: None,
        stop_seconds_max=0.2,
    )
    async with runtime.tasks("test") as tasks:
        tasks.spawn("managed", managed.run())
        await managed.wait_ready()
        child = managed.child
        assert child is not None
        await managed.stop()
        assert child.code == -signal.SIGKILL
        await until(lambda: managed.state is ProcessState.STOPPED)
    managed.log.close()


async def test_a_probe_tells_when_it_is_ready(tmp_path: Path) -> None:
    """A program that does not print `ready` is ready when its probe succeeds."""
    runtime = Runtime.system()
    answers = iter([False, False, True])

    async def probe() -> bool:
        return next(answers)

    managed = ManagedProcess(
        "quiet",
        lambda: Launch(command=("/bin/sleep", "60"), probe=probe),
        log=RotatingLog(tmp_path / "quiet.log"),
        runtime=runtime,
        on_change=lambda _: None,
    )
    async with runtime.tasks("test") as tasks:
        tasks.spawn("managed", managed.run())
        await managed.wait_ready()
        managed.set_health(is_healthy=False, note="no answer")
        assert (managed.state, managed.note) == (ProcessState.UNREADY, "no answer")
        managed.set_health(is_healthy=True)
        assert managed.state is ProcessState.READY
        await managed.stop()
    managed.log.close()


def test_a_process_ends_with_its_parent() -> None:
    """When the parent is killed, the kernel kills its children."""
    words = launcher()
    script = (
        "import os, subprocess, sys;"
        f"p = subprocess.Popen([*{words[:-1]!r}, str(os.getpid()), '/bin/sleep', '60']);"
        "print(p.pid, flush=True); p.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert started_ticks(pid) is not None
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + WAIT_SECONDS
    while started_ticks(pid) is not None:
        assert time.monotonic() < deadline, "it outlives its parent"
        time.sleep(0.01)


def test_a_process_without_its_parent_does_not_start() -> None:
    """A process whose parent ended before the prctl call ends too."""
    words = [*launcher()[:-1], "1", "/bin/echo", "alive"]
    done = subprocess.run(words, capture_output=True, check=False, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stdout) == (1, b"")


async def test_a_full_disk_ends_no_process() -> None:
    """With a full disk for its log, a process is still monitored, restarted and stopped."""
    kept = Kept(Path("/dev/full"), "echo ready; exec sleep 60")
    managed = kept.start()
    try:
        await managed.wait_ready()
        assert managed.child is not None
        managed.child.signal(signal.SIGKILL)
        await until(lambda: managed.restarts == 1)
        await managed.wait_ready(incarnation=2)
    finally:
        await kept.close()
    assert managed.state is ProcessState.STOPPED


async def test_stop_waits_for_run_to_end(keep: Keep, caplog: pytest.LogCaptureFixture) -> None:
    """After `stop` returns, resources can be released: `run` has ended."""
    kept = keep("exec sleep 60")
    managed = kept.start()
    await until(lambda: managed.state is ProcessState.STARTING)
    await kept.close()
    assert managed.state is ProcessState.STOPPED
    assert not caplog.records


async def test_one_that_never_ran_can_be_stopped(keep: Keep) -> None:
    """`stop` does not wait for a task that was never started."""
    kept = keep(LIVE)
    await kept.managed.stop()
    assert kept.managed.state is ProcessState.WAITING
