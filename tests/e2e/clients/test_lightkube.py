"""lightkube: typed and generic resources, patches, pages, errors, watches, and waiting."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crds.building import Family

# Its types mark nearly every field as optional, so tests use it untyped.
lightkube: Final[Any] = importlib.import_module("lightkube")
codecs: Final[Any] = importlib.import_module("lightkube.codecs")
generic: Final[Any] = importlib.import_module("lightkube.generic_resource")
kube_config: Final[Any] = importlib.import_module("lightkube.config.kubeconfig")
kube_models: Final[Any] = importlib.import_module("lightkube.config.models")
apps: Final[Any] = importlib.import_module("lightkube.models.apps_v1")
autoscaling: Final[Any] = importlib.import_module("lightkube.models.autoscaling_v1")
core: Final[Any] = importlib.import_module("lightkube.models.core_v1")
meta: Final[Any] = importlib.import_module("lightkube.models.meta_v1")
Deployment: Final[Any] = importlib.import_module("lightkube.resources.apps_v1").Deployment
ConfigMap: Final[Any] = importlib.import_module("lightkube.resources.core_v1").ConfigMap
Secret: Final[Any] = importlib.import_module("lightkube.resources.core_v1").Secret
types: Final[Any] = importlib.import_module("lightkube.types")

WHO = "certified"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": VERBS},
    {
        "apiGroups": ["apps"],
        "resources": ["deployments", "deployments/scale", "deployments/status"],
        "verbs": ["get", "list", "watch", "create", "update", "patch"],
    },
    {
        "apiGroups": ["lightkube.example.org"],
        "resources": ["widgets", "widgets/status"],
        "verbs": VERBS,
    },
]
CLUSTER_RIGHTS = [
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["list"],
    }
]
MANAGER = "lightkube-test"


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Any]:
    found = kube_config.KubeConfig.from_file(kubeconfig)
    with lightkube.Client(found, field_manager=MANAGER) as made:
        yield made


def config(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Any:
    return ConfigMap(metadata=meta.ObjectMeta(name=name, labels=labels), data=data)


def names(found: Any) -> list[str]:
    return [each.metadata.name for each in found]


def test_verbs(client: Any) -> None:
    """A typed object is created, read, replaced, patched in three ways, and deleted."""
    made = client.create(config("one", a="1"))
    read = client.get(ConfigMap, "one")
    assert read == made
    read.data = {"b": "2"}
    assert client.replace(read).data == {"b": "2"}
    operations = [{"op": "add", "path": "/data/c", "value": "3"}]
    client.patch(ConfigMap, "one", operations, patch_type=types.PatchType.JSON)
    client.patch(ConfigMap, "one", {"data": {"d": "4"}}, patch_type=types.PatchType.MERGE)
    patched = client.patch(ConfigMap, "one", {"data": {"b": None}})
    assert patched.data == {"c": "3", "d": "4"}
    client.delete(ConfigMap, "one")
    with pytest.raises(lightkube.ApiError) as missing:
        client.get(ConfigMap, "one")
    assert (missing.value.status.code, missing.value.status.reason) == (404, "NotFound")


def test_errors(client: Any) -> None:
    """Each refusal has its code and reason: duplicate, conflict, invalid, forbidden."""
    made = client.create(config("one"))
    client.patch(ConfigMap, "one", {"data": {"a": "1"}})
    with pytest.raises(lightkube.ApiError) as refused:
        client.create(config("one"))
    assert (refused.value.status.code, refused.value.status.reason) == (409, "AlreadyExists")
    with pytest.raises(lightkube.ApiError) as refused:
        client.replace(made)
    assert (refused.value.status.code, refused.value.status.reason) == (409, "Conflict")
    with pytest.raises(lightkube.ApiError) as refused:
        client.create(config("NO"))
    assert (refused.value.status.code, refused.value.status.reason) == (422, "Invalid")
    with pytest.raises(lightkube.ApiError) as refused:
        list(client.list(Secret))
    assert (refused.value.status.code, refused.value.status.reason) == (403, "Forbidden")
    assert 'User "lightkube" cannot list' in str(refused.value.status.message)


def test_lists(client: Any) -> None:
    """A list is read in chunks, by labels and fields, and a collection is deleted."""
    for number in range(5):
        client.create(config(f"c{number}", labels={"odd": str(number % 2)}))
    found = client.list(ConfigMap, chunk_size=2, labels={"odd": ["0", "1"]})
    assert names(found) == [f"c{number}" for number in range(5)]
    assert names(client.list(ConfigMap, labels={"odd": "1"})) == ["c1", "c3"]
    assert names(client.list(ConfigMap, fields={"metadata.name": "c2"})) == ["c2"]
    listed = client.list(ConfigMap, labels={"odd": "1"})
    assert names(listed) == ["c1", "c3"]
    assert listed.resourceVersion is not None
    client.deletecollection(ConfigMap)
    assert names(client.list(ConfigMap, labels={"odd": None})) == []


def test_watch(client: Any, old_version: str) -> None:
    """A watch shows changes since a list; one from a compacted version gets a 410."""
    listed = client.list(ConfigMap)
    assert "kube-root-ca.crt" in names(listed)
    client.create(config("one"))
    client.patch(ConfigMap, "one", {"data": {"a": "1"}})
    client.delete(ConfigMap, "one")
    seen = []
    for change, each in client.watch(ConfigMap, resource_version=listed.resourceVersion):
        seen.append((change, each.metadata.name))
        if change == "DELETED":
            break
    assert seen == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    with pytest.raises(lightkube.ApiError) as refused:
        next(client.watch(ConfigMap, resource_version=old_version, on_error=stop))
    assert refused.value.status.code == 410


def stop(_: Exception, __: int) -> Any:
    return types.OnErrorResult(types.OnErrorAction.RAISE)


def test_workloads(client: Any) -> None:
    """A deployment has scale and status subresources, and a wait for its conditions ends."""
    labels = {"app": "web"}
    pod = core.PodSpec(containers=[core.Container(name="web", image="nginx")])
    template = core.PodTemplateSpec(metadata=meta.ObjectMeta(labels=labels), spec=pod)
    spec = apps.DeploymentSpec(selector=meta.LabelSelector(matchLabels=labels), template=template)
    client.create(Deployment(metadata=meta.ObjectMeta(name="web"), spec=spec))
    scale = Deployment.Scale(
        metadata=meta.ObjectMeta(name="web"), spec=autoscaling.ScaleSpec(replicas=3)
    )
    assert client.replace(scale, "web").spec == autoscaling.ScaleSpec(replicas=3)
    condition = {"type": "Available", "status": "True"}
    status = {"status": {"conditions": [condition]}}
    client.patch(Deployment.Status, "web", status)
    ready = client.wait(Deployment, "web", for_conditions=["Available"])
    assert (ready.spec.replicas, ready.spec.revisionHistoryLimit) == (3, 10)


def test_generic_resources(client: Any, family: Family, namespace: str) -> None:
    """Custom kinds are used by name, loaded from the cluster, or from a file."""
    generic.load_in_cluster_generic_resources(client)
    widgets = generic.get_generic_resource(f"{family.group}/v1", family.kind)
    assert widgets is not None
    made = client.create(widgets.from_dict(family.good[0]))
    assert made.spec == {"size": 1, "colour": "grey"}
    named = generic.create_namespaced_resource(family.group, "v1", family.kind, family.plural)
    patched = client.patch(named, "a", {"spec": {"size": 2}}, patch_type=types.PatchType.MERGE)
    assert patched["spec"]["size"] == 2
    phase = {"status": {"phase": "ready"}}
    client.patch(named.Status, "a", phase, patch_type=types.PatchType.MERGE)
    assert client.get(named, "a").status == {"phase": "ready"}
    with pytest.raises(lightkube.ApiError) as refused:
        client.patch(named, "a", {"spec": {"size": -1}}, patch_type=types.PatchType.MERGE)
    assert refused.value.status.code == 422
    written = codecs.dump_all_yaml([client.get(ConfigMap, "kube-root-ca.crt"), made])
    (copy, widget) = codecs.load_all_yaml(written)
    assert (copy.kind, widget.kind) == ("ConfigMap", family.kind)
    client.delete(named, "a")


async def test_asyncio(kubeconfig: Path) -> None:
    """The asyncio variant reads, writes, lists and watches."""
    client = lightkube.AsyncClient(
        kube_config.KubeConfig.from_file(kubeconfig), field_manager=MANAGER
    )
    try:
        await client.create(config("one", a="1"))
        patched = await client.patch(ConfigMap, "one", {"data": {"b": "2"}})
        assert patched.data == {"a": "1", "b": "2"}
        assert "one" in [each.metadata.name async for each in client.list(ConfigMap)]
        await client.delete(ConfigMap, "one")
        async for change, each in client.watch(
            ConfigMap, resource_version=patched.metadata.resourceVersion
        ):
            assert (change, each.metadata.name) == ("DELETED", "one")
            break
    finally:
        await client.close()


def test_unknown_token(client: Any, kubeconfig: Path) -> None:
    """An unknown token is refused, whatever other credentials are sent."""
    found = kube_config.KubeConfig.from_file(kubeconfig).get()
    assert found is not None
    token = kube_models.User(token="of-nobody")
    unknown = kube_config.SingleConfig(
        context_name="x", context=found.context, cluster=found.cluster, user=token
    )
    with lightkube.Client(unknown) as other, pytest.raises(lightkube.ApiError) as refused:
        other.get(ConfigMap, "one")
    assert (refused.value.status.code, refused.value.status.reason) == (401, "Unauthorized")
