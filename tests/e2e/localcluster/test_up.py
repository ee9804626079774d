"""`restow up`, as a user runs it: real processes, kubectl, and failures of processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from restow.aio import SystemRandomness
from restow.localcluster.cluster_plan import ClusterOptions, plan_cluster
from restow.localcluster.etcd import find_etcd
from restow.localcluster.ports import is_free
from restow.localcluster.state import EtcdState, write_state
from restow.storage.private_files import make_data_directory
from tests.e2e.localcluster.running import Up, wait_for


def test_start_serve_stop_and_resume(tmp_path: Path) -> None:
    """It starts, serves by each context, replaces a killed process, refuses a second supervisor,
    stops, and resumes."""
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
        up.wait_until_ended(pids)
        assert up.state()["processes"] == []
    with Up(data_dir, "--no-controllers") as up:
        up.ready()
        after = up.state()
        assert {**after, "processes": []} == {**before, "processes": []}
        assert "kept" in up.kubectl("get", "configmaps")


def test_a_killed_supervisor_leaves_nothing_behind(tmp_path: Path) -> None:
    """After SIGKILL all processes end, and the next start is as after a normal stop."""
    data_dir = tmp_path / "d"
    words = ("--port=0", "--servers=1", "--no-controllers")
    with Up(data_dir, *words) as up:
        up.ready()
        pids = up.pids()
        assert up.process is not None
        up.process.kill()
        up.wait_until_ended(pids)
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


def raw(data_dir: Path, key: str) -> str:
    """Returns the stored value of a key, by the command."""
    command = [sys.executable, "-m", "restow", "store", "get", key, f"--data-dir={data_dir}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def is_closed(port: int, context: ssl.SSLContext | None = None) -> bool:
    """Returns whether a request without the right credentials gets no answer at a port of this
    machine."""
    ask = b"GET /version HTTP/1.0\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            if context is None:
                plain.sendall(ask)
                return b" 200 " not in plain.recv(4096)
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
                wrapped.sendall(ask)
                return not wrapped.recv(4096)
    except OSError:
        return True


def assert_etcd_needs_its_client_certificate(up: Up) -> None:
    """No access without TLS, with TLS and no certificate, or with an API client certificate of
    the cluster."""
    pki = up.data_dir / "pki"
    anonymous = ssl.create_default_context(cafile=str(pki / "etcd-ca.crt"))
    admin = ssl.create_default_context(cafile=str(pki / "etcd-ca.crt"))
    admin.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    client = ssl.create_default_context(cafile=str(pki / "etcd-ca.crt"))
    client.load_cert_chain(pki / "etcd-client.crt", pki / "etcd-client.key")
    for member in up.state()["etcd"]:
        for port in (member["client_port"], member["peer_port"]):
            assert is_closed(port)
            assert is_closed(port, anonymous)
            assert is_closed(port, admin)
            assert not is_closed(port, client)
        assert member["plain_peer_port"] is None
    for file in pki.glob("etcd-*.key"):
        assert file.stat().st_mode & 0o777 == 0o600


def test_the_own_etcd_needs_client_certificates(tmp_path: Path) -> None:
    """Members and clients of one cluster use certificates, and commands with its data directory
    use them automatically."""
    data_dir = tmp_path / "d"
    words = ("--port=0", "--servers=1", "--store=etcd", "--etcd-members=3", "--no-controllers")
    with Up(data_dir, *words) as up:
        up.ready()
        up.kubectl("create", "configmap", "kept")
        assert_etcd_needs_its_client_certificate(up)
        census = up.run("census", "configmaps")
        assert census.returncode == 0, census.stderr
        assert "configmaps" in census.stdout
        backup = up.run("backup", str(tmp_path / "a.backup"))
        assert backup.returncode == 0, backup.stderr
        doctor = up.run("doctor")
        assert doctor.stdout.count("is healthy: etcd") == 3, doctor.stdout
        wanted = ("--drop-key=aesgcm:none", f"--kubeconfig={data_dir / 'kubeconfig'}", "-o=json")
        preflight = up.run("preflight", *wanted)
        assert "cannot be read" not in preflight.stdout + preflight.stderr, preflight.stdout
        assert json.loads(preflight.stdout), preflight.stderr
        assert "kept" in raw(data_dir, "/registry/configmaps/default/kept")


@pytest.mark.parametrize("count", [1, 3])
def test_a_plain_etcd_is_switched_to_tls(tmp_path: Path, count: int) -> None:
    """Members that an earlier release has started without TLS keep their data, and then refuse
    clients without a certificate; also peers that only knew each other's old address."""
    data_dir = tmp_path / "d"
    requested = ClusterOptions(servers=1, store="etcd", etcd_members=count, port=0)
    state = plan_cluster(
        requested, None, lambda port: is_free("127.0.0.1", port), SystemRandomness()
    )
    old = [
        EtcdState(
            client_port=each.client_port, peer_port=each.peer_port, health_port=each.health_port
        )
        for each in state.state.etcd
    ]
    make_data_directory(data_dir)
    write_state(data_dir / "state.json", msgspec.structs.replace(state.state, etcd=tuple(old)))
    members = plain_members(data_dir, old)
    try:
        endpoints = ",".join(f"127.0.0.1:{member.client_port}" for member in old)
        put = ["restow", "store", "put", "/kept", "value", f"--store=etcd://{endpoints}"]
        wait_for(
            lambda: subprocess.run([sys.executable, "-m", *put], check=False).returncode == 0,
            "the plain etcd takes a value",
            log=lambda: "",
        )
        assert "value" in raw(data_dir, "/kept")
    finally:
        for each in members:
            each.terminate()
        for each in members:
            each.wait(30)
    with Up(data_dir, "--no-controllers") as up:
        up.ready()
        assert "value" in raw(data_dir, "/kept")
        assert_etcd_needs_its_client_certificate(up)
        assert all(is_closed(member.peer_port) for member in old)


def plain_members(data_dir: Path, members: list[EtcdState]) -> list[subprocess.Popen[bytes]]:
    """Starts etcd as earlier releases did."""
    everyone = ",".join(
        f"etcd-{number}=http://127.0.0.1:{each.peer_port}" for number, each in enumerate(members)
    )
    started = []
    for number, member in enumerate(members):
        directory = data_dir / "etcd" / str(number)
        directory.mkdir(mode=0o700, parents=True)
        client = f"http://127.0.0.1:{member.client_port}"
        peer = f"http://127.0.0.1:{member.peer_port}"
        command = (
            find_etcd(),
            f"--name=etcd-{number}",
            f"--data-dir={directory}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={everyone}",
            "--initial-cluster-token=restow",
            f"--listen-metrics-urls=http://127.0.0.1:{member.health_port}",
            "--log-level=error",
        )
        started.append(subprocess.Popen(command))
    return started


def test_a_failed_start_reports_the_reason(tmp_path: Path) -> None:
    """Wrong server options end it with the end of a log, and are not saved."""
    data_dir = tmp_path / "d"
    words = ("--port=0", "--servers=1", "--no-controllers")
    with Up(data_dir, *words, "--server-option=--nonsense") as up:
        assert up.process is not None
        assert up.process.wait(90) == 1
        assert "unrecognized arguments: --nonsense" in up.output
        assert up.state()["server_options"] == []


def test_workers_share_a_port(tmp_path: Path) -> None:
    """`restow serve --workers` has one port, an identity for each worker, and replaces killed
    workers."""
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
