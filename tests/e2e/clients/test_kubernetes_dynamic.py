"""The official Python client beyond typed calls: dynamic, informers, leader election, asyncio."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crds.building import Family
from tests.e2e.clients.guests import Guest
from tests.e2e.clients.python_client import (
    aio,
    client_of,
    config,
    dynamic,
    election,
    election_config,
    informer,
    k8s,
    lease_lock,
)

WHO = "account"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": VERBS},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    },
    {
        "apiGroups": ["kubernetes-dynamic.example.org"],
        "resources": ["widgets", "widgets/status"],
        "verbs": VERBS,
    },
]
CLUSTER_RIGHTS: list[dict[str, Any]] = []
WAIT_SECONDS_MAX = 30


@pytest.fixture(scope="module")
def api(guest: Guest) -> Iterator[Any]:
    with client_of(guest.kubeconfig()) as client:
        yield client


@pytest.fixture
def core(api: Any) -> Any:
    return k8s.CoreV1Api(api)


@pytest.fixture
def client(api: Any, tmp_path: Path) -> Any:
    """A dynamic client without a discovery cache."""
    return dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery.json"))


def test_dynamic_client(client: Any, namespace: str) -> None:
    """Kinds are found by discovery, and read, written, patched and watched."""
    kinds = client.resources.get(api_version="v1", kind="ConfigMap")
    assert (kinds.name, kinds.namespaced) == ("configmaps", True)
    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "one"}, "data": {}}
    made = kinds.create(body=body, namespace=namespace)
    patched, patch = made, {"data": {"a": "1"}}
    for media_type in ("merge-patch", "strategic-merge-patch"):
        patched = kinds.patch(
            body=patch,
            name="one",
            namespace=namespace,
            content_type=f"application/{media_type}+json",
        )
        assert patched.data.a == "1"
    listed = kinds.get(namespace=namespace, field_selector="metadata.name=one")
    assert [item.metadata.uid for item in listed.items] == [made.metadata.uid]
    events = kinds.watch(
        namespace=namespace, resource_version=made.metadata.resourceVersion, timeout=5
    )
    assert next(iter(events))["raw_object"]["data"] == {"a": "1"}
    changed = {**patched.to_dict(), "data": {"b": "2"}}
    assert kinds.replace(body=changed, namespace=namespace).data.to_dict() == {"b": "2"}
    kinds.delete(name="one", namespace=namespace)
    deployments = client.resources.get(api_version="apps/v1", kind="Deployment")
    assert "scale" in deployments.subresources
    with pytest.raises(dynamic.exceptions.NotFoundError):
        kinds.get(name="one", namespace=namespace)


def test_dynamic_errors(client: Any, namespace: str) -> None:
    """Each refusal is raised as the client's class for it."""
    kinds = client.resources.get(api_version="v1", kind="ConfigMap")
    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "one"}}
    made = kinds.create(body=body, namespace=namespace)
    with pytest.raises(dynamic.exceptions.ConflictError):
        kinds.create(body=body, namespace=namespace)
    kinds.patch(
        body={"data": {"a": "1"}},
        name="one",
        namespace=namespace,
        content_type="application/merge-patch+json",
    )
    with pytest.raises(dynamic.exceptions.ConflictError):
        kinds.replace(body=made.to_dict(), namespace=namespace)
    with pytest.raises(dynamic.exceptions.UnprocessibleEntityError) as invalid:
        kinds.create(body={**body, "metadata": {"name": "NO"}}, namespace=namespace)
    assert "metadata.name: Invalid value" in invalid.value.summary()
    with pytest.raises(dynamic.exceptions.ForbiddenError):
        client.resources.get(api_version="v1", kind="Secret").get(namespace=namespace)
    with pytest.raises(dynamic.exceptions.ResourceNotFoundError):
        client.resources.get(api_version="v1", kind="Sandwich")


