"""The official Python client: typed and dynamic calls, patches, pages, watches, leader election."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from restow.testing.server_process import ServerProcess
from tests.e2e.api.python_client import (
    client_of,
    config,
    dynamic,
    election,
    election_config,
    events_until,
    informer,
    k8s,
    lease_lock,
    watch,
)


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Iterator[Any]:
    with client_of(server.kubeconfig) as client:
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
    read.data = {"c": "3"}  # with the version of before
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
    """A secret's texts become its data, and an immutable one stays as it is."""
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


def deployment() -> Any:
    labels = {"app": "web"}
    pod = k8s.V1PodSpec(containers=[k8s.V1Container(name="web", image="nginx")])
    template = k8s.V1PodTemplateSpec(metadata=k8s.V1ObjectMeta(labels=labels), spec=pod)
    selector = k8s.V1LabelSelector(match_labels=labels)
    spec = k8s.V1DeploymentSpec(replicas=2, selector=selector, template=template)
    return k8s.V1Deployment(metadata=k8s.V1ObjectMeta(name="web"), spec=spec)


def test_workloads(api: Any, namespace: str) -> None:
    """Deployments have a scale and a status of their own; jobs and autoscalers are kept too."""
    apps = k8s.AppsV1Api(api)
    made = apps.create_namespaced_deployment(namespace, deployment())
    assert (made.metadata.generation, made.spec.strategy.type) == (1, "RollingUpdate")
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
    """A dictionary is a strategic merge patch, a list a JSON patch; merge patch on demand."""
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
    """A list in pages is the list as it was at the first page."""
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
    """Deletions hold to their preconditions, and a collection is deleted by its labels."""
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
    """A watch shows what is there and what happens; a second one resumes where it ended."""
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
    """A watch with a timeout ends by itself, in good order."""
    ended = list(watch.Watch().stream(core.list_namespaced_secret, namespace, timeout_seconds=1))
    assert [event["type"] for event in ended if event["type"] != "ADDED"] == []


def test_informer(core: Any, namespace: str) -> None:
    """An informer has a cache that follows the server, and calls back."""
    core.create_namespaced_config_map(namespace, config("one", labels={"kept": "y"}))
    seen: list[tuple[str, str]] = []
    deleted = threading.Event()
    follower = informer.SharedInformer(
        core.list_namespaced_config_map, namespace=namespace, label_selector="kept=y"
    )
    follower.add_event_handler(
        informer.ADDED, lambda obj: seen.append(("ADDED", obj.metadata.name))
    )
    follower.add_event_handler(informer.DELETED, lambda _: deleted.set())
    follower.start()
    try:
        core.create_namespaced_config_map(namespace, config("two", labels={"kept": "y"}))
        core.delete_namespaced_config_map("one", namespace)
        assert deleted.wait(20)
        assert ("ADDED", "two") in seen
        assert [each.metadata.name for each in follower.cache.list()] == ["two"]
    finally:
        follower.stop()


def test_dynamic_client(api: Any, namespace: str) -> None:
    """The dynamic client finds kinds by discovery, and reads, writes, patches and watches them."""
    client = dynamic.DynamicClient(api)
    kinds = client.resources.get(api_version="v1", kind="ConfigMap")
    assert (kinds.name, kinds.namespaced) == ("configmaps", True)
    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "one"}, "data": {}}
    made = kinds.create(body=body, namespace=namespace)
    patch = {"data": {"a": "1"}}
    patched = kinds.patch(
        body=patch,
        name="one",
        namespace=namespace,
        content_type="application/merge-patch+json",
    )
    assert patched.data.a == "1"
    listed = kinds.get(namespace=namespace, field_selector="metadata.name=one")
    assert [item.metadata.uid for item in listed.items] == [made.metadata.uid]
    events = kinds.watch(
        namespace=namespace, resource_version=made.metadata.resourceVersion, timeout=5
    )
    assert next(iter(events))["raw_object"]["data"] == {"a": "1"}
    kinds.delete(name="one", namespace=namespace)
    deployments = client.resources.get(api_version="apps/v1", kind="Deployment")
    assert "scale" in deployments.subresources
    with pytest.raises(dynamic.exceptions.NotFoundError):
        kinds.get(name="one", namespace=namespace)


def test_leader_election(api: Any, namespace: str) -> None:
    """Of two candidates one leads; when it leads no more, the other takes over."""
    led = []

    def lead() -> None:
        led.append("first")
        raise RuntimeError("the work has failed, as it should here")

    first, second = (candidate(namespace, name, lead) for name in ("first", "second"))
    first.run()
    assert led == ["first"]
    lease = k8s.CoordinationV1Api(api).read_namespaced_lease("lock", namespace)
    assert lease.spec.holder_identity == "first"
    assert lease.spec.renew_time >= lease.spec.acquire_time
    assert not second.try_acquire_or_renew()
    assert second.acquire()
    lease = k8s.CoordinationV1Api(api).read_namespaced_lease("lock", namespace)
    assert lease.spec.holder_identity == "second"


def candidate(namespace: str, identity: str, lead: Any) -> Any:
    chosen = election_config.Config(
        lease_lock.LeaseLock("lock", namespace, identity),
        lease_duration=3,
        renew_deadline=2,
        retry_period=1,
        onstarted_leading=lead,
        onstopped_leading=lambda: None,
    )
    # Faster than it lets one configure.
    chosen.lease_duration, chosen.retry_period = 1, 0.05
    return election.LeaderElection(chosen)


def test_lease_times(api: Any, namespace: str) -> None:
    """Times with microseconds come back as they were sent."""
    leases = k8s.CoordinationV1Api(api)
    text = "2026-11-15T19:51:08.742963+00:00"
    spec = k8s.V1LeaseSpec(holder_identity="me", lease_duration_seconds=5, renew_time=text)
    made = leases.create_namespaced_lease(
        namespace, k8s.V1Lease(metadata=k8s.V1ObjectMeta(name="l"), spec=spec)
    )
    assert made.spec.renew_time.isoformat() == text


def test_rights(api: Any, core: Any, namespace: str) -> None:
    """Roles are kept, reviews are answered, and the version is told."""
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    body = {"metadata": {"name": "reader"}, "rules": rules}
    assert k8s.RbacAuthorizationV1Api(api).create_namespaced_role(namespace, body).rules[0].verbs
    wanted = k8s.V1ResourceAttributes(verb="get", resource="configmaps", namespace=namespace)
    spec = k8s.V1SelfSubjectAccessReviewSpec(resource_attributes=wanted)
    review = k8s.V1SelfSubjectAccessReview(spec=spec)
    answer = k8s.AuthorizationV1Api(api).create_self_subject_access_review(review)
    assert answer.status.allowed is True
    assert k8s.VersionApi(api).get_code().git_version.startswith("v1.36.")
    names = {each.metadata.name for each in core.list_namespace().items}
    assert {"default", "kube-system", "kube-public", "kube-node-lease", namespace} <= names
