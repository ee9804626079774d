"""Servers of an earlier restow, from the repository's history, beside servers of the present one.

restow itself is upgraded by replacing one process after the other, so both serve one store for a
while. docs/reference/compatibility.md says what is promised.
"""

from __future__ import annotations

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

from restow.cli.main import main
from tests.e2e.cluster.running import wait_for
from tests.support.controllers_process import ControllersProcess
from tests.support.server_process import ServerProcess

ROOT: Final = Path(__file__).parents[3]
COMMIT: Final = "04310b9"
LEASE: Final = (
    *("--identity-lease-duration-seconds", "5"),
    *("--identity-lease-renew-interval-seconds", "1"),
)
WIDGETS: Final = "/apis/example.com/v1/namespaces/default/widgets"
REPORT: Final = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/example.com.widgets"
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
    """Two servers on one SQLite store; each can be replaced by one of other code."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.store = f"sqlite:{directory / 'store.db'}"
        self.servers: dict[str, ServerProcess] = {}
        self._written = 0

    def replace(self, name: str, source: Path | None, release: str) -> ServerProcess:
        """Stop a server in good order, if there is one, and start its successor on its port."""
        before = self.servers.get(name)
        if before is not None:
            before.stop()
        server = _Server(
            self._directory / name,
            store=self.store,
            arguments=(*LEASE, "--release", release),
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
        """Each server writes, sees what the other one has written, and the same agreement."""
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

    def hashes(self) -> list[str]:
        found: list[str] = self.get("a", STATE)["status"]["persistedStorageVersionHashes"]
        return found


class _Server(ServerProcess):
    """A server of other code, if there is some."""

    source: Path | None = None

    def command(self) -> list[str]:
        words = super().command()
        return words if self.source is None else _with_source(self.source, words)


def _with_source(source: Path, words: list[str]) -> list[str]:
    return ["/usr/bin/env", f"PYTHONPATH={source}", *words]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def test_the_source_is_the_old_one(old_source: Path) -> None:
    """What is called old is not what is installed here."""
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
    cluster.replace("a", None, "x+1")
    cluster.check("example.com/v1")
    cluster.replace("b", None, "x+1")
    cluster.check("example.com/v1")
    cluster.replace("b", old_source, "x+1")  # the upgrade of restow is taken back
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
