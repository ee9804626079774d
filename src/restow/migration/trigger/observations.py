"""Converts API objects to the values of the rules, and back.

    StorageState      <-> StateSeen, StateStatus
    StorageVersion     -> its name, and the typed object that `readings` takes

Objects are untrusted input: every type is checked. A state that cannot be parsed counts as unknown:
a damaged state must not be taken for a complete one.

Not here: reading them, and the conclusions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apis import migration_v1alpha1
from restow.apis.internal_v1alpha1 import StorageVersion
from restow.apis.migration_v1alpha1 import persisted_hashes
from restow.apis.names import EPOCH_ANNOTATION, VERIFIED_BY_SERVERS, VERIFIER_ANNOTATION
from restow.client import ClientError, Object, key_of, uid_of, version_of
from restow.migration.encryption_keys import PLAIN, persisted_keys
from restow.migration.migration_objects import mapping, marks_of, text
from restow.migration.records import CHANGE_ANNOTATION
from restow.migration.times import read_time, time_text
from restow.migration.trigger.values import HashReport, StateSeen, StateStatus

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class UnreadableObject(ClientError):
    """An object of the API does not have the fields of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The API objects of a view. Writes use their UID and resource version as preconditions."""

    resource: GroupVersionResource
    state: Object | None
    migrations: tuple[Object, ...]


# Names.


def state_name(resource: GroupResource) -> str:
    """`<resource>.<group>`, and the resource alone in the core group."""
    return str(resource)


def resource_of_state(state: Object) -> GroupResource:
    """The resource of a state, from its name."""
    resource, _, group = key_of(state).name.partition(".")
    return GroupResource(group, resource)


# StorageState.


def state_seen(state: Object) -> StateSeen:
    """Parse a state. One without a status has no known versions."""
    marks = marks_of(state)
    return StateSeen(
        uid=uid_of(state),
        resource_version=version_of(state),
        status=_status_of(mapping(state, "status")),
        epoch=marks.get(EPOCH_ANNOTATION, ""),
        change=marks.get(CHANGE_ANNOTATION, ""),
        is_verified_by_servers=marks.get(VERIFIER_ANNOTATION) == VERIFIED_BY_SERVERS,
    )


def new_state(resource: GroupResource) -> Object:
    """Return a state to create, without status: a create does not write the status."""
    return {
        "apiVersion": migration_v1alpha1.API_VERSION,
        "kind": migration_v1alpha1.STORAGE_STATE,
        "metadata": {"name": state_name(resource)},
        "spec": {"resource": {"group": resource.group, "resource": resource.resource}},
    }


def status_body(status: StateStatus) -> dict[str, Any]:
    """Return the status to send. Times are truncated to whole seconds, never rounded up."""
    body: dict[str, Any] = {
        "persistedStorageVersionHashes": list(status.persisted),
        "currentStorageVersionHash": status.current,
    }
    if status.keys != PLAIN:
        body["persistedEncryptionKeys"] = list(status.keys)
    if status.heartbeat is not None:
        body["lastHeartbeatTime"] = time_text(status.heartbeat)
    # KEP-2343 4.27: without reporters the list is left out
    if status.reports:
        body["currentStorageVersionHashes"] = [
            {
                "reporterID": each.reporter_id,
                "currentStorageVersionHash": each.hash,
                "lastHeartbeatTime": time_text(each.heartbeat),
            }
            for each in status.reports
        ]
    return body


def _status_of(status: Any) -> StateStatus:
    return StateStatus(
        persisted=persisted_hashes(status.get("persistedStorageVersionHashes")),
        keys=persisted_keys(status),
        current=text(status, "currentStorageVersionHash"),
        heartbeat=read_time(status.get("lastHeartbeatTime")),
        reports=tuple(_reports(status.get("currentStorageVersionHashes"))),
    )


def _reports(found: object) -> Iterable[HashReport]:
    """A report without hash or time stays: it agrees with no other, and counts as silent."""
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and text(each, "reporterID"):
            yield HashReport(
                reporter_id=text(each, "reporterID"),
                hash=text(each, "currentStorageVersionHash"),
                heartbeat=read_time(each.get("lastHeartbeatTime")) or _LONG_AGO,
            )


# StorageVersion.


def storage_version_of(found: Object) -> StorageVersion:
    """Parse a StorageVersion; raises UnreadableObject if it is invalid."""
    try:
        return msgspec.convert(found, StorageVersion)
    except msgspec.ValidationError as error:
        raise UnreadableObject(
            f"{key_of(found).name or 'an object'} is not a valid StorageVersion: {error}"
        ) from error
