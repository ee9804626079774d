"""A server behind the main one that reports nothing: controllers skip it, and report that."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.e2e.aggregated.stage import ask, until
from tests.support.aggregated_backend import JSON, AggregatedBackend, Asked, BackendConnection
from tests.support.controllers_process import ControllersProcess
from tests.support.server_process import ServerProcess

GROUP: Final = "silent.example.com"
SERVICE: Final = "silent"
ROOT: Final = f"/apis/{GROUP}/v1"
STATES: Final = "/apis/migration.k8s.io/v1alpha1/storagestates"
MIGRATIONS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]
THING: Final = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "Thing",
    "metadata": {"name": "one", "namespace": "default", "resourceVersion": "1", "uid": "u"},
}


async def answer(asked: Asked, line: BackendConnection) -> None:
    """An API with all verbs and a storage version hash, without StorageVersions."""
    path, body = urlsplit(asked.target).path, dict[str, Any]()
    if path == ROOT:
        thing = {"name": "things", "singularName": "thing", "namespaced": True, "kind": "Thing"}
        resource = {**thing, "verbs": VERBS, "storageVersionHash": "c2lsZW50IQ=="}
        body = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{GROUP}/v1",
            "resources": [resource],
        }
    elif path.startswith(f"{ROOT}/") and asked.method == "GET":
        metadata = {"resourceVersion": "1"}
        body = {
            "kind": "ThingList",
            "apiVersion": f"{GROUP}/v1",
            "metadata": metadata,
            "items": [THING],
        }
    status = "200 OK" if body else "404 Not Found"
    await line.answer(
        json.dumps(body or {"kind": "Status"}).encode(), status=status, headers=[JSON]
    )


@pytest.fixture
def backend(tmp_path: Path, main: ServerProcess) -> Iterator[AggregatedBackend]:
    """The server, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    starting = AggregatedBackend.start(
        tmp_path / "backend",
        host_names=[f"{SERVICE}.default.svc"],
        client_ca_file=main.pki_dir / "front-proxy-ca.crt",
    )
    made = asyncio.run_coroutine_threadsafe(starting, loop).result()
    made.script = answer
    yield made
    asyncio.run_coroutine_threadsafe(made.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_server_without_reports_is_skipped(
    main: ServerProcess, backend: AggregatedBackend, tmp_path: Path
) -> None:
    """While controllers migrate the main server's objects, such a server gets no writes and is
    not tracked; `restow status` shows that it is skipped, and why."""
    _register(main, backend)
    until(lambda: ask(main, "GET", f"{ROOT}/things")[0] == 200)
    with ControllersProcess(tmp_path / "controllers", kubeconfig=main.kubeconfig):
        until(lambda: "Unknown" not in _persisted(main, "configmaps"))
        status = _status(main)
    [things] = [each for each in status["resources"] if each["resource"] == f"things.{GROUP}"]
    assert things["verdict"] == "left alone"
    assert (
        f"{GROUP}: served by APIService v1.{GROUP}; reports no storage versions: left alone"
        in status["notes"]
    )
    assert {each.method for each in backend.asked} == {"GET"}
    assert ask(main, "GET", f"{STATES}/things.{GROUP}")[0] == 404
    _, requests = ask(main, "GET", MIGRATIONS)
    asked_for = {each["spec"]["resource"].get("group") for each in requests["items"]}
    assert GROUP not in asked_for
    assert ask(main, "DELETE", f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}")[0] == 200


def _register(main: ServerProcess, backend: AggregatedBackend) -> None:
    place = "/api/v1/namespaces/default"
    service = {"metadata": {"name": SERVICE}, "spec": {"ports": [{"port": 443}]}}
    assert ask(main, "POST", f"{place}/services", service)[0] == 201
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": backend.port}]}
    endpoints = {"metadata": {"name": SERVICE}, "subsets": [subset]}
    assert ask(main, "POST", f"{place}/endpoints", endpoints)[0] == 201
    spec = {
        "group": GROUP,
        "version": "v1",
        "service": {"namespace": "default", "name": SERVICE},
        "caBundle": base64.b64encode(backend.ca_pem.encode()).decode(),
        "groupPriorityMinimum": 1000,
        "versionPriority": 10,
    }
    api = {"metadata": {"name": f"v1.{GROUP}"}, "spec": spec}
    assert ask(main, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", api)[0] == 201


def _persisted(main: ServerProcess, resource: str) -> list[str]:
    _, found = ask(main, "GET", f"{STATES}/{resource}")
    hashes: list[str] = found["status"]["persistedStorageVersionHashes"]
    return hashes


def _status(main: ServerProcess) -> dict[str, Any]:
    words = ["status", "--kubeconfig", str(main.kubeconfig), "-o", "json"]
    command = [sys.executable, "-m", "restow", *words]
    done = subprocess.run(command, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
