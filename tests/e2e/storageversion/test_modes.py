"""Coordination switched off and on again, and servers in different modes."""

from __future__ import annotations

import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.cli.main import main
from restow.storage.interface import Span, Storage
from restow.storageversion.object_codec import REPORTS_PREFIX
from restow.storageversion.raw_scan import version_of
from tests.e2e.storageversion.clusters import (
    LEASES,
    REPORTS,
    SHORT_LEASE,
    STATES,
    V1,
    WIDGETS_NAME,
    Cluster,
    add_widget,
    call,
    common,
    entries,
    report,
    wait_for,
)
from tests.support.child_process import ProcessFailed
from tests.support.server_process import ServerProcess

OFF = ("--feature-gates", "StorageVersionAPI=false,APIServerIdentity=false")
CHANGE = "--change-coordination-mode"
# For a single server, whose lease no other server could find expired.
BRIEF = (
    *("--identity-lease-duration-seconds", "1"),
    *("--identity-lease-renew-interval-seconds", "0.4"),
)


def count(server: ServerProcess, path: str) -> int:
    return len(call(server, "GET", path)["items"])


def is_served(server: ServerProcess) -> bool:
    """Returns whether a server lists the StorageVersion API in all discovery documents."""
    groups = {each["name"] for each in call(server, "GET", "/apis")["groups"]}
    document = server.get("/apis/internal.apiserver.k8s.io/v1alpha1")[0] == 200
    schemas = (
        "apis/internal.apiserver.k8s.io/v1alpha1" in call(server, "GET", "/openapi/v3")["paths"]
    )
    paths = REPORTS in call(server, "GET", "/openapi/v2")["paths"]
    found = {"internal.apiserver.k8s.io" in groups, document, schemas, paths}
    assert len(found) == 1, found
    return found.pop()


def test_runtime_config(cluster: Cluster) -> None:
    """An API version that is switched off is not served, as in kube-apiserver; the server still
    reports, and an unknown API version is refused in one line."""
    internal, migration = "internal.apiserver.k8s.io/v1alpha1", "storagemigration.k8s.io"
    flag = f"--runtime-config={internal}=false,{migration}/v1beta1=false"
    with cluster.server("x+1", flag) as server:
        assert not is_served(server)
        assert server.get(f"/apis/{migration}/v1beta1/storageversionmigrations")[0] == 404
        assert server.get(f"/apis/{migration}/v1/storageversionmigrations")[0] == 200
        add_widget(server, "a")
        assert cluster.encoders(cluster.id_of(server))
        assert f"{REPORTS_PREFIX}{WIDGETS_NAME}" in cluster.keys(REPORTS_PREFIX)
        assert server.stop() == 0
    with pytest.raises(ProcessFailed) as refused:
        cluster.server("x+1", "--runtime-config=example.org/v1=false").start()
    [line] = [each for each in str(refused.value).splitlines() if each.startswith("restow serve: ")]
    assert "--runtime-config: example.org/v1 names the group 'example.org'" in line
    assert "Traceback" not in str(refused.value)


def test_gates_off_and_on(cluster: Cluster) -> None:
    """With the gates off a server writes at once, without StorageVersions and leases; it does
    not serve the StorageVersion API (KEP-2339). With the gates on again it reports as before."""
    with cluster.server("x+1") as server:
        add_widget(server, "with-fence")
        states = count(server, STATES)
        assert states == count(server, REPORTS)
        assert server.stop() == 0
        server.arguments = (*server.arguments, *OFF)
        server.start()
        assert count(server, LEASES) == 0
        assert not is_served(server)
        assert server.get(REPORTS)[0] == 404
        assert cluster.keys(REPORTS_PREFIX) == []
        assert count(server, STATES) == states
        add_widget(server, "without-fence")
        assert server.get("/readyz")[0] == 200
        assert cluster.keys("/restow/encoders/") == []
        assert server.stop() == 0
        assert (cluster.members(), cluster.identity_leases()) == (set(), set())
        server.arguments = server.arguments[: -len(OFF)]
        server.start()
        assert is_served(server)
        assert common(server) == V1
        add_widget(server, "with-fence-again")
        assert cluster.identity_leases() == {cluster.id_of(server)}


