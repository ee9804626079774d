"""A complete cluster is lost and recovered: backup, restore, doctor and preflight on real
servers."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from restow.cli.main import main
from tests.support.etcd_process import EtcdCluster, start_etcd
from tests.support.server_process import ServerProcess
from tests.unit.census.stores import read_all

LEASE: Final = (
    *("--identity-lease-duration-seconds", "3"),
    *("--identity-lease-renew-interval-seconds", "1"),
)
RELEASE: Final = ("--release", "x")
CONFIG_MAPS: Final = "/api/v1/namespaces/default/configmaps"
REPORT: Final = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/core.configmaps"
WAIT_SECONDS_MAX: Final = 30.0


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with start_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


def put(server: ServerProcess, name: str) -> str:
    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}}
    status, answer = server.request("POST", CONFIG_MAPS, body)
    assert status == 201, answer
    return str(json.loads(answer)["metadata"]["resourceVersion"])


def get(server: ServerProcess, path: str) -> Any:
    status, answer = server.get(path)
    assert status == 200, answer
    return json.loads(answer)


def servers_of(server: ServerProcess) -> set[str]:
    """Returns the servers with an entry for config maps."""
    return {each["apiServerID"] for each in get(server, REPORT)["status"]["storageVersions"]}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main([*words, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("store", ["sqlite", "etcd"])
def test_a_lost_cluster_is_restored(
    store: str, tmp_path: Path, etcd: EtcdCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """All objects exist, at new versions; old watches get 410; expired entries are garbage
    collected."""
    address = etcd.url if store == "etcd" else f"sqlite:{tmp_path / 'old' / 'store.db'}"
    old = ServerProcess(tmp_path / "old", store=address, arguments=(*LEASE, *RELEASE))
    with old:
        versions = [put(old, f"kept-{number}") for number in range(10)]
        code, told = run(capsys, "backup", str(tmp_path / "a.backup"), "--store", address)
        assert (code, told["form"]) == (0, store)
        lost = put(old, "lost")
        dead = servers_of(old)
        old.kill()
    code, told = run(
        capsys, "restore", str(tmp_path / "a.backup"), "--data-dir", str(tmp_path / "new")
    )
    assert code == 0
    records = asyncio.run(read_all(f"snapshot:{tmp_path / 'a.backup'}", "/restow/servers/"))
    assert {key.rpartition("/")[2] for key in records} == dead
    shutil.copytree(old.pki_dir, tmp_path / "new" / "pki")
    with ServerProcess(tmp_path / "new", arguments=(*LEASE, *RELEASE)) as new:
        found = get(new, CONFIG_MAPS)["items"]
        names = {each["metadata"]["name"] for each in found if "kept" in each["metadata"]["name"]}
        assert len(names) == 10
        assert "lost" not in {each["metadata"]["name"] for each in found}
        oldest = min(int(each["metadata"]["resourceVersion"]) for each in found)
        assert oldest > int(lost)
        _, answer = new.get(f"{CONFIG_MAPS}?watch=true&resourceVersion={versions[-1]}")
        assert json.loads(answer.splitlines()[0])["object"]["code"] == 410
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while dead & servers_of(new):
            assert time.monotonic() < deadline, "the dead are not collected"
            time.sleep(0.2)
        assert get(new, REPORT)["status"]["commonEncodingVersion"] == "v1"
        check_tools(new, capsys)


def check_tools(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """Doctor finds no problem in the restored cluster, and preflight calls its next release
    safe."""
    code, told = run(capsys, "doctor", "--data-dir", str(server.data_dir))
    bad = [each for each in told["findings"] if each["level"] != "ok"]
    # No controllers run here, so the stored versions are not verified; the machine's disk is its
    # own.
    assert {each["check"] for each in bad} <= {"stored versions", "disk"}
    assert {"servers", "clock", "certificate", "agreement", "store", "keys"} <= {
        each["check"] for each in told["findings"]
    }
    kubeconfig = str(server.kubeconfig)
    code, told = run(capsys, "preflight", "--to", "x+1", "--kubeconfig", kubeconfig)
    assert (code, told["safe"], told["blockers"]) == (0, True, [])
    code, told = run(capsys, "preflight", "--to", "x+2", "--kubeconfig", kubeconfig)
    assert (code, told["safe"]) == (1, False)
    assert [(each["resource"], each["reason"]) for each in told["blockers"]] == [
        ("widgets.example.com", "no-way-back")
    ]


def test_preflight_follows_a_roll(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Objects of a kind that a release lacks, and servers that disagree, are blockers."""
    with ServerProcess(tmp_path / "one", arguments=("--release", "x+1")) as one:
        kubeconfig = str(one.kubeconfig)
        words = ("preflight", "--kubeconfig", kubeconfig, "--to")
        assert run(capsys, *words, "x+2")[0] == 0
        code, told = run(capsys, *words, "x+3")
        assert code == 1
        widgets = [each for each in told["blockers"] if each["resource"] == "widgets.example.com"]
        assert {each["reason"] for each in widgets} >= {"undecodable"}
        body = {"metadata": {"name": "a"}, "kind": "Widget", "apiVersion": "example.com/v1"}
        path = "/apis/example.com/v1/namespaces/default/widgets"
        assert one.request("POST", path, body)[0] == 201
        code, told = run(capsys, *words, "builtin")
        reasons = {each["reason"] for each in told["blockers"] if "widgets" in each["resource"]}
        assert (code, reasons) == (1, {"vanishing"})
        with one.sibling(tmp_path / "two", arguments=("--release", "x+2")):
            code, told = run(capsys, *words, "x+2")
            assert code == 1
            assert [(each["resource"], each["reason"]) for each in told["blockers"]] == [
                ("widgets.example.com", "disagreement")
            ]


def test_voters_keep_the_selected_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a vote the same step causes only a warning: no server writes a version that others
    cannot read."""
    arguments = (*RELEASE, "--coordination", "vote")
    with ServerProcess(tmp_path / "one", arguments=arguments) as one:
        words = ("preflight", "--kubeconfig", str(one.kubeconfig), "--to", "x+2")
        code, told = run(capsys, *words)
        assert (code, told["blockers"]) == (0, [])
        assert [(each["resource"], each["reason"]) for each in told["warnings"]] == [
            ("widgets.example.com", "no-way-back"),
            (None, "unknown"),  # no controllers run, so nothing is verified yet
        ]


def test_preflight_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unreachable cluster and an invalid release are usage errors."""
    assert main(["preflight", "--to", "x", "--kubeconfig", str(tmp_path / "nothing")]) == 2
    assert "no such file" in capsys.readouterr().err
    with ServerProcess(tmp_path / "one") as one:
        kubeconfig = str(one.kubeconfig)
        assert main(["preflight", "--to", "nothing", "--kubeconfig", kubeconfig]) == 2
        assert "no release 'nothing'" in capsys.readouterr().err
        one.kill()
        assert main(["preflight", "--to", "x", "--kubeconfig", kubeconfig]) == 2
        assert "connection refused" in capsys.readouterr().err
        assert main(["doctor", "--data-dir", str(one.data_dir)]) == 2
        assert "connection refused" in capsys.readouterr().out
