"""Real `restow controllers` processes beside real servers, for tests and demonstrations.

    with ControllersProcess(directory, kubeconfig=server.kubeconfig) as running:
        running.kill()

Everything here is synchronous. Only processes that were started here are ever signalled. What a
process says is in files of its directory; each start begins a new life there, and the log goes on.

Not here: what the controllers do, and what is said to the servers.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time  # noqa: TID251  (real processes live in real time)
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.error import HTTPError

from restow.testing.server_process import die_with_parent

START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20.0
REQUEST_SECONDS_MAX: Final = 10.0
_POLL_SECONDS: Final = 0.01
_LOG_CHARACTERS_SHOWN: Final = 4_000
_READY: Final = re.compile(r"^ready: .*:(\d+)/healthz$", re.MULTILINE)


class ControllersFailed(Exception):
    """The controllers did not start, or did not stop; the text has the end of their log."""


class ControllersProcess:
    """Controllers: their directory, their arguments, and their process while there is one."""

    def __init__(self, directory: Path, *, kubeconfig: Path, arguments: Sequence[str] = ()) -> None:
        """Nothing is started yet."""
        self.directory = directory
        self.kubeconfig = kubeconfig
        self.arguments = tuple(arguments)
        self.port = 0
        """Of probes and metrics, when it is ready."""
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def out_file(self) -> Path:
        """What it printed, for scripts."""
        return self.directory / "controllers.out"

    @property
    def log_file(self) -> Path:
        """What it logged, for people."""
        return self.directory / "controllers.log"

    @property
    def pid(self) -> int:
        return self._running().pid

    def command(self) -> list[str]:
        return [
            *die_with_parent(),
            *(sys.executable, "-m", "restow", "controllers"),
            *("--kubeconfig", str(self.kubeconfig)),
            *("--port", "0"),
            *self.arguments,
        ]

    def launch(self) -> Self:
        """Start the process; it is not ready yet."""
        assert self.process is None, f"the controllers in {self.directory} run already"
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.out_file.open("wb") as out, self.log_file.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  (our own arguments)
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )
        return self

    def start(self) -> Self:
        """Start the process and wait until it is ready."""
        return self.launch().wait_ready()

    def wait_ready(self, *, seconds_max: float = START_SECONDS_MAX) -> Self:
        deadline = time.monotonic() + seconds_max
        while True:
            found = _READY.search(self.out_file.read_text(errors="replace"))
            if found is not None:
                self.port = int(found[1])
                return self
            code = self._running().poll()
            if code is not None:
                self.process = None
                raise ControllersFailed(f"exit code {code} before ready:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ControllersFailed(f"not ready in time:\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self, *, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """Ask it to stop, wait until it has, and return its exit code."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ControllersFailed(f"it does not stop:\n{self.log_tail()}") from None
        self.process = None
        return code

    def kill(self) -> None:
        """End it at once, as a power cut would; nothing happens if it has ended already."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Let it stand still, as a stopped virtual machine does, until `resume`."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page: /healthz, /readyz, /metrics."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=REQUEST_SECONDS_MAX) as answer:
                return int(answer.status), answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_tail(self) -> str:
        return self.log()[-_LOG_CHARACTERS_SHOWN:]

    def _running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "no process"
        return self.process
