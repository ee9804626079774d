"""Starts, awaits and ends a real restow process in a directory of its own.

Everything here is synchronous, so that fixtures of any scope can use it. Only processes that were
started here are ever signalled. The output of a process is in files of its directory; each start is
a new incarnation there, and the log is appended to.

Not here: which command runs, and requests to it (`server_process`, `controllers_process`).
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, ClassVar, Final, Protocol, Self

START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20.0
_POLL_SECONDS: Final = 0.01
_LOG_CHARACTERS_SHOWN: Final = 4_000
_RESTOW: Final = [sys.executable, "-m", "restow"]


class ProcessFailed(Exception):
    """A process did not start, or did not stop; the text has the end of its log."""


class Started(Protocol):
    """Required methods of a started process; a Popen has them."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


class Starter(Protocol):
    """Runs `restow` with arguments."""

    def start(self, words: Sequence[str], *, out: IO[bytes], log: IO[bytes]) -> Started: ...


class ChildProcess(ABC):
    """A directory, and a process if it is running."""

    NAME: ClassVar[str]
    """Prefix of its file names."""

    starter: ClassVar[Starter | None] = None
    """Optional: starts `restow` faster than a new process (`warm_start`)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: Started | None = None
        self._log_begin = 0
        """Where the log of this incarnation begins."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line."""

    @abstractmethod
    def is_ready(self, printed: str) -> bool:
        """Search for the ready line, and read the values for clients from it."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def out_file(self) -> Path:
        """Its standard output, for scripts."""
        return self.directory / f"{self.NAME}.out"

    @property
    def log_file(self) -> Path:
        """Its log."""
        return self.directory / f"{self.NAME}.log"

    @property
    def pid(self) -> int:
        return self._running().pid

    def launch(self) -> Self:
        """Start the process; it is not ready yet."""
        assert self.process is None, f"the {self.NAME} in {self.directory} is already running"
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.out_file.open("wb") as out, self.log_file.open("ab") as log:
            self._log_begin = log.tell()
            self.process = self._started(self.command(), out, log)
        return self

    def _started(self, command: list[str], out: IO[bytes], log: IO[bytes]) -> Started:
        if self.starter is not None and command[: len(_RESTOW)] == _RESTOW:
            return self.starter.start(command[len(_RESTOW) :], out=out, log=log)
        return subprocess.Popen(
            [*die_with_parent(), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
        )

    def start(self) -> Self:
        """Start the process and wait until it is ready."""
        return self.launch().wait_ready()

    def wait_ready(self, *, seconds_max: float = START_SECONDS_MAX) -> Self:
        self._wait_until(
            lambda: self.is_ready(self.out_file.read_text(errors="replace")),
            what="ready",
            seconds_max=seconds_max,
        )
        return self

    def _wait_until(self, check: Callable[[], bool], *, what: str, seconds_max: float) -> None:
        """Raises ProcessFailed when it ends before, or after a timeout, and then ends it."""
        deadline = time.monotonic() + seconds_max
        while not check():
            code = self._running().poll()
            if code is not None:
                self.process = None
                raise ProcessFailed(f"exit code {code} before it was {what}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ProcessFailed(f"not {what} in time:\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self, *, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """Send SIGTERM, wait until it has exited, and return its exit code."""
        self.send_stop_signal()
        return self.wait_stopped(seconds_max=seconds_max)

    def send_stop_signal(self) -> None:
        """Send the signal, and do not wait."""
        self._running().send_signal(signal.SIGTERM)

    def wait_stopped(self, *, seconds_max: float = STOP_SECONDS_MAX) -> int:
        try:
            code = self._running().wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailed(f"it does not stop:\n{self.log_tail()}") from None
        self.process = None
        return code

    def kill(self) -> None:
        """Kill it, like a power failure; a no-op if it has exited already."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stop its execution, like a suspended virtual machine, until `resume`."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_tail(self) -> str:
        return self.log()[-_LOG_CHARACTERS_SHOWN:]

    def _running(self) -> Started:
        assert self.process is not None, "no process"
        return self.process


def die_with_parent() -> list[str]:
    """A command prefix that makes the kernel kill a process when the thread that started it ends.

    So start processes from the main thread. Without `setpriv` a killed test run leaves them behind.
    """
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL"]
