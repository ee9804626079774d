"""An older backup is restored into the data directory of a cluster that was upgraded since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.localcluster.running import Up, wait_for
from tests.support.etcd_process import EtcdCluster, start_etcd

WIDGETS = "/apis/example.com/v2/namespaces/default/widgets"
WIDGET = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: NAME}\n"


def create(up: Up, tmp_path: Path, name: str) -> int:
    """Creates a widget; returns its resource version."""
    manifest = tmp_path / "widget.yaml"
    manifest.write_text(WIDGET.replace("NAME", name))
    found = up.kubectl("create", f"--filename={manifest}", "--output=json")
    return int(json.loads(found)["metadata"]["resourceVersion"])


def get(up: Up, path: str) -> Any:
    return json.loads(up.kubectl("get", f"--raw={path}"))


def replace_widget(up: Up, tmp_path: Path, found: Any, *, version: int) -> str:
    """Updates a widget as a client that read it at this resource version; returns the refusal."""
    found["metadata"]["resourceVersion"] = str(version)
    manifest = tmp_path / "widget.json"
    manifest.write_text(json.dumps(found))
    with pytest.raises(AssertionError) as refused:
        up.kubectl("replace", f"--filename={manifest}")
    return "Conflict" if "the object has been modified" in str(refused.value) else "other"


def upgrade(up: Up, release: str) -> None:
    """Upgrades as soon as it is safe: when the objects are migrated and verified."""
    wait_for(
        lambda: up.run("upgrade", f"--to={release}", "--yes").returncode == 0,
        f"the servers run {release}",
        log=lambda: up.output,
    )


def test_an_older_backup_in_an_upgraded_cluster(tmp_path: Path) -> None:
    """`restore` reports that x+1 can read it and x+3 cannot, and `up` starts with x+1:
    automatically, with the existing keys. Resource versions from after the backup are expired,
    not served again."""
    data_dir, backup = tmp_path / "d", tmp_path / "a.backup"
    with Up(data_dir, "--port=0", "--servers=1", "--release=x+1") as up:
        up.ready()
        create(up, tmp_path, "kept")
        assert up.run("backup", str(backup)).returncode == 0
        running = up.run("restore", str(backup))
        assert (running.returncode, "a cluster already runs in" in running.stderr) == (2, True)
        upgrade(up, "x+2")
        upgrade(up, "x+3")
        late = int(get(up, WIDGETS)["metadata"]["resourceVersion"])
        assert up.stop() == 0
    for each in data_dir.glob("store.db*"):
        each.rename(tmp_path / each.name)

    done = up.run("restore", str(backup))
    assert done.returncode == 0, done.stderr
    assert "release x+3, which the servers ran last, cannot read the backup: " in done.stdout
    assert "widgets.example.com: 1 values as example.com/v1" in done.stdout
    assert "release x+1, which ran when it was taken, can read the backup" in done.stdout
    assert done.stdout.endswith(f"next: restow up --data-dir {data_dir}\n")

    pki = data_dir / "pki"
    pki.rename(tmp_path / "pki")
    with Up(data_dir) as up:
        assert up.process is not None
        assert up.process.wait(90) == 1
        assert "copy the directory pki of that cluster there" in up.output
        assert not pki.exists()
    (tmp_path / "pki").rename(pki)

    with Up(data_dir) as up:
        up.ready()
        assert "the servers start with release x+1, not x+3" in up.output
        assert [each["release"] for each in up.state()["servers"]] == ["x+1"]
        assert not (data_dir / "restored.json").exists()
        listed = get(up, WIDGETS)
        assert [each["metadata"]["name"] for each in listed["items"]] == ["kept"]
        assert int(listed["items"][0]["metadata"]["resourceVersion"]) > late
        gone = up.kubectl("get", f"--raw={WIDGETS}?watch=true&resourceVersion={late}")
        assert json.loads(gone.splitlines()[0])["object"]["code"] == 410
        assert replace_widget(up, tmp_path, listed["items"][0], version=late) == "Conflict"
        # From now on it is an ordinary cluster.
        upgrade(up, "x+2")
        assert up.stop() == 0
    with Up(data_dir, "--release=x+1") as up:
        assert up.process is not None
        assert up.process.wait(90) == 1
        assert "restow upgrade --data-dir" in up.output


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    (tmp_path / "members").mkdir()
    with start_etcd(tmp_path / "members") as cluster:
        yield cluster


@pytest.mark.parametrize("store", ["sqlite", "etcd"])
def test_a_release_is_chosen_explicitly(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """After a restore `--release` is accepted once, though the servers ran another one. The data
    directory of a cluster on an external etcd contains its address."""
    data_dir, backup = tmp_path / "d", tmp_path / "a.backup"
    etcd = request.getfixturevalue("etcd") if store == "etcd" else None
    words = ("--port=0", "--servers=1", "--release=x+1", "--no-controllers")
    with Up(data_dir, *words, *([f"--store={etcd.url}"] if etcd else [])) as up:
        up.ready()
        assert up.run("backup", str(backup)).returncode == 0
        assert up.stop() == 0
    if etcd is not None:
        etcd.etcdctl("del", "/", "--prefix")
    for each in data_dir.glob("store.db*"):
        each.rename(tmp_path / each.name)
    done = up.run("restore", str(backup), "--ahead=1000")
    assert (done.returncode, done.stderr) == (0, "")
    with Up(data_dir, "--release=x", "--no-controllers") as up:
        up.ready()
        assert [each["release"] for each in up.state()["servers"]] == ["x"]
