"""The intermediate release before a target that cannot be reached in one step."""

from __future__ import annotations

from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.migration.preflight import (
    ClusterView,
    PreflightFinding,
    ResourceView,
    ServerEntry,
    TargetRelease,
    TargetResource,
    judge,
)
from restow.migration.preflight.intermediate import intermediate
from restow.migration.store_scan import StoreScan

WIDGETS = GroupResource("example.com", "widgets")
OTHERS = GroupResource("example.com", "others")
V1, V2 = "example.com/v1", "example.com/v2"


def release(name: str, *decodable: str, minor: int | None = None) -> TargetRelease:
    """Returns a release whose storage version is the first of the decodable ones."""
    kind = TargetResource(kind="Widget", storage=decodable[0], decodable=decodable)
    return TargetRelease(name=name, resources={WIDGETS: kind}, kubernetes_minor=minor)


def running(*decodable: str) -> ResourceView:
    """Returns the view of a server with the same convention."""
    return ResourceView(
        resource=WIDGETS,
        kind="Widget",
        persisted=(storage_version_hash(GroupVersionKind.of(decodable[0], "Widget")),),
        entries=(ServerEntry(server="a", encodes=decodable[0], decodes=decodable),),
        common=decodable[0],
    )


RELEASES = (release("x+1", V1, V2), release("x+2", V2, V1))
LAST = release("x+3", V2)


def advice(view: ResourceView, *releases: TargetRelease, target: TargetRelease = LAST) -> set[str]:
    """Returns the advice of all blockers."""
    cluster = ClusterView(resources=(view,), scan=StoreScan(revision=1))
    found: tuple[PreflightFinding, ...] = judge(cluster, target, releases=lambda: releases).blockers
    return {each.advice for each in found}


def test_servers_first_read_and_then_write_a_new_version() -> None:
    """Every version written must be decodable by the other servers of a rolling upgrade."""
    kind = LAST.resources[WIDGETS]
    assert intermediate(running(V1), kind, LAST).writes == V1
    assert intermediate(running(V1, V2), kind, LAST).writes == V2
    assert intermediate(running(V1), kind, LAST).reads == (V1, V2)


def test_a_shipped_release_is_named() -> None:
    """Each step names a release; without a shipped one, the user must provide it."""
    (first,) = advice(running(V1), *RELEASES)
    (second,) = advice(running(V1, V2), *RELEASES)
    (unknown,) = advice(running(V1))
    assert "restow upgrade --to x+1;" in first
    assert "restow upgrade --to x+2;" in second
    assert "read as example.com/v1 and example.com/v2 and stored as example.com/v1" in unknown
    assert "restow upgrade --to FILE;" in unknown


def test_a_release_with_blockers_of_its_own_is_not_named() -> None:
    """It would lead from one blocker to another."""
    other = ResourceView(
        resource=OTHERS, kind="Other", entries=(ServerEntry(server="a", encodes=V1, decodes=(V1,)),)
    )
    blind = TargetResource(kind="Other", storage=V2, decodable=(V2,))
    worse = TargetRelease(name="worse", resources={**RELEASES[0].resources, OTHERS: blind})
    cluster = ClusterView(resources=(running(V1), other), scan=StoreScan(revision=1))
    found = judge(cluster, LAST, releases=lambda: (worse,)).blockers
    assert all("worse" not in each.advice for each in found)


def test_advice_for_kubernetes_has_no_restow_command() -> None:
    """For Kubernetes the versions are named, without a command."""
    found = intermediate(running(V1), LAST.resources[WIDGETS], release("1.30", V2, minor=30))
    assert "restow upgrade" not in str(found)
