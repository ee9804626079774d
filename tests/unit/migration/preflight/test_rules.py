"""The rules of preflight: blockers of an upgrade, on values."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.migration.preflight import (
    ClusterView,
    Evidence,
    Reason,
    ResourceView,
    ServerEntry,
    TargetRelease,
    TargetResource,
    blockers,
    find_target,
    judge,
)
from restow.migration.store_scan import StoreScan

WIDGETS = GroupResource("example.com", "widgets")
V1, V2, V3 = (f"example.com/v{number}" for number in (1, 2, 3))


def hash_of(version: str, kind: str = "Widget") -> str:
    return storage_version_hash(GroupVersionKind.of(version, kind))


def target(storage: str, *decodable: str) -> TargetRelease:
    row = TargetResource(kind="Widget", storage=storage, decodable=decodable or (storage,))
    return TargetRelease(name="next", resources={WIDGETS: row})


def entry(server: str, encodes: str, *decodes: str) -> ServerEntry:
    return ServerEntry(server=server, encodes=encodes, decodes=decodes or (encodes,))


AT_REST = ResourceView(
    resource=WIDGETS,
    kind="Widget",
    persisted=(hash_of(V1),),
    current_hash=hash_of(V1),
    entries=(entry("a", V1, V1, V2),),
    common=V1,
)
"""At rest: v1 is the storage version of every object and server, and v2 is decodable too."""


NOTHING_STORED = StoreScan(revision=100)


def seen(view: ResourceView, **cluster: object) -> ClusterView:
    """Returns the view of a restow cluster after a scan; or, with a minor release, of stock
    Kubernetes."""
    if "kubernetes_minor" not in cluster:
        cluster.setdefault("scan", NOTHING_STORED)
    return ClusterView(resources=(view,), **cluster)  # type: ignore[arg-type]


def reasons(view: ResourceView, wanted: TargetRelease, **cluster: object) -> list[Reason]:
    return [each.reason for each in blockers(seen(view, **cluster), wanted)]


def test_a_safe_step() -> None:
    """The target can decode the stored versions, and the servers the versions that it writes."""
    assert reasons(AT_REST, target(V2, V1, V2)) == []
    assert reasons(AT_REST, target(V1, V1)) == []


def test_an_undecodable_version_blocks() -> None:
    """A persisted version that the target cannot decode is named, with the remedy."""
    view = replace(AT_REST, persisted=(hash_of(V1), hash_of(V2)), current_hash=hash_of(V2))
    view = replace(view, common=V2, entries=(entry("a", V2, V1, V2),))
    (found,) = blockers(seen(view), target(V2, V2))
    assert found.reason is Reason.UNDECODABLE
    assert "example.com/v1" in found.what
    assert found.advice == "migrate them first: restow migrate widgets.example.com"


def test_migration_is_advised_only_if_it_helps() -> None:
    """If the target cannot decode the current version either, an intermediate release is needed."""
    (found,) = blockers(seen(AT_REST), target(V2, V2))
    assert found.reason is Reason.UNDECODABLE
    assert "intermediate release" in found.advice


def test_unknown_blocks_without_a_scan() -> None:
    """An unknown, empty or missing StorageState proves nothing; only a scan does."""
    view = replace(AT_REST, persisted=("Unknown", hash_of(V1)))
    for each in (view, replace(view, persisted=()), replace(view, persisted=None)):
        assert Reason.UNKNOWN in reasons(each, target(V1, V1), scan=None)
        report = judge(seen(each), target(V1, V1))
        assert report.is_safe
        assert [found.reason for found in report.warnings] == [Reason.UNKNOWN]


def test_unknown_after_the_scan_blocks() -> None:
    """A server that does not report adds "Unknown" before it writes: the scan may be outdated."""
    view = replace(AT_REST, persisted=("Unknown", hash_of(V1)), state_revision=101)
    assert reasons(view, target(V1, V1)) == [Reason.UNKNOWN]
    assert reasons(replace(view, state_revision=100), target(V1, V1)) == []


def test_unverified_resources_are_one_warning() -> None:
    """On a new cluster no resource is verified yet: one warning covers all of them."""
    views = tuple(
        replace(AT_REST, resource=GroupResource("example.com", f"kind{n}s"), persisted=("Unknown",))
        for n in range(5)
    )
    row = TargetResource(kind="Widget", storage=V1, decodable=(V1,))
    wanted = TargetRelease(name="next", resources={each.resource: row for each in views})
    report = judge(ClusterView(resources=views, scan=NOTHING_STORED), wanted)
    (found,) = report.warnings
    assert (found.resource, found.reason) == (None, Reason.UNKNOWN)
    assert "kind0s.example.com, kind1s.example.com, kind2s.example.com and 2 more" in found.what


def test_without_a_scan_nothing_is_safe_on_restow() -> None:
    """StorageStates alone are no evidence: the result is unknown, with the reason."""
    view = seen(AT_REST, scan=None, scan_problem="forbidden")
    report = judge(view, target(V2, V1, V2))
    assert [each.reason for each in report.blockers] == [Reason.UNSEEN]
    assert report.verdict == "unknown"
    assert "forbidden" in report.blockers[0].why


def test_a_state_without_heartbeat_on_kubernetes() -> None:
    """Without entries of servers, a StorageState counts only as long as it has heartbeats."""


def test_servers_that_do_not_serve_the_storage_version_api() -> None:
    """Without it, the encoding versions of restow servers are unknown; Kubernetes has discovery
    only."""
    view = replace(AT_REST, entries=(), common="", heartbeat_seconds=60.0)
    assert reasons(view, target(V1), is_reported=False) == [Reason.UNKNOWN]
    assert reasons(view, target(V1), is_reported=False, kubernetes_minor=30) == []

    view = replace(AT_REST, entries=(), common="")
    for each, expected in (
        (view, [Reason.UNKNOWN, Reason.WEAK_EVIDENCE]),
        (replace(view, heartbeat_seconds=60.0), []),
        (replace(view, heartbeat_seconds=7200.0), [Reason.UNKNOWN, Reason.WEAK_EVIDENCE]),
    ):
        assert reasons(each, target(V1), kubernetes_minor=30) == expected


def test_discovery_alone_needs_a_flag() -> None:
    """On stock Kubernetes the weakest evidence is named, and is never called safe by default."""
    view = seen(replace(AT_REST, entries=(), persisted=None), kubernetes_minor=30)
    report = judge(view, target(V1))
    assert (report.verdict, report.evidence) == ("unknown", Evidence.DISCOVERY)
    accepted = judge(view, target(V1), accepts_discovery=True)
    assert accepted.is_safe
    assert Reason.WEAK_EVIDENCE in [each.reason for each in accepted.warnings]


def test_disagreement_blocks() -> None:
    """Servers that write different versions must agree first, except during a rolling upgrade."""
    view = replace(
        AT_REST,
        persisted=(hash_of(V1), hash_of(V2)),
        common="",
        disagreement="CommonEncodingVersionUnset: not equal",
        entries=(entry("a", V1, V1, V2), entry("b", V2, V1, V2)),
    )
    wanted = target(V2, V1, V2)
    assert reasons(view, wanted) == [Reason.DISAGREEMENT]
    assert reasons(view, wanted, is_rolling=True) == []


def test_a_running_migration_blocks() -> None:
    """If the target writes another version, running migrations must complete first, except during a
    rolling
    upgrade."""
    view = replace(AT_REST, migrations=("widgets-1",))
    (found,) = blockers(seen(view), target(V2, V1, V2))
    assert found.reason is Reason.MIGRATING
    assert "widgets-1" in found.what
    assert reasons(view, target(V2, V1, V2), is_rolling=True) == []
    assert reasons(view, target(V1)) == []


def test_a_rollback_remains_possible() -> None:
    """Each running server must be able to decode what the target writes."""
    view = replace(AT_REST, entries=(entry("a", V1, V1, V2), entry("b", V1, V1)))
    (found,) = blockers(seen(view), target(V2, V1, V2))
    assert found.reason is Reason.NO_WAY_BACK
    assert found.why.startswith("b can read only example.com/v1")


def test_a_vote_reduces_it_to_a_warning() -> None:
    """With a vote, the new version is written only when all servers want it: a warning suffices."""
    view = replace(AT_REST, entries=(entry("a", V1, V1),), selected=V1)
    report = judge(seen(view), target(V2, V1, V2))
    assert report.is_safe
    assert [each.reason for each in report.warnings] == [Reason.NO_WAY_BACK]


@pytest.mark.parametrize(("has_objects", "is_safe"), [(True, False), (None, False), (False, True)])
def test_a_removed_resource(has_objects: bool | None, is_safe: bool) -> None:
    """A resource that the target does not have must be known to be empty."""
    view = seen(replace(AT_REST, has_objects=has_objects), kubernetes_minor=30)
    report = judge(view, TargetRelease(name="next", resources={}))
    assert report.is_safe is is_safe
    assert [each.reason for each in report.blockers] == [Reason.VANISHING] * (not is_safe)


def test_custom_resources_depend_on_their_crd() -> None:
    """The CRD, not the release, determines which versions of a custom resource are decodable."""
    view = ResourceView(
        resource=WIDGETS,
        kind="Widget",
        persisted=("Unknown", hash_of(V1)),
        custom_versions=(V1, V2),
        stored_versions=(V1,),
    )
    nothing = TargetRelease(name="next", resources={})
    assert reasons(view, nothing) == []
    assert reasons(replace(view, stored_versions=(V1, V3)), nothing) == [Reason.UNDECODABLE]
    assert reasons(replace(view, persisted=(hash_of(V3),)), nothing) == [Reason.UNDECODABLE]


def test_unchecked_resources_block() -> None:
    """After a list that failed, the result is never safe."""
    view = ClusterView(unseen=("storagestates could not be read",), scan=NOTHING_STORED)
    found = blockers(view, target(V1))
    assert [each.reason for each in found] == [Reason.UNSEEN]


def test_real_releases_without_a_record() -> None:
    """Versions that earlier releases of Kubernetes stored are a warning if there is no record."""
    jobs = GroupResource("batch", "cronjobs")
    view = ResourceView(resource=jobs, kind="CronJob", current_hash=hash_of("batch/v1", "CronJob"))
    cluster = ClusterView(resources=(view,), kubernetes_minor=35)
    report = judge(cluster, find_target("1.36", is_restow=False), accepts_discovery=True)
    assert report.is_safe
    assert [each.reason for each in report.warnings] == [Reason.UNKNOWN, Reason.WEAK_EVIDENCE]
    assert "batch/v1beta1" in report.warnings[0].what


def test_skipped_releases_are_named() -> None:
    """An upgrade over several releases of Kubernetes names those in between."""
    report = judge(ClusterView(kubernetes_minor=24), find_target("1.27", is_restow=False))
    assert Reason.SKIPPED_RELEASE in [each.reason for each in report.warnings]
    assert "1.25, 1.26" in report.warnings[0].advice


def test_a_resource_that_kubernetes_has_removed() -> None:
    """Remaining pod security policies would be inaccessible after their removal."""
    policies = GroupResource("policy", "podsecuritypolicies")
    hashed = hash_of("policy/v1beta1", "PodSecurityPolicy")
    view = ResourceView(
        resource=policies, kind="PodSecurityPolicy", current_hash=hashed, has_objects=True
    )
    wanted = find_target("kubernetes-1.27", is_restow=False)
    found = reasons(view, wanted, kubernetes_minor=26)
    assert found == [Reason.VANISHING, Reason.WEAK_EVIDENCE]
    other = replace(view, resource=GroupResource("example.com", "things"))
    assert reasons(other, wanted, kubernetes_minor=26) == [Reason.WEAK_EVIDENCE]


versions = st.sets(st.sampled_from((V1, V2, V3)), min_size=1)


@given(stored=versions, readable=versions, written=st.sampled_from((V1, V2, V3)))
def test_safe_means_readable(stored: set[str], readable: set[str], written: str) -> None:
    """The result is never "safe" if a stored or written version is not decodable."""
    view = ResourceView(
        resource=WIDGETS,
        kind="Widget",
        persisted=tuple(hash_of(each) for each in sorted(stored)),
        current_hash=hash_of(written),
        entries=(entry("a", written, V1, V2, V3),),
        common=written,
    )
    wanted = target(min(readable), *sorted(readable))
    is_safe = not blockers(seen(view), wanted)
    assert is_safe == ({*stored, written} <= readable)
