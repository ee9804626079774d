"""Commands of a user who may not read everything: what is missing is marked."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.server_process import ServerProcess

LIMITED = ("--as", "eve", "--as-group", "system:authenticated")
BROKEN = "v1.broken.example.com"


def run(server: ServerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "restow", *words, "--kubeconfig", str(server.kubeconfig)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_status_is_marked(client_server: ServerProcess) -> None:
    """The result of an administrator is complete; that of a user with few rights is partial, in the
    table and in JSON, and no resource is ok."""
    complete = json.loads(run(client_server, "status", "-o", "json").stdout)
    assert complete["partial"] is False
    limited = run(client_server, "status", "-o", "json", *LIMITED)
    found = json.loads(limited.stdout)
    assert (limited.returncode, found["partial"]) == (0, True)
    assert "ok" not in {each["verdict"] for each in found["resources"]}
    assert any("forbidden" in note for note in found["notes"])
    text = run(client_server, "status", *LIMITED).stdout
    assert "\npartial: some data of the cluster could not be read, as the notes say\nnote: " in text


def test_preflight_is_not_safe(client_server: ServerProcess) -> None:
    """What could not be read is a blocker, so the answer is not safe."""
    done = run(client_server, "preflight", "--to", "builtin", "-o", "json", *LIMITED)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "unknown"
    assert "unseen" in {each["reason"] for each in found["blockers"]}


def test_migrate_reports_each_resource(client_server: ServerProcess) -> None:
    """A resource that may not be migrated is a failure with the message of the server."""
    done = run(client_server, "migrate", "secrets", "configmaps", "-o", "json", *LIMITED)
    assert done.returncode != 0
    assert "forbidden" in done.stdout + done.stderr


def test_migrate_all_names_undiscovered_apis(client_server: ServerProcess) -> None:
    """If an API cannot be discovered, the others are migrated, and the result is partial."""
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": BROKEN},
        "spec": {
            "group": "broken.example.com",
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": "default", "name": "nothing"},
        },
    }
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    code, text = client_server.request("POST", path, service)
    assert code == 201, text
    try:
        done = run(client_server, "migrate", "--all", "-o", "json")
        assert "restow migrate: partial: broken.example.com/v1 could not be read" in done.stderr
        assert done.returncode == 1
        assert {each["verdict"] for each in json.loads(done.stdout)} <= {"succeeded", "skipped"}
    finally:
        client_server.request("DELETE", f"{path}/{BROKEN}")