def test_discovery_cache(api: Any, namespace: str, family: Family, tmp_path: Path) -> None:
    """Discovery is cached in a file, and repeated for a newer kind."""
    file = tmp_path / "discovery.json"
    first = dynamic.DynamicClient(api, cache_file=str(file))
    first.resources.get(api_version="v1", kind="ConfigMap")
    cached = json.loads(file.read_text())
    del cached["resources"]["apis"][family.group]
    file.write_text(json.dumps(cached))
    second = dynamic.DynamicClient(api, cache_file=str(file))
    widgets = second.resources.get(api_version=f"{family.group}/v1", kind=family.kind)
    made = widgets.create(body=family.good[0], namespace=namespace)
    assert made.spec.colour == "grey"
    status = {"metadata": {"name": "a"}, "status": {"phase": "ready"}}
    patched = widgets.status.patch(
        body=status, namespace=namespace, content_type="application/merge-patch+json"
    )
    assert (patched.status.phase, patched.spec.size) == ("ready", 1)


def test_informer(core: Any, namespace: str) -> None:
    """An informer has a cache that follows the server, and calls back."""
    core.create_namespaced_config_map(namespace, config("one", labels={"kept": "y"}))
    seen: list[tuple[str, str]] = []
    listed, deleted = threading.Event(), threading.Event()
    follower = informer.SharedInformer(
        core.list_namespaced_config_map, namespace=namespace, label_selector="kept=y"
    )

    def added(obj: Any) -> None:
        seen.append(("ADDED", obj.metadata.name))
        listed.set()

    follower.add_event_handler(informer.ADDED, added)
    follower.add_event_handler(informer.DELETED, lambda _: deleted.set())
    follower.start()
    try:
        # An object deleted before the first list causes no event.
        assert listed.wait(WAIT_SECONDS_MAX)
        core.create_namespaced_config_map(namespace, config("two", labels={"kept": "y"}))
        core.delete_namespaced_config_map("one", namespace)
        assert deleted.wait(WAIT_SECONDS_MAX)
        assert seen == [("ADDED", "one"), ("ADDED", "two")]
        assert [each.metadata.name for each in follower.cache.list()] == ["two"]
    finally:
        follower.stop()


def test_informer_starts_over(core: Any, namespace: str, old_version: str) -> None:
    """An informer whose version is too old gets the error, lists again, and misses nothing."""
    core.create_namespaced_config_map(namespace, config("one"))
    caught_up = threading.Event()
    errors: list[Any] = []
    follower = informer.SharedInformer(
        core.list_namespaced_config_map,
        namespace=namespace,
        # Every namespace has one of these too.
        field_selector="metadata.name=one",
    )
    follower._resource_version = old_version
    follower.add_event_handler(informer.ERROR, errors.append)
    follower.add_event_handler(informer.ADDED, lambda _: caught_up.set())
    follower.start()
    try:
        assert caught_up.wait(WAIT_SECONDS_MAX)
        assert [each.status for each in errors] == [410]
    finally:
        # It checks the first only when it gets an event for the second.
        follower._stop_event.set()
        core.delete_namespaced_config_map("one", namespace)
        follower.stop()


def test_leader_election(api: Any, namespace: str) -> None:
    """Of two candidates one leads; when it stops leading, the other takes over."""
    led: list[str] = []

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
    # Faster than its configuration allows.
    chosen.lease_duration, chosen.retry_period = 1, 0.05
    return election.LeaderElection(chosen)


async def test_asyncio(kubeconfig: Path, namespace: str) -> None:
    """The client's asyncio variant reads, writes and watches."""
    configuration = aio.client.Configuration()
    await aio.config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with aio.client.ApiClient(configuration) as client, aio.watch.Watch() as watching:
        core = aio.client.CoreV1Api(client)
        metadata = aio.client.V1ObjectMeta(name="one")
        body = aio.client.V1ConfigMap(metadata=metadata, data={"a": "1"})
        made = await core.create_namespaced_config_map(namespace, body)
        patched = await core.patch_namespaced_config_map("one", namespace, {"data": {"b": "2"}})
        assert patched.data == {"a": "1", "b": "2"}
        await core.delete_namespaced_config_map("one", namespace)
        seen = []
        async for event in watching.stream(
            core.list_namespaced_config_map,
            namespace,
            resource_version=made.metadata.resource_version,
        ):
            seen.append(event["type"])
            if len(seen) == 2:
                break
        assert seen == ["MODIFIED", "DELETED"]
        with pytest.raises(aio.client.ApiException) as missing:
            await core.read_namespaced_config_map("one", namespace)
        assert missing.value.status == 404
