"""The requests sent for each action, their order, and the effect of an error on later actions."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from restow.apimachinery import status
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.status import AlreadyExists, Conflict
from restow.apimachinery.version_hash import storage_version_hash
from restow.client import ApiClient, Object
from restow.migration.migration_objects import MIGRATION_APIS
from restow.migration.migration_values import MigrationRecord, MigrationRef
from restow.migration.records import CHANGE_ANNOTATION, record_of
from restow.migration.trigger.actions import (
    Action,
    CreateMigration,
    CreateState,
    DeleteMigration,
    Narrow,
    Nothing,
    Precondition,
    UpdateState,
    Wait,
)
from restow.migration.trigger.executor import Executor
from restow.migration.trigger.observations import Observation, state_seen
from restow.migration.trigger.values import UNKNOWN, StateStatus
from tests.unit.migration.trigger.fake_kubernetes import (
    MIGRATIONS_PATH,
    STATE,
    WIDGETS,
    Kubernetes,
)
from tests.unit.migration.trigger.stage import Recorded

RESOURCE = WIDGETS.group_resource
KIND = GroupVersionKind("example.org", "v2", "Widget")
HEARTBEAT = datetime(2024, 1, 1, tzinfo=UTC)
RECORD = MigrationRecord(target="h2", state_uid="u", change="7")
UNKNOWN_STATUS = StateStatus(persisted=(UNKNOWN,), current="h2", heartbeat=HEARTBEAT)
BODY: Object = {
    "apiVersion": "migration.k8s.io/v1alpha1",
    "kind": "StorageState",
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "mine"}},
    "spec": {"resource": {"group": "example.org", "resource": "widgets"}},
    "status": {"persistedStorageVersionHashes": ["h1"], "extra": "theirs"},
}


class Scene:
    """One executor on one server."""

    def __init__(self) -> None:
        self.world = Kubernetes()
        self.world.server("s1", "v1")
        self.client: ApiClient = self.world.client("s1")
        self.recorded = Recorded()
        self.actor = Executor(self.client, recorder=self.recorded, metrics=self.recorded)

    async def act(self, *actions: Action, requests: tuple[Object, ...] = ()) -> object:
        state = copy.deepcopy(self.world.objects.get(STATE))
        observation = Observation(resource=WIDGETS, state=state, migrations=requests)
        return await self.actor.act(actions, observation, migration_api=MIGRATION_APIS[0])

    def precondition(self) -> Precondition:
        return Precondition.of(state_seen(self.world.objects[STATE]))

    @property
    def methods(self) -> list[str]:
        return [f"{each.method} {each.path.rsplit('/', 1)[1]}" for each in self.world.sent]


async def test_a_state_is_created_and_its_status_updated() -> None:
    """A server drops the status of a create, so an update follows, with the created object as
    precondition."""
    scene = Scene()
    create = CreateState(resource=RESOURCE, status=UNKNOWN_STATUS, reason="new")
    assert await scene.act(create) == (True, None)
    assert scene.methods == ["POST storagestates", "PUT status"]
    assert scene.world.sent[1].body["metadata"]["resourceVersion"]
    assert scene.world.persisted == [UNKNOWN]
    assert scene.recorded.done == [("widgets.example.org", "CreateState")]
    with pytest.raises(AlreadyExists):
        await scene.act(create)


async def test_a_change_is_marked_before_the_status_is_updated() -> None:
    """The annotation is written first, then the status, each conditional on the preceding state;
    fields of
    others are kept."""
    scene = Scene()
    scene.world.put(STATE, BODY)
    wanted = scene.precondition()
    update = UpdateState(
        resource=RESOURCE, precondition=wanted, status=UNKNOWN_STATUS, change="11", reason="gap"
    )
    await scene.act(update)
    assert scene.methods == ["PATCH widgets.example.org", "PUT status"]
    patch, put = scene.world.sent
    assert patch.body == {
        "metadata": {
            "uid": wanted.uid,
            "resourceVersion": wanted.resource_version,
            "annotations": {CHANGE_ANNOTATION: "11"},
        }
    }
    assert put.body["metadata"]["resourceVersion"] != wanted.resource_version
    found = scene.world.objects[STATE]
    assert found["metadata"]["annotations"] == {"note": "mine", CHANGE_ANNOTATION: "11"}
    assert found["metadata"]["labels"] == {"team": "a"}
    assert found["status"]["extra"] == "theirs"
    assert scene.recorded.warnings == ["StoredVersionsUnknown"]


async def test_a_stale_state_is_not_written() -> None:
    """Neither annotation nor status is written, and later actions are skipped."""
    for change in (None, "11"):
        scene = Scene()
        old = scene.world.put(STATE, BODY)
        update = UpdateState(
            resource=RESOURCE,
            precondition=scene.precondition(),
            status=UNKNOWN_STATUS,
            change=change,
            reason="gap",
        )
        observation = Observation(resource=WIDGETS, state=copy.deepcopy(old), migrations=())
        newer = copy.deepcopy(scene.world.put(STATE, old))
        create = CreateMigration(resource=WIDGETS, name="a", record=RECORD, reason="now")
        with pytest.raises(Conflict):
            await scene.actor.act([update, create], observation, migration_api=MIGRATION_APIS[0])
        assert scene.world.objects[STATE] == newer
        assert len(scene.world.sent) == 1
        assert scene.recorded.done == []


async def test_narrowing_is_one_write() -> None:
    """A conditional PUT of the status; the event names the migration."""
    scene = Scene()
    scene.world.put(STATE, BODY)
    status_ = StateStatus(persisted=("h2",), current="h2", heartbeat=HEARTBEAT)
    ref = MigrationRef("migration.k8s.io/v1alpha1", "a", "u")
    narrow = Narrow(
        resource=RESOURCE,
        precondition=scene.precondition(),
        status=status_,
        migration=ref,
        reason="done",
    )
    await scene.act(narrow)
    assert scene.methods == ["PUT status"]
    assert scene.world.sent[0].body["metadata"]["uid"]
    ((about, reason, text),) = scene.recorded.events
    assert (about, reason) == ("StorageState", "StoredVersionsNarrowed")
    assert "by a" in text


async def test_a_migration_is_created_once() -> None:
    """Its annotations record its purpose; if it exists already, that is no error."""
    scene = Scene()
    create = CreateMigration(resource=WIDGETS, name="a", record=RECORD, reason="now")
    assert await scene.act(create) == (True, None)
    made = scene.world.objects[f"{MIGRATIONS_PATH}/a"]
    assert record_of(made["metadata"]["annotations"]) == RECORD
    assert made["spec"]["resource"] == {
        "group": "example.org",
        "version": "v1",
        "resource": "widgets",
    }
    assert await scene.act(create) == (False, None)
    assert scene.recorded.reasons() == ["MigrationRequested"]


@pytest.mark.parametrize("kind", [KIND, None])
async def test_the_event_names_the_target_version(kind: GroupVersionKind | None) -> None:
    """The hash stands in addition, or alone if this process has not computed it."""
    scene = Scene()
    target = "h2" if kind is None else storage_version_hash(kind)
    named = "h2" if kind is None else f"example.org/v2 (hash {target})"
    create = CreateMigration(
        resource=WIDGETS, name="a", record=replace(RECORD, target=target), reason="now"
    )
    await scene.act(create)
    ((_, _, message),) = scene.recorded.events
    assert message == f"now: all objects are rewritten as {named}"


async def test_only_the_intended_migration_is_deleted() -> None:
    """Matched by UID: one that was deleted or recreated is left alone without an error."""
    scene = Scene()
    made = scene.world.put(f"{MIGRATIONS_PATH}/a", {"kind": "StorageVersionMigration"})
    ref = MigrationRef("migration.k8s.io/v1alpha1", "a", made["metadata"]["uid"])
    delete = DeleteMigration(ref=ref, reason="no agreement")
    other = DeleteMigration(ref=ref._replace(uid="another"), reason="no agreement")
    assert await scene.act(other) == (False, None)
    assert f"{MIGRATIONS_PATH}/a" in scene.world.objects
    known = {**made, "apiVersion": "migration.k8s.io/v1alpha1"}
    assert await scene.act(delete, requests=(known,)) == (True, None)
    assert await scene.act(delete, requests=(known,)) == (False, None)
    assert scene.recorded.events == [
        ("StorageVersionMigration", "MigrationCancelled", "a was deleted: no agreement")
    ]


async def test_a_terminating_migration_is_not_deleted_again() -> None:
    """A finalizer may delay the deletion: repeated requests would be noise."""
    scene = Scene()
    ref = MigrationRef("migration.k8s.io/v1alpha1", "a", "u")
    terminating = {
        "apiVersion": ref.api_version,
        "metadata": {"name": "a", "uid": "u", "deletionTimestamp": "2024-01-01T00:00:00Z"},
    }
    await scene.act(DeleteMigration(ref=ref, reason="no"), requests=(terminating,))
    assert scene.world.sent == []


async def test_waiting_sends_nothing() -> None:
    """The caller receives the time of the next check."""
    scene = Scene()
    assert await scene.act(Nothing(reason="fine"), Wait(until_seconds=7.5, reason="hold")) == (
        False,
        7.5,
    )
    assert scene.world.sent == []
    assert scene.recorded.done == []


async def test_other_errors_are_raised_too() -> None:
    """Errors other than conflicts are left to the caller's retry, and later actions are skipped."""
    scene = Scene()
    scene.world.refuse.append(status.internal("no"))
    create = CreateState(resource=GroupResource("", "pods"), status=UNKNOWN_STATUS, reason="new")
    with pytest.raises(status.InternalError):
        await scene.act(create, create)
    assert len(scene.world.sent) == 1
