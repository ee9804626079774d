"""The storage version of a custom resource changes, and its objects are migrated: real processes.

A version is removed from `status.storedVersions` only after it is verified that no object is stored
in it: each test ends with a check of the whole log of the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.custom.stage import (
    MERGE,
    MIGRATIONS,
    PAGE_OBJECTS,
    SLOWLY,
    Stage,
    gadget,
    object_name,
)
from tests.e2e.custom.switching import DEFINITIONS
from tests.e2e.custom.webhook_thread import WebhookThread
from tests.e2e.storageversion.clusters import SHORT_LEASE
from tests.e2e.storageversion.conftest import NewCluster
from tests.sizes import SIZES
from tests.support.server_process import ServerProcess

COUNT: Final = 10 * SIZES.migration_objects
REFUSED: Final = object_name(7)


@pytest.fixture(scope="module", params=SIZES.migration_stores)
def two(
    request: pytest.FixtureRequest,
    new_cluster: NewCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    """Two servers that keep running from test to test."""
    cluster = new_cluster(request.param)
    stage = Stage(cluster, tmp_path_factory.mktemp("stage"))
    stage.servers = cluster.start("builtin", "builtin")
    stage.verify_all_kinds()
    yield stage
    cluster.close()


@pytest.fixture
def stage(two: Stage, group: str) -> Iterator[Stage]:
    """The two servers, and objects stored in v1."""
    two.begin(group)
    two.fill(COUNT)
    yield two
    two.end()


@pytest.fixture
def hooked(two: Stage, group: str, webhook: WebhookThread) -> Iterator[Stage]:
    """The same, with a conversion webhook."""
    two.begin(group, conversion=webhook.conversion)
    two.fill(COUNT)
    yield two
    webhook.release()
    two.end()


def test_objects_are_migrated(stage: Stage) -> None:
    """Servers switch, the trigger creates a migration, and only its verification removes v1 from
    `storedVersions`; then the CRD may drop v1, and every object still exists."""
    with stage.controllers(*SLOWLY):
        stage.flip("v2")
        assert stage.listed() == ["v1", "v2"]
        assert_v1_is_kept(stage)
        stage.wait(lambda: stage.scanned() >= (1, PAGE_OBJECTS), "a page is done")
        assert_v1_is_kept(stage)
        stage.wait_verified("v2")
        stage.wait(lambda: ("Succeeded", "True") in stage.conditions(), "it says so")
    trace = stage.trace()
    assert trace.left == {"v2": COUNT}
    assert trace.listings == [("v1",), ("v1", "v2"), ("v2",)]
    code, answer = stage.drop("v1")
    assert code == 200, answer
    for server in stage.servers:
        wait_until_dropped(stage, server, "v1")
        new = gadget(stage.place, f"new-{server.port}", version="v2")
        stage.ask("POST", stage.place.path("v2"), new)
        for name in (object_name(0), object_name(COUNT - 1), f"new-{server.port}"):
            path = stage.place.path("v2", name)
            code, text = server.request("PATCH", path, {"spec": {"turn": 7}}, headers=MERGE)
            assert (code, json.loads(text)["spec"]["turn"]) == (200, 7)
        assert len(json.loads(server.get(stage.place.path("v2"))[1])["items"]) > COUNT
    assert stage.trace().left == {"v2": COUNT + 2}


def assert_v1_is_kept(stage: Stage) -> None:
    """v1 cannot be removed from the CRD while objects may be stored in it."""
    code, answer = stage.drop("v1")
    assert code == 422, answer
    [cause] = answer["details"]["causes"]
    assert cause["field"] == "status.storedVersions[0]"
    assert "v1 was previously a storage version, and must remain in" in cause["message"]


def wait_until_dropped(stage: Stage, server: ServerProcess, version: str) -> None:
    stage.wait(lambda: server.get(stage.place.path(version))[0] == 404, f"{version} is gone")


def test_with_the_command(stage: Stage) -> None:
    """`restow migrate` does everything without controllers; status and census report the state
    before and after."""
    name, cluster = stage.place.name, ("--kubeconfig", str(stage.servers[0].kubeconfig))
    census = ("census", name, "--store", stage.cluster.store)
    stage.flip("v2")
    stage.wait_agreed("v2")
    code, told = stage.restow(*census)
    assert (code, told["stale"]) == (3, COUNT)
    [seen] = stage.restow("status", name, *cluster)[1]["resources"]
    assert seen["verdict"] == "to migrate"
    assert versions_of(stage, "v1", "v2") < {each["version"] for each in seen["persisted"]}

    code, [result] = stage.restow("migrate", name, *cluster)
    assert (code, result["rewritten"]) == (0, COUNT), result
    assert "storedVersions is v2" in result["message"]
    assert stage.listed() == ["v2"]
    code, told = stage.restow(*census)
    assert (code, told["stale"], told["objects"]) == (0, 0, COUNT)
    with stage.controllers():  # the writer that narrows the persisted hashes
        stage.wait_verified("v2")
    [seen] = stage.restow("status", name, *cluster)[1]["resources"]
    assert seen["verdict"] == "ok"
    assert {each["version"] for each in seen["persisted"]} == versions_of(stage, "v2")
    assert stage.trace().left == {"v2": COUNT}


def versions_of(stage: Stage, *names: str) -> set[str]:
    return {f"{stage.place.group}/{name}" for name in names}


def test_object_that_is_refused(hooked: Stage, webhook: WebhookThread) -> None:
    """One object that the webhook does not convert fails the migration by name, and no version
    is removed, though all others are migrated; when it is fixed, the next attempt completes."""
    stage, webhook.refused = hooked, frozenset({REFUSED})
    with stage.controllers():
        stage.flip("v2")
        stage.wait(lambda: ("Failed", "True") in stage.conditions(), "it fails")
        failed = stage.migration()
        [named] = failed["status"]["failedObjects"]
        assert (named["namespace"], named["name"]) == ("default", REFUSED)
        assert "this one cannot be converted" in named["message"]
        assert stage.trace().left == {"v1": 1, "v2": COUNT - 1}
        assert stage.listed() == ["v1", "v2"]
        assert_v1_is_kept(stage)
        webhook.refused = frozenset()
        stage.ask("DELETE", f"{MIGRATIONS}/{failed['metadata']['name']}")
        stage.wait_verified("v2")
    trace = stage.trace()
    assert (trace.left, trace.written) == ({"v2": COUNT}, {"v1": COUNT, "v2": COUNT})
    assert trace.listings == [("v1",), ("v1", "v2"), ("v2",)]
    found = stage.ask("GET", stage.place.path("v2", REFUSED))
    assert found["spec"]["paint"] == {"color": "red"}


def test_stopped_webhook(hooked: Stage, webhook: WebhookThread) -> None:
    """Without its webhook no object of a kind is migrated and no version removed, and the
    migration gives the reason; when the webhook is back, it completes."""
    stage = hooked
    webhook.stop()
    with stage.controllers():
        stage.flip("v2")
        stage.wait(lambda: ("Failed", "True") in stage.conditions(), "it fails")
        failed = stage.migration()
        assert "conversion webhook" in failed["status"]["failedObjects"][0]["message"]
        assert stage.trace().left == {"v1": COUNT}
        assert_v1_is_kept(stage)
        webhook.restart()
        stage.ask("DELETE", f"{MIGRATIONS}/{failed['metadata']['name']}")
        stage.wait_verified("v2")
    assert stage.trace().left == {"v2": COUNT}


def test_switched_back_during_the_migration(hooked: Stage, webhook: WebhookThread) -> None:
    """While a page is in flight the CRD switches back to v1: the page commits nothing, v1 stays
    listed, and objects rewritten before return to v1."""
    stage = hooked
    with stage.controllers(*SLOWLY):
        stage.flip("v2")
        stage.wait(lambda: stage.scanned() >= (1, PAGE_OBJECTS), "a page is done")
        webhook.hold()
        webhook.wait_held(1)
        stage.flip("v1", server=1)
        stage.wait_agreed("v1")
        before = stage.trace()
        assert 0 < before.left["v1"] < COUNT
        webhook.release()
        stage.wait_verified("v1")
    trace = stage.trace()
    assert trace.left == {"v1": COUNT}
    assert trace.listings == [("v1",), ("v1", "v2"), ("v1",)]
    assert trace.written["v2"] == before.written["v2"]


def test_the_crd_is_edited_during_the_migration(stage: Stage) -> None:
    """A change of the CRD unrelated to storage costs another pass, and does not keep v1 from
    being removed in the end."""
    with stage.controllers(*SLOWLY):
        stage.flip("v2")
        stage.wait(lambda: stage.scanned() >= (1, PAGE_OBJECTS), "a page is done")
        found = stage.found()
        found["spec"]["names"]["shortNames"] = ["gd"]
        stage.ask("PUT", f"{DEFINITIONS}/{stage.place.name}", found)
        stage.wait(lambda: ("Succeeded", "True") in stage.conditions(), "it is proven")
        assert stage.listed() == ["v2"]
    assert stage.trace().left == {"v2": COUNT}


def test_a_server_is_paused_during_the_migration(stage: Stage) -> None:
    """While a server that may write v1 is paused, nothing is migrated. When its lease has
    expired, everything is migrated without it, and v1 is dropped; when it resumes it writes v2."""
    sleeper = stage.cluster.server("builtin", *SHORT_LEASE).start()
    stage.wait(lambda: sleeper.get(stage.place.path("v1"))[0] == 200, "it serves the kind")
    sleeper.pause()
    try:
        stage.flip("v2")
        with stage.controllers():
            stage.wait_verified("v2")
            assert stage.drop("v1")[0] == 200
        sleeper.resume()
        new = gadget(stage.place, "late", version="v2")
        stage.wait(
            lambda: is_created(sleeper, stage.place.path("v2"), new), "it serves as the others do"
        )
        assert sleeper.stop() == 0
    finally:
        sleeper.kill()
    trace = stage.trace()
    assert trace.left == {"v2": COUNT + 1}
    assert trace.listings == [("v1",), ("v1", "v2"), ("v2",)]


def is_created(server: ServerProcess, path: str, obj: dict[str, Any]) -> bool:
    code, answer = server.request("POST", path, obj)
    assert code in (201, 503), answer
    return code == 201


def test_the_migration_is_deleted_in_the_middle(stage: Stage) -> None:
    """The remaining objects stay, v1 stays listed, and another migration completes it."""
    stage.flip("v2")
    stage.wait_agreed("v2")
    with stage.controllers("--only", "migrator", *SLOWLY):
        stage.create_migration(f"first.{stage.place.group}")
        stage.wait(lambda: stage.scanned() >= (1, PAGE_OBJECTS), "a page is done")
        stage.ask("DELETE", f"{MIGRATIONS}/first.{stage.place.group}")
        stage.wait(
            lambda: "MigrationAborted" in stage.reasons(f"first.{stage.place.group}"),
            "it is aborted",
        )
        assert_v1_is_kept(stage)
        left = stage.trace().left
        assert left["v1"] > 0
        assert left["v1"] + left["v2"] == COUNT
        stage.create_migration(f"second.{stage.place.group}")
        stage.wait(lambda: stage.listed() == ["v2"], "another one does it")
    assert stage.trace().left == {"v2": COUNT}


def test_servers_are_killed_in_the_middle(stage: Stage) -> None:
    """The server that rewrites is killed, then the other one: v1 stays listed until all objects
    are verified by the remaining servers."""
    one, two = stage.servers
    with stage.controllers(*SLOWLY):
        stage.flip("v2")
        stage.wait(lambda: stage.scanned() >= (1, PAGE_OBJECTS), "a page is done")
        one.kill()
        assert_v1_is_kept(stage)
        one.start()
        stage.wait(lambda: stage.scanned() >= (2, 0) or stage.is_verified("v2"), "it goes on")
        two.kill()
        stage.wait_verified("v2")
        two.start()
    trace = stage.trace()
    assert trace.left == {"v2": COUNT}
    assert trace.listings == [("v1",), ("v1", "v2"), ("v2",)]
    assert len(json.loads(two.get(stage.place.path("v1"))[1])["items"]) == COUNT
