"""The official Python client, typed: verbs, patches, pages, errors, watches, custom objects."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.crds.building import Family
from tests.e2e.clients.guests import Guest
from tests.e2e.clients.python_client import client_of, config, events_until, k8s, utils, watch

WHO = "account"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": VERBS},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["create", "get"]},
    {
        "apiGroups": ["apps"],
        "resources": ["deployments", "deployments/scale", "deployments/status"],
        "verbs": ["get", "create", "update", "patch"],
    },
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
    {
        "apiGroups": ["autoscaling"],
        "resources": ["horizontalpodautoscalers"],
        "verbs": ["create", "list"],
    },
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]},
    {
        "apiGroups": ["kubernetes.example.org"],
        "resources": ["widgets", "widgets/status"],
        "verbs": VERBS,
    },
]
CLUSTER_RIGHTS = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}]


@pytest.fixture(scope="module")
def api(guest: Guest) -> Iterator[Any]:
    with client_of(guest.kubeconfig()) as client:
        yield client


@pytest.fixture
def core(api: Any) -> Any:
    return k8s.CoreV1Api(api)


def test_config_maps(core: Any, namespace: str) -> None:
    """A typed object is created, read, replaced, listed and deleted."""
    made = core.create_namespaced_config_map(namespace, config("one", a="1"))
    assert made.metadata.uid
    assert made.metadata.creation_timestamp.tzinfo is not None
    read = core.read_namespaced_config_map("one", namespace)
    assert read.to_dict() == made.to_dict()
    read.data = {"b": "2"}
    replaced = core.replace_namespaced_config_map("one", namespace, read)
    assert int(replaced.metadata.resource_version) > int(made.metadata.resource_version)
    read.data = {"c": "3"}  # with the previous version
    with pytest.raises(k8s.ApiException) as refused:
        core.replace_namespaced_config_map("one", namespace, read)
    assert (refused.value.status, "Conflict" in str(refused.value.body)) == (409, True)
    names = [each.metadata.name for each in core.list_namespaced_config_map(namespace).items]
    assert "one" in names
    gone = core.delete_namespaced_config_map("one", namespace)
    assert (gone["status"], gone["details"]["uid"]) == ("Success", made.metadata.uid)
    with pytest.raises(k8s.ApiException) as missing:
        core.read_namespaced_config_map("one", namespace)
    assert missing.value.status == 404


def test_secrets(core: Any, namespace: str) -> None:
    """stringData becomes data, and an immutable Secret cannot change."""
    secret = k8s.V1Secret(
        metadata=k8s.V1ObjectMeta(generate_name="s-"), string_data={"key": "value"}
    )
    made = core.create_namespaced_secret(namespace, secret)
    assert made.metadata.name.startswith("s-")
    assert base64.b64decode(made.data["key"]) == b"value"
    assert made.type == "Opaque"
    core.patch_namespaced_secret(made.metadata.name, namespace, {"immutable": True})
    with pytest.raises(k8s.ApiException) as refused:
        core.patch_namespaced_secret(made.metadata.name, namespace, {"stringData": {"key": "x"}})
    assert refused.value.status == 422


def web() -> Any:
    labels = {"app": "web"}
    pod = k8s.V1PodSpec(containers=[k8s.V1Container(name="web", image="nginx")])
    template = k8s.V1PodTemplateSpec(metadata=k8s.V1ObjectMeta(labels=labels), spec=pod)
    selector = k8s.V1LabelSelector(match_labels=labels)
    spec = k8s.V1DeploymentSpec(replicas=2, selector=selector, template=template)
    return k8s.V1Deployment(metadata=k8s.V1ObjectMeta(name="web"), spec=spec)


def test_workloads(api: Any, namespace: str) -> None:
    """Deployments have scale and status subresources; jobs and autoscalers are stored too."""
    apps = k8s.AppsV1Api(api)
    made = apps.create_namespaced_deployment(namespace, web())
    assert (made.metadata.generation, made.spec.strategy.type) == (1, "RollingUpdate")
    assert made.status.ready_replicas is None  # the status exists and is empty
    scale = apps.read_namespaced_deployment_scale("web", namespace)
    scale.spec.replicas = 7
    apps.replace_namespaced_deployment_scale("web", namespace, scale)
    apps.patch_namespaced_deployment_status("web", namespace, {"status": {"replicas": 4}})
    read = apps.read_namespaced_deployment("web", namespace)
    found = (read.metadata.generation, read.spec.replicas, read.status.replicas)
    assert found == (2, 7, 4)
    container = {"name": "helper", "image": "busybox"}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    patched = apps.patch_namespaced_deployment("web", namespace, patch)
    assert {each.name for each in patched.spec.template.spec.containers} == {"web", "helper"}
    pod = k8s.V1PodSpec(restart_policy="Never", containers=[k8s.V1Container(name="a", image="b")])
    job = k8s.V1Job(
        metadata=k8s.V1ObjectMeta(name="once"),
        spec=k8s.V1JobSpec(template=k8s.V1PodTemplateSpec(spec=pod)),
    )
    assert k8s.BatchV1Api(api).create_namespaced_job(namespace, job).spec.backoff_limit == 6
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = {"metadata": {"name": "auto"}, "spec": {"scaleTargetRef": target, "maxReplicas": 5}}
    autoscaling = k8s.AutoscalingV2Api(api)
    assert autoscaling.create_namespaced_horizontal_pod_autoscaler(namespace, scaler)
    assert len(autoscaling.list_namespaced_horizontal_pod_autoscaler(namespace).items) == 1


def test_patch_types(core: Any, namespace: str) -> None:
    """A dictionary is a strategic merge patch, a list a JSON patch; merge patch on request."""
    core.create_namespaced_config_map(namespace, config("one", a="1", b="2"))
    merged = core.patch_namespaced_config_map("one", namespace, {"data": {"a": None, "c": "3"}})
    assert merged.data == {"b": "2", "c": "3"}
    operations = [{"op": "replace", "path": "/data/b", "value": "20"}]
    patched = core.patch_namespaced_config_map("one", namespace, operations)
    assert patched.data == {"b": "20", "c": "3"}
    same = core.patch_namespaced_config_map(
        "one", namespace, {"data": {"c": "3"}}, _content_type="application/merge-patch+json"
    )
    assert same.metadata.resource_version == patched.metadata.resource_version


def test_pages(core: Any, namespace: str) -> None:
    """A paged list shows the state of its first page."""
    for number in range(7):
        core.create_namespaced_config_map(namespace, config(f"c{number}", labels={"paged": "y"}))
    first = core.list_namespaced_config_map(namespace, limit=3)
    total = 3 + first.metadata.remaining_item_count
    core.create_namespaced_config_map(namespace, config("zz", labels={"paged": "y"}))
    names = [each.metadata.name for each in first.items]
    page = first
    while page.metadata._continue:
        page = core.list_namespaced_config_map(
            namespace, limit=3, _continue=page.metadata._continue
        )
        assert page.metadata.resource_version == first.metadata.resource_version
        names += [each.metadata.name for each in page.items]
    assert len(names) == total
    assert [name for name in names if name.startswith("c")] == [f"c{n}" for n in range(7)]
    assert "zz" not in names
    selected = core.list_namespaced_config_map(namespace, limit=3, label_selector="paged=y")
    assert len(selected.items) == 3
    with pytest.raises(k8s.ApiException) as refused:
        core.list_namespaced_config_map(namespace, limit=3, _continue="made-up")
    assert refused.value.status == 400


def test_delete_options(core: Any, namespace: str) -> None:
    """Deletions check their preconditions, and a collection is deleted by its labels."""
    core.create_namespaced_config_map(namespace, config("one", labels={"tier": "a"}))
    core.create_namespaced_config_map(namespace, config("two", labels={"tier": "b"}))
    wrong = k8s.V1DeleteOptions(preconditions=k8s.V1Preconditions(uid="of-another"))
    with pytest.raises(k8s.ApiException) as refused:
        core.delete_namespaced_config_map("one", namespace, body=wrong)
    assert refused.value.status == 409
    core.delete_collection_namespaced_config_map(namespace, label_selector="tier=a")
    left = core.list_namespaced_config_map(namespace, label_selector="tier")
    assert [each.metadata.name for each in left.items] == ["two"]


def test_watch(core: Any, namespace: str) -> None:
    """A watch shows existing objects and changes; a second one resumes where it ended."""
    core.create_namespaced_config_map(namespace, config("one", labels={"seen": "y"}))
    timer = threading.Timer(0.1, lambda: make_and_change(core, namespace))
    timer.start()
    watching = watch.Watch()
    options: dict[str, Any] = {"namespace": namespace, "label_selector": "seen=y"}
    found = events_until(watching, 3, core.list_namespaced_config_map, **options)
    assert found == [("ADDED", "one"), ("ADDED", "two"), ("MODIFIED", "two")]
    timer.join()
    core.delete_namespaced_config_map("one", namespace)
    version = watching.resource_version
    found = events_until(
        watching, 1, core.list_namespaced_config_map, resource_version=version, **options
    )
    assert found == [("DELETED", "one")]
    assert int(watching.resource_version) > int(version)


def make_and_change(core: Any, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config("two", labels={"seen": "y"}))
    core.create_namespaced_config_map(namespace, config("hidden"))
    core.patch_namespaced_config_map("two", namespace, {"data": {"x": "y"}})


def test_watch_ends_in_time(core: Any, namespace: str) -> None:
    """A watch with a timeout ends cleanly by itself."""
    ended = list(watch.Watch().stream(core.list_namespaced_secret, namespace, timeout_seconds=1))
    assert [event["type"] for event in ended if event["type"] != "ADDED"] == []


def test_lease_times(api: Any, namespace: str) -> None:
    """Times with microseconds are returned as they were sent."""
    leases = k8s.CoordinationV1Api(api)
    text = "2026-11-15T19:51:08.742963+00:00"
    spec = k8s.V1LeaseSpec(holder_identity="me", lease_duration_seconds=5, renew_time=text)
    made = leases.create_namespaced_lease(
        namespace, k8s.V1Lease(metadata=k8s.V1ObjectMeta(name="l"), spec=spec)
    )
    assert made.spec.renew_time.isoformat() == text


def test_permissions(api: Any, core: Any, namespace: str) -> None:
    """The client has the granted permissions and cannot grant more; reviews and refusals agree."""
    roles = k8s.RbacAuthorizationV1Api(api)
    assert roles.create_namespaced_role(namespace, role("reader", "configmaps")).rules[0].verbs
    with pytest.raises(k8s.ApiException) as refused:
        roles.create_namespaced_role(namespace, role("more", "nodes"))
    assert refused.value.status == 403
    assert may(api, namespace=namespace, resource="configmaps")
    assert not may(api, namespace=namespace, resource="pods")
    with pytest.raises(k8s.ApiException) as refused:
        core.list_namespaced_pod(namespace)
    status = json.loads(refused.value.body)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    assert status["message"] == (
        'pods is forbidden: User "system:serviceaccount:kube-system:kubernetes" cannot list '
        f'resource "pods" in API group "" in the namespace "{namespace}"'
    )
    assert k8s.VersionApi(api).get_code().git_version.startswith("v1.36.")
    names = {each.metadata.name for each in core.list_namespace().items}
    assert {"default", "kube-system", "kube-public", "kube-node-lease", namespace} <= names


def role(name: str, resource: str) -> dict[str, Any]:
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]
    return {"metadata": {"name": name}, "rules": rules}


def may(api: Any, **wanted: str) -> bool:
    attributes = k8s.V1ResourceAttributes(verb="get", **wanted)
    spec = k8s.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    review = k8s.V1SelfSubjectAccessReview(spec=spec)
    answer = k8s.AuthorizationV1Api(api).create_self_subject_access_review(review)
    return bool(answer.status.allowed)


def test_errors(core: Any, namespace: str) -> None:
    """A duplicate, an invalid object, and another type each have their error."""
    core.create_namespaced_config_map(namespace, config("one"))
    with pytest.raises(k8s.ApiException) as refused:
        core.create_namespaced_config_map(namespace, config("one"))
    found = json.loads(refused.value.body)
    assert (refused.value.status, found["reason"]) == (409, "AlreadyExists")
    with pytest.raises(k8s.ApiException) as refused:
        core.create_namespaced_config_map(namespace, config("Not a name"))
    found = json.loads(refused.value.body)
    assert (refused.value.status, found["reason"]) == (422, "Invalid")
    assert found["details"]["causes"][0]["field"] == "metadata.name"
    with pytest.raises(k8s.ApiException) as refused:
        core.patch_namespaced_config_map("one", namespace, {"data": {"a": 1}})
    assert refused.value.status == 422
    with pytest.raises(k8s.ApiException) as refused:
        core.patch_namespaced_config_map("two", namespace, {"data": {"a": "1"}})
    assert refused.value.status == 404


def test_dry_run(core: Any, namespace: str) -> None:
    """A dry run shows the result, and stores nothing."""
    shown = core.create_namespaced_config_map(namespace, config("one", a="1"), dry_run="All")
    assert shown.metadata.uid
    with pytest.raises(k8s.ApiException) as missing:
        core.read_namespaced_config_map("one", namespace)
    assert missing.value.status == 404


def test_create_from_dicts(api: Any, core: Any, namespace: str) -> None:
    """Manifests are created by their kinds, as with `utils.create_from_yaml`."""
    port = {"port": 80, "targetPort": "web"}
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [port]}}
    document = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {**service, "metadata": {"name": "web"}},
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                **api.sanitize_for_serialization(web()),
            },
        ],
    }
    made = utils.create_from_dict(api, document, namespace=namespace)
    assert len(made) == 2
    read = core.read_namespaced_service("web", namespace)
    assert (read.spec.type, read.spec.ports[0].protocol) == ("ClusterIP", "TCP")


def test_bookmarks(core: Any, namespace: str) -> None:
    """A watch with initial events gets a bookmark at their end, and resumes from there."""
    core.create_namespaced_config_map(namespace, config("one", labels={"seen": "y"}))
    watching = watch.Watch()
    options = {
        "send_initial_events": True,
        "resource_version_match": "NotOlderThan",
        "allow_watch_bookmarks": True,
        "label_selector": "seen=y",
    }
    kinds = []
    for event in watching.stream(core.list_namespaced_config_map, namespace, **options):
        kinds.append(event["type"])
        if event["type"] == "BOOKMARK":
            watching.stop()
    assert kinds == ["ADDED", "BOOKMARK"]
    ended = event["raw_object"]["metadata"]
    assert ended["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert watching.resource_version == ended["resourceVersion"]
    core.create_namespaced_config_map(namespace, config("two", labels={"seen": "y"}))
    found = events_until(
        watching,
        1,
        core.list_namespaced_config_map,
        namespace,
        resource_version=watching.resource_version,
        label_selector="seen=y",
    )
    assert found == [("ADDED", "two")]


def test_watch_too_old(core: Any, namespace: str, old_version: str) -> None:
    """A watch from a compacted version gets an error event; the client raises a 410."""
    with pytest.raises(k8s.ApiException) as refused:
        events_until(
            watch.Watch(),
            1,
            core.list_namespaced_config_map,
            namespace,
            resource_version=old_version,
        )
    assert refused.value.status == 410
    assert str(refused.value.reason).startswith("Expired: too old resource version: ")


def test_custom_objects(api: Any, namespace: str, family: Family) -> None:
    """Custom objects are written, patched, listed in pages, watched, and deleted as a
    collection."""
    objects = k8s.CustomObjectsApi(api)
    place = (family.group, "v1", namespace, family.plural)
    body = {"apiVersion": f"{family.group}/v1", "kind": family.kind}
    for name in ("a", "b", "c"):
        spec = {"size": 1}
        made = objects.create_namespaced_custom_object(
            *place, {**body, "metadata": {"name": name}, "spec": spec}
        )
        assert made["spec"] == {"size": 1, "colour": "grey"}
    patched = objects.patch_namespaced_custom_object(*place, "a", {"spec": {"size": 2}})
    assert (patched["spec"]["size"], patched["metadata"]["generation"]) == (2, 2)
    status = objects.patch_namespaced_custom_object_status(*place, "a", {"status": {"phase": "x"}})
    assert (status["status"], status["metadata"]["generation"]) == ({"phase": "x"}, 2)
    with pytest.raises(k8s.ApiException) as refused:
        objects.patch_namespaced_custom_object(*place, "a", {"spec": {"size": -1}})
    assert refused.value.status == 422
    patched["spec"]["size"] = 3
    with pytest.raises(k8s.ApiException) as conflict:
        objects.replace_namespaced_custom_object(*place, "a", patched)
    assert conflict.value.status == 409
    page = objects.list_namespaced_custom_object(*place, limit=2)
    rest = objects.list_namespaced_custom_object(
        *place, limit=2, _continue=page["metadata"]["continue"]
    )
    items = [*page["items"], *rest["items"]]
    assert [each["metadata"]["name"] for each in items] == ["a", "b", "c"]
    objects.delete_collection_namespaced_custom_object(*place)
    watching, gone = watch.Watch(), []
    for event in watching.stream(
        objects.list_namespaced_custom_object,
        *place,
        resource_version=page["metadata"]["resourceVersion"],
    ):
        gone.append((event["type"], event["object"]["metadata"]["name"]))
        if len(gone) == 3:
            watching.stop()
    assert sorted(gone) == [("DELETED", "a"), ("DELETED", "b"), ("DELETED", "c")]
