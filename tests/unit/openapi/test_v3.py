"""OpenAPI v3: the parts of the index and the documents that kubectl uses."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
import pytest

from restow.kinds.types import load_types
from restow.openapi import (
    document_path,
    fingerprint,
    group_versions,
    v3_document,
    v3_index_of,
)
from tests.unit.openapi.catalogue import INFO, KINDS

GROUP_VERSIONS = group_versions(KINDS)
METHODS = ("get", "put", "post", "patch", "delete")


@cache
def document(group: str, version: str) -> dict[str, Any]:
    made = v3_document(KINDS, group=group, version=version, types=load_types(), info=INFO)
    loaded: dict[str, Any] = orjson.loads(made.body)
    return loaded


def schemas(group: str, version: str) -> dict[str, Any]:
    found: dict[str, Any] = document(group, version)["components"]["schemas"]
    return found


def references(value: object) -> Iterator[str]:
    """Iterate over all references in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref" and isinstance(inner, str):
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def operations(group: str, version: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document(group, version)["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def test_the_index_names_every_document() -> None:
    """Each group version has a path with the hash that its document will have."""
    entries = [
        (*each, fingerprint([kind for kind in KINDS if (kind.group, kind.version) == each], INFO))
        for each in GROUP_VERSIONS
    ]
    paths = orjson.loads(v3_index_of(entries).body)["paths"]
    assert set(paths) == {document_path(*each) for each in GROUP_VERSIONS}
    assert {"api/v1", "apis/apps/v1"} < set(paths)
    made = v3_document(KINDS, group="apps", version="v1", types=load_types(), info=INFO)
    url = f"/openapi/v3/apis/apps/v1?hash={made.etag}"
    assert paths["apis/apps/v1"] == {"serverRelativeURL": url}
    assert len(made.etag) == 128
    assert made.etag == made.etag.upper()


@pytest.mark.parametrize(("group", "version"), GROUP_VERSIONS)
def test_every_reference_resolves(group: str, version: str) -> None:
    """A document is self-contained: it refers only to its own schemas."""
    prefix = "#/components/schemas/"
    known = {prefix + name for name in schemas(group, version)}
    assert set(references(document(group, version))) <= known


@pytest.mark.parametrize(("group", "version"), GROUP_VERSIONS)
def test_operation_ids_are_unique(group: str, version: str) -> None:
    """Client generators create one function per operation."""
    ids = [operation["operationId"] for _, _, operation in operations(group, version)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", [each for each in KINDS if "patch" in each.verbs])
def test_kubectl_may_create_and_apply(kind: Any) -> None:
    """Each kind has a PATCH with its GVK as a map, and with fieldValidation and dryRun."""
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    found = [
        operation
        for path, method, operation in operations(kind.group, kind.version)
        if method == "patch" and path.endswith(f"/{kind.plural}/{{name}}")
    ]
    (operation,) = found
    assert operation["x-kubernetes-group-version-kind"] == gvk
    assert operation["x-kubernetes-action"] == "patch"
    names = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
    assert {"fieldValidation", "dryRun", "fieldManager", "force"} <= names
    strategic = "application/strategic-merge-patch+json" in operation["requestBody"]["content"]
    assert strategic == (kind.type_name or "").startswith("io.k8s.")


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_can_explain(kind: Any) -> None:
    """Each kind has one schema with its GVK in a list, and with the fields of every object."""
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    found = [
        schema
        for schema in schemas(kind.group, kind.version).values()
        if gvk in schema.get("x-kubernetes-group-version-kind", [])
    ]
    (schema,) = found
    assert {"apiVersion", "kind", "metadata"} <= set(schema["properties"])
    assert schema["description"]


def test_the_paths_of_a_namespaced_kind() -> None:
    """The paths are those of the API, with the operations of the kind's verbs."""
    paths = document("apps", "v1")["paths"]
    shown = {
        path: [method for method in METHODS if method in item]
        for path, item in paths.items()
        if "statefulsets" not in path
    }
    named = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    assert shown == {
        "/apis/apps/v1/": ["get"],
        "/apis/apps/v1/deployments": ["get"],
        "/apis/apps/v1/namespaces/{namespace}/deployments": ["get", "post", "delete"],
        named: ["get", "put", "patch", "delete"],
        f"{named}/status": ["get", "put", "patch"],
        f"{named}/scale": ["get", "put", "patch"],
    }
    assert [each["name"] for each in paths[named]["parameters"]] == ["name", "namespace", "pretty"]
    scale = paths[f"{named}/scale"]["patch"]
    assert scale["x-kubernetes-group-version-kind"]["group"] == "autoscaling"
    listed = {each["name"] for each in paths["/apis/apps/v1/deployments"]["get"]["parameters"]}
    assert {"watch", "limit", "continue", "labelSelector", "sendInitialEvents"} <= listed


def test_responses_of_deletes() -> None:
    """Most deletes return a Status, those of a few kinds the object."""
    answers = {}
    for plural in ("pods", "configmaps"):
        item = document("", "v1")["paths"][f"/api/v1/namespaces/{{namespace}}/{plural}/{{name}}"]
        (reference,) = set(references(item["delete"]["responses"]))
        answers[plural] = reference.rpartition(".")[2]
    assert answers == {"pods": "Pod", "configmaps": "Status"}


def test_a_review_can_only_be_created() -> None:
    """A kind with one verb has one path besides discovery, and no list."""
    paths = document("authorization.k8s.io", "v1")["paths"]
    prefix = "/apis/authorization.k8s.io/v1/"
    assert set(paths) == {prefix, prefix + "selfsubjectaccessreviews"}
    assert not [name for name in schemas("authorization.k8s.io", "v1") if name.endswith("ewList")]


def test_operation_ids_follow_the_usual_form() -> None:
    """Operation IDs equal those of generated Kubernetes clients."""
    ids = {operation["operationId"] for _, _, operation in operations("", "v1")}
    assert {
        "getCoreV1APIResources",
        "listCoreV1ConfigMapForAllNamespaces",
        "listCoreV1NamespacedConfigMap",
        "deleteCoreV1CollectionNamespacedConfigMap",
        "readCoreV1NamespaceStatus",
        "replaceCoreV1NamespaceFinalize",
    } <= ids


def test_merge_extensions_of_fields() -> None:
    """Merge keys and list types are where kubectl looks for them."""
    ports = schemas("", "v1")["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"]
    assert ports["x-kubernetes-patch-strategy"] == "merge"
    assert ports["x-kubernetes-patch-merge-key"] == "port"
    assert ports["x-kubernetes-list-type"] == "map"
    assert ports["x-kubernetes-list-map-keys"] == ["port", "protocol"]
    selector = schemas("", "v1")["io.k8s.api.core.v1.ServiceSpec"]["properties"]["selector"]
    assert selector["x-kubernetes-map-type"] == "atomic"


def test_restrictions_of_fields() -> None:
    """Enums, defaults, required fields and atomic structs equal those of Kubernetes."""
    found = schemas("", "v1")
    container = found["io.k8s.api.core.v1.Container"]
    assert container["required"] == ["name"]
    assert container["properties"]["imagePullPolicy"] == {
        "type": "string",
        "enum": ["Always", "IfNotPresent", "Never"],
    }
    assert container["properties"]["name"] == {"type": "string", "default": ""}
    items = {"type": "string", "default": ""}
    assert container["properties"]["args"]["items"] == items
    port = found["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"]
    assert port["default"] == "TCP"
    families = found["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ipFamilies"]
    assert families["items"] == {**items, "enum": ["", "IPv4", "IPv6"]}
    assert found["io.k8s.api.core.v1.NodeSelector"]["x-kubernetes-map-type"] == "atomic"
    profile = found["io.k8s.api.core.v1.SeccompProfile"]["x-kubernetes-unions"]
    words = {"localhostProfile": "LocalhostProfile"}
    assert profile == [{"discriminator": "type", "fields-to-discriminateBy": words}]


def test_nested_kinds_have_their_gvk() -> None:
    """The claims in a StatefulSet have a GVK of the core group, and DeleteOptions those of all
    groups.
    """
    found = schemas("apps", "v1")
    key = "x-kubernetes-group-version-kind"
    claim = found["io.k8s.api.core.v1.PersistentVolumeClaim"][key]
    assert claim == [{"group": "", "version": "v1", "kind": "PersistentVolumeClaim"}]
    options = found["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"][key]
    assert [each["group"] for each in options] == ["", "apps"]


def test_connections_carry_no_objects() -> None:
    """Connections and text responses have no object schema."""
    path = "/api/v1/namespaces/{namespace}/pods/{name}"
    item = document("", "v1")["paths"][f"{path}/exec"]
    assert (item["get"]["x-kubernetes-action"], item["post"]["x-kubernetes-action"]) == (
        "connect",
        "connect",
    )
    assert item["post"]["operationId"] == "connectCoreV1PostNamespacedPodExec"
    assert "requestBody" not in item["post"]
    assert item["get"]["responses"]["200"]["content"] == {"*/*": {"schema": {"type": "string"}}}
    log = document("", "v1")["paths"][f"{path}/log"]["get"]["responses"]["200"]["content"]
    assert log["application/json"]["schema"] == {"type": "string"}
    assert "io.k8s.api.core.v1.PodExecOptions" not in schemas("", "v1")


def test_types_and_formats() -> None:
    """Scalars have formats, special types their own schemas, structs a default."""
    found = schemas("apps", "v1")
    spec = found["io.k8s.api.apps.v1.DeploymentSpec"]
    assert spec["properties"]["replicas"] == {"type": "integer", "format": "int32"}
    assert spec["required"] == ["selector", "template"]
    template = spec["properties"]["template"]
    prefix = "#/components/schemas/"
    assert template["allOf"] == [{"$ref": prefix + "io.k8s.api.core.v1.PodTemplateSpec"}]
    assert template["default"] == {}
    time = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
    assert found[time] == {"type": "string", "format": "date-time"}
    assert found["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"] == "int-or-string"
    assert len(found["io.k8s.apimachinery.pkg.api.resource.Quantity"]["oneOf"]) == 2
    assert found["io.k8s.api.core.v1.EnvVar"]["required"] == ["name"]


def test_declared_kinds() -> None:
    """A declared schema is published with the common fields; a kind without one accepts
    anything.
    """
    cron_tab = schemas("stable.example.com", "v1")["com.example.stable.v1.CronTab"]
    assert cron_tab["properties"]["spec"]["properties"]["cron"]["pattern"] == "^x"
    assert cron_tab["properties"]["metadata"]["allOf"][0]["$ref"].endswith("meta.v1.ObjectMeta")
    assert cron_tab["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.cron"}]
    thing = schemas("open.example.com", "v1")["com.example.open.v1.Thing"]
    assert thing["x-kubernetes-preserve-unknown-fields"] is True
    listed = schemas("open.example.com", "v1")["com.example.open.v1.ThingList"]
    assert listed["required"] == ["items"]
    assert listed["x-kubernetes-group-version-kind"][0]["kind"] == "ThingList"


def test_embedded_objects_have_the_common_fields() -> None:
    """An embedded resource is published with its type and metadata, and requires the type."""
    cron_tab = schemas("stable.example.com", "v1")["com.example.stable.v1.CronTab"]
    spec = cron_tab["properties"]["spec"]["properties"]
    assert spec["template"]["required"] == ["spec", "kind", "apiVersion"]
    for name in ("template", "raw"):
        assert {"apiVersion", "kind", "metadata"} <= set(spec[name]["properties"])


def test_a_list_may_have_its_own_kind() -> None:
    """A declared kind may set the kind of its lists."""
    listed = schemas("stable.example.com", "v1")["com.example.stable.v1.CronTabs"]
    assert listed["x-kubernetes-group-version-kind"][0]["kind"] == "CronTabs"


def test_order_does_not_matter() -> None:
    """Kinds in another order give the same bytes and the same hash."""
    types = load_types()
    one = v3_document(KINDS, group="", version="v1", types=types, info=INFO)
    other = v3_document(KINDS[::-1], group="", version="v1", types=types, info=INFO)
    assert one == other


def test_the_hash_follows_the_served_api() -> None:
    """Another verb, subresource, schema or version gives another hash."""
    kind = KINDS[6]
    base = fingerprint([kind], INFO)
    changed = [
        fingerprint([replace(kind, verbs=("get",))], INFO),
        fingerprint([replace(kind, schema={"type": "object"})], INFO),
        fingerprint([replace(kind, subresources=KINDS[3].subresources)], INFO),
        fingerprint([kind], replace(INFO, version="v1.37.0")),
        fingerprint([kind, KINDS[0]], INFO),
    ]
    assert len({base, *changed}) == 6
