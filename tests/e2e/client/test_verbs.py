"""Every verb of the client, against a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.names import GroupVersionResource
from restow.client import (
    ApiClient,
    ListOptions,
    NoSuchResource,
    Object,
    PatchType,
    Propagation,
    WriteOptions,
    key_of,
    metadata_of,
    read_kubeconfig,
    uid_of,
    version_of,
)
from tests.e2e.client.conftest import CONFIG_MAPS, NAMESPACES
from tests.support.server_process import ServerProcess


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name, "labels": {"app": "a"}}, "data": data}


async def test_one_object(client: ApiClient, namespace: str) -> None:
    """Create, get, update, and delete, with the errors of each."""
    made = await client.create(CONFIG_MAPS, config_map("a", k="1"), namespace=namespace)
    assert await client.get(CONFIG_MAPS, "a", namespace=namespace) == made
    with pytest.raises(status.AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    changed = await client.update(CONFIG_MAPS, made | {"data": {"k": "2"}})
    assert int(version_of(changed)) > int(version_of(made))
    with pytest.raises(status.Conflict):
        await client.update(CONFIG_MAPS, made)
    with pytest.raises(status.Conflict):
        await client.delete(CONFIG_MAPS, "a", namespace=namespace, uid="another")
    with pytest.raises(status.Conflict):
        await client.delete(
            CONFIG_MAPS, "a", namespace=namespace, resource_version=version_of(made)
        )
    done = await client.delete(
        CONFIG_MAPS,
        "a",
        namespace=namespace,
        uid=uid_of(changed),
        resource_version=version_of(changed),
        propagation=Propagation.BACKGROUND,
    )
    assert done["status"] == "Success"
    with pytest.raises(status.NotFound) as caught:
        await client.get(CONFIG_MAPS, "a", namespace=namespace)
    assert caught.value.details is not None
    assert (caught.value.details.name, caught.value.details.kind) == ("a", "configmaps")
    with pytest.raises(status.Invalid) as invalid:
        await client.create(CONFIG_MAPS, config_map("No Name"), namespace=namespace)
    assert invalid.value.causes[0].field == "metadata.name"


async def test_patches(client: ApiClient, namespace: str) -> None:
    """Merge, JSON, strategic merge and apply patches have their effects."""
    await client.create(CONFIG_MAPS, config_map("p", a="1", b="2"), namespace=namespace)
    await client.patch(CONFIG_MAPS, "p", {"data": {"a": None}}, namespace=namespace)
    operations = [{"op": "add", "path": "/data/c", "value": "3"}]
    await client.patch(CONFIG_MAPS, "p", operations, patch_type=PatchType.JSON, namespace=namespace)
    found = await client.patch(
        CONFIG_MAPS,
        "p",
        {"data": {"d": "4"}},
        patch_type=PatchType.STRATEGIC,
        namespace=namespace,
    )
    assert found["data"] == {"b": "2", "c": "3", "d": "4"}
    with pytest.raises(status.Invalid):
        await client.patch(
            CONFIG_MAPS,
            "p",
            [{"op": "test", "path": "/data/c", "value": "x"}],
            patch_type=PatchType.JSON,
            namespace=namespace,
        )


async def test_dry_runs_change_nothing(client: ApiClient, namespace: str) -> None:
    """A dry run returns the result, and stores nothing."""
    options = WriteOptions(dry_run=True)
    made = await client.create(CONFIG_MAPS, config_map("dry"), namespace=namespace, options=options)
    assert key_of(made) == (namespace, "dry")
    with pytest.raises(status.NotFound):
        await client.get(CONFIG_MAPS, "dry", namespace=namespace)


async def test_lists(client: ApiClient, namespace: str) -> None:
    """Pages, selectors and metadata only: all objects once, and not more than requested."""
    names = [f"l{number}" for number in range(7)]
    await asyncio.gather(
        *(
            client.create(CONFIG_MAPS, config_map(name, k=name), namespace=namespace)
            for name in names
        )
    )
    options = ListOptions(limit=3, field_selector="metadata.name!=l0")
    pages = [
        page
        async for page in client.pages(
            CONFIG_MAPS, namespace=namespace, options=options, metadata_only=True
        )
    ]
    items = [item for page in pages for item in page.items]
    found = [key_of(item).name for item in items if key_of(item).name.startswith("l")]
    assert found == names[1:]
    assert all("data" not in item and uid_of(item) for item in items)
    assert len({page.resource_version for page in pages}) == 1
    chosen = client.items(
        CONFIG_MAPS, namespace=namespace, options=ListOptions(label_selector="app in (a)")
    )
    assert [key_of(item).name async for item in chosen] == names
    first = await client.list_page(CONFIG_MAPS, namespace=namespace, options=ListOptions(limit=2))
    assert first.remaining is not None
    assert first.remaining >= 5
    only = await client.get(CONFIG_MAPS, "l1", namespace=namespace, metadata_only=True)
    assert only["kind"] == "PartialObjectMetadata"
    await client.delete_collection(
        CONFIG_MAPS, namespace=namespace, options=ListOptions(label_selector="app=a")
    )
    left = client.items(
        CONFIG_MAPS, namespace=namespace, options=ListOptions(label_selector="app=a")
    )
    assert [item async for item in left] == []


async def test_subresources(client: ApiClient, namespace: str) -> None:
    """A subresource has reads and writes of its own."""
    found = await client.get(NAMESPACES, namespace, subresource="status")
    metadata_of(found).setdefault("annotations", {})["seen"] = "yes"
    await client.update(NAMESPACES, found, subresource="status")
    found = await client.get(NAMESPACES, namespace)
    assert found["status"]["phase"] == "Active"


async def test_discovery(client: ApiClient, namespace: str) -> None:
    """Groups, resources and hashes; short names; the server version."""
    discovered = await client.discover()
    assert discovered.failures == {}
    for text, found in {
        "cm": "configmaps",
        "ConfigMap": "configmaps",
        "leases": "leases.coordination.k8s.io",
        "lease.coordination.k8s.io": "leases.coordination.k8s.io",
        "crd": "customresourcedefinitions.apiextensions.k8s.io",
        "storageversions": "storageversions.internal.apiserver.k8s.io",
    }.items():
        assert str(discovered.find(text).group_resource) == found
    assert discovered.find("cm").storage_version_hash
    assert "status" in discovered.find("ns").subresources
    with pytest.raises(NoSuchResource, match="did you mean configmap"):
        discovered.find("configmap5")
    assert (await client.version())["gitVersion"].startswith("v1.")
    assert await client.text("/readyz") == "ok"
    with pytest.raises(status.NotFound):
        await client.list_page(GroupVersionResource("nothing.io", "v1", "things"))


async def test_a_client_certificate(client_server: ServerProcess, tmp_path: Path) -> None:
    """The second context of the server's kubeconfig uses a certificate instead of the token."""
    config = read_kubeconfig([client_server.kubeconfig], context="restow-certificate")
    assert config.token is None
    async with ApiClient.connect(config, runtime=Runtime.system()) as client:
        assert (await client.list_page(NAMESPACES)).items
