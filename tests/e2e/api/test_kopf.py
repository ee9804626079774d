"""A kopf operator, run as its users run it: `kopf run --standalone`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from restow.testing.server_process import ServerProcess
from tests.e2e.api import kopf_operator

SECONDS_MAX: Final = 60.0


@contextmanager
def operator_of(server: ServerProcess, namespace: str, log: Path) -> Iterator[None]:
    """The operator at work in a namespace."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(log.parent),
        "KUBECONFIG": str(server.kubeconfig),
    }
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", namespace]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, str(kopf_operator.__file__)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
        )
    try:
        yield
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def eventually(condition: Callable[[], Any], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_operator(server: ServerProcess, namespace: str, tmp_path: Path) -> None:
    """It reacts to creations, changes and deletions; it adds a finalizer, patches, and reports."""
    path, log = f"/api/v1/namespaces/{namespace}/configmaps", tmp_path / "kopf.log"

    def read(name: str) -> Any:
        return json.loads(server.get(f"{path}/{name}")[1])["metadata"]

    def seen(name: str) -> str:
        annotations = read(name).get("annotations") or {}
        return str(annotations.get(kopf_operator.SEEN))

    def make(name: str, labels: dict[str, str]) -> None:
        body = {"metadata": {"name": name, "labels": labels}, "data": {"color": "red"}}
        assert server.request("POST", path, body)[0] == 201

    make("early", kopf_operator.LABELS)
    with operator_of(server, namespace, log):
        eventually(lambda: seen("early") == "created", log)
        make("late", kopf_operator.LABELS)
        make("other", {})
        eventually(lambda: seen("late") == "created", log)
        assert any("kopf" in each for each in read("late")["finalizers"])
        patch = {"data": {"color": "blue"}}
        kind = {"Content-Type": "application/merge-patch+json"}
        assert server.request("PATCH", f"{path}/late", patch, headers=kind)[0] == 200
        eventually(lambda: seen("late") == "updated to blue", log)
        assert server.request("DELETE", f"{path}/late")[0] == 200
        eventually(lambda: server.get(f"{path}/late")[0] == 404, log)
        assert "saw the end of late" in log.read_text()
        events = f"/api/v1/namespaces/{namespace}/events"
        eventually(lambda: "it was created" in server.get(events)[1], log)
    assert "annotations" not in read("other")
    assert "Traceback" not in log.read_text()
