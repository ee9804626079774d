"""Stores written by an earlier restow are opened by the current one, upgraded, and audited.

The data in tests/data/stores was written by tools/build_compatibility_data.py. Every change of
stored data must pass these tests: docs/reference/compatibility.md has the guarantees.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from restow.storageversion.identity import SERVERS_PREFIX
from restow.storageversion.records import EPOCHS_PREFIX, EpochRecord
from tests.e2e.localcluster.running import RESTOW, Up, wait_for
from tests.support.etcd_process import start_etcd
from tests.unit.census.stores import read_all

STORES: Final = Path(__file__).parents[2] / "data" / "stores"
COMMITS: Final = sorted(each.name for each in STORES.iterdir())
MIGRATIONS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
STATES: Final = "/apis/migration.k8s.io/v1alpha1/storagestates"
REPORTS: Final = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
STALE_FOUND: Final = 3
"""The exit code of a census that finds objects in old versions."""
RESOURCES: Final = ("widgets.example.com", "gadgets.example.org", "tools.example.org", "secrets")


@pytest.fixture(params=COMMITS)
def data(request: pytest.FixtureRequest) -> Path:
    """The data that one commit has written."""
    return STORES / str(request.param)


@pytest.fixture
def directory(data: Path, tmp_path: Path) -> Path:
    """The data directory of that commit, as left by killed servers."""
    path = tmp_path / "d"
    path.mkdir(mode=0o700)
    with tarfile.open(data / "directory.tar.xz") as archive:
        archive.extractall(path, filter="tar")  # preserves the modes of keys
    return path


def expected_objects(data: Path, store: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress((data / "objects.json.xz").read_bytes()))
    return dict(found[store])


def options(directory: Path) -> tuple[str, ...]:
    return ("--port=0", f"--server-option=--encryption-provider-config={directory / 'keys.json'}")


def get(up: Up, path: str) -> Any:
    return json.loads(up.kubectl("get", f"--raw={path}"))


def audit(up: Up, expected: dict[str, Any]) -> None:
    """Checks that every object exists unchanged, through each server."""
    for path in sorted(set(map(_parent, expected))):
        for context in ("restow-0", "restow-1"):
            listed = json.loads(up.kubectl("get", f"--context={context}", f"--raw={path}"))
            found = {}
            for each in listed["items"]:
                for name in ("resourceVersion", "managedFields"):
                    each["metadata"].pop(name, None)
                found[f"{path}/{each['metadata']['name']}"] = each
            wanted = {key: each for key, each in expected.items() if _parent(key) == path}
            assert found == wanted


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def succeeded(up: Up) -> bool:
    """Returns whether every migration has succeeded."""
    return all(
        any(each["type"] == "Succeeded" for each in found.get("status", {}).get("conditions", ()))
        for found in get(up, MIGRATIONS)["items"]
    )


def await_verified(up: Up) -> None:
    """Waits until each of the resources has one persisted version, under one key."""

    def is_verified() -> bool:
        states = {each["metadata"]["name"]: each["status"] for each in get(up, STATES)["items"]}
        return all(
            len(states[name]["persistedStorageVersionHashes"]) == 1
            and "Unknown" not in states[name]["persistedStorageVersionHashes"]
            for name in RESOURCES
        )

    wait_for(is_verified, "StorageStates are narrowed", log=lambda: json.dumps(get(up, STATES)))


def raw(address: str, prefix: str) -> dict[str, bytes]:
    return asyncio.run(read_all(address, prefix))


def epochs(address: str) -> dict[str, int]:
    """Returns the number of changes of each common version, from the records in the store."""
    return {
        key: msgspec.json.decode(value, type=EpochRecord).epoch
        for key, value in raw(address, EPOCHS_PREFIX).items()
    }


def check_raw_values(up: Up, *, codes: set[int]) -> None:
    """Runs a census, which decodes every raw value with the servers' keys."""
    keys = str(up.data_dir / "keys.json")
    done = up.run("census", "--encryption-provider-config", keys, "-o=json")
    assert done.returncode in codes, done.stdout + done.stderr
    rows = [row for each in json.loads(done.stdout)["resources"] for row in each["stored"]]
    assert len(rows) > len(RESOURCES)
    assert all(row["apiVersion"] for row in rows), rows


