"""A kopf operator, run as its users run it: `kopf run --standalone`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from restow.testing.server_process import ServerProcess
from tests.e2e.api import kopf_operator
from tests.e2e.kopf_process import eventually, operator_of


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
    with operator_of(server, kopf_operator.__file__, log, namespace=namespace):
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
