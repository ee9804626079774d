"""The rules of preflight: what is in the way of a release, on values."""

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


RESTED = ResourceView(
    resource=WIDGETS,
    kind="Widget",
    persisted=(hash_of(V1),),
    current_hash=hash_of(V1),
    entries=(entry("a", V1, V1, V2),),
    common=V1,
)
"""At rest: all is stored and written as v1, and v2 can be read too."""


NOTHING_STORED = StoreScan(revision=100)


def seen(view: ResourceView, **cluster: object) -> ClusterView:
    """A restow cluster whose store was scanned; or, with a minor release, stock Kubernetes."""
    if "kubernetes_minor" not in cluster:
        cluster.setdefault("scan", NOTHING_STORED)
    return ClusterView(resources=(view,), **cluster)  # type: ignore[arg-type]


def reasons(view: ResourceView, wanted: TargetRelease, **cluster: object) -> list[Reason]:
    return [each.reason for each in blockers(seen(view, **cluster), wanted)]


def test_a_step_that_is_safe() -> None:
    """The target reads what is stored, and the servers read what it writes."""
    assert reasons(RESTED, target(V2, V1, V2)) == []
    assert reasons(RESTED, target(V1, V1)) == []


def test_what_cannot_be_read_is_in_the_way() -> None:
    """A persisted version that the target does not know is named, with what to do."""
    view = replace(RESTED, persisted=(hash_of(V1), hash_of(V2)), current_hash=hash_of(V2))
    view = replace(view, common=V2, entries=(entry("a", V2, V1, V2),))
    (found,) = blockers(seen(view), target(V2, V2))
    assert found.reason is Reason.UNDECODABLE
    assert "example.com/v1" in found.what
    assert found.advice == "migrate them first: restow migrate widgets.example.com"


def test_rewriting_is_advised_only_if_it_helps() -> None:
    """When even what is written now cannot be read, another release must come between."""
    (found,) = blockers(seen(RESTED), target(V2, V2))
    assert found.reason is Reason.UNDECODABLE
    assert "intermediate release" in found.advice


def test_unknown_blocks_without_a_scan() -> None:
    """A StorageState that is unknown, empty or missing says nothing; then only a scan does."""
    view = replace(RESTED, persisted=("Unknown", hash_of(V1)))
    for each in (view, replace(view, persisted=()), replace(view, persisted=None)):
        assert Reason.UNKNOWN in reasons(each, target(V1, V1), scan=None)
        report = judge(seen(each), target(V1, V1))
        assert report.is_safe
        assert [found.reason for found in report.warnings] == [Reason.UNKNOWN]


def test_unknown_blocks_when_it_came_after_the_scan() -> None:
    """A server that does not report adds "Unknown" before it writes: the scan may be too old."""
    view = replace(RESTED, persisted=("Unknown", hash_of(V1)), state_revision=101)
    assert reasons(view, target(V1, V1)) == [Reason.UNKNOWN]
    assert reasons(replace(view, state_revision=100), target(V1, V1)) == []


def test_resources_that_are_not_verified_are_one_warning() -> None:
    """On a new cluster nothing is verified yet: that is one line, and not one for each resource."""
    views = tuple(
        replace(RESTED, resource=GroupResource("example.com", f"kind{n}s"), persisted=("Unknown",))
        for n in range(5)
    )
    row = TargetResource(kind="Widget", storage=V1, decodable=(V1,))
    wanted = TargetRelease(name="next", resources={each.resource: row for each in views})
    report = judge(ClusterView(resources=views, scan=NOTHING_STORED), wanted)
    (found,) = report.warnings
    assert (found.resource, found.reason) == (None, Reason.UNKNOWN)
    assert "kind0s.example.com, kind1s.example.com, kind2s.example.com and 2 more" in found.what


def test_without_a_scan_nothing_is_safe_on_restow() -> None:
    """Bookkeeping alone is no evidence: the answer is unknown, and says why."""
    view = seen(RESTED, scan=None, scan_problem="forbidden")
    report = judge(view, target(V2, V1, V2))
    assert [each.reason for each in report.blockers] == [Reason.UNSEEN]
    assert report.verdict == "unknown"
    assert "forbidden" in report.blockers[0].why


def test_a_state_without_heartbeat_on_kubernetes() -> None:
    """Without entries of servers, a StorageState counts only as long as it has heartbeats."""


def test_servers_that_do_not_serve_the_storage_version_api() -> None:
    """Without it nothing tells how restow servers write; on Kubernetes discovery is what there
    is."""
    view = replace(RESTED, entries=(), common="", heartbeat_seconds=60.0)
    assert reasons(view, target(V1), is_reported=False) == [Reason.UNKNOWN]
    assert reasons(view, target(V1), is_reported=False, kubernetes_minor=30) == []

    view = replace(RESTED, entries=(), common="")
    for each, expected in (
        (view, [Reason.UNKNOWN, Reason.WEAK_EVIDENCE]),
        (replace(view, heartbeat_seconds=60.0), []),
        (replace(view, heartbeat_seconds=7200.0), [Reason.UNKNOWN, Reason.WEAK_EVIDENCE]),
    ):
        assert reasons(each, target(V1), kubernetes_minor=30) == expected


