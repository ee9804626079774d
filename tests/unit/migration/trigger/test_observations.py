"""Conversion of StorageStates and StorageVersions, also malformed ones, to values and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.names import GroupResource
from restow.apis.internal_v1alpha1 import name_of, resource_of_name
from restow.apis.names import EPOCH_ANNOTATION
from restow.migration.records import CHANGE_ANNOTATION
from restow.migration.trigger.observations import (
    UnreadableObject,
    new_state,
    resource_of_state,
    state_name,
    state_seen,
    status_body,
    storage_version_of,
)
from restow.migration.trigger.values import UNKNOWN, HashReport, StateStatus

MOMENTS = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001 - the zone is given beside it
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
HASHES = st.text(alphabet="abcXYZ019+/=", min_size=1, max_size=12)
STATUSES = st.builds(
    StateStatus,
    persisted=st.lists(HASHES | st.just(UNKNOWN), unique=True, max_size=4).map(tuple),
    keys=st.lists(HASHES | st.just("identity"), unique=True, min_size=1, max_size=3).map(tuple),
    current=HASHES | st.just(""),
    heartbeat=st.none() | MOMENTS,
    reports=st.lists(
        st.builds(HashReport, reporter_id=HASHES, hash=HASHES, heartbeat=MOMENTS),
        max_size=3,
    ).map(tuple),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def _cut(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


@given(STATUSES)
def test_a_status_round_trips(status: StateStatus) -> None:
    """Except for fractions of seconds, which are truncated. An empty list of hashes means
    "Unknown"."""
    seen = state_seen({"metadata": {"uid": "u"}, "status": status_body(status)}).status
    assert (seen.persisted, seen.current) == (status.persisted or ("Unknown",), status.current)
    assert seen.keys == status.keys
    assert seen.heartbeat == (None if status.heartbeat is None else _cut(status.heartbeat))
    assert seen.reports == tuple(
        HashReport(reporter_id=e.reporter_id, hash=e.hash, heartbeat=_cut(e.heartbeat))
        for e in status.reports
    )


@given(JSON, JSON, JSON)
def test_malformed_states_are_read_as_unknown(status: Any, hashes: Any, reports: Any) -> None:
    """A StorageState with arbitrary fields is read, and malformed hashes count as unknown."""
    state_seen({"metadata": status, "status": status})
    seen = state_seen(
        {
            "status": {
                "persistedStorageVersionHashes": hashes,
                "persistedEncryptionKeys": hashes,
                "currentStorageVersionHashes": reports,
            }
        }
    ).status
    if isinstance(hashes, list) and any(not isinstance(each, str) for each in hashes):
        assert UNKNOWN in seen.persisted
        assert UNKNOWN in seen.keys
    assert len(seen.persisted) == len(set(seen.persisted))
    assert len(seen.keys) == len(set(seen.keys)) > 0


def test_annotations_of_a_state() -> None:
    """The servers' epoch and the trigger's change mark are read from annotations."""
    marks = {EPOCH_ANNOTATION: "7", CHANGE_ANNOTATION: "41"}
    state = {"metadata": {"uid": "u", "resourceVersion": "42", "annotations": marks}}
    seen = state_seen(state)
    assert (seen.uid, seen.resource_version, seen.epoch, seen.change) == ("u", "42", "7", "41")


def test_malformed_reports_block() -> None:
    """A report without a hash agrees with none, one without a time counts as expired, and one
    without a
    name is dropped."""
    status = {
        "currentStorageVersionHashes": [
            {"reporterID": "a", "lastHeartbeatTime": "2024-01-01T00:00:00Z"},
            {"reporterID": "b", "currentStorageVersionHash": "h", "lastHeartbeatTime": "soon"},
            {"currentStorageVersionHash": "h", "lastHeartbeatTime": "2024-01-01T00:00:00Z"},
        ]
    }
    reports = state_seen({"status": status}).status.reports
    assert [(each.reporter_id, each.hash) for each in reports] == [("a", ""), ("b", "h")]
    assert reports[1].heartbeat < datetime(2024, 1, 1, tzinfo=UTC) - timedelta(days=365)


@pytest.mark.parametrize(
    ("resource", "state", "version"),
    [
        (GroupResource("", "pods"), "pods", "core.pods"),
        (GroupResource("apps", "deployments"), "deployments.apps", "apps.deployments"),
        (GroupResource("a.b.io", "cs"), "cs.a.b.io", "a.b.io.cs"),
    ],
)
def test_names(resource: GroupResource, state: str, version: str) -> None:
    """StorageStates and StorageVersions have the names that servers use, and are parsed back."""
    assert state_name(resource) == state
    assert name_of(resource) == version
    assert resource_of_state(new_state(resource)) == resource
    assert resource_of_name(version) == resource


def test_a_malformed_storage_version_is_named() -> None:
    """The error names the object and the malformed field."""
    with pytest.raises(UnreadableObject, match=r"apps.deployments.*storageVersions"):
        storage_version_of(
            {"metadata": {"name": "apps.deployments"}, "status": {"storageVersions": 5}}
        )


def test_without_encryption_there_are_no_key_fields() -> None:
    """A StorageState of Kubernetes lacks the field, and updates do not add it."""
    status = state_seen({"metadata": {}, "status": {"currentStorageVersionHash": "h"}}).status
    assert status.keys == ("identity",)
    assert "persistedEncryptionKeys" not in status_body(status)
