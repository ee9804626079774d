"""`restow up`, as a user runs it: real processes, kubectl, and what can happen to them."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import yaml

from restow.cluster.etcd import find_etcd
from tests.e2e.cluster.running import Up, wait_for


def test_the_life_of_a_cluster(tmp_path: Path) -> None:
    """It starts, serves by each context, heals, refuses a second one, stops, and resumes."""
    data_dir = tmp_path / "d"
    with Up(data_dir, "--port=0", "--release=x", "--no-controllers") as up:
        up.ready()
        assert re.search(
            r"^ready: .* dashboard https://\S+/dashboard/login#\S+$", up.output, re.MULTILINE
        )
        for context in ("restow", "restow-0", "restow-1", "restow-2"):
            assert up.kubectl(f"--context={context}", "get", "ns", "default", "-o=name")
        up.kubectl("create", "configmap", "kept")
        assert (data_dir / "kubeconfig").stat().st_mode & 0o777 == 0o600
        assert {path.name for path in (data_dir / "logs").iterdir()} == {
            f"server-{index}.log" for index in range(3)
        }

        second = up.run("up")
        assert second.returncode == 1
        assert f"process {up.process.pid if up.process else 0}" in second.stderr

        killed = up.pids()["server-1"]
        os.kill(killed, signal.SIGKILL)
        wait_for(
            lambda: up.output.count("server-1: ready") == 2,
            "the killed server comes back",
            log=lambda: up.output,
        )
        assert up.pids()["server-1"] != killed
        up.kubectl("--context=restow-1", "get", "configmap", "kept")

        before, pids = up.state(), up.pids()
        assert up.stop() == 0
        up.await_gone(pids)
        assert up.state()["processes"] == []
    with Up(data_dir, "--no-controllers") as up:
        up.ready()
        after = up.state()
        assert {**after, "processes": []} == {**before, "processes": []}
        assert "kept" in up.kubectl("get", "configmaps")


def test_a_killed_supervisor_leaves_nothing_behind(tmp_path: Path) -> None:
    """After SIGKILL all processes end, and the next start is as if it had been stopped."""
    data_dir = tmp_path / "d"
    words = ("--port=0", "--servers=1", "--no-controllers")
    with Up(data_dir, *words) as up:
        up.ready()
        pids = up.pids()
        assert up.process is not None
        up.process.kill()
        up.await_gone(pids)
    with Up(data_dir, "--no-controllers") as up:
        up.ready()
        assert up.kubectl("get", "ns", "default", "-o=name") == "namespace/default\n"


def test_a_cluster_on_its_own_etcd(tmp_path: Path) -> None:
    """etcd is started first and stopped last, and the data is there at the next start."""
    assert find_etcd()
    data_dir = tmp_path / "d"
    with Up(data_dir, "--port=0", "--servers=1", "--store=etcd", "--no-controllers") as up:
        up.ready()
        assert up.output.index("etcd-0: ready") < up.output.index("server-0: starting")
        up.kubectl("create", "configmap", "kept")
        assert up.stop() == 0
        assert up.output.index("server-0: stopped") < up.output.index("etcd-0: stopping")
    with Up(data_dir, "--no-controllers") as up:
        assert "kept" in up.ready().kubectl("get", "configmaps")


def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    """Wrong options of the servers end it with the end of a log, and are not remembered."""
    data_dir = tmp_path / "d"
    words = ("--port=0", "--servers=1", "--no-controllers")
    with Up(data_dir, *words, "--server-option=--nonsense") as up:
        assert up.process is not None
        assert up.process.wait(90) == 1
        assert "unrecognized arguments: --nonsense" in up.output
        assert up.state()["server_options"] == []


def test_workers_share_a_port(tmp_path: Path) -> None:
    """`restow serve --workers` has one port, an identity for each worker, and heals."""
    data_dir = tmp_path / "d"
    data_dir.mkdir(mode=0o700)
    with Up(data_dir, "--port=0", "--workers=2", command="serve") as up:
        up.ready()
        wait_for(
            lambda: "ready: " in up.output and (data_dir / "kubeconfig").exists(),
            "there is a kubeconfig",
            log=lambda: up.output,
        )
        found = yaml.safe_load((data_dir / "kubeconfig").read_text())
        names = {context["name"] for context in found["contexts"]}
        assert names == {"restow", "restow-certificate", "restow-0", "restow-1"}
        leases = up.kubectl("get", "leases", "-n=kube-system", "-o=name").split()
        assert len([each for each in leases if "apiserver-" in each]) == 2
        assert up.stop() == 0
        assert up.output.count("apiserver.server: stopped") == 2