def check_cluster(up: Up, expected: dict[str, Any], address: str, before: Before) -> None:
    """Audits, finishes the migrations, upgrades, rolls back, and audits again."""
    audit(up, expected)
    wait_for(
        lambda: not before.servers & raw(address, SERVERS_PREFIX).keys(),
        "the records of the old servers are removed",
        log=lambda: up.output,
    )
    migrations = {each["metadata"]["name"]: each for each in get(up, MIGRATIONS)["items"]}
    assert {"gadgets", "tools"} <= migrations.keys()
    paused = migrations["tools"]["status"]["conditions"][0]
    assert paused["reason"] == "MigrationPaused"
    up.kubectl(
        *("annotate", "storageversionmigrations.migration.k8s.io", "tools"),
        "migrator.restow.dev/paused-",
    )
    wait_for(lambda: succeeded(up), "migrations succeed", log=lambda: up.output)
    await_verified(up)
    for words, release in ((("--to=x+2",), "x+2"), (("--rollback",), "x+1")):
        done = up.run("upgrade", *words, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert {each["release"] for each in up.state()["servers"]} == {release}
        version = "v2" if release == "x+2" else "v1"
        report = get(up, f"{REPORTS}/example.com.widgets")["status"]
        assert report["commonEncodingVersion"] == f"example.com/{version}"
        wait_for(lambda: succeeded(up), "migrations succeed", log=lambda: up.output)
        await_verified(up)
        audit(up, expected)
    after = epochs(address)
    assert before.epochs
    assert all(after[key] >= epoch for key, epoch in before.epochs.items())
    check_raw_values(up, codes={0})


@dataclass(frozen=True, slots=True)
class Before:
    """The old servers' records in the store."""

    epochs: dict[str, int]
    servers: frozenset[str]

    @classmethod
    def of(cls, address: str) -> Before:
        servers = frozenset(raw(address, SERVERS_PREFIX))
        assert len(servers) == 2
        return cls(epochs(address), servers)


def test_a_data_directory_is_opened_and_upgraded(data: Path, directory: Path) -> None:
    """The servers of `restow up` become ready on it, complete unfinished migrations, and are
    upgraded."""
    address = f"sqlite:{directory / 'store.db'}"
    before = Before.of(address)
    up = Up(directory, *options(directory))
    check_raw_values(up, codes={STALE_FOUND})
    with up:
        up.ready()
        check_cluster(up, expected_objects(data, "sqlite"), address, before)
        assert up.stop() == 0


@pytest.fixture
def etcd_url(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "members").mkdir()
    with start_etcd(tmp_path / "members") as etcd:
        yield etcd.url


def test_an_etcd_snapshot_is_restored_and_upgraded(
    data: Path, directory: Path, etcd_url: str
) -> None:
    """The same for a snapshot of etcd; the keys are those of the data directory."""
    snapshot = directory / "snapshot.db"
    snapshot.touch(mode=0o600)
    snapshot.write_bytes(lzma.decompress((data / "snapshot.db.xz").read_bytes()))
    for each in (*directory.glob("store.db*"), directory / "state.json"):
        each.unlink()
    subprocess.run(
        [*RESTOW, "restore", str(snapshot), "--store", etcd_url, "--ahead=1000"], check=True
    )
    words = (f"--store={etcd_url}", "--servers=2", "--release=x+1")
    before = Before.of(etcd_url)
    with Up(directory, *options(directory), *words) as up:
        up.ready()
        check_cluster(up, expected_objects(data, "etcd"), etcd_url, before)
        assert up.stop() == 0
