"""Real `restow serve` processes on loopback ports, for tests, benchmarks and demonstrations.

    with ServerProcess(directory, store="sqlite:shared.db") as one, one.sibling(other) as two:
        subprocess.run(["kubectl", "--kubeconfig", one.kubeconfig, "get", "namespaces"])

Everything here is synchronous, so that fixtures of any scope can use it. Only processes that were
started here are ever signalled. What a server says is in files of its directory.

Not here: what is said to a server; every client finds its way by the kubeconfig.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time  # noqa: TID251  (real processes live in real time)
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.error import HTTPError

import yaml

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 20.0
REQUEST_SECONDS_MAX: Final = 10.0
_POLL_SECONDS: Final = 0.01
_LOG_CHARACTERS_SHOWN: Final = 4_000
_READY: Final = re.compile(r"^ready: (https://\S+:(\d+)) ", re.MULTILINE)
_LISTENING: Final = re.compile(rb" listening on (\S+) port (\d+)$", re.MULTILINE)


class ServerFailed(Exception):
    """A server did not start, or did not stop; the text has the end of its log."""


class ServerProcess:
    """One server: its directory, its arguments, and its process while it has one."""

    def __init__(
        self,
        data_dir: Path,
        *,
        store: str = "",
        arguments: Sequence[str] = (),
        port: int = 0,
    ) -> None:
        """Nothing is started yet. Port 0 is any free one; a restart keeps the port it got."""
        self.data_dir = data_dir
        self.store = store or f"sqlite:{data_dir / 'store.db'}"
        self.arguments = tuple(arguments)
        self.port = port
        self.url = ""
        self.token = ""
        """The administrator's, when the server is ready."""
        self.ca_pem = ""
        """What a client must trust in order to reach the server."""
        self.process: subprocess.Popen[bytes] | None = None
        self._log_begin = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "kubeconfig"

    @property
    def pki_dir(self) -> Path:
        return self.data_dir / "pki"

    @property
    def out_file(self) -> Path:
        """What it printed, for scripts."""
        return self.data_dir / "server.out"

    @property
    def log_file(self) -> Path:
        """What it logged, for people."""
        return self.data_dir / "server.log"

    @property
    def pid(self) -> int:
        assert self.process is not None, "no process"
        return self.process.pid

    def sibling(
        self, data_dir: Path, *, arguments: Sequence[str] = (), store: str = ""
    ) -> ServerProcess:
        """One more server of the same cluster: on the same store, with a copy of the keys."""
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copytree(self.pki_dir, data_dir / "pki", dirs_exist_ok=True)
        return ServerProcess(data_dir, store=store or self.store, arguments=arguments)

    def command(self) -> list[str]:
        return [
            *die_with_parent(),
            *(sys.executable, "-m", "restow", "serve"),
            *("--data-dir", str(self.data_dir)),
            *("--store", self.store),
            *("--port", str(self.port)),
            *self.arguments,
        ]

    def launch(self) -> None:
        """Start the process; it is not ready yet."""
        assert self.process is None, f"the server in {self.data_dir} runs already"
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.out_file.open("wb") as out, self.log_file.open("ab") as log:
            self._log_begin = log.tell()
            self.process = subprocess.Popen(  # noqa: S603  (our own arguments)
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> Self:
        """Start the process and wait until it is ready."""
        self.launch()
        return self.wait_ready()

    def wait_ready(self, *, seconds_max: float = START_SECONDS_MAX) -> Self:
        deadline = time.monotonic() + seconds_max
        while True:
            found = _READY.search(self.out_file.read_text(errors="replace"))
            if found is not None:
                self.url, self.port = found[1], int(found[2])
                self._read_kubeconfig()
                return self
            self._check_start(deadline, "ready")
            time.sleep(_POLL_SECONDS)

    def wait_listening(self, *, seconds_max: float = START_SECONDS_MAX) -> Self:
        """Wait until requests are answered, be it that it is not ready."""
        deadline = time.monotonic() + seconds_max
        while True:
            found = _LISTENING.search(self.log_file.read_bytes(), self._log_begin)
            if found is not None:
                self.port = int(found[2])
                self.url = f"https://{found[1].decode()}:{self.port}"
                self.token = (self.pki_dir / "admin.token").read_text().strip()
                self._trust((self.pki_dir / "ca.crt").read_text())
                return self
            self._check_start(deadline, "listening")
            time.sleep(_POLL_SECONDS)

    def _check_start(self, deadline: float, what: str) -> None:
        assert self.process is not None, "not launched"
        code = self.process.poll()
        if code is not None:
            self.process = None
            raise ServerFailed(f"exit code {code} before it was {what}:\n{self.log_tail()}")
        if time.monotonic() > deadline:
            self.kill()
            raise ServerFailed(f"not {what} in time:\n{self.log_tail()}")

    def _read_kubeconfig(self) -> None:
        config = yaml.safe_load(self.kubeconfig.read_bytes())
        self.token = str(config["users"][0]["user"]["token"])
        data = config["clusters"][0]["cluster"]["certificate-authority-data"]
        self._trust(base64.b64decode(data).decode())

    def _trust(self, ca_pem: str) -> None:
        self.ca_pem = ca_pem
        self._context = ssl.create_default_context(cadata=ca_pem)

    def stop(self, *, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """Ask it to stop, wait until it has, and return its exit code."""
        self.ask_to_stop()
        return self.wait_stopped(seconds_max=seconds_max)

    def ask_to_stop(self) -> None:
        """Send the signal, and do not wait."""
        assert self.process is not None, "no process"
        self.process.send_signal(signal.SIGTERM)

    def wait_stopped(self, *, seconds_max: float = STOP_SECONDS_MAX) -> int:
        assert self.process is not None, "no process"
        try:
            code = self.process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"it does not stop:\n{self.log_tail()}") from None
        self.process = None
        return code

    def pause(self) -> None:
        """Let it stand still, as a stopped virtual machine does, until `resume`."""
        assert self.process is not None, "no process"
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None, "no process"
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, as a power cut would; nothing happens if it has ended already."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> Self:
        """Stop it in good order, if it runs, and start it again on the same port."""
        if self.process is not None:
            self.stop()
        return self.start()

    def get(self, path: str, *, token: str | None = None) -> tuple[int, str]:
        """Status and body of one GET."""
        return self.request("GET", path, token=token)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Status and body of one request, by default as the administrator.

        The body is sent as JSON. A token of "" sends no credential.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)  # noqa: S310
        request.add_header("Content-Type", "application/json")
        token = self.token if token is None else token
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(  # noqa: S310  (https only)
                request, timeout=REQUEST_SECONDS_MAX, context=self._context
            ) as answer:
                return int(answer.status), answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def log_tail(self) -> str:
        if not self.log_file.exists():
            return ""
        return self.log_file.read_text(errors="replace")[-_LOG_CHARACTERS_SHOWN:]


def die_with_parent() -> list[str]:
    """A prefix that lets the kernel end a server when the thread that started it ends.

    So start servers from the main thread. Without `setpriv` a killed test run leaves them behind.
    """
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL"]
