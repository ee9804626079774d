"""The effect of a delete on an object, by kind and DeleteOptions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from restow.registry import strategy
from restow.registry.catalog import builtin_catalog

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def delete(group: str, kind: str, *, policy: str = "", **parts: Any) -> tuple[bool, Any]:
    """Return whether the object is removed at once, and its new state."""
    resource = builtin_catalog().of_kind(group, kind)
    assert resource is not None
    obj = {**parts, "metadata": {"name": "x", "uid": "u", **parts.get("metadata", {})}}
    return strategy.mark_deleted(resource, obj, now=NOW, policy=policy), obj


@pytest.mark.parametrize(("group", "kind"), [("batch", "Job"), ("", "ReplicationController")])
def test_kinds_that_orphan_unless_told_otherwise(group: str, kind: str) -> None:
    """Their dependents are orphaned by default, unless a propagation policy is given."""
    goes, obj = delete(group, kind)
    assert not goes
    assert obj["metadata"]["finalizers"] == ["orphan"]
    assert delete(group, kind, policy="Background")[0]
    begun = {"finalizers": ["foregroundDeletion"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    goes, obj = delete(group, kind, metadata=begun)
    assert obj["metadata"]["finalizers"] == ["foregroundDeletion"]


def test_others_do_not_orphan() -> None:
    """A Deployment that is deleted without options is removed at once."""
    assert delete("apps", "Deployment")[0]


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
@pytest.mark.parametrize("group", ["", "events.k8s.io"])
def test_events_own_nothing(group: str, policy: str) -> None:
    """An event has no dependents to wait for, with any propagation policy."""
    assert delete(group, "Event", policy=policy)[0]


def test_namespaces_have_no_time_to_end() -> None:
    """A namespace is marked and has the phase Terminating, but no grace period."""
    goes, obj = delete("", "Namespace", policy="Orphan", spec={"finalizers": ["kubernetes"]})
    assert not goes
    assert obj["metadata"] == {
        "name": "x",
        "uid": "u",
        "finalizers": ["orphan"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    assert obj["status"] == {"phase": "Terminating"}
