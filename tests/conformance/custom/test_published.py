"""Discovery and OpenAPI of custom resources: both forms of discovery, OpenAPI v2 and v3."""

from __future__ import annotations

from typing import Any

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from tests.conformance.custom.servers import Custom, until
from tests.crds import certificates, gateways, small
from tests.crds.building import AGGREGATED, CRDS, Family, Json
from tests.support.api_client import ApiClient

VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


async def group_of(api: ApiClient, group: str) -> Json | None:
    """Returns the group in aggregated discovery."""
    found = (await api.get("/apis", accept=AGGREGATED)).json
    for each in found["items"]:
        if each["metadata"]["name"] == group:
            return dict(each)
    return None


def is_there(found: Any) -> bool:
    return bool(found)


def is_gone(found: Any) -> bool:
    return found is None


async def test_discovery(group: str, custom: Custom, api: ApiClient) -> None:
    """A CRD appears in the lists of groups, versions and resources, with all its names."""
    family = await custom.use(gateways.gateway(group))
    listed = (await api.get("/apis")).json["groups"]
    found = [each for each in listed if each["name"] == group]
    assert [each["version"] for each in found[0]["versions"]] == ["v1", "v1beta1"]
    assert found[0]["preferredVersion"]["version"] == "v1"
    alone = (await api.get(f"/apis/{group}")).json
    assert alone["versions"] == found[0]["versions"]
    resources = (await api.get(f"/apis/{group}/v1")).json["resources"]
    main, status = resources
    stored = GroupVersionKind(group, "v1", "Gateway")
    assert main.pop("storageVersionHash") == storage_version_hash(stored)
    assert main == {
        "name": "gateways",
        "singularName": "gateway",
        "namespaced": True,
        "kind": "Gateway",
        "verbs": VERBS,
        "shortNames": ["gtw"],
        "categories": ["gateway-api"],
    }
    assert status == {
        "name": "gateways/status",
        "singularName": "",
        "namespaced": True,
        "kind": "Gateway",
        "verbs": ["get", "patch", "update"],
    }
    await api.delete(f"{CRDS}/{family.name}")
    await custom.wait_until_deleted(f"/apis/{group}")
    await custom.wait_until_deleted(f"/apis/{group}/v1")
    left = (await api.get("/apis")).json["groups"]
    assert group not in [each["name"] for each in left]


