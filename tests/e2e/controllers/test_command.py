"""`restow controllers` as a real process with a real server: start, work, takeover, end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server_process import ServerProcess

SECONDS_MAX = 60.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
STATES = "/apis/migration.k8s.io/v1alpha1/storagestates"


class Controllers:
    """A process, and its output."""

    def __init__(self, directory: Path, server: ServerProcess) -> None:
        self.out, self.log = directory / "out", directory / "log"
        with self.out.open("wb") as out, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "restow", "controllers"),
                    *("--kubeconfig", str(server.kubeconfig), "--port", "0"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
            )
        self.port = 0

    def wait_ready(self) -> Controllers:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            found = re.search(r"^ready: .*:(\d+)/healthz$", self.out.read_text(), re.MULTILINE)
            self.port = int(found[1]) if found else 0
            return bool(found)

        until(is_ready)
        return self

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server"), store="memory:") as running:
        yield running


@pytest.fixture
def start(server: ServerProcess, tmp_path: Path) -> Iterator[Callable[[], Controllers]]:
    """Starts processes; those that still run at the end are killed."""
    started: list[Controllers] = []

    def start_one() -> Controllers:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        started.append(Controllers(directory, server))
        return started[-1]

    yield start_one
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def items(server: ServerProcess, path: str) -> list[dict[str, Any]]:
    code, text = server.get(path)
    assert code == 200, text
    return list(json.loads(text)["items"])


def holder(server: ServerProcess, name: str) -> str:
    return str(json.loads(server.get(f"{LEASES}/{name}")[1])["spec"].get("holderIdentity", ""))


def is_narrowed(server: ServerProcess) -> bool:
    """Returns whether all reported resources have one persisted version."""
    states = items(server, STATES)
    return bool(states) and all(
        each["status"]["persistedStorageVersionHashes"]
        == [each["status"]["currentStorageVersionHash"]]
        for each in states
    )


def test_two_processes(server: ServerProcess, start: Callable[[], Controllers]) -> None:
    """One migrates everything; when it ends, the other takes over; at the end both leases are
    released."""
    one = start().wait_ready()
    two = start().wait_ready()
    until(lambda: is_narrowed(server))
    leader = holder(server, "restow-migrator")
    first, second = (one, two) if f"_{one.process.pid}_" in leader else (two, one)
    assert "[+]migrator ok" in first.get("/healthz")
    assert 'status="Succeeded"' in first.get("/metrics")
    assert second.get("/healthz").endswith("ok\n")
    assert first.end(signal.SIGTERM) == 0
    until(lambda: f"_{second.process.pid}_" in holder(server, "restow-migrator"))
    assert second.end(signal.SIGTERM) == 0, second.log.read_text()
    assert holder(server, "restow-migrator") == ""
    said = second.log.read_text()
    assert "Traceback" not in said, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_on_signals(start: Callable[[], Controllers], number: signal.Signals) -> None:
    """Either signal leads to exit code 0, without any error in the log."""
    running = start().wait_ready()
    assert running.end(number) == 0
    said = running.log.read_text()
    assert "Traceback" not in said, said
    assert "stopped" in said, said
