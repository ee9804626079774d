"""The raw values of a store that no restow server scans: that of stock Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource
from restow.cli.preflight_store import keys_of_file, scan_source
from restow.client import ApiClient, InProcessResponse, InProcessTransport
from restow.migration.preflight import (
    ClusterView,
    Evidence,
    Reason,
    ResourceView,
    find_target,
    judge,
)
from restow.storage.drivers import open_storage
from restow.storage.errors import OpenRefused
from restow.storage.interface import Key, Put, Transaction

UID = "11111111-2222-3333-4444-555555555555"
CRONJOBS = "/registry/cronjobs/default/a"
KEYS = """\
kind: EncryptionConfiguration
apiVersion: apiserver.config.k8s.io/v1
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: key1, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}]}
  - identity: {}
"""


def client(uid: str = UID) -> ApiClient:
    """A client of a server that has only the namespace kube-system."""

    async def answer(*_request: object) -> InProcessResponse:
        body = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "x", "uid": uid}}
        return InProcessResponse(200, orjson.dumps(body))

    return ApiClient(InProcessTransport(answer, server="stock"), runtime=Runtime.system())


async def store(directory: Path, **values: dict[str, Any] | bytes) -> str:
    """A store with these values, and the namespace that identifies the cluster."""
    directory.chmod(0o700)
    address = f"sqlite:{directory / 'store.db'}"
    storage = await open_storage(address, Runtime.system())
    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"uid": UID}}
    for key, value in {"/registry/namespaces/kube-system": namespace, **values}.items():
        data = value if isinstance(value, bytes) else orjson.dumps(value)
        await storage.commit(Transaction(writes=(Put(Key(key), data),)))
    await storage.close()
    return address


def cron_job(version: str) -> dict[str, Any]:
    return {"kind": "CronJob", "apiVersion": f"batch/{version}", "metadata": {"name": "a"}}


def view(**fields: Any) -> ClusterView:
    jobs = ResourceView(resource=GroupResource("batch", "cronjobs"), kind="CronJob")
    return ClusterView(resources=(jobs,), kubernetes_minor=35, **fields)


@pytest.mark.parametrize(("version", "reasons"), [("v1", []), ("v1beta1", [Reason.UNDECODABLE])])
async def test_raw_values_decide(tmp_path: Path, version: str, reasons: list[Reason]) -> None:
    """An object in an old version blocks the release that cannot read it, and no other."""
    address = await store(tmp_path, **{CRONJOBS: cron_job(version)})
    async with client() as stock:
        scan = await scan_source(stock, address, keys_file=None, runtime=Runtime.system())
    report = judge(view(scan=scan), find_target("1.36", is_restow=False))
    assert [each.reason for each in report.blockers] == reasons
    assert report.evidence is Evidence.SCAN
    assert address in report.scanned
    without = judge(view(), find_target("1.36", is_restow=False))
    assert without.verdict == "unknown", "discovery alone is not enough"


async def test_encrypted_values_need_the_keys(tmp_path: Path) -> None:
    """Values that are not decrypted are blockers, and the remedy is to pass the configuration."""
    sealed = b"k8s:enc:aesgcm:v1:key1:0123456789012345678901234567890123456789"
    address = await store(tmp_path, **{"/registry/secrets/default/a": sealed})
    async with client() as stock:
        scan = await scan_source(stock, address, keys_file=None, runtime=Runtime.system())
    secrets = ResourceView(resource=GroupResource("", "secrets"), kind="Secret")
    cluster = ClusterView(resources=(secrets,), kubernetes_minor=35, scan=scan)
    (found,) = judge(cluster, find_target("1.36", is_restow=False)).blockers
    assert found.reason is Reason.UNREADABLE
    assert "--encryption-provider-config" in found.advice


async def test_the_store_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """The store of another cluster is refused, by the uid of the namespace kube-system."""
    address = await store(tmp_path)
    async with client(uid="another") as stock:
        with pytest.raises(OpenRefused, match="is not the store of this cluster"):
            await scan_source(stock, address, keys_file=None, runtime=Runtime.system())


def test_keys_of_a_configuration(tmp_path: Path) -> None:
    """Each resource has the keys of its own rule; the fingerprint distinguishes secrets with the
    same name."""
    path = tmp_path / "keys.yaml"
    path.write_text(KEYS)
    keys = keys_of_file(path)
    key, plain = keys(GroupResource("", "secrets"))
    assert key.startswith("aesgcm:key1:")
    assert plain == "identity"
    assert keys(GroupResource("", "pods")) == ("identity",)
    with pytest.raises(OpenRefused, match="cannot be read"):
        keys_of_file(tmp_path / "missing.yaml")
