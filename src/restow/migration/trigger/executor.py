"""Executes the actions of the rules through the API: every write is conditional on what was read.

| action | requests |
|---|---|
| CreateState | POST, then PUT of the status. After a crash in between there is a state without a status, which the rules treat as unknown |
| UpdateState | with a change mark: PATCH of the annotation, conditional; then PUT of the status, conditional on the version that this returned |
| Narrow | one conditional PUT of the status. A server that verifies migrations itself rejects it unless it has verified this one; then the migration is deleted, and a new one replaces it |
| CreateMigration | POST under a name that depends only on the record, so that equal migrations are created once |
| DeleteMigration | DELETE by uid |

An error of the server is raised: the remaining actions are dropped, and the caller reads everything
again. Not here: when to retry.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never

from restow.apimachinery.names import GroupVersion, GroupVersionResource
from restow.apimachinery.status import AlreadyExists, Conflict, Invalid, NotFound
from restow.apimachinery.version_hash import version_text
from restow.apis.resources import IN_TREE_GROUP, STATES
from restow.client import ApiClient, Object, PatchType, WriteOptions, uid_of, version_of
from restow.migration.encryption_keys import PLAIN
from restow.migration.event_sinks import EventSink, TriggerMetrics
from restow.migration.migration_objects import is_being_deleted, ref_of
from restow.migration.migration_values import MigrationRef
from restow.migration.records import CHANGE_ANNOTATION, annotations_of
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
from restow.migration.trigger.observations import (
    Observation,
    new_state,
    state_name,
    state_seen,
    status_body,
)
from restow.migration.trigger.values import UNKNOWN, StateStatus

FIELD_MANAGER: Final = "restow-trigger"
MIGRATION_KIND: Final = "StorageVersionMigration"

STATE_CREATED: Final = "StorageStateCreated"
STATE_UNKNOWN: Final = "StoredVersionsUnknown"
STATE_NARROWED: Final = "StoredVersionsNarrowed"
NOT_VERIFIED: Final = "MigrationNotVerified"
# The reason of the event is API: clients filter events by it.
MIGRATION_CREATED: Final = "MigrationRequested"
MIGRATION_CANCELLED: Final = "MigrationCancelled"

_OPTIONS: Final = WriteOptions(field_manager=FIELD_MANAGER)


class Acted(NamedTuple):
    """The result of the actions."""

    is_changed: bool
    """Whether anything was written: then reconcile again."""
    until_seconds: float | None
    """The latest time to reconcile again, if the rules have set one."""


class Executor:
    """Executes actions. Events and metrics report only writes that succeeded."""

    def __init__(self, client: ApiClient, *, recorder: EventSink, metrics: TriggerMetrics) -> None:
        self._client = client
        self._recorder = recorder
        self._metrics = metrics

    async def act(
        self,
        actions: Sequence[Action],
        observation: Observation,
        *,
        migration_api: GroupVersionResource,
    ) -> Acted:
        """Execute the actions in order; a StatusError or ConnectionFailed ends it."""
        name = state_name(observation.resource.group_resource)
        is_changed, until_seconds = False, None
        for action in actions:
            match action:
                case CreateState():
                    await self._create_state(action)
                    is_done = True
                case UpdateState():
                    await self._update_state(action, observation)
                    is_done = True
                case Narrow():
                    await self._narrow(action, observation)
                    is_done = True
                case CreateMigration():
                    is_done = await self._create_migration(action, migration_api)
                case DeleteMigration():
                    is_done = await self._delete_migration(action, observation)
                case Wait():
                    until_seconds, is_done = action.until_seconds, False
                case Nothing():
                    is_done = False
                case other:
                    assert_never(other)
            if is_done:
                is_changed = True
                self._metrics.decided(name, type(action).__name__)
        return Acted(is_changed, until_seconds)

    # StorageStates.

    async def _create_state(self, action: CreateState) -> None:
        made = await self._client.create(STATES, new_state(action.resource), options=_OPTIONS)
        made = await self._put_status(made, action.status)
        self._recorder.event(made, STATE_CREATED, f"{action.reason}: {_status_text(action.status)}")

    async def _update_state(self, action: UpdateState, observation: Observation) -> None:
        base = _base(observation, action.precondition)
        knew = UNKNOWN not in state_seen(base).status.persisted
        if action.change is not None:
            base = await self._mark_change(base, action.change)
        # KEP-2343 4.14: one conditional write of the whole status
        base = await self._put_status(base, action.status)
        if knew and UNKNOWN in action.status.persisted:
            self._recorder.event(base, STATE_UNKNOWN, action.reason, is_warning=True)

    async def _narrow(self, action: Narrow, observation: Observation) -> None:
        base = _base(observation, action.precondition)
        try:
            base = await self._put_status(base, action.status)
        except Invalid as error:
            # The servers verify migrations themselves, and have not verified this one.
            reason = f"the API servers have not verified it: {error.message}"
            self._recorder.event(base, NOT_VERIFIED, reason, is_warning=True)
            await self._delete_migration(
                DeleteMigration(ref=action.migration, reason=reason), observation
            )
            return
        message = f"{action.reason}: {_status_text(action.status)}, by {action.migration.name}"
        self._recorder.event(base, STATE_NARROWED, message)

    async def _mark_change(self, base: Object, mark: str) -> Object:
        metadata = {
            "uid": uid_of(base),
            "resourceVersion": version_of(base),
            "annotations": {CHANGE_ANNOTATION: mark},
        }
        return await self._client.patch(
            STATES,
            base["metadata"]["name"],
            {"metadata": metadata},
            patch_type=PatchType.MERGE,
            options=_OPTIONS,
        )

    async def _put_status(self, base: Object, status: StateStatus) -> Object:
        """Update the status if the object is unchanged: the base has its uid and resource version.

        The rest of the base is sent unchanged.
        """
        body = {**base, "status": {**_others(base), **status_body(status)}}
        return await self._client.update(STATES, body, subresource="status", options=_OPTIONS)

    # Migrations.

    async def _create_migration(self, action: CreateMigration, api: GroupVersionResource) -> bool:
        """Create a migration; False if an equal one exists already."""
        try:
            made = await self._client.create(api, _new_migration(action, api), options=_OPTIONS)
        except AlreadyExists:
            return False
        target = version_text(action.record.target)
        message = f"{action.reason}: all objects are rewritten as {target}"
        self._recorder.event(made, MIGRATION_CREATED, message)
        return True

    async def _delete_migration(self, action: DeleteMigration, observation: Observation) -> bool:
        """Delete a migration; False if it was deleted before, or replaced under the same name."""
        known = next((each for each in observation.migrations if ref_of(each) == action.ref), None)
        if known is not None and is_being_deleted(known):
            return False
        try:
            await self._client.delete(_api_of(action.ref), action.ref.name, uid=action.ref.uid)
        except (NotFound, Conflict):
            return False
        about = observation.state or known
        if about is not None:
            message = f"{action.ref.name} was deleted: {action.reason}"
            self._recorder.event(about, MIGRATION_CANCELLED, message)
        return True


def _base(observation: Observation, wanted: Precondition) -> Object:
    """The state on which the decision was based."""
    assert observation.state is not None
    assert Precondition.of(state_seen(observation.state)) == wanted
    return observation.state


def _others(base: Object) -> Object:
    """The fields of other writers in the status."""
    found = base.get("status")
    ours = {
        "persistedStorageVersionHashes",
        "persistedEncryptionKeys",
        "currentStorageVersionHash",
        "currentStorageVersionHashes",
        "lastHeartbeatTime",
    }
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if name not in ours}


def _new_migration(action: CreateMigration, api: GroupVersionResource) -> Object:
    wanted = {"group": action.resource.group, "resource": action.resource.resource}
    if api.group != IN_TREE_GROUP:
        wanted["version"] = action.resource.version
    return {
        "apiVersion": str(api.group_version),
        "kind": MIGRATION_KIND,
        "metadata": {"name": action.name, "annotations": annotations_of(action.record)},
        "spec": {"resource": wanted},
    }


def _api_of(ref: MigrationRef) -> GroupVersionResource:
    return GroupVersion.parse(ref.api_version).with_resource("storageversionmigrations")


def _status_text(status: StateStatus) -> str:
    keys = "" if status.keys == PLAIN else f", under the keys {', '.join(status.keys)}"
    return f"objects may be stored as {', '.join(map(version_text, status.persisted))}{keys}"
