"""One child process: it cannot outlive its parent, its output is logged, and it can be stopped.

Its end is detected through a pidfd, so no signal handler and no thread is needed, and no other
process can be signalled by mistake. Not here: whether to restart it.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from restow.aio import Clock
from restow.localcluster.logs import LineBuffer, LogSink
from restow.localcluster.orphans import BOOT_ID_UNKNOWN, boot_id, started_ticks
from restow.localcluster.state import ProcessRecord

READ_BYTES: Final = 64 * 1024
READY_WORD: Final = "ready"
_LAUNCHER: Final = Path(__file__).with_name("launch.py")

Probe = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a process."""

    command: tuple[str, ...]
    fds: tuple[int, ...] = ()
    """File descriptors that it inherits under the same numbers."""
    probe: Probe | None = None
    """Checks whether it is ready; without a probe it prints a line that begins with `ready`."""


class Child:
    """A process that runs or has ended. Start it from the main thread: it dies with that thread."""

    def __init__(self, name: str, launch: Launch, log: LogSink) -> None:
        self.name = name
        self.code: int | None = None
        """The exit code; the negative number of a signal; None while it runs."""
        self._log = log
        self._lines = LineBuffer()
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._output, inner = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own arguments
                [*launcher(), *launch.command],
                stdin=subprocess.DEVNULL,
                stdout=inner,
                stderr=inner,
                pass_fds=launch.fds,
                start_new_session=True,  # Ctrl-C is for the parent, which stops in order
            )
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(inner)
        os.set_blocking(self._output, False)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._output, self._on_output)
        self._loop.add_reader(self._pidfd, self._on_end)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    @property
    def tail(self) -> str:
        """The last lines of its output."""
        return "\n".join(self._lines.tail)

    def record(self) -> ProcessRecord:
        """The fields that identify this process uniquely."""
        return ProcessRecord(
            name=self.name,
            pid=self.pid,
            started_ticks=started_ticks(self.pid) or 0,
            boot_id=boot_id() or BOOT_ID_UNKNOWN,
        )

    async def wait_ready(self) -> None:
        """Wait until it has printed that it is ready."""
        await self._ready.wait()

    def become_ready(self) -> None:
        self._ready.set()

    async def wait(self) -> int:
        """Wait until it has ended, and return the exit code."""
        await self._ended.wait()
        assert self.code is not None
        return self.code

    def signal(self, number: signal.Signals) -> None:
        if self.code is None:
            self._process.send_signal(number)

    async def end(self, clock: Clock, *, grace_seconds: float) -> None:
        """Stop it with SIGTERM, then with SIGKILL after the grace period."""
        self.signal(signal.SIGTERM)
        try:
            async with clock.timeout(grace_seconds):
                await self.wait()
        except TimeoutError:
            self._log.write(f"{self.name} did not stop within {grace_seconds:g} s\n".encode())
            self.signal(signal.SIGKILL)
            await self.wait()

    def _on_output(self) -> None:
        try:
            data = os.read(self._output, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            self._close_output()
            return
        self._log.write(data)
        for line in self._lines.feed(data):
            if line.startswith(READY_WORD):
                self._ready.set()

    def _on_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        while self._output >= 0:  # read the remaining output
            before = self._output
            self._on_output()
            if before == self._output and not _has_data(before):
                self._close_output()
        self.code = self._process.wait()
        self._ended.set()

    def _close_output(self) -> None:
        self._lines.end()
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._output = -1


def launcher() -> list[str]:
    """The command prefix that makes a program end with this process."""
    return [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid())]


def restow_command(*words: str) -> tuple[str, ...]:
    """The command line of another process of this restow, for any current directory."""
    return (sys.executable, "-P", "-m", "restow", *words)


def _has_data(file: int) -> bool:
    return bool(select.select([file], [], [], 0)[0])