async def test_scale_in_discovery(group: str, custom: Custom, api: ApiClient) -> None:
    """The scale of a custom resource has kind autoscaling/v1 Scale."""
    await custom.use(small.scalable(group))
    resources = (await api.get(f"/apis/{group}/v1")).json["resources"]
    found = {each["name"]: each for each in resources}
    assert found["squads/scale"] == {
        "name": "squads/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }


async def test_aggregated_discovery(group: str, custom: Custom, api: ApiClient) -> None:
    """One document lists all groups, including custom ones until their CRDs are deleted."""
    family = await custom.use(certificates.certificate(group))
    found = await until(lambda: group_of(api, group), is_there)
    assert found["versions"][0]["version"] == "v1"
    resource = found["versions"][0]["resources"][0]
    assert resource["resource"] == "certificates"
    assert resource["responseKind"] == {"group": group, "version": "v1", "kind": "Certificate"}
    assert resource["scope"] == "Namespaced"
    assert resource["singularResource"] == "certificate"
    assert resource["shortNames"] == ["crt", "crts"]
    assert resource["categories"] == ["certs"]
    assert resource["verbs"] == VERBS
    assert [each["subresource"] for each in resource["subresources"]] == ["status"]
    etag = (await api.get("/apis", accept=AGGREGATED)).header("etag")
    await api.delete(f"{CRDS}/{family.name}")
    await until(lambda: group_of(api, group), is_gone)
    assert (await api.get("/apis", accept=AGGREGATED)).header("etag") != etag


async def v3_address(api: ApiClient, group: str) -> str | None:
    """Returns the URL of a group version's document from the index."""
    index = (await api.get("/openapi/v3")).json["paths"]
    found = index.get(f"apis/{group}/v1")
    return None if found is None else str(found["serverRelativeURL"])


async def v3(api: ApiClient, group: str) -> Json | None:
    """Returns the document of a group version, if it exists."""
    address = await v3_address(api, group)
    if address is None:
        return None
    reply = await api.get(address)
    return dict(reply.json) if reply.status == 200 else {}  # its URL has just changed


def schema_of(document: Json, family: Family, *, version: str = "v1") -> Json | None:
    """Returns the schema of a kind, found by `x-kubernetes-group-version-kind` as clients do."""
    schemas = document.get("components", {}).get("schemas") or document.get("definitions") or {}
    wanted = {"group": family.group, "version": version, "kind": family.kind}
    for each in schemas.values():
        if wanted in each.get("x-kubernetes-group-version-kind", []):
            return dict(each)
    return None


async def test_openapi_v3(group: str, custom: Custom, api: ApiClient) -> None:
    """The group's document has the declared schema and all paths, and is removed with the group."""
    family = await custom.use(certificates.certificate(group))
    document = await until(lambda: v3(api, group), is_there)
    schema = schema_of(document, family)
    assert schema is not None
    declared = family.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["description"] == declared["description"]
    assert schema["required"] == ["spec"]
    spec = schema["properties"]["spec"]
    assert (
        spec["properties"]["privateKey"]
        == declared["properties"]["spec"]["properties"]["privateKey"]
    )
    assert spec["properties"]["dnsNames"]["x-kubernetes-list-type"] == "set"
    assert set(schema["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert {
        f"/apis/{group}/v1/namespaces/{{namespace}}/certificates",
        f"/apis/{group}/v1/namespaces/{{namespace}}/certificates/{{name}}",
        f"/apis/{group}/v1/namespaces/{{namespace}}/certificates/{{name}}/status",
        f"/apis/{group}/v1/certificates",
    } <= set(document["paths"])
    await api.delete(f"{CRDS}/{family.name}")
    await until(lambda: v3_address(api, group), is_gone)


async def test_openapi_v3_follows_the_schema(group: str, custom: Custom, api: ApiClient) -> None:
    """A changed schema is published under another URL."""
    family = await custom.use(small.widget(group))
    before = await until(lambda: v3(api, group), is_there)

    def change(made: Json) -> None:
        schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["properties"]["late"] = {"type": "string"}

    await custom.redefine(family.name, change)

    def has_changed(found: Json | None) -> bool:
        schema = schema_of(found or {}, family)
        return schema is not None and "late" in schema["properties"]["spec"]["properties"]

    assert not has_changed(before)
    await until(lambda: v3(api, group), has_changed)


async def test_openapi_v2(group: str, custom: Custom, api: ApiClient) -> None:
    """The v2 document has the kind, without what v2 cannot express, until the CRD is deleted."""
    family = await custom.use(gateways.http_route(group))

    async def v2() -> Json | None:
        return schema_of((await api.get("/openapi/v2")).json, family)

    schema = await until(v2, is_there)
    backend = schema["properties"]["spec"]["properties"]["rules"]["items"]["properties"][
        "backendRefs"
    ]["items"]
    assert backend["properties"]["port"] == {"x-kubernetes-int-or-string": True}
    assert "type" not in backend["properties"]["port"]
    await api.delete(f"{CRDS}/{family.name}")
    await until(v2, is_gone)


async def test_two_groups_are_independent(group: str, custom: Custom, api: ApiClient) -> None:
    """A change in one group does not change the documents of another."""
    await custom.use(small.widget(group))
    await until(lambda: v3(api, group), is_there)
    before = await v3_address(api, group)
    other = f"other.{group}"
    await custom.use(small.scalable(other))
    await until(lambda: v3(api, other), is_there)
    assert await v3_address(api, group) == before
