"""Writes a data directory and an etcd snapshot with the restow release on PYTHONPATH.

    git worktree add --detach OLD COMMIT
    PYTHONPATH=OLD/src python tools/build_compatibility_data.py tests/data/stores/COMMIT

The stores have built-in and custom resources in two versions, values under two encryption keys, a
running migration and a paused one; servers and controllers were killed. The tests in
tests/e2e/compatibility open them with the current code. `objects.json` has every object as the old
server returned it. Only processes that were started here are signalled.
"""

from __future__ import annotations

import base64
import json
import lzma
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.encryption_files import write_encryption_file
from tests.support.etcd_process import start_etcd

RESTOW: Final = (sys.executable, "-P", "-m", "restow")
WAIT_SECONDS_MAX: Final = 120.0
MIGRATIONS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEAM: Final = "namespaces/team"
LISTS: Final = (
    "/api/v1/namespaces",
    f"/api/v1/{TEAM}/configmaps",
    f"/api/v1/{TEAM}/secrets",
    f"/apis/example.com/v1/{TEAM}/widgets",
    f"/apis/example.org/v1/{TEAM}/gadgets",
    "/apis/example.org/v1/tools",
)
ENCRYPTED: Final = ("secrets", "widgets.example.com", "gadgets.example.org")
KEPT: Final = ("store.db", "store.db-wal", "state.json", "keys.json", "pki")


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"timed out: {what}")
        time.sleep(0.1)


class Cluster:
    """`restow up` with two servers, used over HTTP."""

    def __init__(self, directory: Path, *words: str) -> None:
        self._directory = directory
        command = [*RESTOW, "up", "--data-dir=.", "--servers=2", "--port=0", "--release=x+1"]
        option = "--server-option=--encryption-provider-config=keys.json"
        self._process = subprocess.Popen(
            [*command, "--no-controllers", option, *words], cwd=directory
        )
        kubeconfig = directory / "kubeconfig"
        wait_for(kubeconfig.exists, "the cluster is ready")
        found = yaml.safe_load(kubeconfig.read_text())
        self._server = found["clusters"][0]["cluster"]["server"]
        self._token = found["users"][0]["user"]["token"]
        authority = base64.b64decode(found["clusters"][0]["cluster"]["certificate-authority-data"])
        self._context = ssl.create_default_context(cadata=authority.decode())

    def request(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self._server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/merge-patch+json"
                if method == "PATCH"
                else "application/json",
            },
        )
        with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
            return json.loads(answer.read())

    def kill(self) -> None:
        """Kill the supervisor; the kernel kills the servers with it."""
        self._process.kill()
        self._process.wait()


def crd(plural: str, kind: str, scope: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema}
        for name in ("v1", "v2")
    ]
    names = {"plural": plural, "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.org"},
        "spec": {"group": "example.org", "names": names, "scope": scope, "versions": versions},
    }


def store_as_v2(cluster: Cluster, name: str) -> None:
    found = cluster.request("GET", f"{CRDS}/{name}")
    for version in found["spec"]["versions"]:
        version["storage"] = version["name"] == "v2"
    cluster.request("PUT", f"{CRDS}/{name}", found)


def create(cluster: Cluster, path: str, api_version: str, kind: str, numbers: range) -> None:
    for number in numbers:
        body: dict[str, Any] = {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": f"{kind.lower()}-{number}"},
        }
        match kind:
            case "Secret":
                body["stringData"] = {"password": f"secret {number}"}
            case "ConfigMap":
                body["data"] = {"number": str(number)}
            case _:
                body["spec"] = {"number": number, "nested": {"list": [number, "a"]}}
        cluster.request("POST", path, body)


