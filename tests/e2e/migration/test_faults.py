"""Migrations with two servers that are killed, deleted, disconnected, run twice, rolled back.

Each test starts with old objects and an unknown state, and ends with a check of the whole log of
the store.
"""

from __future__ import annotations

import random
from typing import Final

import pytest

from tests.e2e.migration.history import HASHES, OLD
from tests.e2e.migration.stage import (
    MIGRATIONS,
    PAGE_OBJECTS,
    SLOWER,
    SLOWEST,
    SLOWLY,
    Stage,
    old_object,
)
from tests.e2e.storageversion.clusters import LEASES, V1, V2, add_widget, replace
from tests.e2e.storageversion.hammer import Hammer
from tests.sizes import SIZES
from tests.support.controllers_process import ControllersProcess

COUNT: Final = SIZES.migration_objects
LEASE_SECONDS: Final = 3
GAP_SECONDS: Final = 0.05
SEED: Final = 5
KILLS_MAX: Final = 1_000
GARBAGE: Final = b"\x00 neither JSON nor protobuf"
"""An object that cannot be decoded."""

in_few_stores = pytest.mark.parametrize("pair", SIZES.migration_stores, indirect=True)
"""For behaviour of the API that does not depend on the store."""


@in_few_stores
def test_migrator_is_killed_at_every_page(stage: Stage) -> None:
    """The next leader continues from the last position, page by page, until the migration is
    verified."""
    migrator = stage.controllers("--only", "migrator", "--no-leader-elect", *SLOWLY)
    seen = [(1, 0)]
    with stage.controllers("--only", "trigger", "--no-leader-elect"):
        for _ in range(KILLS_MAX):
            migrator.launch()
            stage.wait(lambda: stage.scanned() > seen[-1] or stage.is_complete(), "it goes on")
            migrator.kill()
            if stage.scanned() <= seen[-1]:
                break  # no position is left, since it is verified
            seen.append(stage.scanned())
        with migrator:
            stage.wait_complete()
    assert seen == sorted(set(seen)), "nobody began again"
    assert {number for number, _ in seen} == {1, 2}
    assert len(seen) > COUNT // PAGE_OBJECTS, "it was killed in each of the first pages"
    assert stage.reasons().count("MigrationStarted") <= 1
    assert "MigrationResumed" in stage.reasons()
    assert stage.audit_complete().rewritten == COUNT


@in_few_stores
def test_the_migration_is_deleted_in_the_middle(stage: Stage) -> None:
    """No other page is started; another migration completes it."""
    with stage.controllers("--only", "migrator", "--no-leader-elect", *SLOWLY):
        stage.create_migration("by-hand-1")
        stage.wait(lambda: stage.scanned() >= (1, PAGE_OBJECTS), "a page is done")
        stage.ask("DELETE", f"{MIGRATIONS}/by-hand-1")
        stage.wait(lambda: "MigrationAborted" in stage.reasons("by-hand-1"), "it is aborted")
        history = stage.history()
        assert history.since_deletion is not None
        assert history.since_deletion <= PAGE_OBJECTS
        assert history.left[V1] >= COUNT - history.rewritten > 0
        stage.create_migration("by-hand-2")
        stage.wait(lambda: "Succeeded" in stage.conditions(), "another one does it")
        assert stage.history().left == {V2: COUNT}
    with stage.controllers("--no-leader-elect"):
        stage.wait_complete()
    stage.audit_complete()


def test_servers_are_restarted_in_the_middle(stage: Stage) -> None:
    """One is stopped, one is killed: responses are lost, connections are refused, and the
    migration continues."""
    one, two = stage.servers
    with stage.controllers("--no-leader-elect", *SLOWLY):
        stage.wait(lambda: stage.scanned() >= (1, PAGE_OBJECTS), "a page is done")
        one.kill()  # the one that gets the requests
        one.start()
        before = stage.scanned()
        stage.wait(lambda: stage.scanned() > before or stage.is_complete(), "it goes on")
        two.restart()
        stage.wait_complete()
    stage.audit_complete()


