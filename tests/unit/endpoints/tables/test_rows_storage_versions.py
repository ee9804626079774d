"""Table cells of StorageStates and migrations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from restow.apimachinery.names import GroupVersion
from restow.apimachinery.version_hash import storage_version_hash
from restow.endpoints.tables import columns_for

NOW = datetime(2026, 1, 10, tzinfo=UTC)
META = {"name": "a", "creationTimestamp": "2026-01-05T00:00:00Z"}
OLD, NEW = "migration.k8s.io", "storagemigration.k8s.io"
V1, V2, OLD_V1 = (
    storage_version_hash(GroupVersion(group, version).with_kind("Table"))
    for group, version in (("example.com", "v1"), ("example.com", "v2"), ("old.example.com", "v1"))
)


def cells(group: str, kind: str, **fields: Any) -> list[object]:
    return columns_for(group, kind).cells({"metadata": META, **fields}, NOW)


def conditions(*found: tuple[str, str, str]) -> list[dict[str, str]]:
    return [{"type": kind, "status": value, "message": text} for kind, value, text in found]


def report(reporter: str, version_hash: str, beat: str | None) -> dict[str, Any]:
    return {
        "reporterID": reporter,
        "currentStorageVersionHash": version_hash,
        "lastHeartbeatTime": beat,
    }


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, ["a", "<unset>", "Unknown", "<unknown>", "5d", 0, "<unset>", "Unknown"]),
        (
            {
                "currentStorageVersionHash": "h1",
                "persistedStorageVersionHashes": ["h1", "Unknown"],
                "lastHeartbeatTime": "2026-01-09T23:59:00Z",
            },
            ["a", "h1", "h1,Unknown", "60s", "5d", 0, "h1", "h1,Unknown"],
        ),
        (
            {
                "currentStorageVersionHash": "old",
                "currentStorageVersionHashes": [
                    report("a", "h1", "2026-01-09T23:58:00Z"),
                    report("b", "h2", "2026-01-09T23:59:30Z"),
                    report("c", "h1", None),
                ],
            },
            ["a", "h1,h2", "Unknown", "30s", "5d", 3, "h1,h2", "Unknown"],
        ),
        (
            {"currentStorageVersionHashes": [7, {}]},
            ["a", "<unset>", "Unknown", "<unknown>", "5d", 2, "<unset>", "Unknown"],
        ),
        (
            {
                "currentStorageVersionHash": V2,
                "persistedStorageVersionHashes": [OLD_V1, V1, "h1"],
            },
            [
                *("a", "v2", "old.example.com/v1,v1,h1", "<unknown>", "5d", 0),
                *(V2, f"{OLD_V1},{V1},h1"),
            ],
        ),
    ],
)
def test_states(status: dict[str, Any], expected: list[object]) -> None:
    """The current and persisted versions, or their hashes if this server does not know them, and
    the time since the last heartbeat."""
    spec = {"resource": {"group": "example.com", "resource": "tables"}}
    assert cells(OLD, "StorageState", spec=spec, status=status) == expected


@pytest.mark.parametrize("group", [OLD, NEW])
@pytest.mark.parametrize(
    ("found", "state", "shown"),
    [
        ([], "Pending", ""),
        (conditions(("Waiting", "True", "for others")), "Pending", ""),
        (conditions(("Running", "True", "3 of 7"), ("Failed", "False", "")), "Running", "3 of 7"),
        (conditions(("Running", "False", "ended")), "Pending", ""),
        (conditions(("Succeeded", "True", "all"), ("Running", "True", "")), "Succeeded", "all"),
        (conditions(("Failed", "True", "no"), ("Running", "True", "3 of 7")), "Failed", "no"),
        (
            [{"type": "Running", "status": "True", "reason": "MigrationPaused", "message": "held"}],
            "Paused",
            "held",
        ),
        (
            [
                {"type": "Running", "status": "False", "reason": "MigrationPaused"},
                {"type": "Succeeded", "status": "True"},
            ],
            "Succeeded",
            "",
        ),
    ],
)
def test_migrations(group: str, found: list[dict[str, str]], state: str, shown: str) -> None:
    """A final condition takes precedence over Running; its message shows the progress."""
    resource = {"group": "apps", "resource": "deployments"}
    assert cells(
        group,
        "StorageVersionMigration",
        spec={"resource": resource},
        status={"conditions": found},
    ) == ["a", "deployments.apps", state, shown, "5d"]


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        ({"scanned": 1200, "remaining": 800}, "1200/2000 (60%)"),
        ({"scanned": 1200}, "1200"),
        ({"scanned": 0, "remaining": 0}, "0"),
        (
            {
                "scanned": 5,
                "remaining": 5,
                "failed": 2,
                "objectsPerSecond": 410.4,
                "secondsLeft": 90,
            },
            "5/10 (50%), 2 failed, 410/s, 90s left",
        ),
        ({"scanned": "x", "remaining": "y", "objectsPerSecond": "z", "secondsLeft": -1}, "0"),
        ({"scanned": 1, "objectsPerSecond": 1e300, "secondsLeft": 10**30}, "1"),
    ],
)
def test_progress(progress: dict[str, Any], shown: str) -> None:
    """Scanned and total objects, failures, rate and time remaining; malformed numbers are left
    out."""
    status = {"conditions": conditions(("Running", "True", "words")), "progress": progress}
    row = cells(OLD, "StorageVersionMigration", status=status)
    assert row[2:4] == ["Running", shown]


def test_a_failed_migration_says_why() -> None:
    """The message replaces the progress."""
    status = {"conditions": conditions(("Failed", "True", "2 objects")), "progress": {"scanned": 9}}
    assert cells(OLD, "StorageVersionMigration", status=status)[2:4] == ["Failed", "2 objects"]
