"""What the situation of a step adds to what the cluster says."""

from __future__ import annotations

import pytest

from restow.cluster.safety import Situation, as_it_is
from restow.controllers.preflight import (
    ClusterView,
    Reason,
    ResourceView,
    ServerEntry,
    blockers,
    target_of_release,
)
from restow.controllers.preflight.values import UNKNOWN
from restow.kinds.releases import shipped_release
from restow.machinery.names import GroupResource, GroupVersionKind
from restow.machinery.version_hash import storage_version_hash

V1, V2 = "example.com/v1", "example.com/v2"


def hash_of(version: str) -> str:
    return storage_version_hash(GroupVersionKind.of(version, "Widget"))


def cluster(*persisted: str, common: str = V1) -> ClusterView:
    """Servers of x+1."""
    widgets = ResourceView(
        resource=GroupResource("example.com", "widgets"),
        kind="Widget",
        persisted=persisted,
        entries=(ServerEntry(server="a", encodes=V1, decodes=(V1, V2)),),
        common=common,
    )
    return ClusterView(resources=(widgets,))


def reasons(view: ClusterView, target: str, situation: Situation) -> list[Reason]:
    found = blockers(as_it_is(view, situation), target_of_release(shipped_release(target)))
    return [each.reason for each in found]


BEGIN = Situation(is_begun=False, is_return=False)
RETURN = Situation(is_begun=True, is_return=True)


def test_what_was_unknown_before_does_not_stop_a_return() -> None:
    """A release that ran on it before may come back; one that did not may not."""
    view = cluster(UNKNOWN, hash_of(V1))
    assert reasons(view, "x", BEGIN) == [Reason.UNKNOWN]
    assert reasons(view, "x", RETURN) == []


def test_what_was_written_since_does() -> None:
    """A version that was written since the upgrade counts, whichever way one goes."""
    view = cluster(UNKNOWN, hash_of(V1), hash_of(V2))
    assert Reason.UNDECODABLE in reasons(view, "x", RETURN)


def test_without_any_record_a_return_is_not_safe() -> None:
    """If nothing but "Unknown" is there, nobody knows what was written since."""
    assert reasons(cluster(UNKNOWN), "x", RETURN) == [Reason.UNKNOWN]


@pytest.mark.parametrize("is_begun", [True, False])
def test_servers_differ_only_during_a_roll(is_begun: bool) -> None:
    """Disagreement stops an upgrade before it begins, and not in the middle."""
    view = cluster(hash_of(V1), common="")
    found = reasons(view, "x+1", Situation(is_begun=is_begun, is_return=False))
    assert found == ([] if is_begun else [Reason.DISAGREEMENT])
