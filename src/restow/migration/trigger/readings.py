"""Converts a StorageVersion to a reading for the rules.

Not here: the conclusions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import orjson

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.encryption_keys import IDENTITY
from restow.apis.internal_v1alpha1 import StorageVersion
from restow.apis.names import EPOCH_ANNOTATION, LOOSE_ANNOTATION
from restow.migration.encryption_keys import UNKNOWN_KEY, reported_keys
from restow.migration.trigger.values import UNKNOWN, StorageVersionReading

LOOSE_SECONDS_MAX: Final = 24 * 3600.0


def reading_of(
    found: StorageVersion | None,
    *,
    kind: str,
    passed: Iterable[StorageVersion] = (),
    follows: bool,
) -> StorageVersionReading:
    """Return the reading of a resource whose objects are of this kind.

    `passed` are the StorageVersions that a watch has shown since the last reading; `follows`: it
    has missed none.
    """
    shown = [*passed, *(() if found is None else (found,))]
    written = frozenset(
        _hash(entry.encoding_version, kind)
        for each in shown
        for entry in each.status.storage_versions
    )
    if found is None:
        return StorageVersionReading(written=written, follows=follows)
    status, metadata = found.status, found.metadata
    said = reported_keys(found)
    # Servers that write with different encryption keys do not agree, whatever the version says.
    is_split = said.is_split or (bool(said.writes) and not said.agreed)
    common = UNKNOWN if is_split else _hash(status.common_encoding_version or "", kind)
    annotations = metadata.get("annotations") or {}
    return StorageVersionReading(
        uid=str(metadata.get("uid") or ""),
        resource_version=str(metadata.get("resourceVersion") or ""),
        epoch=str(annotations.get(EPOCH_ANNOTATION) or ""),
        common="" if common == UNKNOWN else common,
        written=written,
        follows=follows,
        key=said.agreed or IDENTITY,
        keys=frozenset(said.writes.values()) - {IDENTITY, UNKNOWN_KEY},
        loose_seconds=_loose_seconds(str(annotations.get(LOOSE_ANNOTATION) or "")),
    )


def _loose_seconds(text: str) -> float:
    """The longest of the servers' bounds. A value that cannot be parsed counts as the maximum."""
    if not text:
        return 0.0
    try:
        return max(map(float, orjson.loads(text).values()), default=0.0)
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError):
        return LOOSE_SECONDS_MAX


def _hash(api_version: str, kind: str) -> str:
    """The hash of a version. An invalid version counts as unknown."""
    if not api_version:
        return UNKNOWN
    try:
        return storage_version_hash(GroupVersionKind.of(api_version, kind))
    except InvalidName:
        return UNKNOWN