def test_server_is_rolled_back(stage: Stage) -> None:
    """Whenever one server is rolled back to the older release, the migration ends before its
    next page and is deleted; when the server is upgraded again, everything is migrated again."""
    keeps, returns = stage.servers
    chance = random.Random(SEED)
    points = [chance.randrange(2 * COUNT) for _ in range(SIZES.migration_rollbacks)]
    with stage.controllers("--no-leader-elect", *SLOWER):
        for number, point in enumerate(points):
            where = (1 + point // COUNT, point % COUNT)
            stage.wait(lambda: stage.scanned() >= where or stage.is_complete(), f"{where} is done")  # noqa: B023
            replace(returns, "x+1")
            stage.wait(lambda: not is_running(stage), "the migration ends")
            assert not stage.is_complete()
            add_widget(returns, f"back-{number}")
            add_widget(keeps, f"forth-{number}")
            assert HASHES[V1] in stage.persisted()
            replace(returns, "x+2")
        stage.wait_complete()
    history = stage.audit_complete()
    assert len(history.late) == len(points), f"seed {SEED}, at {points}"
    assert max(history.late) <= PAGE_OBJECTS, f"seed {SEED}, at {points}: {history.late}"
    assert history.left == {V2: COUNT + 2 * len(points)}


def is_running(stage: Stage) -> bool:
    """Returns whether there is a migration that has not ended."""
    return bool(stage.migration()) and not {"Failed", "Succeeded"} & stage.conditions().keys()


@in_few_stores
def test_object_that_cannot_be_read(stage: Stage) -> None:
    """It fails the migration by name; all others are migrated, and the state is not narrowed.
    When it is fixed, the next attempt completes."""
    broken = f"{OLD}0007"
    stage.plant_raw({broken: GARBAGE})
    with stage.controllers("--no-leader-elect"):
        stage.wait(lambda: "Failed" in stage.conditions(), "it fails")
        assert stage.conditions()["Failed"] == ("True", "ObjectsFailed")
        assert "Succeeded" not in stage.conditions()
        failed = stage.migration()
        [named] = failed["status"]["failedObjects"]
        assert (named["namespace"], named["name"]) == ("default", broken)
        history = stage.history()
        assert history.persisted is not None
        assert "Unknown" in history.persisted
        assert history.left == {V2: COUNT - 1, "(unreadable)": 1}
        assert stage.reasons(failed["metadata"]["name"]).count("MigrationSucceeded") == 0
        stage.plant_raw({broken: old_object(7)})
        stage.ask("DELETE", f"{MIGRATIONS}/{failed['metadata']['name']}")
        stage.wait_complete()
    assert stage.audit_complete().left == {V2: COUNT}


@in_few_stores
def test_two_processes_at_once(stage: Stage) -> None:
    """Two independent processes repeat the same work without a violation."""
    with (
        stage.controllers("--no-leader-elect", *SLOWLY),
        stage.controllers("--no-leader-elect", *SLOWLY, server=1),
    ):
        stage.wait_complete()
    history = stage.audit_complete()
    assert (history.rewritten, history.narrowed) == (COUNT, 1)


@in_few_stores
def test_leader_is_paused(stage: Stage) -> None:
    """Another process takes over when the lease has expired; when the first resumes, no progress
    is undone."""
    lease = ("--lease-seconds", str(LEASE_SECONDS))
    with stage.controllers(*SLOWEST, *lease) as leader:
        stage.wait(lambda: stage.scanned() >= (1, PAGE_OBJECTS), "a page is done")
        leader.pause()
        assert collects_first(stage, leader)
        with stage.controllers(*lease, server=1) as other:
            stage.wait(lambda: collects_first(stage, other), "the other one leads")
            stage.wait_complete()
            leader.resume()
            stage.wait(lambda: "migrator: waits" in leader.get("/readyz")[1], "it stands back")
            assert collects_first(stage, other)
            assert stage.is_complete()
            assert other.stop() == 0
        stage.wait(lambda: collects_first(stage, leader), "it leads again")
        assert stage.is_complete()
    history = stage.audit_complete()
    assert (history.rewritten, history.narrowed) == (COUNT, 1)


def collects_first(stage: Stage, process: ControllersProcess) -> bool:
    """Returns whether a process holds the lease of the migrator."""
    lease = stage.ask("GET", f"{LEASES}/restow-migrator") or {}
    return f"_{process.pid}_" in str(lease.get("spec", {}).get("holderIdentity", ""))


def test_ends_under_writes(stage: Stage) -> None:
    """Clients that create, update and delete constantly do not prevent completion."""
    with (
        Hammer(stage.servers[0], writers=1, gap_seconds=GAP_SECONDS, prefix="a") as one,
        Hammer(stage.servers[1], writers=1, gap_seconds=GAP_SECONDS, prefix="b") as two,
        stage.controllers("--no-leader-elect", *SLOWLY),
    ):
        stage.wait_complete()
        assert stage.persisted() == [HASHES[V2]]
        for hammer in (one, two):
            hammer.wait_for_successes(3)
    assert not [each for hammer in (one, two) for each in hammer.answers if not each.is_fair]
    history = stage.audit_complete()
    assert history.rewritten == COUNT
    assert len(history.versions) > COUNT
