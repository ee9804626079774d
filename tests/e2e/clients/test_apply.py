"""Server-side apply by the clients that support it: owners, conflicts, force, and dropped
fields."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crds.building import Family
from tests.e2e.clients.python_client import client_of, dynamic, k8s

lightkube: Final[Any] = importlib.import_module("lightkube")
generic: Final[Any] = importlib.import_module("lightkube.generic_resource")
kube_config: Final[Any] = importlib.import_module("lightkube.config.kubeconfig")
ConfigMap: Final[Any] = importlib.import_module("lightkube.resources.core_v1").ConfigMap

WHO = "certified"
VERBS = ["get", "create", "update", "patch"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": VERBS},
    {"apiGroups": ["apps"], "resources": ["deployments", "deployments/status"], "verbs": VERBS},
    {"apiGroups": ["apply.example.org"], "resources": ["widgets"], "verbs": VERBS},
]
CLUSTER_RIGHTS: list[dict[str, Any]] = []
APPLY: Final = "application/apply-patch+yaml"


@pytest.fixture
def api(kubeconfig: Path) -> Iterator[Any]:
    with client_of(kubeconfig) as client:
        yield client


def config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def managers(metadata: Any) -> dict[str, str]:
    return {each.manager: each.operation for each in metadata.managed_fields}


def test_typed(api: Any, namespace: str) -> None:
    """Two managers own a field each; a third conflicts with both unless it forces, and one drops
    its field."""
    core = k8s.CoreV1Api(api)

    def applied(body: dict[str, Any], manager: str, **options: Any) -> Any:
        return core.patch_namespaced_config_map(
            "one", namespace, body, field_manager=manager, _content_type=APPLY, **options
        )

    applied(config("one", a="1"), "first")
    both = applied(config("one", b="2"), "second")
    assert both.data == {"a": "1", "b": "2"}
    assert managers(both.metadata) == {"first": "Apply", "second": "Apply"}
    with pytest.raises(k8s.ApiException) as refused:
        applied(config("one", a="3", b="3"), "third")
    found = json.loads(refused.value.body)
    assert (refused.value.status, found["reason"]) == (409, "Conflict")
    causes = {(each["field"], each["message"]) for each in found["details"]["causes"]}
    assert causes == {
        (".data.a", 'conflict with "first"'),
        (".data.b", 'conflict with "second"'),
    }
    forced = applied(config("one", a="3"), "third", force=True)
    assert (forced.data, set(managers(forced.metadata))) == (
        {"a": "3", "b": "2"},
        {"second", "third"},
    )
    less = applied(config("one"), "second")
    assert less.data == {"a": "3"}
    again = applied(config("one"), "second")
    assert again.metadata.resource_version == less.metadata.resource_version


def test_lists_by_key(api: Any, namespace: str) -> None:
    """Containers are merged by name; each manager's own are added and removed with its
    configuration."""
    apps = k8s.AppsV1Api(api)

    def applied(manager: str, *names: str) -> list[str]:
        containers = [{"name": name, "image": "nginx"} for name in names]
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
        found = apps.patch_namespaced_deployment(
            "web", namespace, body, field_manager=manager, _content_type=APPLY
        )
        return [each.name for each in found.spec.template.spec.containers]

    assert applied("first", "web") == ["web"]
    assert applied("second", "helper", "web") == ["helper", "web"]
    assert applied("second", "web") == ["web"]


def test_dynamic_client(api: Any, namespace: str, family: Family, tmp_path: Path) -> None:
    """The dynamic client applies built-in and custom objects, and gets conflicts."""
    client = dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery.json"))
    maps = client.resources.get(api_version="v1", kind="ConfigMap")
    body = config("one", a="1")
    made = client.server_side_apply(maps, body=body, namespace=namespace, field_manager="first")
    (entry,) = made.metadata.managedFields
    assert (entry.manager, entry.operation) == ("first", "Apply")
    assert entry.fieldsV1.to_dict() == {"f:data": {"f:a": {}}}
    widgets = client.resources.get(api_version=f"{family.group}/v1", kind=family.kind)
    widget = family.good[0]
    client.server_side_apply(widgets, body=widget, namespace=namespace, field_manager="first")
    other = {**widget, "spec": {"size": 2}}
    with pytest.raises(dynamic.exceptions.ConflictError) as refused:
        client.server_side_apply(widgets, body=other, namespace=namespace, field_manager="second")
    assert 'conflict with "first": .spec.size' in refused.value.summary()
    forced = client.server_side_apply(
        widgets, body=other, namespace=namespace, field_manager="second", force_conflicts=True
    )
    assert (forced.spec.size, forced.spec.colour) == (2, "grey")


def test_lightkube(kubeconfig: Path, family: Family) -> None:
    """lightkube applies typed and generic resources, with its own manager name, forced or not."""
    found = kube_config.KubeConfig.from_file(kubeconfig)
    with lightkube.Client(found, field_manager="first") as client:
        made = client.apply(ConfigMap.from_dict(config("one", a="1")))
        assert [each.manager for each in made.metadata.managedFields] == ["first"]
        with pytest.raises(lightkube.ApiError) as refused:
            client.apply(ConfigMap.from_dict(config("one", a="2")), field_manager="second")
        assert (refused.value.status.code, refused.value.status.reason) == (409, "Conflict")
        assert refused.value.status.message == (
            'Apply failed with 1 conflict: conflict with "first": .data.a'
        )
        body = ConfigMap.from_dict(config("one", a="2"))
        assert client.apply(body, field_manager="second", force=True).data == {"a": "2"}
        widgets = generic.create_namespaced_resource(family.group, "v1", family.kind, family.plural)
        assert client.apply(widgets.from_dict(family.good[0])).spec["colour"] == "grey"


def test_updates_are_tracked(api: Any, namespace: str) -> None:
    """Fields created and patched without apply have managers too, and conflict."""
    core = k8s.CoreV1Api(api)
    core.create_namespaced_config_map(namespace, config("one", a="1"), field_manager="maker")
    patched = core.patch_namespaced_config_map(
        "one", namespace, {"data": {"b": "2"}}, field_manager="patcher"
    )
    assert managers(patched.metadata) == {"maker": "Update", "patcher": "Update"}
    with pytest.raises(k8s.ApiException) as refused:
        core.patch_namespaced_config_map(
            "one", namespace, config("one", a="3"), field_manager="x", _content_type=APPLY
        )
    assert 'conflict with \\"maker\\" using v1: .data.a' in refused.value.body
