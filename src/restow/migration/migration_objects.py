"""Reads StorageVersionMigrations of either API: `migration.k8s.io` and in-tree.

    migration.k8s.io/v1alpha1           spec.resource {group, version, resource}
    storagemigration.k8s.io/v1, v1beta1 spec.resource {group, resource}

Objects are untrusted input: every type is checked. Not here: writing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apis.migration_v1alpha1 import GROUP
from restow.apis.names import VERIFIED_ANNOTATION, VERIFIED_BY_SERVERS, VERIFIER_ANNOTATION
from restow.apis.resources import IN_TREE_GROUP
from restow.migration.migration_values import MigrationPhase, MigrationRef, MigrationSeen
from restow.migration.names import (
    FAILED,
    PAUSED_ANNOTATION,
    PROOF_ANNOTATION,
    REASON_OBJECTS_FAILED,
    RUNNING,
    SUCCEEDED,
)
from restow.migration.records import record_of
from restow.migration.times import read_time

MIGRATION_APIS: Final = (
    GroupVersionResource(GROUP, "v1alpha1", "storageversionmigrations"),
    GroupVersionResource(IN_TREE_GROUP, "v1", "storageversionmigrations"),
    GroupVersionResource(IN_TREE_GROUP, "v1beta1", "storageversionmigrations"),
)
"""The migration APIs, preferred first; of the in-tree versions only the first served one counts."""

Object = Mapping[str, Any]


def ref_of(migration: Object) -> MigrationRef:
    metadata = mapping(migration, "metadata")
    return MigrationRef(
        api_version=text(migration, "apiVersion"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
    )


def resource_of(migration: Object) -> GroupResource:
    """The resource to migrate; the version, if there is one, is ignored."""
    wanted = mapping(mapping(migration, "spec"), "resource")
    return GroupResource(text(wanted, "group"), text(wanted, "resource"))


def condition(migration: Object, kind: str) -> Object | None:
    """Return the condition of a type if its status is True."""
    found = mapping(migration, "status").get("conditions")
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and each.get("type") == kind and each.get("status") == "True":
            return each
    return None


def phase_of(migration: Object) -> MigrationPhase:
    """The phase by the conditions."""
    if condition(migration, FAILED) is not None:
        return MigrationPhase.FAILED
    if condition(migration, SUCCEEDED) is not None:
        return MigrationPhase.SUCCEEDED
    return (
        MigrationPhase.PENDING if condition(migration, RUNNING) is None else MigrationPhase.RUNNING
    )


def has_ended(migration: Object) -> bool:
    """Whether the status is final. A success of the trigger's migrations without a proof is not."""
    match phase_of(migration):
        case MigrationPhase.FAILED:
            return True
        case MigrationPhase.SUCCEEDED:
            return is_proven(migration) or record_of(marks_of(migration)) is None
        case _:
            return False


def is_proven(migration: Object) -> bool:
    """Whether the annotations contain a proof for the target: a pass that rewrote nothing.

    Any client that may write migrations can write this. It is evidence only where servers do not
    verify migrations themselves; see `is_verified`.
    """
    marks = marks_of(migration)
    try:
        proof = orjson.loads(marks.get(PROOF_ANNOTATION, ""))
    except orjson.JSONDecodeError:
        return False
    if not isinstance(proof, dict) or not text(proof, "target"):
        return False
    record = record_of(marks)
    if record is None:
        return True
    # The uid of the StorageVersion, if the migration was created from one.
    made_for = record.storage_version.partition("/")[0]
    shown = text(proof, "mark").partition("/")[0]
    return text(proof, "target") == record.target and made_for in {"", shown}


def is_verified(migration: Object, state: Object | None) -> bool:
    """Whether a migration is verified, by the best evidence that its resource has.

    Where servers verify migrations, only what they have recorded in the StorageState counts.
    """
    marks = {} if state is None else marks_of(state)
    if marks.get(VERIFIER_ANNOTATION) != VERIFIED_BY_SERVERS:
        return is_proven(migration)
    try:
        record = orjson.loads(marks.get(VERIFIED_ANNOTATION, ""))
    except orjson.JSONDecodeError:
        return False
    uid = text(mapping(migration, "metadata"), "uid")
    return isinstance(record, dict) and bool(uid) and record.get("migration") == uid


def is_paused(migration: Object) -> bool:
    return marks_of(migration).get(PAUSED_ANNOTATION) == "true"


def is_being_deleted(migration: Object) -> bool:
    """Whether the migration is being deleted."""
    return bool(mapping(migration, "metadata").get("deletionTimestamp"))


def seen(migration: Object) -> MigrationSeen:
    """Return a migration as the trigger reads it.

    A success without a proof, as another migrator writes it, counts as running: our migrator
    continues with the pass that verifies it.
    """
    phase = phase_of(migration)
    if phase is MigrationPhase.SUCCEEDED and not is_proven(migration):
        phase = MigrationPhase.RUNNING
    return MigrationSeen(
        ref=ref_of(migration),
        phase=phase,
        record=record_of(marks_of(migration)),
        finished_at=finished_at(migration),
        has_failed_objects=text(condition(migration, FAILED) or {}, "reason")
        == REASON_OBJECTS_FAILED,
    )


def finished_at(migration: Object) -> datetime | None:
    for kind in (FAILED, SUCCEEDED):
        found = condition(migration, kind)
        if found is not None:
            moment = found.get("lastTransitionTime") or found.get("lastUpdateTime")
            return read_time(moment)
    return None


def marks_of(migration: Object) -> dict[str, str]:
    """The annotations."""
    found = mapping(mapping(migration, "metadata"), "annotations")
    return {key: value for key, value in found.items() if isinstance(value, str)}


def mapping(value: Object, name: str) -> Object:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def text(value: Object, name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""
