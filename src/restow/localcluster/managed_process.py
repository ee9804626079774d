"""A managed process: it is started, monitored, and restarted when it exits.

A process that exits is restarted after a growing backoff, without limit: the disk may get free
space again, or etcd recover. A process that was never ready, or reports a usage error, is given up.
Not here: which processes there are, and the effect on the others when one is given up.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final

from restow.aio import Backoff, Runtime
from restow.localcluster.child_process import Child, Launch
from restow.localcluster.errors import ClusterFailed
from restow.localcluster.logs import LogSink

RESTART_BACKOFF: Final = Backoff(initial_seconds=0.5, factor=2, max_seconds=10, jitter=0.1)
FAILURES_UNREADY_MAX: Final = 3
"""Consecutive failures of a process that was never ready."""
STABLE_SECONDS: Final = 30.0
"""After this uptime, an exit does not count as consecutive."""
START_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 25.0
PROBE_SECONDS: Final = 0.1
EXIT_USAGE: Final = 2


class ProcessState(Enum):
    """The state of a managed process."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "not ready"
    PAUSED = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class ManagedProcess:
    """One process, over all its incarnations."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Launch],
        *,
        log: LogSink,
        runtime: Runtime,
        on_change: Callable[[ManagedProcess], None],
        stop_seconds_max: float = STOP_SECONDS_MAX,
        backoff: Backoff = RESTART_BACKOFF,
    ) -> None:
        self.name = name
        self.state = ProcessState.WAITING
        self.note = ""
        """Details of the state."""
        self.restarts = 0
        """Number of restarts after an exit."""
        self.log = log
        self.child: Child | None = None
        self._make = make
        self._runtime = runtime
        self._on_change = on_change
        self._stop_seconds_max = stop_seconds_max
        self._backoff = backoff
        self._failures = 0
        self._was_ready = False
        self._is_stopped = asyncio.Event()
        self._is_cycling = False
        self._incarnations = 0
        self._reason = ""
        self._woken = asyncio.Event()
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def pid(self) -> int | None:
        return None if self.child is None or self.child.code is not None else self.child.pid

    async def run(self) -> None:
        """Keep the process running until `stop`."""
        self._idle.clear()
        try:
            await self._restart_until_stopped()
        finally:
            self._idle.set()

    async def _restart_until_stopped(self) -> None:
        clock, randomness = self._runtime.clock, self._runtime.randomness
        while not self._is_stopped.is_set():
            await self._run_once()
            if self._is_stopped.is_set():
                break
            if self._is_cycling:
                self._is_cycling = False
                continue
            self.restarts += 1
            is_hopeless = not self._was_ready and self._failures >= FAILURES_UNREADY_MAX
            if is_hopeless or self._code() == EXIT_USAGE:
                self._set(ProcessState.FAILED, f"given up: {self._exit_reason()}")
                seconds = None
            else:
                seconds = self._backoff.delay_seconds(self._failures - 1, randomness)
                self._set(ProcessState.PAUSED, f"{self._exit_reason()}; restart in {seconds:.1f} s")
            with suppress(TimeoutError):
                async with clock.timeout(seconds):
                    await self._woken.wait()
            self._woken.clear()
            self._is_cycling = False
        self._set(ProcessState.STOPPED)

    async def cycle(self) -> None:
        """Stop it, start it with the launch that `make` now returns, and wait until it is ready.

        Raises ClusterFailed if it does not become ready.
        """
        incarnation = self._incarnations + 1
        self._is_cycling = True
        self._failures, self._was_ready = 0, False
        self._woken.set()
        await self._end()
        await self.wait_ready(incarnation=incarnation)

    async def wait_ready(self, *, incarnation: int = 0) -> None:
        """Wait until ready. Raises ClusterFailed if it fails or is stopped instead."""
        while not (self.state is ProcessState.READY and self._incarnations >= incarnation):
            has_ended = (
                self.state in (ProcessState.FAILED, ProcessState.STOPPED)
                and self._incarnations >= incarnation
            )
            if has_ended or self._is_stopped.is_set():
                raise ClusterFailed(self.describe())
            await self._changed.wait()

    async def stop(self) -> None:
        """Stop it permanently; returns when `run` has ended too."""
        self._is_stopped.set()
        self._woken.set()
        await self._end()
        await self._idle.wait()

    def kill(self) -> None:
        """Kill it permanently."""
        self._is_stopped.set()
        self._woken.set()
        if self.child is not None:
            self.child.signal(signal.SIGKILL)

    def set_health(self, *, is_healthy: bool, note: str = "") -> None:
        """Record the result of a health check of a process that was ready."""
        if self.state is ProcessState.READY and not is_healthy:
            self._set(ProcessState.UNREADY, note)
        elif self.state is ProcessState.UNREADY and is_healthy:
            self._set(ProcessState.READY)

    def describe(self) -> str:
        """Its state, with the end of its log."""
        tail = self.child.tail if self.child is not None else ""
        text = f"{self.name} {self.note or self.state.value}; its log: {self.log.path}"
        return f"{text}\n{_indented(tail)}" if tail else text

    async def _run_once(self) -> None:
        """Run one incarnation, from start to exit."""
        clock = self._runtime.clock
        self._woken.clear()
        self._reason = ""
        self._incarnations += 1
        self.child = child = Child(self.name, launch := self._make(), self.log)
        self._set(ProcessState.STARTING)
        began = clock.monotonic()
        tasks = self._runtime.tasks(f"{self.name} starting")
        tasks.spawn("ready", self._await_ready(child, launch))
        try:
            await child.wait()
        finally:
            await tasks.close()
        if child.is_ready and clock.monotonic() - began > STABLE_SECONDS:
            self._failures = 0
        self._failures += 1

    async def _await_ready(self, child: Child, launch: Launch) -> None:
        clock = self._runtime.clock
        try:
            async with clock.timeout(START_SECONDS_MAX):
                while launch.probe is not None and not await launch.probe():
                    await clock.sleep(PROBE_SECONDS)
                if launch.probe is not None:
                    child.become_ready()
                await child.wait_ready()
        except TimeoutError:
            self._reason = f"was not ready within {START_SECONDS_MAX:g} s"
            child.signal(signal.SIGKILL)
            return
        if self.state is ProcessState.STARTING:  # otherwise it is being stopped
            self._was_ready = True
            self._set(ProcessState.READY)

    async def _end(self) -> None:
        child = self.child
        if child is None or child.code is not None:
            return
        self._set(ProcessState.STOPPING)
        await child.end(self._runtime.clock, grace_seconds=self._stop_seconds_max)

    def _code(self) -> int | None:
        return None if self.child is None else self.child.code

    def _exit_reason(self) -> str:
        code = self._code()
        if self._reason:
            return self._reason
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def _set(self, state: ProcessState, note: str = "") -> None:
        self.state, self.note = state, note
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._on_change(self)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
