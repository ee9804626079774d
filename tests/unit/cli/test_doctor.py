"""`restow doctor`: its rules, its checks of files, and its output."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.storage_scan import StoredCount
from restow.apiserver.pki import PkiOptions, ensure_pki
from restow.cli.doctor import exit_code
from restow.cli.doctor_cluster import (
    ServerFacts,
    judge_aggregated,
    judge_agreement,
    judge_encryption,
    judge_migrations,
    judge_objects,
    judge_servers,
)
from restow.cli.doctor_files import judge_data_dir
from restow.cli.doctor_findings import Finding, Severity, judge_store, ok, unseen, warning
from restow.cli.doctor_supervisor import judge_processes, judge_releases
from restow.cli.main import main
from restow.localcluster.layout import Layout
from restow.localcluster.lock import locked
from restow.localcluster.messages import ProcessOverview, ProcessView
from restow.localcluster.release_files import keep_release
from restow.localcluster.state import ClusterState, ServerState, Upgrade, write_state
from restow.migration.overview_values import MigrationRow
from restow.migration.preflight import ClusterView, ResourceView, ServerEntry
from restow.migration.readability import Unread
from restow.migration.store_scan import StoreScan
from restow.storage.checkup import EtcdFacts, FileFacts
from restow.storage.etcd.checkup import MemberFacts

NOW = datetime(2030, 1, 1, tzinfo=UTC)
GIB = 1024**3
WELL = FileFacts(path=Path("store.db"), revision=7, keys=3, size=4096, free=100 * GIB, mode=0o600)
MEMBER = MemberFacts(
    endpoint="127.0.0.1:2379", version="3.5.28", revision=9, has_leader=True, bytes_held=4096
)
SERVER = ServerFacts(name="a", address="127.0.0.1:6443", renewed_seconds=1.0, skew_seconds=-0.5)


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {}}]
"""


def worst(findings: list[Finding]) -> tuple[Severity, str]:
    found = max(findings, key=lambda each: each.level)
    assert found.advice or found.level <= Severity.UNSEEN
    return found.level, found.text


