"""A keeper keeps one process running: starts it, waits for it, starts it again when it ends.

A process that ends by itself is started again after a growing pause, for as long as it takes: the
disk may have room again, or etcd come back. One that never was ready, or says that its command line
is wrong, is given up. Not here: which processes there are, and what it means for the others when
one is given up.
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
"""In a row, of a process that never was ready."""
STABLE_SECONDS: Final = 30.0
"""What has run for so long has not failed in a row."""
START_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 25.0
PROBE_SECONDS: Final = 0.1
EXIT_USAGE: Final = 2


class ProcessState(Enum):
    """What a kept process is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "not ready"
    PAUSED = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class ManagedProcess:
    """One process, over all its lives."""

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
        """Why it is as it is."""
        self.restarts = 0
        """How often it was started again after it had ended by itself."""
        self.log = log
        self.child: Child | None = None
        self._make = make
        self._runtime = runtime
        self._on_change = on_change
        self._stop_seconds_max = stop_seconds_max
        self._backoff = backoff
        self._failures = 0
        self._was_ready = False
        self._unwanted = asyncio.Event()
        self._is_cycling = False
        self._lives = 0
        self._reason = ""
        self._woken = asyncio.Event()
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def pid(self) -> int | None:
        return None if self.child is None or self.child.code is not None else self.child.pid

    async def run(self) -> None:
        """Keep it running until `stop`. The task of this keeper."""
        self._idle.clear()
        try:
            await self._keep()
        finally:
            self._idle.set()

    async def _keep(self) -> None:
        clock, randomness = self._runtime.clock, self._runtime.randomness
        while not self._unwanted.is_set():
            await self._live()
            if self._unwanted.is_set():
                break
            if self._is_cycling:
                self._is_cycling = False
                continue
            self.restarts += 1
            is_hopeless = not self._was_ready and self._failures >= FAILURES_UNREADY_MAX
            if is_hopeless or self._code() == EXIT_USAGE:
                self._set(ProcessState.FAILED, f"given up: {self._how_it_ended()}")
                seconds = None
            else:
                seconds = self._backoff.delay_seconds(self._failures - 1, randomness)
                self._set(ProcessState.PAUSED, f"{self._how_it_ended()}; again in {seconds:.1f} s")
            with suppress(TimeoutError):
                async with clock.timeout(seconds):
                    await self._woken.wait()
            self._woken.clear()
            self._is_cycling = False
        self._set(ProcessState.STOPPED)

    async def cycle(self) -> None:
        """End it and start it as `make` now says; returns when it is ready.

        Raises ClusterFailed when it does not become so.
        """
        life = self._lives + 1
        self._is_cycling = True
        self._failures, self._was_ready = 0, False
        self._woken.set()
        await self._end()
        await self.wait_ready(life=life)

    async def wait_ready(self, *, life: int = 0) -> None:
        """Raises ClusterFailed when it is given up or stopped instead."""
        while not (self.state is ProcessState.READY and self._lives >= life):
            is_over = (
                self.state in (ProcessState.FAILED, ProcessState.STOPPED) and self._lives >= life
            )
            if is_over or self._unwanted.is_set():
                raise ClusterFailed(self.story())
            await self._changed.wait()

    async def stop(self) -> None:
        """End it for good; returns when `run` has ended too."""
        self._unwanted.set()
        self._woken.set()
        await self._end()
        await self._idle.wait()

    def kill(self) -> None:
        """End it at once, for good."""
        self._unwanted.set()
        self._woken.set()
        if self.child is not None:
            self.child.signal(signal.SIGKILL)

    def set_health(self, *, is_healthy: bool, note: str = "") -> None:
        """What a look from outside has shown, of a process that had said it was ready."""
        if self.state is ProcessState.READY and not is_healthy:
            self._set(ProcessState.UNREADY, note)
        elif self.state is ProcessState.UNREADY and is_healthy:
            self._set(ProcessState.READY)

    def story(self) -> str:
        """What has become of it, with the end of its log."""
        tail = self.child.tail if self.child is not None else ""
        text = f"{self.name} {self.note or self.state.value}; its log: {self.log.path}"
        return f"{text}\n{_indented(tail)}" if tail else text

    async def _live(self) -> None:
        """One life, from start to end."""
        clock = self._runtime.clock
        self._woken.clear()
        self._reason = ""
        self._lives += 1
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
        if self.state is ProcessState.STARTING:  # else it is being stopped already
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

    def _how_it_ended(self) -> str:
        code = self._code()
        if self._reason:
            return self._reason
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"

    def _set(self, state: ProcessState, note: str = "") -> None:
        self.state, self.note = state, note
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._on_change(self)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
