"""Servers of an earlier restow, from the repository's history, beside servers of the current one.

restow itself is upgraded by replacing one process after the other, so both serve one store for a
while. docs/reference/compatibility.md has the guarantees.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from restow.aio import Runtime
from restow.cli.main import main
from restow.kinds.releases import shipped_release
from restow.registry.catalog import release_catalog
from restow.storage.drivers import open_storage
from restow.storage.interface import EVERYTHING
from tests.e2e.localcluster.running import wait_for
from tests.sizes import SIZES
from tests.support.controllers_process import ControllersProcess
from tests.support.etcd_process import start_etcd
from tests.support.fire.clients import Target
from tests.support.fire.ledger import Ledger, found_in
from tests.support.fire.load_process import LoadPlan, LoadProcess
from tests.support.fire.objects import CONFIG_MAPS, NAMESPACES, SECRETS
from tests.support.fire.objects import WIDGETS as LOADED
from tests.support.fire.raw_audit import audit
from tests.support.fire.record import LoadRecord
from tests.support.fire.replay_check import check_operations
from tests.support.fire.truth import read_truth
from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.skipif(
    not SIZES.mixed_stores, reason="needs the history of the repository: `make prove`"
)

ROOT: Final = Path(__file__).parents[3]
COMMIT: Final = "04310b9"
LEASE: Final = (
    *("--identity-lease-duration-seconds", "5"),
    *("--identity-lease-renew-interval-seconds", "1"),
)
WIDGETS: Final = "/apis/example.com/v1/namespaces/default/widgets"
REPORT: Final = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/example.com.widgets"
KEPT: Final = ("--compaction-interval", "24h")
"""Nothing is compacted, so that all history can be checked."""
PER_SECOND: Final = 60.0
WRITES_MIN: Final = 300
LOAD_SECONDS_MAX: Final = 60.0
STATE: Final = "/apis/migration.k8s.io/v1alpha1/storagestates/widgets.example.com"


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the earlier restow."""
    git = shutil.which("git")
    found = None
    if git is not None:
        command = [git, "-C", str(ROOT), "archive", COMMIT, "src"]
        found = subprocess.run(command, capture_output=True, check=False)
    if found is None or found.returncode != 0:
        pytest.skip(f"commit {COMMIT} is not in the history of this checkout")
    path = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(path, filter="data")
    return path / "src"


class Cluster:
    """Two servers on one store; each can be replaced by one of other code."""

    def __init__(self, directory: Path, stack: ExitStack, store: str) -> None:
        self._directory = directory
        self._stack = stack
        self.store = f"sqlite:{directory / 'store.db'}"
        if store == "etcd":
            (directory / "members").mkdir()
            self.store = stack.enter_context(start_etcd(directory / "members")).url
        self.servers: dict[str, ServerProcess] = {}
        self._written = 0

    def replace(self, name: str, source: Path | None, release: str) -> ServerProcess:
        """Stops a server, if there is one, and starts its successor on its port."""
        before = self.servers.get(name)
        if before is not None:
            before.stop()
        server = _Server(
            self._directory / name,
            store=self.store,
            arguments=(*LEASE, *KEPT, "--release", release),
            port=before.port if before is not None else 0,
        )
        server.source = source
        server.data_dir.mkdir(mode=0o700, exist_ok=True)
        if self.servers and not server.pki_dir.exists():
            first = next(iter(self.servers.values()))
            shutil.copytree(first.pki_dir, server.pki_dir)
        self.servers[name] = self._stack.enter_context(server)
        return server

    def get(self, name: str, path: str) -> Any:
        status, answer = self.servers[name].get(path)
        assert status == 200, answer
        return json.loads(answer)

    def check(self, common: str | None) -> None:
        """Each server writes, and has the other one's writes and the same common version."""
        for server in self.servers.values():
            self._written += 1
            body = {
                "apiVersion": "example.com/v1",
                "kind": "Widget",
                "metadata": {"name": f"widget-{self._written}"},
            }
            status, answer = server.request("POST", WIDGETS, body)
            assert status == 201, answer
        for name in self.servers:
            assert len(self.get(name, WIDGETS)["items"]) == self._written
            status = self.get(name, REPORT)["status"]
            assert status.get("commonEncodingVersion") == common
            assert len(status["storageVersions"]) == len(self.servers)

    def start_load(self) -> LoadProcess:
        """Starts clients of both servers, whose responses are kept."""
        first = self.servers["a"]
        for name in NAMESPACES:
            body = {"metadata": {"name": name}}
            assert first.request("POST", "/api/v1/namespaces", body)[0] == 201
        target = Target(
            ports=tuple(each.port for each in self.servers.values()),
            token=first.token,
            ca_file=str(first.pki_dir / "ca.crt"),
        )
        resources = tuple(each.resource_name for each in (LOADED, CONFIG_MAPS, SECRETS))
        plan = LoadPlan(
            target=target, seed=1, per_second=PER_SECOND, resources=resources, watchers=0
        )
        load = LoadProcess(self._directory / "load", plan)
        self._stack.callback(load.kill)
        load.launch()
        wait_for(load.is_up, "the load runs", log=load.log_tail)
        return load

    def judge(self, load: LoadProcess) -> None:
        """Compares all objects and the whole log with the responses, after enough acknowledged
        writes."""
        wait_for(
            lambda: load.progress.acknowledged > WRITES_MIN,
            f"{WRITES_MIN} writes are acknowledged",
            log=load.log_tail,
        )
        load.send_stop_signal()
        assert load.wait_stopped(seconds_max=LOAD_SECONDS_MAX) == 0, load.log_tail()
        record = LoadRecord.load(load.record_file)
        ports = tuple(each.port for each in self.servers.values())
        for server in self.servers.values():
            server.stop()
        problems = asyncio.run(judged(self.store, record, ports))
        assert not problems, "\n".join(problems[:20])
        assert record.ended_well

    def hashes(self) -> list[str]:
        found: list[str] = self.get("a", STATE)["status"]["persistedStorageVersionHashes"]
        return found


