"""Does what the rules say, through the API: every write is conditional on what was read.

| action | requests |
|---|---|
| CreateState | POST, then PUT of the status. After a crash in between there is a state without a status, which the rules take as unknown |
| UpdateState | with a change mark: PATCH of the annotation, conditional; then PUT of the status, conditional on the version that this gave |
| Narrow | one conditional PUT of the status. A server that verifies migrations itself refuses it unless it has verified this one; then the request is deleted, and another takes its place |
| CreateMigration | POST under a name that is the same for all who ask for the same |
| DeleteMigration | DELETE by uid |

What the server refuses is raised: the rest of the actions is dropped then, and whoever called
reads everything again. Not here: when to try again.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never

from restow.apimachinery.names import GroupVersion, GroupVersionResource
from restow.apimachinery.status import AlreadyExists, Conflict, Invalid, NotFound
from restow.apis.resources import IN_TREE_GROUP, STATES
from restow.client import ApiClient, Object, PatchType, WriteOptions, uid_of, version_of
from restow.migration.encryption_keys import PLAIN
from restow.migration.event_sinks import EventSink, TriggerMetrics
from restow.migration.migration_objects import is_going, ref_of
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
MIGRATION_REQUESTED: Final = "MigrationRequested"
MIGRATION_CANCELLED: Final = "MigrationCancelled"

_OPTIONS: Final = WriteOptions(field_manager=FIELD_MANAGER)


class Acted(NamedTuple):
    """What has come of the actions."""

    is_changed: bool
    """Whether anything was written: then there is something new to look at."""
    until_seconds: float | None
    """When to look again at the latest, if the rules said so."""


class Executor:
    """The one who writes. Events and counts are about what was really done."""

    def __init__(self, client: ApiClient, *, recorder: EventSink, metrics: TriggerMetrics) -> None:
        self._client = client
        self._recorder = recorder
        self._metrics = metrics

    async def act(
        self, actions: Sequence[Action], sight: Observation, *, request_api: GroupVersionResource
    ) -> Acted:
        """Do the actions in their order; a StatusError or ConnectionFailed ends it."""
        name = state_name(sight.resource.group_resource)
        is_changed, until_seconds = False, None
        for action in actions:
            match action:
                case CreateState():
                    await self._create_state(action)
                    is_done = True
                case UpdateState():
                    await self._update_state(action, sight)
                    is_done = True
                case Narrow():
                    await self._narrow(action, sight)
                    is_done = True
                case CreateMigration():
                    is_done = await self._create_migration(action, request_api)
                case DeleteMigration():
                    is_done = await self._delete_migration(action, sight)
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

    # The state.

    async def _create_state(self, action: CreateState) -> None:
        made = await self._client.create(STATES, new_state(action.resource), options=_OPTIONS)
        made = await self._put_status(made, action.status)
        self._recorder.event(made, STATE_CREATED, f"{action.reason}: {_status_text(action.status)}")

    async def _update_state(self, action: UpdateState, sight: Observation) -> None:
        base = _base(sight, action.precondition)
        knew = UNKNOWN not in state_seen(base).status.persisted
        if action.change is not None:
            base = await self._mark_change(base, action.change)
        base = await self._put_status(base, action.status)
        if knew and UNKNOWN in action.status.persisted:
            self._recorder.event(base, STATE_UNKNOWN, action.reason, is_warning=True)

    async def _narrow(self, action: Narrow, sight: Observation) -> None:
        base = _base(sight, action.precondition)
        try:
            base = await self._put_status(base, action.status)
        except Invalid as error:
            # The servers verify migrations themselves, and have not verified this one.
            reason = f"the API servers have not verified it: {error.message}"
            self._recorder.event(base, NOT_VERIFIED, reason, is_warning=True)
            await self._delete_migration(
                DeleteMigration(ref=action.migration, reason=reason), sight
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
        """Only if the object is still the base, which has its uid and its version.

        The rest of the base is sent as it is: what a server does with it, nothing changes.
        """
        body = {**base, "status": {**_others(base), **status_body(status)}}
        return await self._client.update(STATES, body, subresource="status", options=_OPTIONS)

    # Requests.

    async def _create_migration(self, action: CreateMigration, api: GroupVersionResource) -> bool:
        """Whether it was made; if it is there already, somebody has asked for the same."""
        try:
            made = await self._client.create(api, _request(action, api), options=_OPTIONS)
        except AlreadyExists:
            return False
        message = f"{action.reason}: all are written anew as {action.record.target}"
        self._recorder.event(made, MIGRATION_REQUESTED, message)
        return True

    async def _delete_migration(self, action: DeleteMigration, sight: Observation) -> bool:
        """Whether it was there; that it is gone, or another of its name, is all that is wanted."""
        known = next((each for each in sight.requests if ref_of(each) == action.ref), None)
        if known is not None and is_going(known):
            return False
        try:
            await self._client.delete(_api_of(action.ref), action.ref.name, uid=action.ref.uid)
        except (NotFound, Conflict):
            return False
        about = sight.state or known
        if about is not None:
            message = f"{action.ref.name} was deleted: {action.reason}"
            self._recorder.event(about, MIGRATION_CANCELLED, message)
        return True


def _base(sight: Observation, wanted: Precondition) -> Object:
    """The state that the decision was about."""
    assert sight.state is not None
    assert Precondition.of(state_seen(sight.state)) == wanted
    return sight.state


def _others(base: Object) -> Object:
    """What others have put into the status."""
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


def _request(action: CreateMigration, api: GroupVersionResource) -> Object:
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
    return f"objects may be stored as {', '.join(status.persisted)}{keys}"
