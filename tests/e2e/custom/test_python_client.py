"""The official Python client with CRDs and custom objects, on SQLite and on etcd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.crds import certificates, gateways, small
from tests.crds.building import Family
from tests.e2e.clients.python_client import client_of, dynamic, k8s, watch
from tests.support.server_process import ServerProcess

WATCH_SECONDS_MAX = 30


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Iterator[Any]:
    with client_of(server.kubeconfig) as client:
        yield client


@pytest.fixture
def extensions(api: Any) -> Any:
    return k8s.ApiextensionsV1Api(api)


@pytest.fixture
def objects(api: Any) -> Any:
    return k8s.CustomObjectsApi(api)


def is_established(definition: Any) -> bool:
    conditions = (definition.status and definition.status.conditions) or []
    return any(each.type == "Established" and each.status == "True" for each in conditions)


def define(extensions: Any, family: Family) -> None:
    """Creates a CRD, and watches it until it is established."""
    made = extensions.create_custom_resource_definition(family.definition)
    assert made.metadata.name == family.name
    watching = watch.Watch()
    for event in watching.stream(
        extensions.list_custom_resource_definition,
        field_selector=f"metadata.name={family.name}",
        timeout_seconds=WATCH_SECONDS_MAX,
    ):
        if is_established(event["object"]):
            watching.stop()
            return
    raise AssertionError(f"{family.name} was not established in time")


def test_definition(extensions: Any, group: str) -> None:
    """A CRD is created from a dict, read as a typed object, changed, listed and deleted."""
    family = gateways.gateway(group)
    define(extensions, family)
    found = extensions.read_custom_resource_definition(family.name)
    assert found.spec.names.kind == "Gateway"
    assert [each.name for each in found.spec.versions] == ["v1", "v1beta1"]
    assert found.status.accepted_names.short_names == ["gtw"]
    assert found.status.stored_versions == ["v1"]
    patch = {"spec": {"names": {"categories": ["net"]}}}
    changed = extensions.patch_custom_resource_definition(family.name, patch)
    assert changed.spec.names.categories == ["net"]
    listed = extensions.list_custom_resource_definition()
    assert family.name in [each.metadata.name for each in listed.items]
    extensions.delete_custom_resource_definition(family.name)


def test_custom_objects(extensions: Any, objects: Any, group: str) -> None:
    """Objects are created, read, listed, patched, replaced and deleted without types."""
    family = certificates.certificate(group)
    define(extensions, family)
    place = (group, "v1", "default", family.plural)
    made = objects.create_namespaced_custom_object(*place, family.good[0])
    assert made["spec"]["usages"] == ["digital signature"]
    assert objects.get_namespaced_custom_object(*place, "web") == made
    patched = objects.patch_namespaced_custom_object(*place, "web", {"spec": {"isCA": True}})
    assert patched["spec"]["isCA"] is True
    status = certificates.ready(patched)
    written = objects.replace_namespaced_custom_object_status(*place, "web", status)
    assert written["status"]["conditions"][0]["type"] == "Ready"
    listed = objects.list_namespaced_custom_object(*place)
    assert [each["metadata"]["name"] for each in listed["items"]] == ["web"]
    everywhere = objects.list_cluster_custom_object(group, "v1", family.plural)
    assert everywhere["items"] == listed["items"]
    with pytest.raises(k8s.ApiException) as refused:
        objects.create_namespaced_custom_object(*place, family.bad[0].obj)
    assert refused.value.status == 422
    gone = objects.delete_namespaced_custom_object(*place, "web")
    assert gone["status"] == "Success"
    extensions.delete_custom_resource_definition(family.name)


def test_scale(extensions: Any, objects: Any, group: str) -> None:
    """The scale of a custom object is read and patched."""
    family = small.scalable(group)
    define(extensions, family)
    place = (group, "v1", "default", family.plural)
    objects.create_namespaced_custom_object(*place, family.good[0])
    scale = objects.get_namespaced_custom_object_scale(*place, "alpha")
    assert scale["spec"]["replicas"] == 3
    objects.patch_namespaced_custom_object_scale(*place, "alpha", {"spec": {"replicas": 4}})
    assert objects.get_namespaced_custom_object(*place, "alpha")["spec"]["replicas"] == 4
    extensions.delete_custom_resource_definition(family.name)


def test_cluster_objects(extensions: Any, objects: Any, group: str) -> None:
    """Cluster-scoped objects are created, read and deleted."""
    family = small.cluster_wide(group)
    define(extensions, family)
    place = (group, "v1", family.plural)
    objects.create_cluster_custom_object(*place, family.good[0])
    assert objects.get_cluster_custom_object(*place, "north")["spec"] == {"area": 5}
    objects.delete_cluster_custom_object(*place, "north")
    extensions.delete_custom_resource_definition(family.name)


def test_dynamic_client(api: Any, extensions: Any, group: str) -> None:
    """The dynamic client discovers a new kind, and watches its objects."""
    family = small.widget(group)
    define(extensions, family)
    client = dynamic.DynamicClient(api)
    widgets = client.resources.get(api_version=f"{group}/v1", kind="Widget")
    assert (widgets.name, widgets.namespaced) == ("widgets", True)
    made = widgets.create(body=family.good[0], namespace="default")
    assert made.spec.colour == "grey"
    seen = []
    for event in widgets.watch(namespace="default", timeout=WATCH_SECONDS_MAX):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            break
        widgets.delete(name="a", namespace="default")
    assert seen == [("ADDED", "a"), ("DELETED", "a")]
    extensions.delete_custom_resource_definition(family.name)
