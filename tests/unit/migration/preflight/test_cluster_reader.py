"""Reading a cluster: stock Kubernetes from its API documents, and parts that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.client import ApiClient, InProcessResponse, InProcessTransport
from restow.migration.preflight import (
    ClusterView,
    Reason,
    ResourceView,
    find_target,
    judge,
    read_cluster,
)
from restow.migration.preflight.cluster_reader import is_restow

VERBS = ["get", "list", "update", "delete"]
INTERNAL = "internal.apiserver.k8s.io/v1alpha1"
VOTE = "kube-apiserver.internal.k8s.io/v1alpha1"
MIGRATION = "migration.k8s.io/v1alpha1"


def hash_of(version: str, kind: str) -> str:
    return storage_version_hash(GroupVersionKind.of(version, kind))


def resource(name: str, kind: str, version: str = "", verbs: list[str] = VERBS) -> dict[str, Any]:
    """Returns a resource as in discovery; with a version, also its storage version hash."""
    found = {"name": name, "kind": kind, "namespaced": True, "verbs": verbs}
    return found | ({"storageVersionHash": hash_of(version, kind)} if version else {})


class Cluster:
    """A fake server that serves static documents."""

    def __init__(self, version: str = "v1.24.3") -> None:
        self.documents: dict[str, Any] = {
            "/version": {"gitVersion": version},
            "/api": {"versions": ["v1"]},
            "/apis": {"groups": []},
        }
        self.forbidden: set[str] = set()
        self.scans: list[dict[str, Any]] = []
        """The replies to StorageScans, in order."""
        self.has("v1", resource("configmaps", "ConfigMap", "v1"))

    def has(self, group_version: str, *resources: dict[str, Any]) -> None:
        """Serves these resources in discovery."""
        group, _, version = group_version.rpartition("/")
        self.documents[f"{_root(group_version)}"] = {"resources": list(resources)}
        if group:
            place = {"version": version, "groupVersion": group_version}
            self.documents["/apis"]["groups"].append(
                {"name": group, "versions": [place], "preferredVersion": place}
            )

    def holds(self, group_version: str, plural: str, *items: dict[str, Any]) -> None:
        self.documents[f"{_root(group_version)}/{plural}"] = {
            "kind": "List",
            "metadata": {"resourceVersion": "1"},
            "items": list(items),
        }

    async def read(self, target: str = "kubernetes-1.25") -> ClusterView:
        client = ApiClient(InProcessTransport(self._answer), runtime=Runtime.simulated("look"))
        async with client:
            return await read_cluster(client, find_target(target, is_restow=False))

    async def _answer(
        self, method: str, target: str, _headers: Mapping[str, str], _body: bytes
    ) -> InProcessResponse:
        path = urlsplit(target).path
        if method == "POST" and self.scans:
            return InProcessResponse(201, orjson.dumps(self.scans.pop(0)))
        if path in self.forbidden:
            return InProcessResponse(403, b"{}")
        if path not in self.documents:
            return InProcessResponse(404, b"{}")
        return InProcessResponse(200, orjson.dumps(self.documents[path]))


def _root(group_version: str) -> str:
    return f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"


def of(view: ClusterView, name: str) -> ResourceView:
    return next(each for each in view.resources if each.resource == GroupResource.parse(name))


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


def state(group: str, plural: str, *hashes: str) -> dict[str, Any]:
    return named(
        f"{plural}.{group}",
        spec={"resource": {"group": group, "resource": plural}},
        status={"persistedStorageVersionHashes": list(hashes)},
    )


async def test_a_contradiction_is_reported_although_servers_correct_it() -> None:
    """The servers add "Unknown" to the StorageState, so the second scan no longer finds it."""
    cluster = Cluster("v1.36.0+restow.0.1.0")
    cluster.has(MIGRATION, resource("storagestates", "StorageState"))
    widgets = state("example.com", "widgets", "Unknown")
    widgets["metadata"]["resourceVersion"] = "8"
    cluster.holds(MIGRATION, "storagestates", widgets)
    found = {"group": "example.com", "resource": "widgets", "apiVersion": "v1", "values": 1}
    first = {"resourceVersion": "7", "contradictions": [found]}
    cluster.scans = [{"status": first}, {"status": {"resourceVersion": "9"}}]
    view = await cluster.read()
    assert view.scan is not None
    assert view.scan.revision == 9
    assert [each.resource for each in view.scan.contradictions] == ["widgets"]


def test_restow_is_detected_by_its_version() -> None:
    """A restow server is told from stock Kubernetes, and malformed versions are neither."""
    assert is_restow({"gitVersion": "v1.36.0+restow.0.1.0"})
    assert not is_restow({"gitVersion": "v1.36.0"})
    assert not is_restow([])


async def test_plain_kubernetes() -> None:
    """Without any of the newer APIs, the hash of discovery is the storage version."""
    cluster = Cluster()
    cluster.has("batch/v1", resource("cronjobs", "CronJob", "batch/v1"))
    cluster.has(
        "authentication.k8s.io/v1", resource("tokenreviews", "TokenReview", verbs=["create"])
    )
    view = await cluster.read()
    assert view.kubernetes_minor == 24
    assert {str(each.resource) for each in view.resources} == {"configmaps", "cronjobs.batch"}
    assert of(view, "cronjobs.batch").current_hash == hash_of("batch/v1", "CronJob")
    assert of(view, "cronjobs.batch").persisted is None
    assert (view.unseen, view.notes) == ((), ())


@pytest.mark.parametrize("status", [{}, None, {"persistedStorageVersionHashes": []}])
async def test_a_state_without_hashes_is_unknown(status: object) -> None:
    """A StorageState that was created by a client has no status: its persisted versions are
    unknown."""
    cluster = Cluster()
    cluster.has(MIGRATION, resource("storagestates", "StorageState"))
    cluster.holds(MIGRATION, "storagestates", state("", "configmaps") | {"status": status})
    assert of(await cluster.read(), "configmaps").persisted == ("Unknown",)


async def test_storage_versions_states_and_migrations() -> None:
    """StorageVersions, StorageStates and running migrations are combined per resource."""
    cluster = Cluster()
    cluster.has(INTERNAL, resource("storageversions", "StorageVersion"))
    cluster.has(
        MIGRATION,
        resource("storagestates", "StorageState"),
        resource("storageversionmigrations", "StorageVersionMigration"),
    )
    cluster.holds(
        INTERNAL,
        "storageversions",
        named(
            "core.configmaps",
            status={
                "storageVersions": [
                    {"apiServerID": "a", "encodingVersion": "v1", "decodableVersions": ["v1"]}
                ],
                "conditions": [
                    {"type": "AllEncodingVersionsEqual", "status": "False", "reason": "Why"}
                ],
            },
        ),
    )
    cluster.holds(MIGRATION, "storagestates", state("", "configmaps", "Unknown"))
    done = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    spec = {"resource": {"group": "", "version": "v1", "resource": "configmaps"}}
    cluster.holds(
        MIGRATION,
        "storageversionmigrations",
        named("running", spec=spec),
        named("done", spec=spec, status=done),
    )
    found = of(await cluster.read(), "configmaps")
    assert found.persisted == ("Unknown",)
    assert [(each.server, each.encodes) for each in found.entries] == [("a", "v1")]
    assert not found.is_agreed
    assert found.disagreement == "Why"
    assert found.migrations == ("running",)


async def test_votes() -> None:
    """A vote is matched by its resource, whatever the version in its name."""
    cluster = Cluster("v1.36.0+restow.0.1.0")
    cluster.has("apps/v1", resource("deployments", "Deployment", "apps/v1"))
    cluster.has(VOTE, resource("storageversions", "StorageVersion"))
    cluster.holds(
        VOTE,
        "storageversions",
        named("core.v1.configmaps", selectedVersion="v1"),
        named("apps.v1beta1.deployments", selectedVersion="apps/v1beta1"),
    )
    view = await cluster.read()
    assert view.kubernetes_minor is None
    assert of(view, "configmaps").selected == "v1"
    assert of(view, "deployments.apps").selected == "apps/v1beta1"


async def test_an_outdated_vote() -> None:
    """A vote of other servers than those of the StorageVersion is ignored."""
    cluster = Cluster("v1.36.0+restow.0.1.0")
    cluster.has(VOTE, resource("storageversions", "StorageVersion"))
    cluster.has(INTERNAL, resource("storageversions", "StorageVersion"))
    entries = [
        {"apiServerID": name, "encodingVersion": "v1", "decodableVersions": ["v1"]} for name in "ab"
    ]
    report = named("core.configmaps", status={"storageVersions": entries})
    cluster.holds(INTERNAL, "storageversions", report)
    for voters, selected in (("a", ""), ("abc", "v1")):
        candidates = [{"apiServerID": name, "preferredVersion": "v1"} for name in voters]
        vote = {"selectedVersion": "v1", "candidateVersions": candidates}
        cluster.holds(VOTE, "storageversions", named("core.v1.configmaps", **vote))
        assert of(await cluster.read(), "configmaps").selected == selected


async def test_custom_resources() -> None:
    """Versions of custom resources come from their CRDs, including versions that are not served."""
    cluster = Cluster()
    cluster.has(
        "apiextensions.k8s.io/v1",
        resource("customresourcedefinitions", "CustomResourceDefinition"),
    )
    cluster.has("example.com/v2", resource("widgets", "Widget", "example.com/v2"))
    spec = {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v2", "storage": True}, "nonsense"],
    }
    cluster.holds(
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        named("widgets.example.com", spec=spec, status={"storedVersions": ["v1", "v2"]}),
    )
    view = await cluster.read()
    found = of(view, "widgets.example.com")
    assert found.custom_versions == ("example.com/v2",)
    assert found.stored_versions == ("example.com/v1", "example.com/v2")
    report = judge(view, find_target("kubernetes-1.25", is_restow=False))
    assert [each.reason for each in report.blockers] == [Reason.UNDECODABLE, Reason.WEAK_EVIDENCE]


async def test_objects_of_removed_resources() -> None:
    """For a resource that the target does not have, the reader checks whether objects exist."""
    cluster = Cluster("v1.26.0")
    policies = resource("podsecuritypolicies", "PodSecurityPolicy", "policy/v1beta1")
    cluster.has("policy/v1beta1", policies)
    cluster.holds("policy/v1beta1", "podsecuritypolicies", named("restricted"))
    found = of(await cluster.read("kubernetes-1.27"), "podsecuritypolicies.policy")
    assert found.has_objects is True
    cluster.holds("policy/v1beta1", "podsecuritypolicies")
    found = of(await cluster.read("kubernetes-1.27"), "podsecuritypolicies.policy")
    assert found.has_objects is False
    cluster.forbidden.add("/apis/policy/v1beta1/podsecuritypolicies")
    view = await cluster.read("kubernetes-1.27")
    assert of(view, "podsecuritypolicies.policy").has_objects is None
    assert len(view.notes) == 1


async def test_aggregated_servers_are_skipped() -> None:
    """Resources of aggregated servers are not judged, and an unavailable one does not matter."""
    cluster = Cluster()
    cluster.has("apiregistration.k8s.io/v1", resource("apiservices", "APIService"))
    cluster.has("metrics.k8s.io/v1beta1", resource("pods", "PodMetrics", "metrics.k8s.io/v1beta1"))
    cluster.has("down.example.com/v1")
    service = {"service": {"name": "metrics", "namespace": "kube-system"}}
    cluster.holds(
        "apiregistration.k8s.io/v1",
        "apiservices",
        named("v1beta1.metrics.k8s.io", spec={"group": "metrics.k8s.io", **service}),
        named("v1.down.example.com", spec={"group": "down.example.com", **service}),
        named("v1.apps", spec={"group": "apps"}),
    )
    del cluster.documents["/apis/down.example.com/v1"]
    view = await cluster.read()
    assert all(each.resource.group != "metrics.k8s.io" for each in view.resources)
    assert view.unseen == ()
    assert len(view.notes) == 1


async def test_unreadable_resources_are_listed() -> None:
    """A forbidden list and an unreadable API group are listed as not checked."""
    cluster = Cluster()
    cluster.has(MIGRATION, resource("storagestates", "StorageState"))
    cluster.forbidden.add(f"/apis/{MIGRATION}/storagestates")
    cluster.has("apps/v1")
    del cluster.documents["/apis/apps/v1"]
    view = await cluster.read()
    assert [text.partition(" ")[0] for text in view.unseen] == [
        "storagestates.migration.k8s.io",
        "apps/v1",
    ]


@pytest.mark.parametrize(
    ("group_version", "version", "is_unseen"),
    [
        ("example.com/v2", "v1.36.0+restow.1", False),
        ("example.com/v2", "v1.24.3", True),
        (MIGRATION, "v1.36.0+restow.1", True),
        (INTERNAL, "v1.36.0+restow.1", True),
    ],
)
async def test_a_version_that_is_listed_and_not_found(
    group_version: str, version: str, is_unseen: bool
) -> None:
    """Servers of a mixed cluster list different versions. On restow, resources are known from their
    records, so a version that the next server lacks hides nothing."""
    cluster = Cluster(version)
    cluster.has(group_version)
    del cluster.documents[_root(group_version)]
    view = await cluster.read()
    assert any(group_version in each for each in view.unseen) is is_unseen
    assert any(group_version in each for each in view.notes) is not is_unseen
