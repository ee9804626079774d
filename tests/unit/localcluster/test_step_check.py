"""What the facts of the supervisor add to those of the API."""

from __future__ import annotations

import pytest

from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.storage_scan import StoredCount
from restow.kinds.releases import shipped_release
from restow.localcluster.step_check import Situation, with_situation
from restow.migration.preflight import (
    ClusterView,
    Reason,
    ResourceView,
    ServerEntry,
    blockers,
    target_of_release,
)
from restow.migration.preflight.values import UNKNOWN
from restow.migration.store_scan import StoreScan

V1, V2 = "example.com/v1", "example.com/v2"


def hash_of(version: str) -> str:
    return storage_version_hash(GroupVersionKind.of(version, "Widget"))


def cluster(*persisted: str, common: str = V1) -> ClusterView:
    """Servers of x+1, with one widget stored as v1."""
    widgets = ResourceView(
        resource=GroupResource("example.com", "widgets"),
        kind="Widget",
        persisted=persisted,
        entries=(ServerEntry(server="a", encodes=V1, decodes=(V1, V2)),),
        common=common,
    )
    row = StoredCount(
        prefix="/registry/example.com/widgets/",
        group="example.com",
        resource="widgets",
        scope="Namespaced",
        api_version=V1,
        kind="Widget",
        encoding="json",
        values=1,
    )
    return ClusterView(resources=(widgets,), scan=StoreScan(revision=10, rows=(row,)))


def reasons(view: ClusterView, target: str, situation: Situation) -> list[Reason]:
    found = blockers(with_situation(view, situation), target_of_release(shipped_release(target)))
    return [each.reason for each in found]


def test_a_rollback_is_judged_by_stored_versions() -> None:
    """Unknown states do not block a rollback that can read every value; undecodable ones do."""
    begun = Situation(is_begun=True)
    assert reasons(cluster(UNKNOWN, hash_of(V1)), "x", begun) == []
    assert reasons(cluster(UNKNOWN, hash_of(V1), hash_of(V2)), "x", begun) == [Reason.UNDECODABLE]


@pytest.mark.parametrize("is_begun", [True, False])
def test_servers_differ_only_during_a_roll(is_begun: bool) -> None:
    """Disagreement blocks an upgrade before it begins, but not its later steps."""
    view = cluster(hash_of(V1), common="")
    found = reasons(view, "x+1", Situation(is_begun=is_begun))
    assert found == ([] if is_begun else [Reason.DISAGREEMENT])


def test_servers_that_are_away_count() -> None:
    """A server of an old release that is not ready may come back: it must be able to read what the
    target writes."""
    view = cluster(hash_of(V1))
    away = Situation(is_begun=False, absent=(("server 2", shipped_release("x")),))
    assert reasons(view, "x+2", Situation(is_begun=False)) == []
    assert reasons(view, "x+2", away) == [Reason.NO_WAY_BACK]
    written = Situation(is_begun=True, absent=(("server 2", shipped_release("x+3")),))
    assert Reason.WRITES_UNREADABLE in reasons(view, "x", written)
