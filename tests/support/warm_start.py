"""Starts `restow` without importing it: forks from a process that has imported it already.

    ChildProcess.starter = WarmStarter()

Most of the work of a server until it is ready is to import its own code. Tests start hundreds of
servers, so one process does that once, waits, and forks for each start; from there on a process is
like any other, with a session, files, an environment and a working directory of its own. Exits of
processes are sent as messages, because only the parent can wait. Signals use a pidfd, so they never
reach another process with the same number.

Not here: which command is started. gRPC is not imported ahead: its threads do not survive a fork.
"""

from __future__ import annotations

import array
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from restow.cli.main import main
from tests.support.child_process import die_with_parent

IMPORTED: Final = (
    *("restow.cli.serve", "restow.cli.controllers"),
    *("restow.apiserver.server", "restow.apiserver.aggregated"),
    "restow.storage.sqlite",
)
"""Modules that nearly every start needs."""
MESSAGE_BYTES_MAX: Final = 1 << 20
EXITED_SECONDS_MAX: Final = 10.0
"""Timeout between the exit of a process and the message about it."""
_PR_SET_PDEATHSIG: Final = 1
_HANDLES_MAX: Final = 2


class WarmProcess:
    """A forked process; has the methods of a Popen that `ChildProcess` uses."""

    def __init__(self, starter: WarmStarter, pid: int, handle: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._starter = starter
        self._handle = handle

    def poll(self) -> int | None:
        if self.returncode is None and self._has_ended(0):
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, seconds_max: float | None) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(None if seconds_max is None else seconds_max * 1000))

    def _end(self) -> None:
        self.returncode = self._starter.code_of(self.pid)
        os.close(self._handle)


class WarmStarter:
    """Controls the forking process. It starts on first use, and ends with the calling process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._codes: dict[int, int] = {}
        """Exit codes that were not collected yet."""

    def start(self, words: Sequence[str], *, out: IO[bytes], log: IO[bytes]) -> WarmProcess:
        """Run `restow` with these arguments."""
        with self._lock:
            link = self._connected()
            request = {
                "words": list(words),
                "directory": str(Path.cwd()),
                "environment": dict(os.environ),
            }
            data = json.dumps(request).encode()
            assert len(data) <= MESSAGE_BYTES_MAX, "the environment is too large"
            socket.send_fds(link, [data], [out.fileno(), log.fileno()])
            while True:
                message, handles = _receive(link)
                if message is None:
                    raise AssertionError("the forking process has exited")
                if "started" in message:
                    return WarmProcess(self, message["started"], handles[0])
                self._codes[message["ended"]] = message["code"]

    def code_of(self, pid: int) -> int:
        """The exit code of a process that has exited."""
        deadline = time.monotonic() + EXITED_SECONDS_MAX
        with self._lock:
            link = self._connected()
            while pid not in self._codes:
                link.settimeout(max(deadline - time.monotonic(), 0.001))
                message, _ = _receive(link)
                assert message is not None, "the forking process has exited"
                self._codes[message["ended"]] = message["code"]
            link.settimeout(None)
            return self._codes.pop(pid)

    def close(self) -> None:
        """End it, and all processes that it has started."""
        with self._lock:
            if self._socket is not None and self._process is not None:
                self._socket.close()
                self._process.wait()
            self._socket = self._process = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            # It would end with another thread, and end all processes that it has started.
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("the first start must be in the main thread")
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for each in (self._socket, other):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES_MAX)
            with other:
                self._process = subprocess.Popen(
                    [
                        *(*die_with_parent(), sys.executable),
                        *("-m", "tests.support.warm_start", str(other.fileno())),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[other.fileno()],
                    start_new_session=True,
                )
        return self._socket


def _receive(link: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """A message and its file descriptors; None when the other side has closed."""
    data, handles, _, _ = socket.recv_fds(link, MESSAGE_BYTES_MAX, _HANDLES_MAX)
    return (json.loads(data) if data else None), list(handles)


class _Forking:
    """The forking process's end of the socket: forks on request, and reports exits."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._pids: dict[int, int] = {}
        """By pidfd."""

    def next_words(self) -> list[str]:
        """Returns only in forked processes, with their arguments."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._pids:
                    self._tell_end(descriptor)
                    continue
                request, handles = _receive(self._link)
                if request is None:
                    self._end_all()
                if self._forked(request, *handles):
                    return list(request["words"])

    def _forked(self, request: dict[str, Any], out: int, log: int) -> bool:
        """Fork; return True in the new process. The parent waits until that has its own session."""
        begun, begins = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(request, out, log)
            os.close(begun)
            os.close(begins)
            return True
        for descriptor in (out, log, begins):
            os.close(descriptor)
        os.read(begun, 1)  # returns at the end of the pipe, as nothing is written
        os.close(begun)
        self._tell_start(pid)
        return False

    def _tell_start(self, pid: int) -> None:
        handle = os.pidfd_open(pid)
        self._pids[handle] = pid
        self._poll.register(handle, select.POLLIN)
        message = json.dumps({"started": pid}).encode()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))]
        self._link.sendmsg([message], ancillary)

    def _tell_end(self, handle: int) -> None:
        pid = self._pids.pop(handle)
        self._poll.unregister(handle)
        os.close(handle)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._link.send(json.dumps({"ended": pid, "code": code}).encode())

    def _end_all(self) -> NoReturn:
        for handle in self._pids:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os._exit(0)

    def _become(self, request: dict[str, Any], out: int, log: int) -> None:
        """In the new process: drop everything that belongs to the old one."""
        os.setsid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(out, 1)
        os.dup2(log, 2)
        for descriptor in (out, log, *self._pids):
            os.close(descriptor)
        self._link.close()
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])


def run(descriptor: int) -> int:
    """Import, then fork on request; returns in each fork, with its exit code."""
    for name in IMPORTED:
        importlib.import_module(name)
    assert not any(name == "grpc" for name in sys.modules), "gRPC does not survive a fork"
    gc.collect()
    gc.freeze()
    words = _Forking(socket.socket(fileno=descriptor)).next_words()
    sys.argv = ["restow", *words]
    return main(words)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1])))