def test_gates_off_after_a_kill(cluster: Cluster) -> None:
    """Entries of a killed server do not keep one with the gates off from starting, if it may
    change modes. It unsets the common version before its first write, and garbage collects the
    entries when their lease has expired."""
    killed = cluster.server("x+1", *BRIEF).start()
    lost = cluster.id_of(killed)
    killed.kill()
    with cluster.server("x+1", *BRIEF, *OFF, CHANGE) as server:
        add_widget(server, "without-fence")
        assert not is_served(server)
        wait_for(
            lambda: not cluster.records_of(lost), "its entries are collected", servers=[server]
        )
        assert server.stop() == 0
    [again] = cluster.start("x+1")
    assert common(again) == V1


def test_another_mode(cluster: Cluster) -> None:
    """A server that would write without a fence beside others is refused in one clear line; if
    it may change modes it starts, and there is no common version while it runs."""
    [fenced] = cluster.start("x+1")
    with pytest.raises(ProcessFailed) as refused:
        cluster.server("x+1", *OFF).start()
    [line] = [each for each in str(refused.value).splitlines() if each.startswith("restow serve: ")]
    assert "this server would coordinate in mode 'off', but others run in report" in line
    assert CHANGE in line
    assert "Traceback" not in str(refused.value)
    assert common(fenced) == V1

    with cluster.server("x+1", *SHORT_LEASE, *OFF, CHANGE) as careless:
        # Not afterwards: a server without a fence waits for this before it writes.
        [condition] = report(fenced)["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "UnfencedServer")
        assert cluster.id_of(careless) in condition["message"]
        assert common(fenced) is None
        assert set(entries(fenced)) == {cluster.id_of(fenced)}
        for server in (fenced, careless):
            add_widget(server, f"by-{server.port}")
        careless.kill()
    wait_for(lambda: common(fenced) == V1, "they agree again", servers=[fenced])
    assert report(fenced, WIDGETS_NAME)["conditions"][0]["status"] == "True"


def test_mixed_modes_are_never_called_safe(cluster: Cluster) -> None:
    """Servers in the modes report, strict and loose side by side, one of them killed: preflight
    calls no release safe, and the StorageState lists every stored version, or "Unknown"."""
    [report_mode] = cluster.start("x+1")
    votes = [("--coordination", "vote", "--guarantee", each) for each in ("strict", "loose")]
    servers = [report_mode]
    for number, words in enumerate(votes):
        server = cluster.server("x+2", *SHORT_LEASE, *words, CHANGE).start()
        servers.append(server)
        add_widget(report_mode, f"report-{number}")
        add_widget(server, f"vote-{number}")
        check_never_safe(cluster, report_mode)
    servers[1].kill()
    check_never_safe(cluster, report_mode)
    add_widget(servers[2], "after-the-kill")
    check_never_safe(cluster, report_mode)


def check_never_safe(cluster: Cluster, server: ServerProcess) -> None:
    for release in ("x", "x+1", "x+2", "x+3"):
        words = ["preflight", "--to", release, "--kubeconfig", str(server.kubeconfig)]
        assert main(words) == 1, f"{release} is called safe"
    [state] = [
        each
        for each in call(server, "GET", STATES)["items"]
        if each["metadata"]["name"] == "widgets.example.com"
    ]
    listed = set(state["status"]["persistedStorageVersionHashes"])
    assert (
        "Unknown" in listed
        or {storage_version_hash(GroupVersionKind.of(each, "Widget")) for each in stored(cluster)}
        <= listed
    )


def stored(cluster: Cluster) -> set[str]:
    """Returns the versions in which widgets are stored."""

    async def read(storage: Storage) -> set[str]:
        found = (await storage.range(Span.of_prefix("/registry/example.com/widgets/"))).items
        return {version_of(item.value) for item in found}

    return cluster.look(read)
