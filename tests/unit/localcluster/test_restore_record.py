"""The releases that can read a restored store, and the one that the cluster starts with."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from restow.aio import Runtime
from restow.apis.names import RELEASE_ANNOTATION
from restow.localcluster.errors import ClusterRefused
from restow.localcluster.layout import Layout
from restow.localcluster.restore_record import (
    CRDS,
    LEASES,
    BackupReport,
    RestoreRecord,
    apply_record,
    check_keys,
    judge_backup,
    read_record,
    write_record,
)
from restow.localcluster.state import ClusterState, ServerState, Upgrade
from restow.storage.backup import write_backup
from tests.unit.census.stores import as_json, fill

WIDGETS = "/registry/example.com/widgets/default/"
V1, V2 = as_json("example.com/v1", "Widget"), as_json("example.com/v2", "Widget")


def state_of(*releases: str, upgrade: Upgrade | None = None) -> ClusterState:
    return ClusterState(
        store="sqlite",
        bind="127.0.0.1",
        front_port=1,
        servers=tuple(ServerState(port=2, release=each) for each in releases),
        upgrade=upgrade,
    )


def lease(release: str) -> bytes:
    return orjson.dumps({"metadata": {"annotations": {RELEASE_ANNOTATION: release}}})


def judge(
    tmp_path: Path, objects: dict[str, bytes], state: ClusterState | None = None
) -> BackupReport:
    async def run() -> BackupReport:
        await fill(f"sqlite:{tmp_path / 'store.db'}", objects)
        backup = tmp_path / "a.backup"
        await write_backup(f"sqlite:{tmp_path / 'store.db'}", backup, Runtime.system())
        return await judge_backup(backup, Layout(tmp_path), state=state, opener=None)

    return asyncio.run(run())


def test_the_release_in_use_is_kept_if_it_can_read_all(tmp_path: Path) -> None:
    """It is preferred over the one that ran when the backup was taken."""
    found = judge(tmp_path, {f"{WIDGETS}a": V1, f"{LEASES}s": lease("x+1")}, state_of("x+2"))
    assert (found.chosen, found.running) == ("x+2", ("x+1",))


def test_the_release_of_the_backup_is_next(tmp_path: Path) -> None:
    """A release that does not decode a stored version is listed with what it cannot read."""
    objects = {f"{WIDGETS}a": V1, f"{WIDGETS}b": V1, f"{LEASES}s": lease("x+1")}
    upgrade = Upgrade(target="x+3", origins=("x+2",))
    found = judge(tmp_path, objects, state_of("x+3", upgrade=upgrade))
    assert found.chosen == "x+1"
    assert found.unreadable["x+3"] == ("widgets.example.com: 2 values as example.com/v1",)
    assert "no such resource" in found.unreadable["builtin"][0]
    assert {"x", "x+1", "x+2"} <= set(found.readable)


def test_a_release_of_the_last_upgrade_is_next(tmp_path: Path) -> None:
    """Without leases in the backup, as after a backup of stopped servers."""
    upgrade = Upgrade(target="x+3", origins=("x+2",))
    found = judge(tmp_path, {f"{WIDGETS}a": V1}, state_of("x+3", upgrade=upgrade))
    assert found.chosen == "x+2"


def test_custom_resources_are_read_by_every_release(tmp_path: Path) -> None:
    """The CRD has the versions that can be read."""
    objects = {
        "/registry/example.org/gadgets/default/a": as_json("example.org/v7", "Gadget"),
        f"{CRDS}gadgets.example.org": as_json(
            "apiextensions.k8s.io/v1", "CustomResourceDefinition"
        ),
    }
    assert judge(tmp_path, objects).chosen == "builtin"


def test_values_that_are_encrypted_are_counted(tmp_path: Path) -> None:
    """Without the keys, only their number is reported."""
    objects = {"/registry/secrets/default/a": b"k8s:enc:aesgcm:v1:k1:\0\1\2"}
    assert judge(tmp_path, objects).not_decrypted == 1


def test_no_release_may_be_able_to_read_it(tmp_path: Path) -> None:
    """A version that no release decodes."""
    found = judge(tmp_path, {f"{WIDGETS}a": V2, f"{WIDGETS}b": as_json("example.com/v9", "Widget")})
    assert (found.chosen, found.readable) == (None, ())


def test_a_record_is_applied(tmp_path: Path) -> None:
    """All servers get the release, or keep theirs; the upgrade is cleared."""
    found = state_of("x+3", "x+2", upgrade=Upgrade(target="x+3", origins=("x+2", "x+2")))
    state = apply_record(found, "x+1")
    assert ([each.release for each in state.servers], state.upgrade) == (["x+1", "x+1"], None)
    assert apply_record(found, None).servers == found.servers
    layout = Layout(tmp_path)
    assert read_record(layout) is None
    write_record(layout, record := RestoreRecord(release="x+1", backup_revision=7, revision=9))
    assert read_record(layout) == record
    layout.restored.write_text("{")
    with pytest.raises(ClusterRefused, match="remove it"):
        read_record(layout)


def test_a_store_without_its_keys_is_refused(tmp_path: Path) -> None:
    """Before new keys are created, with which servers could not use it."""
    layout = Layout(tmp_path)
    asyncio.run(check_keys(layout, None))
    asyncio.run(fill(f"sqlite:{layout.store}", {"/registry/pods/default/a": b"{}"}))
    asyncio.run(check_keys(layout, None))
    layout.store.unlink()
    asyncio.run(fill(f"sqlite:{layout.store}", {"/restow/localcluster": b"fingerprint"}))
    with pytest.raises(ClusterRefused, match="copy the directory pki of that cluster"):
        asyncio.run(check_keys(layout, None))
