"""kubernetes_asyncio: typed and dynamic calls, patches, pages, errors, watches, leader election."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crds.building import Family

k8s: Final[Any] = importlib.import_module("kubernetes_asyncio.client")
kube_config: Final[Any] = importlib.import_module("kubernetes_asyncio.config")
dynamic: Final[Any] = importlib.import_module("kubernetes_asyncio.dynamic")
watch: Final[Any] = importlib.import_module("kubernetes_asyncio.watch")
election: Final[Any] = importlib.import_module("kubernetes_asyncio.leaderelection.leaderelection")
election_config: Final[Any] = importlib.import_module(
    "kubernetes_asyncio.leaderelection.electionconfig"
)
lease_lock: Final[Any] = importlib.import_module(
    "kubernetes_asyncio.leaderelection.resourcelock.leaselock"
)

WHO = "account"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": VERBS},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create"]},
    {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "patch"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    },
    {
        "apiGroups": ["kubernetes-asyncio.example.org"],
        "resources": ["widgets", "widgets/status"],
        "verbs": VERBS,
    },
]
CLUSTER_RIGHTS: list[dict[str, Any]] = []


@pytest.fixture
async def api(kubeconfig: Path) -> AsyncIterator[Any]:
    configuration = k8s.Configuration()
    await kube_config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with k8s.ApiClient(configuration) as client:
        yield client


@pytest.fixture
def core(api: Any) -> Any:
    return k8s.CoreV1Api(api)


def config(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Any:
    return k8s.V1ConfigMap(metadata=k8s.V1ObjectMeta(name=name, labels=labels), data=data)


async def test_verbs(core: Any, namespace: str) -> None:
    """A typed object is created, read, replaced, patched in three ways, and deleted."""
    made = await core.create_namespaced_config_map(namespace, config("one", a="1"))
    read = await core.read_namespaced_config_map("one", namespace)
    assert read.to_dict() == made.to_dict()
    read.data = {"b": "2"}
    replaced = await core.replace_namespaced_config_map("one", namespace, read)
    assert replaced.data == {"b": "2"}
    patched = replaced
    for media_type, patch in (
        ("json-patch", [{"op": "add", "path": "/data/c", "value": "3"}]),
        ("merge-patch", {"data": {"d": "4"}}),
        ("strategic-merge-patch", {"data": {"b": None}}),
    ):
        patched = await core.patch_namespaced_config_map(
            "one", namespace, patch, _content_type=f"application/{media_type}+json"
        )
    assert patched.data == {"c": "3", "d": "4"}
    gone = await core.delete_namespaced_config_map("one", namespace)
    assert gone.status == "Success"


async def test_errors(core: Any, namespace: str) -> None:
    """Each refusal has its code: missing, duplicate, conflict, invalid, forbidden."""
    made = await core.create_namespaced_config_map(namespace, config("one"))
    await core.patch_namespaced_config_map("one", namespace, {"data": {"a": "1"}})
    calls = {
        404: core.read_namespaced_config_map("two", namespace),
        409: core.create_namespaced_config_map(namespace, config("one")),
        422: core.create_namespaced_config_map(namespace, config("NO")),
        403: core.list_namespaced_secret(namespace),
    }
    for code, call in calls.items():
        with pytest.raises(k8s.ApiException) as refused:
            await call
        assert refused.value.status == code
    with pytest.raises(k8s.ApiException) as conflict:
        await core.replace_namespaced_config_map("one", namespace, made)
    assert conflict.value.status == 409


async def test_pages(core: Any, namespace: str) -> None:
    """A list is read in pages of one state, and a collection is deleted by its labels."""
    paged = {"paged": "y"}
    names = [f"c{number}" for number in range(5)]
    await asyncio.gather(
        *(core.create_namespaced_config_map(namespace, config(n, labels=paged)) for n in names)
    )
    options: dict[str, Any] = {"limit": 2, "label_selector": "paged=y"}
    page = await core.list_namespaced_config_map(namespace, **options)
    found, version = list(page.items), page.metadata.resource_version
    await core.delete_collection_namespaced_config_map(namespace, label_selector="paged=y")
    while page.metadata._continue:
        page = await core.list_namespaced_config_map(
            namespace, _continue=page.metadata._continue, **options
        )
        assert page.metadata.resource_version == version
        found += page.items
    assert [each.metadata.name for each in found] == names
    assert (await core.list_namespaced_config_map(namespace, **options)).items == []


async def test_watch(core: Any, namespace: str, old_version: str) -> None:
    """A watch shows state, bookmark and changes; one from a compacted version gets a 410."""
    await core.create_namespaced_config_map(namespace, config("one", labels={"seen": "y"}))
    options = {"label_selector": "seen=y", "allow_watch_bookmarks": True}
    first = {"send_initial_events": True, "resource_version_match": "NotOlderThan"}
    seen = []
    async with watch.Watch() as watching:
        stream = watching.stream(core.list_namespaced_config_map, namespace, **options, **first)
        async for event in stream:
            seen.append(event["type"])
            if event["type"] == "BOOKMARK":
                await core.delete_namespaced_config_map("one", namespace)
            elif event["type"] == "DELETED":
                break
    assert seen == ["ADDED", "BOOKMARK", "DELETED"]
    async with watch.Watch() as watching:
        with pytest.raises(k8s.ApiException) as refused:
            async for _ in watching.stream(
                core.list_namespaced_config_map, namespace, resource_version=old_version
            ):
                pass
    assert refused.value.status == 410


async def test_custom_objects(api: Any, namespace: str, family: Family) -> None:
    """Custom objects are written and patched, and have a status subresource."""
    objects = k8s.CustomObjectsApi(api)
    place = (family.group, "v1", namespace, family.plural)
    made = await objects.create_namespaced_custom_object(*place, family.good[0])
    assert made["spec"] == {"size": 1, "colour": "grey"}
    patch = {"spec": {"size": 2}}
    kind = {"_content_type": "application/merge-patch+json"}
    await objects.patch_namespaced_custom_object(*place, "a", patch, **kind)
    phase = {"status": {"phase": "ready"}}
    await objects.patch_namespaced_custom_object_status(*place, "a", phase, **kind)
    read = await objects.get_namespaced_custom_object(*place, "a")
    assert (read["spec"]["size"], read["status"]["phase"]) == (2, "ready")
    with pytest.raises(k8s.ApiException) as refused:
        await objects.patch_namespaced_custom_object(*place, "a", {"spec": {"size": -1}}, **kind)
    assert refused.value.status == 422
    await objects.delete_namespaced_custom_object(*place, "a")


async def test_dynamic_client(api: Any, namespace: str, family: Family, tmp_path: Path) -> None:
    """Kinds are found by discovery, custom ones too; a scale is a subresource of its kind."""
    file = str(tmp_path / "discovery.json")
    async with dynamic.DynamicClient(api, cache_file=file) as client:
        widgets = await client.resources.get(api_version=f"{family.group}/v1", kind=family.kind)
        made = await widgets.create(body=family.good[0], namespace=namespace)
        assert made.spec.colour == "grey"
        deployments = await client.resources.get(api_version="apps/v1", kind="Deployment")
        await deployments.create(body=web(), namespace=namespace)
        scale = await deployments.scale.patch(
            name="web",
            namespace=namespace,
            body={"spec": {"replicas": 3}},
            content_type="application/merge-patch+json",
        )
        assert (scale.kind, scale.spec.replicas) == ("Scale", 3)
        # It raises nothing for a refusal, and returns the server's Status.
        missing = await widgets.get(name="b", namespace=namespace)
        assert (missing.kind, missing.code, missing.reason) == ("Status", 404, "NotFound")


def web() -> dict[str, Any]:
    pod = {"containers": [{"name": "web", "image": "nginx"}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


async def test_leader_election(api: Any, namespace: str) -> None:
    """Of two candidates one leads; when it is stopped, the other takes over."""
    leading = {name: asyncio.Event() for name in ("first", "second")}

    def candidate(identity: str) -> Any:
        async def lead() -> None:
            leading[identity].set()
            await asyncio.Event().wait()

        async def stop() -> None:
            leading[identity].clear()

        chosen = election_config.Config(
            lease_lock.LeaseLock("lock", namespace, identity, api),
            lease_duration=3,
            renew_deadline=2,
            retry_period=1,
            onstarted_leading=lead,
            onstopped_leading=stop,
        )
        # Faster than its configuration allows.
        chosen.lease_duration, chosen.retry_period = 1, 0.05
        return election.LeaderElection(chosen)

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(candidate("first").run())
        await leading["first"].wait()
        second = tasks.create_task(candidate("second").run())
        first.cancel()
        await leading["second"].wait()
        lease = await k8s.CoordinationV1Api(api).read_namespaced_lease("lock", namespace)
        assert lease.spec.holder_identity == "second"
        second.cancel()