def test_discovery_alone_is_accepted_only_by_a_flag() -> None:
    """On stock Kubernetes the weakest evidence is named, and never called safe by itself."""
    view = seen(replace(RESTED, entries=(), persisted=None), kubernetes_minor=30)
    report = judge(view, target(V1))
    assert (report.verdict, report.evidence) == ("unknown", Evidence.DISCOVERY)
    accepted = judge(view, target(V1), accepts_discovery=True)
    assert accepted.is_safe
    assert Reason.WEAK_EVIDENCE in [each.reason for each in accepted.warnings]


def test_disagreement_is_in_the_way() -> None:
    """Servers that write different versions must agree first, except within a roll."""
    view = replace(
        RESTED,
        persisted=(hash_of(V1), hash_of(V2)),
        common="",
        disagreement="CommonEncodingVersionUnset: not equal",
        entries=(entry("a", V1, V1, V2), entry("b", V2, V1, V2)),
    )
    wanted = target(V2, V1, V2)
    assert reasons(view, wanted) == [Reason.DISAGREEMENT]
    assert reasons(view, wanted, is_rolling=True) == []


def test_a_migration_is_in_the_way() -> None:
    """What is being rewritten, and what the target writes otherwise, is rewritten first, except
    within a roll."""
    view = replace(RESTED, migrations=("widgets-1",))
    (found,) = blockers(seen(view), target(V2, V1, V2))
    assert found.reason is Reason.MIGRATING
    assert "widgets-1" in found.what
    assert reasons(view, target(V2, V1, V2), is_rolling=True) == []
    assert reasons(view, target(V1)) == []


def test_the_way_back_stays_open() -> None:
    """What the target writes, each running server must be able to read."""
    view = replace(RESTED, entries=(entry("a", V1, V1, V2), entry("b", V1, V1)))
    (found,) = blockers(seen(view), target(V2, V1, V2))
    assert found.reason is Reason.NO_WAY_BACK
    assert found.why.startswith("b can read only example.com/v1")


def test_voters_write_what_was_selected() -> None:
    """With a vote, the new version is written only when all want it: a warning is enough."""
    view = replace(RESTED, entries=(entry("a", V1, V1),), selected=V1)
    report = judge(seen(view), target(V2, V1, V2))
    assert report.is_safe
    assert [each.reason for each in report.warnings] == [Reason.NO_WAY_BACK]


@pytest.mark.parametrize(("has_objects", "is_safe"), [(True, False), (None, False), (False, True)])
def test_what_vanishes(has_objects: bool | None, is_safe: bool) -> None:
    """A resource that the target does not have may go only if it is known to be empty."""
    view = seen(replace(RESTED, has_objects=has_objects), kubernetes_minor=30)
    report = judge(view, TargetRelease(name="next", resources={}))
    assert report.is_safe is is_safe
    assert [each.reason for each in report.blockers] == [Reason.VANISHING] * (not is_safe)


def test_custom_resources_depend_on_their_definition() -> None:
    """No release changes how a custom resource is read; its own definition does."""
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


def test_what_was_not_seen_is_in_the_way() -> None:
    """A list that could not be read makes every answer but no impossible."""
    view = ClusterView(unseen=("storagestates could not be read",), scan=NOTHING_STORED)
    found = blockers(view, target(V1))
    assert [each.reason for each in found] == [Reason.UNSEEN]


def test_real_releases_without_a_record() -> None:
    """What earlier releases of Kubernetes wrote is told of, where nobody knows better."""
    jobs = GroupResource("batch", "cronjobs")
    view = ResourceView(resource=jobs, kind="CronJob", current_hash=hash_of("batch/v1", "CronJob"))
    cluster = ClusterView(resources=(view,), kubernetes_minor=35)
    report = judge(cluster, find_target("1.36", is_restow=False), accepts_discovery=True)
    assert report.is_safe
    assert [each.reason for each in report.warnings] == [Reason.UNKNOWN, Reason.WEAK_EVIDENCE]
    assert "batch/v1beta1" in report.warnings[0].what


def test_real_releases_one_by_one() -> None:
    """A step over several releases of Kubernetes names those between."""
    report = judge(ClusterView(kubernetes_minor=24), find_target("1.27", is_restow=False))
    assert Reason.SKIPPED_RELEASE in [each.reason for each in report.warnings]
    assert "1.25, 1.26" in report.warnings[0].advice


def test_what_a_real_release_has_removed() -> None:
    """Pod security policies that are left would be out of reach after their removal."""
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
    """No answer is ever "safe" when something stored, or written, cannot be read."""
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
