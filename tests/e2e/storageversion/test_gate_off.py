"""The feature gate StorageVersionAPI is off between two releases: no result is wrong afterwards.

One server at a time on one store. `x+1` writes v1, `x+2` with the gate off writes v2, and `x` reads
v1 only: it must not become ready, and no command may call it safe.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal

import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.storage.interface import Storage
from restow.storageversion.object_codec import decode_report, report_key
from tests.e2e.storageversion.clusters import (
    SHORT_LEASE,
    STATES,
    V1,
    V2,
    WIDGETS_NAME,
    Cluster,
    add_widget,
    call,
    is_ready,
    wait_for,
)
from tests.e2e.storageversion.conftest import NewCluster
from tests.support.controllers_process import ControllersProcess
from tests.support.server_process import ServerProcess

OFF = ("--feature-gates", "StorageVersionAPI=false,APIServerIdentity=false")
STATE = f"{STATES}/widgets.example.com"
UNREADABLE = "stored in versions that this server cannot read (1 in example.com/v2)"
COMMAND_SECONDS_MAX = 60
End = Literal["stop", "kill"]


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Iterator[Cluster]:
    made = new_cluster("sqlite")
    yield made
    made.close()


def restow(server: ServerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "restow", *words, "--kubeconfig", str(server.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )


def persisted(server: ServerProcess) -> list[str]:
    found: list[str] = call(server, "GET", STATE)["status"]["persistedStorageVersionHashes"]
    return found


def common(cluster: Cluster) -> Any:
    """Returns the common encoding version in the store, whatever the server serves."""

    async def read(storage: Storage) -> str | None:
        item = await storage.get(report_key(WIDGETS_NAME))
        return None if item is None else decode_report(item).report.common_version

    return cluster.look(read)


def go_on(server: ServerProcess, how: End, release: str, *arguments: str) -> ServerProcess:
    """Ends a server, and launches another release instead, on the same port."""
    if how == "stop":
        assert server.stop() == 0
    else:
        server.kill()
    # A server that was killed counts as running until its lease has expired.
    change = "--change-coordination-mode"
    server.arguments = ("--release", release, *SHORT_LEASE, change, *arguments)
    return server.launch()


@pytest.mark.parametrize("ends", ["stop", "kill"])
@pytest.mark.parametrize("has_controllers", [False, True], ids=["alone", "controllers"])
def test_a_release_that_cannot_read_versions_written_while_off(
    cluster: Cluster, ends: End, *, has_controllers: bool
) -> None:
    """Gate on, off with a newer release, on with an older one: it does not become ready, its
    StorageState lists "Unknown", and preflight and migrate report that it is not safe."""
    old, new = (
        storage_version_hash(GroupVersionKind.of(V1, "Widget")),
        storage_version_hash(GroupVersionKind.of(V2, "Widget")),
    )
    with ExitStack() as stack:
        server = cluster.server("x+1", *SHORT_LEASE).start()
        add_widget(server, "a")
        if has_controllers:
            directory = cluster.directory / "controllers"
            running = ControllersProcess(directory, kubeconfig=server.kubeconfig)
            stack.enter_context(running)
        else:
            migrated = restow(server, "migrate", "widgets.example.com")
            assert migrated.returncode == 0, migrated.stdout + migrated.stderr
        wait_for(lambda: persisted(server) == [old], "the state is narrowed", servers=[server])
        assert restow(server, "preflight", "--to", "x").returncode == 0

        go_on(server, ends, "x+2", *OFF).wait_ready()
        assert "Unknown" in persisted(server)
        assert common(cluster) is None
        add_widget(server, "b")
        asked = restow(server, "preflight", "--to", "x")
        assert asked.returncode != 0, asked.stdout

        go_on(server, ends, "x").wait_listening()
        wait_for(lambda: UNREADABLE in server.log_tail(), "it finds v2", servers=[server])
        assert not is_ready(server)
        assert "Unknown" in persisted(server)
        asked = restow(server, "preflight", "--to", "x")
        assert asked.returncode != 0, asked.stdout

        # And a release that reads both migrates it, after which the state is verified.
        go_on(server, ends, "x+2").wait_ready(seconds_max=60)
        wait_for(lambda: common(cluster) == V2, "the servers agree", servers=[server])
        if not has_controllers:
            migrated = restow(server, "migrate", "--all")
            assert migrated.returncode == 0, migrated.stdout + migrated.stderr
        wait_for(lambda: persisted(server) == [new], "the state is narrowed", servers=[server])
        wait_for(
            lambda: restow(server, "preflight", "--to", "x+3").returncode == 0,
            "a release that reads v2 is safe",
            servers=[server],
        )
        asked = restow(server, "preflight", "--to", "x")
        assert asked.returncode != 0, asked.stdout
