"""The record of a migration in its annotations, and the name that follows from it.

The name is computed from the record, so that controllers that create the same migration at the same
time create one object. Not here: comparing records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import astuple
from typing import Final

from restow.apimachinery.names import GroupResource
from restow.migration.migration_values import MigrationRecord

_PREFIX: Final = "trigger.restow.dev/"
CHANGE_ANNOTATION: Final = f"{_PREFIX}change"
"""On the StorageState. (Only servers may use the servers' own prefix.)"""

_FIELDS: Final = {
    "target": f"{_PREFIX}target-hash",
    "state_uid": f"{_PREFIX}storage-state-uid",
    "change": f"{_PREFIX}storage-state-change",
    "epoch": f"{_PREFIX}epoch",
    "storage_version": f"{_PREFIX}storage-version",
}
NAME_LENGTH_MAX: Final = 253
_DIGEST_LENGTH: Final = 12


def annotations_of(record: MigrationRecord) -> dict[str, str]:
    return {annotation: getattr(record, field) for field, annotation in _FIELDS.items()}


def record_of(annotations: Mapping[str, str]) -> MigrationRecord | None:
    """Parse a record; None if a field is missing: then the trigger did not create the migration."""
    if any(annotation not in annotations for annotation in _FIELDS.values()):
        return None
    return MigrationRecord(
        **{field: annotations[annotation] for field, annotation in _FIELDS.items()}
    )


def name_of(resource: GroupResource, record: MigrationRecord) -> str:
    text = "\0".join((*resource, *astuple(record)))
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
    room = NAME_LENGTH_MAX - len(digest) - 1
    return f"{str(resource)[:room].rstrip('.-')}-{digest}"
