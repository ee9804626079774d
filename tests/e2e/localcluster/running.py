"""A real `restow up`, run as a user does, and clients of the cluster.

Only processes that were started here are ever signalled.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Self

import yaml

from restow.localcluster.orphans import started_ticks

WAIT_SECONDS_MAX: Final = 90.0
POLL_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 0.03
"""Between two requests of one client."""
RESTOW: Final = (sys.executable, "-P", "-m", "restow")
CONFIGMAPS: Final = "/api/v1/namespaces/default/configmaps"


def wait_for(condition: Callable[[], object], what: str, *, log: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it does not come that {what}\n{log()}")
        time.sleep(POLL_SECONDS)


class Up:
    """One run of `restow up`."""

    def __init__(self, data_dir: Path, *words: str, command: str = "up") -> None:
        self.data_dir = data_dir
        self._command = [*RESTOW, command, f"--data-dir={data_dir}", *words]
        self._output = data_dir.with_name(f"{data_dir.name}.out")
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Everything ends with the supervisor, after any failure."""
        assert self.process is not None
        pids = self.pids()
        self.process.kill()
        self.process.wait()
        self.wait_until_ended(pids)

    @property
    def output(self) -> str:
        return self._output.read_text()

    def ready(self) -> Self:
        """Waits until it reports that it is ready."""
        assert self.process is not None
        process = self.process

        def logged() -> bool:
            assert process.poll() is None, f"it has ended:\n{self.output}"
            return any(line.startswith("ready") for line in self.output.splitlines())

        wait_for(logged, "it is ready", log=lambda: self.output)
        return self

    def stop(self) -> int:
        """Sends SIGINT; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_SECONDS_MAX)

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data_dir / "state.json").read_text())
        return found

    def pause(self, name: str) -> int:
        """Pauses a server (SIGSTOP) while it does not hold the write lock of the file; returns
        its PID."""
        pid = self.pids()[name]
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            assert time.monotonic() < deadline, f"{name} holds the write lock each time"
            os.kill(pid, signal.SIGSTOP)
            with closing(sqlite3.connect(self.data_dir / "store.db", timeout=1.0)) as store:
                try:
                    store.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    os.kill(pid, signal.SIGCONT)
                    time.sleep(POLL_SECONDS)
                else:
                    store.rollback()
                    return pid

    def pids(self) -> dict[str, int]:
        """Returns the processes by name, from state.json."""
        path = self.data_dir / "state.json"
        return (
            {each["name"]: each["pid"] for each in self.state()["processes"]}
            if path.exists()
            else {}
        )

    def wait_until_ended(self, pids: dict[str, int]) -> None:
        def have_ended() -> bool:
            return all(started_ticks(pid) is None for pid in pids.values())

        wait_for(have_ended, f"{pids} are gone", log=lambda: self.output)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs another restow command on the same data directory."""
        return subprocess.run(
            [*RESTOW, words[0], f"--data-dir={self.data_dir}", *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS_MAX,
        )

    def kubectl(self, *words: str) -> str:
        kubeconfig = self.data_dir / "kubeconfig"
        done = subprocess.run(
            ["kubectl", f"--kubeconfig={kubeconfig}", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS_MAX,
            env={**os.environ, "HOME": str(self.data_dir)},
        )
        assert done.returncode == 0, f"kubectl {words}: {done.stderr}\n{self.output}"
        return done.stdout


class Users:
    """Threads that send requests to the front port, with several kinds of connections, until
    stopped.

    A client with a kept-alive connection reconnects after a response with `Connection: close`, and
    never retries a request.
    """

    def __init__(self, kubeconfig: Path) -> None:
        found = yaml.safe_load(kubeconfig.read_text())
        self._server = str(found["clusters"][0]["cluster"]["server"]).removeprefix("https://")
        self._token = found["users"][0]["user"]["token"]
        self._context = ssl._create_unverified_context()
        self._ended = threading.Event()
        self.answers = {"new": 0, "kept": 0, "writing": 0}
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._use, args=(manner,), name=manner)
            for manner in self.answers
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _use(self, manner: str) -> None:
        connection: http.client.HTTPSConnection | None = None
        while not self._ended.wait(PAUSE_SECONDS):
            connection = connection or http.client.HTTPSConnection(
                self._server, context=self._context, timeout=WAIT_SECONDS_MAX
            )
            try:
                is_last = self._ask(connection, manner)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{manner}: {error!r}")
                is_last = True
            if is_last or manner == "new":
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _ask(self, connection: http.client.HTTPSConnection, manner: str) -> bool:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if manner == "writing":
            body = json.dumps({"metadata": {"generateName": "made-"}})
            connection.request("POST", CONFIGMAPS, body, headers)
        else:
            connection.request("GET", f"{CONFIGMAPS}?limit=1", headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            self.failures.append(f"{manner}: {answer.status} {text[:200]!r}")
        self.answers[manner] += 1
        return bool(answer.will_close)