@pytest.mark.parametrize(
    ("fields", "level", "words"),
    [
        ({}, Severity.OK, "intact"),
        ({"problem": "it is not there"}, Severity.ERROR, "not there"),
        ({"damages": ("page 7 is bad",)}, Severity.ERROR, "page 7"),
        ({"log_size": GIB}, Severity.WARNING, "1.0 GiB"),
        ({"links": 2}, Severity.ERROR, "2 hard links"),
        ({"free": 1000}, Severity.ERROR, "1,000 bytes free"),
        ({"free": GIB // 2}, Severity.WARNING, "512.0 MiB free"),
        ({"mode": 0o644}, Severity.WARNING, "mode 644"),
    ],
)
def test_store_files(fields: dict[str, Any], level: Severity, words: str) -> None:
    """Damage, a long log, a full disk and open permissions are each reported."""
    found = worst(list(judge_store(replace(WELL, **fields))))
    assert found[0] is level
    assert words in found[1]


def members(*found: MemberFacts) -> tuple[Severity, str]:
    return worst(list(judge_store(EtcdFacts(address="etcd://x", members=found))))


def member(**fields: Any) -> MemberFacts:
    return replace(MEMBER, **fields)


def test_etcd_members() -> None:
    """Members that are down, without a leader, lagging, full or alarmed are each reported."""
    down = MemberFacts(endpoint="b", problem="refused")
    assert members(MEMBER)[0] is Severity.OK
    assert members(down)[0] is Severity.ERROR
    assert members(MEMBER, MEMBER, down)[0] is Severity.WARNING
    assert members(MEMBER, down, down)[0] is Severity.ERROR
    assert members(member(has_leader=False))[0] is Severity.ERROR
    assert members(member(is_learner=True))[0] is Severity.WARNING
    assert members(member(version="3.5.9"))[0] is Severity.WARNING
    assert members(MEMBER, member(revision=100_000))[0] is Severity.WARNING
    assert members(member(alarms=("NOSPACE",))) == (
        Severity.ERROR,
        "127.0.0.1:2379 raised the alarm NOSPACE",
    )
    assert members(member(bytes_held=1900 * 1024**2))[0] is Severity.WARNING
    assert members(member(bytes_held=GIB, bytes_max=8 * GIB, bytes_used=1))[0] is Severity.WARNING
    assert members(member(errors=("disk is slow",)))[0] is Severity.WARNING


def server(**fields: Any) -> tuple[Severity, str]:
    return worst(list(judge_servers([replace(SERVER, **fields)], NOW)))


def test_servers() -> None:
    """Servers that are unreachable, not ready, or have a wrong clock are each reported."""
    assert server()[0] is Severity.OK
    assert server(problem="refused")[0] is Severity.ERROR
    assert server(failed_checks=("storage failed",))[0] is Severity.ERROR
    assert server(skew_seconds=10.0) == (
        Severity.WARNING,
        "the clock of a (127.0.0.1:6443) is 10 s ahead",
    )
    assert server(skew_seconds=-900.0)[0] is Severity.ERROR
    assert server(skew_seconds=None)[0] is Severity.UNSEEN
    assert server(renewed_seconds=-30.0)[0] is Severity.WARNING
    assert server(renewed_seconds=60.0, lease_seconds=15)[0] is Severity.WARNING
    assert server(address="", skew_seconds=None)[0] is Severity.UNSEEN


def test_a_refused_encryption_configuration_file() -> None:
    """A server with old keys that would not start again is an error, ready or not."""
    refused = replace(SERVER, encryption_problem="/etc/keys.yaml: it lacks aesgcm:one")
    (found,) = judge_encryption([SERVER, refused])
    assert found.level is Severity.ERROR
    assert "a (127.0.0.1:6443)" in found.text
    assert "/etc/keys.yaml: it lacks aesgcm:one" in found.text
    assert "put the file back" in found.advice
    assert list(judge_encryption([SERVER])) == []
    expired = replace(refused, renewed_seconds=60.0, lease_seconds=15)
    assert list(judge_encryption([expired])) == []


def test_aggregated_servers() -> None:
    """Aggregated servers are found by their leases, and reported by component."""
    alive = replace(SERVER, component="aggregated-x")
    dead = replace(alive, name="b", renewed_seconds=60.0, lease_seconds=15)
    assert worst(list(judge_aggregated([alive])))[0] is Severity.OK
    level, text = worst(list(judge_aggregated([alive, dead])))
    assert (level, text) == (
        Severity.WARNING,
        "b of aggregated-x have not renewed their leases in time",
    )
    assert list(judge_aggregated([])) == []


def agreement(resource: ResourceView, *rows: StoredCount) -> tuple[Severity, str]:
    view = ClusterView(resources=(resource,), scan=StoreScan(revision=1, rows=rows))
    return worst(list(judge_agreement(view, {"a"})))


def test_agreement() -> None:
    """Disagreement, stale entries, unknown and unreadable versions are each reported."""
    known = storage_version_hash(GroupVersionKind.of("v1", "Pod"))

    usual = ResourceView(
        resource=GroupResource("", "pods"),
        kind="Pod",
        persisted=(known,),
        entries=(ServerEntry(server="a", encodes="v1", decodes=("v1",)),),
        common="v1",
    )

    def pods(**fields: Any) -> ResourceView:
        return replace(usual, **fields)

    assert agreement(pods())[0] is Severity.OK
    assert agreement(pods(common=""))[0] is Severity.WARNING
    gone = ServerEntry(server="gone", encodes="v1", decodes=("v1",))
    assert "gone" in agreement(pods(entries=(gone,)))[1]
    elsewhere = replace(gone, store="0f")
    assert agreement(pods(entries=(elsewhere,)))[0] is Severity.OK, "its lease is in its own store"
    assert agreement(pods(persisted=("Unknown", known)))[0] is Severity.WARNING
    row = StoredCount(
        prefix="/registry/pods/",
        resource="pods",
        scope="Namespaced",
        api_version="v9",
        kind="Pod",
        encoding="json",
        values=2,
        examples=["/registry/pods/default/a"],
    )
    assert agreement(pods(), row)[0] is Severity.ERROR, "no server reads it"
    assert "2 values are stored as v9" in agreement(pods(), row)[1]
    assert agreement(pods(entries=(), common=""))[0] is Severity.UNSEEN
    assert agreement(pods(persisted=None))[0] is Severity.UNSEEN


def failed(name: str, *, is_superseded: bool = False) -> MigrationRow:
    return MigrationRow(
        name=name,
        api_version="migration.k8s.io/v1alpha1",
        resource="pods",
        phase="Failed",
        is_proven=False,
        message="1 object failed",
        progress={},
        failed_objects=[],
        created=NOW,
        finished=NOW,
        is_superseded=is_superseded,
    )


def test_migrations() -> None:
    """A failed migration is reported until a later one of the resource has succeeded."""
    assert worst(list(judge_migrations([])))[0] is Severity.OK
    (found,) = judge_migrations([failed("a")])
    assert (found.level, found.text) == (Severity.WARNING, "a of pods failed: 1 object failed")
    assert found.advice.endswith("restow migrate --force pods"), "without --force it is skipped"
    (found,) = judge_migrations([failed("a", is_superseded=True)])
    assert (found.level, "1 failed, but a later one" in found.text) == (Severity.OK, True)
    many = list(judge_migrations([failed(str(number)) for number in range(7)]))
    assert [each.text for each in many][-1] == "2 more have failed"


def test_objects() -> None:
    """Unreadable values are an error with a remedy; forbidden lists are "not seen"."""
    assert [each.level for each in judge_objects([], count=9)] == [Severity.OK]
    bad = Unread(resource="configmaps", is_damaged=True, why="default/bad: it is no object")
    blind = [
        Unread(resource=each, is_damaged=False, why="forbidden") for each in ("secrets", "pods")
    ]
    found, others = judge_objects([bad, *blind], count=9)
    assert found.level is Severity.ERROR
    assert "default/bad" in found.text
    assert "restow census configmaps" in found.advice
    assert (others.level, others.text) == (
        Severity.UNSEEN,
        "secrets, pods could not be listed: forbidden",
    )


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A directory with the keys of a cluster and a kubeconfig."""
    ensure_pki(tmp_path / "pki", Runtime.system(), PkiOptions(bind="127.0.0.1"))
    (tmp_path / "kubeconfig").touch(mode=0o600)
    return tmp_path


def test_files_of_a_cluster(data_dir: Path) -> None:
    """Keys that others can read and expiring certificates are reported; new ones are ok."""
    now = Runtime.system().clock.wall()
    assert worst(list(judge_data_dir(data_dir, now)))[0] is Severity.OK
    soon = now + timedelta(days=350)
    assert "expires in" in worst(list(judge_data_dir(data_dir, soon)))[1]
    later = now + timedelta(days=400)
    assert "expired on" in worst(list(judge_data_dir(data_dir, later)))[1]
    before = now - timedelta(days=2)
    assert "is not valid before" in worst(list(judge_data_dir(data_dir, before)))[1]
    (data_dir / "pki" / "ca.key").chmod(0o644)
    assert "ca.key" in worst(list(judge_data_dir(data_dir, now)))[1]
    (data_dir / "pki" / "ca.key").chmod(0o600)
    (data_dir / "kubeconfig").chmod(0o640)
    assert "kubeconfig" in worst(list(judge_data_dir(data_dir, now)))[1]
    (data_dir / "kubeconfig").chmod(0o600)
    (data_dir / "pki" / "serving.crt").write_text("nonsense")
    assert "no certificate" in worst(list(judge_data_dir(data_dir, now)))[1]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """A check that cannot be run is reported as such."""
    assert worst(list(judge_data_dir(tmp_path, NOW)))[0] is Severity.UNSEEN


def test_exit_codes() -> None:
    """The worst finding decides: 0 ok, 1 warnings, 2 errors."""
    fine, blind = ok("a", ""), unseen("a", "")
    assert exit_code([fine]) == 0
    assert exit_code([fine, blind]) == 1
    assert exit_code([fine, warning("a", "", "b")]) == 1
    broken = Finding(check="a", level=Severity.ERROR, text="")
    assert exit_code([broken, fine]) == 2


def test_one_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing store is an error, also as JSON; an invalid address is refused."""
    assert main(["doctor", "--store", f"sqlite:{tmp_path / 'store.db'}", "-o", "json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "error"
    assert [each["check"] for each in found["findings"]] == ["store"]
    assert main(["doctor", "--store", "memory:"]) == 2
    assert "cannot check" in capsys.readouterr().err
    assert main(["doctor", "--data-dir", str(tmp_path / "nothing")]) == 2
    assert "is not a directory" in capsys.readouterr().err


def server_finding(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    main(["doctor", "--data-dir", str(data_dir), "-o", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    found: dict[str, str] = next(each for each in findings if each["check"] == "server")
    return found


def test_how_a_directory_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory of `restow up` is started with `restow up`; only others with `serve`."""
    found = server_finding(tmp_path, capsys)
    assert found["level"] == "error"
    assert found["text"].endswith("does not exist: no server runs in this directory")
    assert found["advice"] == f"start it: restow serve --data-dir {tmp_path}"
    layout = Layout(tmp_path)
    state = ClusterState(
        store="sqlite",
        bind="127.0.0.1",
        front_port=1,
        servers=(ServerState(port=1, release="x"),),
        etcd=(),
    )
    write_state(layout.state, state)
    assert (
        server_finding(tmp_path, capsys)["advice"] == f"start it: restow up --data-dir {tmp_path}"
    )
    with locked(layout):
        found = server_finding(tmp_path, capsys)
    assert found["level"] == "not seen"
    assert "is not ready yet" in found["text"]
    assert "restow serve" not in found["advice"]


def test_after_a_clean_stop(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kubeconfig exists and no server responds: the advice is how to start them."""
    kubeconfig = data_dir / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    write_state(
        Layout(data_dir).state,
        ClusterState(
            store="sqlite",
            bind="127.0.0.1",
            front_port=1,
            servers=(ServerState(port=1, release="x"),),
            etcd=(),
        ),
    )
    found = server_finding(data_dir, capsys)
    assert "connection refused" in found["text"]
    assert found["advice"] == f"start it: restow up --data-dir {data_dir}"


def test_a_state_that_cannot_be_read(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a finding, and the other checks are run anyway."""
    Layout(data_dir).state.write_text("{")
    assert main(["doctor", "--data-dir", str(data_dir), "-o", "json"]) == 2
    findings = json.loads(capsys.readouterr().out)["findings"]
    found = {each["check"]: each["level"] for each in findings}
    assert found["state"] == "error"
    assert found["keys"] == "ok"


def test_kept_release_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy that prevents a start is an error, one that prevents a rollback is a warning."""
    layout, file = Layout(tmp_path / "d"), tmp_path / "mine.yaml"
    layout.data_dir.mkdir(mode=0o700)
    file.write_text("release: mine\nkinds: []\n")
    kept = Path(keep_release(str(file), layout))
    file.unlink()
    state = ClusterState(
        store="sqlite",
        bind="127.0.0.1",
        front_port=1,
        servers=(ServerState(port=2, release="x+1"),),
        upgrade=Upgrade(target="x+1", origins=(str(kept),)),
        release_files={kept.stem: str(file)},
    )
    assert [each.level for each in judge_releases(layout, state, is_running=False)] == [Severity.OK]
    kept.write_text("edited")
    level, text = worst(list(judge_releases(layout, state, is_running=False)))
    assert level is Severity.WARNING
    assert "a rollback of the last upgrade is not possible" in text
    in_use = replace_release(state, str(kept))
    level, text = worst(list(judge_releases(layout, in_use, is_running=False)))
    assert level is Severity.ERROR
    assert str(kept) in text
    assert worst(list(judge_releases(layout, in_use, is_running=True)))[0] is Severity.WARNING
    write_state(layout.state, in_use)
    assert main(["doctor", "--data-dir", str(layout.data_dir), "-o", "json"]) == 2
    findings = json.loads(capsys.readouterr().out)["findings"]
    (found,) = [each for each in findings if each["check"] == "release files"]
    assert "restore the file with the SHA-256" in found["advice"]
    (server,) = [each for each in findings if each["check"] == "server"]
    assert "correct the release files first" in server["advice"]


def replace_release(state: ClusterState, release: str) -> ClusterState:
    """The state with another release of its server."""
    return msgspec.structs.replace(state, servers=(ServerState(port=2, release=release),))


def test_a_server_that_was_given_up(tmp_path: Path) -> None:
    """It has no lease, so only the supervisor shows it."""
    servers = (
        ProcessView(
            name="server-0", state="failed", note="given up: exit code 2", index=0, release="x+1"
        ),
        ProcessView(name="server-1", state="ready", index=1, release="x+1"),
    )
    overview = ProcessOverview(
        pid=1,
        data_dir=str(tmp_path),
        kubeconfig="",
        front_url="",
        store="sqlite",
        is_ready=True,
        processes=servers,
    )
    (found,) = judge_processes(Layout(tmp_path), overview)
    assert found.level is Severity.ERROR
    assert "server-0 is not running: given up: exit code 2" in found.text
    assert "restow upgrade --to x+1 --server 0" in found.advice
    fine = msgspec.structs.replace(overview, processes=servers[1:])
    assert [each.level for each in judge_processes(Layout(tmp_path), fine)] == [Severity.OK]
