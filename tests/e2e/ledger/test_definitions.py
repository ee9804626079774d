"""CRDs that change repeatedly, migrations created by users, and false `storedVersions`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.ledger.stage import CRDS, MIGRATIONS, LedgerStage
from tests.e2e.localcluster.running import wait_for
from tests.sizes import SIZES
from tests.support.fire.objects import GADGETS, GIZMOS, Kind

CHANGES = 12
"""Changes of one CRD, in each round."""
NEVER_SERVED = {"group": "nothing.example.org", "version": "v1", "resource": "nothings"}


@pytest.mark.parametrize("store", SIZES.ledger_stores)
def test_definitions_and_migrations_by_hand(store: str, tmp_path: Path) -> None:
    """A version is removed and added during migrations, migrations are created by a user (of a
    wrong version, of a wrong resource, two at once, deleted while they run), and
    `storedVersions` is patched to hide objects: no acknowledged write is lost, and everything is
    migrated."""
    with LedgerStage(tmp_path, store=store, per_second=SIZES.ledger_per_second) as stage:
        with stage.flips(GADGETS):
            for number in range(SIZES.ledger_rounds):
                migrate_by_hand(stage, number)
                change_versions(stage, GIZMOS, seed=number)
                remove_version(stage, GIZMOS)
                stage.wait_writes(SIZES.ledger_writes)
        hide_objects(stage, GIZMOS)
        outcome = stage.finish()
        outcome.check(f"CRDs, migrations by hand on {store}")
    assert outcome.flips > 0
    assert outcome.put_off > 0, "v1 was not asked for while it was not served"
    assert all(outcome.versions[f"{GIZMOS.group}/{each}"] for each in GIZMOS.versions)


def definition(stage: LedgerStage, kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = stage.ask("GET", f"{CRDS}/{kind.name}")
    return found


def change_versions(stage: LedgerStage, kind: Kind, *, seed: int) -> None:
    """Changes the storage version, removes a version and adds it again, as fast as servers
    accept it."""
    chance = random.Random(seed)
    statuses = []
    for _ in range(CHANGES):
        found = definition(stage, kind)
        versions = found["spec"]["versions"]
        if len(versions) == 1:
            [kept] = versions
            missing = next(each for each in kind.versions if each != kept["name"])
            versions.append({**kept, "name": missing, "storage": False})
        elif chance.random() < 0.5:
            for each in versions:
                each["storage"] = not each["storage"]
        else:
            found["spec"]["versions"] = [each for each in versions if each["storage"]]
        server = chance.randrange(len(stage.ports))
        reply = stage.request("PUT", f"{CRDS}/{kind.name}", found, server=server)
        assert reply.status in (200, 409, 422), reply.body
        statuses.append(reply.status)
        stage.wait_writes(5)
    assert 200 in statuses
    serve_all(stage, kind)


def remove_version(stage: LedgerStage, kind: Kind) -> None:
    """Removes v1 from a CRD when that is allowed, with writers that still use it."""
    store_only(stage, kind, "v2")
    take_out(stage, kind)
    wait_not_served(stage, kind)
    stage.wait_writes(SIZES.ledger_writes)
    serve_all(stage, kind)


def take_out(stage: LedgerStage, kind: Kind) -> None:
    def change(found: dict[str, Any]) -> None:
        versions = found["spec"]["versions"]
        found["spec"]["versions"] = [each for each in versions if each["name"] != "v1"]

    stage.edit(f"{CRDS}/{kind.name}", change)


def wait_not_served(stage: LedgerStage, kind: Kind) -> None:
    wait_for(
        lambda: stage.request("GET", kind.path_of("v1")).status == 404,
        f"v1 of {kind.name} is not served",
        log=lambda: stage.up.output,
    )


def serve_all(stage: LedgerStage, kind: Kind) -> None:
    """Serves all versions of a CRD again."""

    def change(found: dict[str, Any]) -> None:
        versions = found["spec"]["versions"]
        names = {each["name"] for each in versions}
        versions += [
            {**versions[0], "name": each, "storage": False}
            for each in kind.versions
            if each not in names
        ]

    stage.edit(f"{CRDS}/{kind.name}", change)


def migrate_by_hand(stage: LedgerStage, number: int) -> None:
    """Creates migrations as a user may, and deletes one of two that run at once."""
    gadgets = {"group": GADGETS.group, "resource": GADGETS.plural}
    wanted = {
        "wrong-version": {**gadgets, "version": "v9"},
        "wrong-resource": NEVER_SERVED,
        "first": {**gadgets, "version": "v1"},
        "second": {**gadgets, "version": "v2"},
    }
    for name, resource in wanted.items():
        body = {"metadata": {"name": f"{name}-{number}"}, "spec": {"resource": resource}}
        reply = stage.request("POST", MIGRATIONS, body)
        assert reply.status in (201, 422), reply.body
    stage.request("DELETE", f"{MIGRATIONS}/first-{number}")
    stage.wait_writes(SIZES.ledger_writes)


def hide_objects(stage: LedgerStage, kind: Kind) -> None:
    """With objects stored in v1, patches storedVersions to v2 only, and removes v1 from the CRD."""
    store_only(stage, kind, "v1")
    stage.wait_writes(SIZES.ledger_writes)
    with stage.paused("controllers"):
        set_storage(stage, kind, "v2")
        stage.wait_common(kind, f"{kind.group}/v2")
        stage.edit(
            f"{CRDS}/{kind.name}",
            lambda found: found["status"].update(storedVersions=["v2"]),
            part="/status",
        )
        take_out(stage, kind)
        asked = stage.preflight("--to=x+1")
        assert asked.returncode == 1, f"objects in v1 are not safe: {asked.stdout}"
        assert kind.name in asked.stdout + asked.stderr
        stage.wait_writes(SIZES.ledger_writes)
    wait_not_served(stage, kind)  # when all objects are migrated
    stage.wait_writes(SIZES.ledger_writes)


def set_storage(stage: LedgerStage, kind: Kind, version: str) -> None:
    """Sets the storage version."""

    def change(found: dict[str, Any]) -> None:
        for each in found["spec"]["versions"]:
            each["storage"] = each["name"] == version

    stage.edit(f"{CRDS}/{kind.name}", change)


def store_only(stage: LedgerStage, kind: Kind, version: str) -> None:
    """Sets the storage version, and waits until everything is migrated."""
    set_storage(stage, kind, version)
    wait_for(
        lambda: definition(stage, kind)["status"]["storedVersions"] == [version],
        f"{kind.name} is stored in {version}",
        log=lambda: stage.up.output,
    )
