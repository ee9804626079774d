"""Servers with loose coordination: only a census of the store can verify a migration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.cli.controllers_census import CensusTaker
from restow.cli.main import main
from restow.migration.trigger.values import UNKNOWN
from tests.support.server_process import ServerProcess
from tests.unit.census.stores import as_json, as_protobuf, fill

DEPLOYMENTS = GroupResource("apps", "deployments")
PODS = GroupResource("", "pods")
SECRETS = GroupResource("", "secrets")
CONFIG_MAPS = GroupResource("", "configmaps")
KNOWN = (DEPLOYMENTS, PODS, SECRETS, CONFIG_MAPS)
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
STATE = "/apis/migration.k8s.io/v1alpha1/storagestates/widgets.example.com"
LOOSE = ("--coordination", "vote", "--guarantee", "loose", "--release")


def hash_of(version: str, kind: str) -> str:
    return storage_version_hash(GroupVersionKind.of(version, kind))


async def test_the_report_counts_versions_by_hash(tmp_path: Path) -> None:
    """Each version by its hash, unreadable values as unknown, and the start of the census."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    await fill(
        address,
        {
            "/registry/deployments/default/a": as_protobuf("apps/v1", "Deployment"),
            "/registry/deployments/default/b": as_json("apps/v1beta1", "Deployment"),
            "/registry/pods/default/a": as_json("v1", "Pod"),
            "/registry/pods/default/b": b"garbage",
            "/registry/secrets/default/a": b"k8s:enc:aescbc:v1:key1:?",
            "/registry/configmaps/default/a": as_json("no/such/version", "ConfigMap"),
        },
    )
    clock = SimulatedClock()
    taker = CensusTaker(address, Runtime.simulated(1, clock=clock))
    assert taker(PODS) is None
    await clock.advance(100)
    begun = clock.monotonic()
    await taker.take()
    found = {each: taker(each) for each in (*KNOWN, GroupResource("", "none"))}
    assert {each and each.begun_seconds for each in found.values()} == {begun}
    assert [each.found for each in found.values() if each is not None] == [
        {hash_of("apps/v1", "Deployment"), hash_of("apps/v1beta1", "Deployment")},
        {hash_of("v1", "Pod"), UNKNOWN},
        {UNKNOWN},
        {UNKNOWN},
        frozenset(),
    ]


def test_a_migration_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All objects are rewritten, the result is reported as unverified, and no hash is removed."""
    server = ServerProcess(tmp_path / "data", arguments=(*LOOSE, "x+1"))
    with server:
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
        assert server.request("POST", WIDGETS, widget)[0] == 201
        server.stop()
        server.arguments = (*LOOSE, "x+2")
        server.start()
        for _ in range(2):
            words = ["migrate", "--kubeconfig", str(server.kubeconfig), "widgets", "-o", "json"]
            assert main(words) == 0
            (found,) = json.loads(capsys.readouterr().out)
            assert found["verdict"] == "succeeded"
            assert "not proven" in found["message"]
        assert main(["census", "--store", server.store, "widgets.example.com"]) == 0
        code, body = server.request("GET", STATE)
        assert code == 200
        persisted = json.loads(body)["status"]["persistedStorageVersionHashes"]
        assert hash_of("example.com/v1", "Widget") in persisted
