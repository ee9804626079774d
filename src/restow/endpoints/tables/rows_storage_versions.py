"""Columns of StorageVersions, votes, StorageStates and migrations.

Not here: what these objects mean to servers and controllers.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from restow.apimachinery.version_hash import api_version_of_hash
from restow.apis.migration_v1alpha1 import UNKNOWN_HASH
from restow.endpoints.tables.columns import AGE, NAME, TableColumns, column, wide
from restow.endpoints.tables.values import (
    UNKNOWN,
    UNSET,
    age,
    condition,
    human_duration,
    items,
    mapping,
    moment,
    number,
    read,
    some_of,
    text,
    texts,
)

_SECONDS_SHOWN_MAX: Final = 2**31 - 1
_RATE_SHOWN_MAX: Final = 1e9
# The reason of the condition with which a migrator reports that a migration is paused.
_PAUSED: Final = "MigrationPaused"


def _name(obj: Mapping[str, Any]) -> str:
    return text(obj, "metadata", "name")


def _storage_version(obj: Mapping[str, Any], now: datetime) -> list[object]:
    entries = [
        f"{text(entry, 'apiServerID')}={text(entry, 'encodingVersion')}"
        for entry in items(obj, "status", "storageVersions")
    ]
    return [
        _name(obj),
        text(obj, "status", "commonEncodingVersion") or UNSET,
        some_of(entries, empty=UNSET),
        age(obj, now),
    ]


def _vote(obj: Mapping[str, Any], now: datetime) -> list[object]:
    candidates = [
        f"{text(each, 'apiServerID')}={text(each, 'preferredVersion')}"
        for each in items(obj, "candidateVersions")
    ]
    return [
        _name(obj),
        text(obj, "selectedVersion") or UNSET,
        some_of(candidates, empty=UNSET),
        age(obj, now),
    ]


def _resource_of(obj: Mapping[str, Any]) -> str:
    group, name = text(obj, "spec", "resource", "group"), text(obj, "spec", "resource", "resource")
    return f"{name}.{group}" if group else name


def _storage_state(obj: Mapping[str, Any], now: datetime) -> list[object]:
    """The cells of a StorageState; several versions if controllers report different ones."""
    reports = items(obj, "status", "currentStorageVersionHashes")
    current = text(obj, "status", "currentStorageVersionHash")
    reported = dict.fromkeys(text(report, "currentStorageVersionHash") for report in reports)
    beats = [moment(read(each, "lastHeartbeatTime")) for each in (mapping(obj, "status"), *reports)]
    last = max((beat for beat in beats if beat is not None), default=None)
    hashes = [each for each in reported if each] or [current] * bool(current)
    persisted = texts(obj, "status", "persistedStorageVersionHashes") or [UNKNOWN_HASH]
    group = text(obj, "spec", "resource", "group")
    return [
        _name(obj),
        some_of((_version(each, group) for each in hashes), empty=UNSET),
        ",".join(_version(each, group) for each in persisted),
        UNKNOWN if last is None else human_duration(now - last),
        age(obj, now),
        len(reports),
        some_of(hashes, empty=UNSET),
        ",".join(persisted),
    ]


def _version(version_hash: str, group: str) -> str:
    """The version of a hash, or the hash if this server does not know the version; with the group
    if that is not the group of the resource: it may be stored in versions of an earlier group."""
    api_version = api_version_of_hash(version_hash) or version_hash
    prefix = f"{group}/" if group else ""
    return api_version.removeprefix(prefix)


def _storage_version_migration(obj: Mapping[str, Any], now: datetime) -> list[object]:
    state, message = _migration_state(obj)
    progress = mapping(obj, "status", "progress")
    # The error is more important than the progress.
    shown = message if state == "Failed" or not progress else _progress(progress)
    return [_name(obj), _resource_of(obj), state, shown, age(obj, now)]


def _migration_state(obj: Mapping[str, Any]) -> tuple[str, str]:
    """The state of a migration, and its message. A final condition takes precedence over
    Running."""
    for kind in ("Failed", "Succeeded", "Running"):
        found = condition(obj, kind)
        if kind == "Running" and text(found, "reason") == _PAUSED:
            return "Paused", text(found, "message")
        if text(found, "status") == "True":
            return kind, text(found, "message")
    return "Pending", ""


def _progress(progress: Mapping[str, Any]) -> str:
    """As in `1200/2000 (60%), 3 failed, 410/s, 2s left`."""
    scanned, remaining = number(progress, "scanned"), read(progress, "remaining")
    shown = str(scanned)
    if isinstance(remaining, int) and scanned + remaining > 0:
        total = scanned + max(remaining, 0)
        shown += f"/{total} ({scanned * 100 // total}%)"
    words = [shown]
    if number(progress, "failed") > 0:
        words.append(f"{number(progress, 'failed')} failed")
    rate, seconds = read(progress, "objectsPerSecond"), read(progress, "secondsLeft")
    if isinstance(rate, int | float) and 0 < rate < _RATE_SHOWN_MAX:
        words.append(f"{rate:.0f}/s")
    if isinstance(seconds, int) and 0 < seconds <= _SECONDS_SHOWN_MAX:
        words.append(f"{human_duration(timedelta(seconds=seconds))} left")
    return ", ".join(words)


_MIGRATION: Final = TableColumns(
    [
        NAME,
        column("Resource", about="What is migrated."),
        column("Status", about="Pending, Running, Paused, Succeeded or Failed."),
        column("Progress", about="Progress of the migration."),
        AGE,
    ],
    _storage_version_migration,
)

COLUMNS: Final[dict[tuple[str, str], TableColumns]] = {
    ("internal.apiserver.k8s.io", "StorageVersion"): TableColumns(
        [
            NAME,
            column("CommonEncodingVersion", about="The version that all servers write."),
            column("StorageVersions", about="The version that each server writes."),
            AGE,
        ],
        _storage_version,
    ),
    ("kube-apiserver.internal.k8s.io", "StorageVersion"): TableColumns(
        [
            NAME,
            column("SelectedVersion", about="The version that all servers write."),
            column("Candidates", about="The version that each server votes for."),
            AGE,
        ],
        _vote,
    ),
    ("migration.k8s.io", "StorageState"): TableColumns(
        [
            # The name is that of the resource.
            NAME,
            column("Current", about="Version that is written now; its hash if it is unknown."),
            column("Persisted", about="Versions in which objects may be stored, or hashes."),
            column("Heartbeat", about="Time since the state was confirmed."),
            AGE,
            wide("Reporters", "integer", about="Controllers that each report for one server."),
            wide("Current-Hash", about="Hash of the current version."),
            wide("Persisted-Hashes", about="Hashes of the persisted versions."),
        ],
        _storage_state,
    ),
    ("migration.k8s.io", "StorageVersionMigration"): _MIGRATION,
    ("storagemigration.k8s.io", "StorageVersionMigration"): _MIGRATION,
}