def fill(cluster: Cluster, keys: Path) -> None:
    """Create objects in both versions and under both keys."""
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    for plural, kind, scope in (("gadgets", "Gadget", "Namespaced"), ("tools", "Tool", "Cluster")):
        cluster.request("POST", CRDS, crd(plural, kind, scope))
    time.sleep(3)
    create(cluster, LISTS[1], "v1", "ConfigMap", range(20))
    create(cluster, LISTS[2], "v1", "Secret", range(20))
    create(cluster, LISTS[3], "example.com/v1", "Widget", range(40))
    create(cluster, LISTS[4], "example.org/v1", "Gadget", range(60))
    create(cluster, LISTS[5], "example.org/v1", "Tool", range(20))
    write_encryption_file(keys, "aesgcm:k2", "aesgcm:k1", "identity", resources=ENCRYPTED)
    time.sleep(15)  # until the servers have reloaded the file and agree on the new key
    for name in ("gadgets.example.org", "tools.example.org"):
        store_as_v2(cluster, name)
    time.sleep(5)
    create(cluster, LISTS[2], "v1", "Secret", range(20, 30))
    create(cluster, LISTS[4], "example.org/v1", "Gadget", range(60, 70))
    create(cluster, LISTS[5], "example.org/v1", "Tool", range(20, 25))


def migrate_halfway(cluster: Cluster, directory: Path) -> None:
    """One migration is paused, one runs and has saved a checkpoint when its process is killed."""
    for plural, notes in (("tools", {"migrator.restow.dev/paused": "true"}), ("gadgets", {})):
        body = {
            "apiVersion": "migration.k8s.io/v1alpha1",
            "kind": "StorageVersionMigration",
            "metadata": {"name": plural, "annotations": notes},
            "spec": {"resource": {"group": "example.org", "version": "v2", "resource": plural}},
        }
        cluster.request("POST", MIGRATIONS, body)
    command = [*RESTOW, "controllers", "--kubeconfig=kubeconfig", "--port=0", "--only=migrator"]
    migrator = subprocess.Popen([*command, "--rate=4", "--page-objects=10"], cwd=directory)
    try:
        wait_for(lambda: _is_halfway(cluster), "the migration runs")
    finally:
        migrator.kill()
        migrator.wait()


def _is_halfway(cluster: Cluster) -> bool:
    found = cluster.request("GET", f"{MIGRATIONS}/gadgets")
    types = {each["type"] for each in found.get("status", {}).get("conditions", [])}
    if types & {"Succeeded", "Failed"}:
        raise SystemExit(f"the migration finished too early: {found}")
    position = found["metadata"].get("annotations", {}).get("migrator.restow.dev/position", "{}")
    return "Running" in types and bool(json.loads(position).get("token"))


def read_objects(cluster: Cluster) -> dict[str, Any]:
    """Every object by its path, without the fields that a rewrite may change."""
    objects = {}
    for path in LISTS:
        for found in cluster.request("GET", path)["items"]:
            for name in ("resourceVersion", "managedFields"):
                found["metadata"].pop(name, None)
            objects[f"{path}/{found['metadata']['name']}"] = found
    return objects


def build(directory: Path, *words: str) -> dict[str, Any]:
    """Fill a new cluster and kill it; return its objects."""
    directory.mkdir(mode=0o700, exist_ok=True)
    keys = directory / "keys.json"
    write_encryption_file(keys, "aesgcm:k1", "identity", resources=ENCRYPTED)
    cluster = Cluster(directory, *words)
    try:
        fill(cluster, keys)
        migrate_halfway(cluster, directory)
        return read_objects(cluster)
    finally:
        cluster.kill()


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        objects = {"sqlite": build(place / "sqlite")}
        with tarfile.open(target / "directory.tar.xz", "w:xz") as archive:
            for each in KEPT:
                if (place / "sqlite" / each).exists():
                    archive.add(place / "sqlite" / each, arcname=each)
        (place / "etcd").mkdir(mode=0o700)
        shutil.copytree(place / "sqlite" / "pki", place / "etcd" / "pki")
        (place / "members").mkdir()
        with start_etcd(place / "members") as etcd:
            objects["etcd"] = build(place / "etcd", f"--store={etcd.url}")
            snapshot = place / "snapshot.db"
            subprocess.run([*RESTOW, "backup", str(snapshot), "--store", etcd.url], check=True)
        (target / "snapshot.db.xz").write_bytes(lzma.compress(snapshot.read_bytes()))
        data = json.dumps(objects, sort_keys=True).encode()
        (target / "objects.json.xz").write_bytes(lzma.compress(data))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