class _Server(ServerProcess):
    """A server of other code, if it has a source."""

    source: Path | None = None

    def command(self) -> list[str]:
        words = super().command()
        return words if self.source is None else _with_source(self.source, words)


def _with_source(source: Path, words: list[str]) -> list[str]:
    return ["/usr/bin/env", f"PYTHONPATH={source}", *words]


@pytest.fixture(params=SIZES.mixed_stores)
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack, request.param)


async def judged(address: str, record: LoadRecord, ports: tuple[int, ...]) -> list[str]:
    """Returns the violations in the raw store and its log."""
    storage = await open_storage(address, Runtime.system())
    try:
        raw = found_in((await storage.range(EVERYTHING)).items)
        truth, problems = await read_truth(storage)
    finally:
        await storage.close()
    problems += Ledger.of(record.operations).compare(raw, where="raw store")
    problems += check_operations(record.operations, truth)
    catalog = release_catalog(shipped_release("x+2"))
    return problems + audit(truth, catalog, ports=ports).problems


def test_the_old_source_differs(old_source: Path) -> None:
    """The old source is not the installed code."""
    words = _with_source(old_source, [sys.executable, "-P", "-c", "import restow; print(restow)"])
    found = subprocess.run(words, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert str(old_source) in found.stdout


def test_restow_is_upgraded_and_downgraded_under_a_running_cluster(
    cluster: Cluster, old_source: Path, tmp_path: Path
) -> None:
    """Old and new servers agree, see each other's writes, follow a change of releases in both
    directions, and a migration is verified while both run; then all code is new."""
    cluster.replace("a", old_source, "x+1")
    cluster.replace("b", old_source, "x+1")
    cluster.check("example.com/v1")
    load = cluster.start_load()
    cluster.replace("a", None, "x+1")
    cluster.check("example.com/v1")
    cluster.replace("b", None, "x+1")
    cluster.check("example.com/v1")
    cluster.replace("b", old_source, "x+1")  # the upgrade of restow is rolled back
    cluster.check("example.com/v1")
    kubeconfig = cluster.servers["a"].kubeconfig
    with ControllersProcess(tmp_path / "controllers", kubeconfig=kubeconfig):
        cluster.replace("a", None, "x+2")
        cluster.check(None)
        cluster.replace("b", old_source, "x+2")
        cluster.check("example.com/v2")
        wait_for(
            lambda: len(cluster.hashes()) == 1 and "Unknown" not in cluster.hashes(),
            "the migration is verified",
            log=lambda: str(cluster.hashes()),
        )
        cluster.replace("b", None, "x+2")
        cluster.check("example.com/v2")
    assert main(["census", "widgets.example.com", "--store", cluster.store]) == 0
    cluster.judge(load)


@pytest.mark.parametrize("killed", ["a", "b"])
def test_an_expired_server_of_the_other_code_is_removed(
    cluster: Cluster, old_source: Path, killed: str
) -> None:
    """The entries of a killed server are removed after its lease has expired, by old code and by
    new code."""
    cluster.replace("a", old_source, "x+1")
    cluster.replace("b", None, "x+1")
    cluster.servers.pop(killed).kill()
    (left,) = cluster.servers
    wait_for(
        lambda: len(cluster.get(left, REPORT)["status"]["storageVersions"]) == 1,
        "the entry is removed",
        log=lambda: json.dumps(cluster.get(left, REPORT)),
    )
