"""Reads of custom objects: lists, watches, tables, selectors, and metadata only."""

from __future__ import annotations

import pytest

from tests.conformance.custom.servers import Custom, until
from tests.crds import certificates, gateways, small
from tests.crds.building import CRDS, Family, Json, Maker, column
from tests.support.api_client import (
    MERGE_PATCH,
    PARTIAL,
    PARTIAL_LIST,
    TABLE,
    ApiClient,
)


async def test_list(group: str, custom: Custom, api: ApiClient) -> None:
    """Lists have the declared list kind and are paged; each page continues the one before."""
    family = await custom.use(small.cluster_wide(group))
    make = Maker(group, "v1", "Territory")
    for number in range(5):
        await custom.create(family, make.good(f"t{number}", {"area": number + 1}))
    first = await api.get(f"{family.path()}?limit=2")
    assert (first.json["kind"], first.json["apiVersion"]) == ("TerritoryList", f"{group}/v1")
    assert (first.names, first.json["metadata"]["remainingItemCount"]) == (["t0", "t1"], 3)
    token = first.json["metadata"]["continue"]
    second = await api.get(f"{family.path()}?limit=10&continue={token}")
    assert second.names == ["t2", "t3", "t4"]


async def test_watch(group: str, custom: Custom, api: ApiClient) -> None:
    """A watch has every change of the objects, complete and in order."""
    family = await custom.use(small.widget(group))
    begin = (await api.get(family.path())).version
    watch = await api.watch(f"{family.path()}?resourceVersion={begin}")
    await custom.create(family, family.good[0])
    await api.patch(family.path("a"), {"spec": {"size": 2}}, MERGE_PATCH)
    await api.delete(family.path("a"))
    events = await watch.take(3)
    assert [(event["type"], event["object"]["spec"]["size"]) for event in events] == [
        ("ADDED", 1),
        ("MODIFIED", 2),
        ("DELETED", 2),
    ]
    assert {event["object"]["spec"]["colour"] for event in events} == {"grey"}


async def test_watch_ends_with_the_schema(group: str, custom: Custom, api: ApiClient) -> None:
    """When a CRD changes, its watches end; a new one has the new schema."""
    family = await custom.use(small.widget(group))
    made = await custom.create(family, family.good[0])
    since = made["metadata"]["resourceVersion"]
    watch = await api.watch(f"{family.path()}?resourceVersion={since}")

    def change(found: Json) -> None:
        schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["properties"]["late"] = {"type": "string", "default": "yes"}

    await custom.redefine(family.name, change)
    await until(
        lambda: api.get(family.path("a")), lambda reply: "late" in reply.json.get("spec", {})
    )
    assert await watch.rest() == []
    listed = await api.get(family.path())
    again = await api.watch(f"{family.path()}?resourceVersion={listed.version}")
    await api.patch(family.path("a"), {"spec": {"size": 5}}, MERGE_PATCH)
    event = await again.next()
    assert event is not None
    assert (event["type"], event["object"]["spec"]["late"]) == ("MODIFIED", "yes")


async def test_watch_of_definitions(group: str, api: ApiClient) -> None:
    """A watch of CRDs shows one become established."""
    begin = (await api.get(f"{CRDS}?limit=1")).version
    family = small.widget(group)
    selector = f"fieldSelector=metadata.name%3D{family.name}"
    watch = await api.watch(f"{CRDS}?resourceVersion={begin}&{selector}")
    assert (await api.post(CRDS, family.definition)).status == 201
    seen: list[str] = []
    while True:
        event = await watch.next()
        assert event is not None
        seen.append(event["type"])
        conditions = event["object"].get("status", {}).get("conditions") or []
        if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            break
    assert seen[0] == "ADDED"
    assert set(seen[1:]) == {"MODIFIED"}


async def test_table(group: str, custom: Custom, api: ApiClient) -> None:
    """The CRD's columns follow the name, with the values at their JSON paths."""
    family = await custom.use(certificates.certificate(group))
    await custom.create(family, family.good[0])
    made = (await api.get(family.path("web"))).json
    await api.put(family.path("web", "status"), certificates.ready(made))
    found = (await api.get(family.path(), accept=TABLE)).json
    assert found["kind"] == "Table"
    columns = [
        (each["name"], each["type"], each["priority"]) for each in found["columnDefinitions"]
    ]
    assert columns == [
        ("Name", "string", 0),
        ("Ready", "string", 0),
        ("Secret", "string", 0),
        ("Issuer", "string", 1),
        ("Status", "string", 1),
        ("Age", "date", 0),
    ]
    cells = found["rows"][0]["cells"]
    assert cells[:5] == ["web", "True", "web-tls", "ca", "issued"]
    assert found["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_table_without_columns(group: str, custom: Custom, api: ApiClient) -> None:
    """Without additionalPrinterColumns a kind has name and age."""
    family = await custom.use(small.widget(group))
    await custom.create(family, family.good[0])
    found = (await api.get(family.path("a"), accept=TABLE)).json
    assert [each["name"] for each in found["columnDefinitions"]] == ["Name", "Age"]
    assert found["rows"][0]["cells"][0] == "a"


async def test_cells(group: str, custom: Custom, api: ApiClient) -> None:
    """Cells of every type: numbers, booleans, lists, missing values, and values of a wrong type."""
    columns = [
        column("Size", ".spec.size", "integer"),
        column("Enabled", ".spec.enabled", "boolean"),
        column("Tags", ".spec.tags"),
        column("First", ".spec.tags[0]"),
        column("Each", ".spec.tags[*]"),
        column("Option", ".spec.options.a\\.b"),
        column("Phase", ".status.phase"),
        column("Colour", ".spec.colour", "integer"),
    ]
    family = await custom.use(small.widget(group, columns=columns))
    spec = {"size": 3, "enabled": True, "tags": ["x", "y"], "options": {"a.b": "c"}}
    await custom.create(family, Maker(group, "v1", "Widget").good("full", spec))
    await custom.create(family, Maker(group, "v1", "Widget").good("none", {}))
    rows = (await api.get(family.path(), accept=TABLE)).json["rows"]
    assert rows[0]["cells"] == ["full", 3, True, '["x","y"]', "x", "x", "c", None, None]
    assert rows[1]["cells"] == ["none", None, None, None, None, None, None, None, None]


async def test_metadata_only(group: str, custom: Custom, api: ApiClient) -> None:
    """A request for PartialObjectMetadata gets only the metadata."""
    family = await custom.use(small.widget(group))
    made = await custom.create(family, family.good[0])
    one = (await api.get(family.path("a"), accept=PARTIAL)).json
    assert (one["kind"], set(one)) == (
        "PartialObjectMetadata",
        {"kind", "apiVersion", "metadata"},
    )
    assert one["metadata"] == made["metadata"]
    several = (await api.get(family.path(), accept=PARTIAL_LIST)).json
    assert several["kind"] == "PartialObjectMetadataList"
    assert several["items"][0]["metadata"] == made["metadata"]


async def gateways_of(group: str, custom: Custom) -> Family:
    family = await custom.use(gateways.gateway(group))
    for obj in family.good:
        await custom.create(family, obj)
    return family


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_selectable_fields(version: str, group: str, custom: Custom, api: ApiClient) -> None:
    """selectableFields work in lists and watches, like metadata.name; other fields are refused."""
    family = await gateways_of(group, custom)
    path = family.path(version=version)
    for selector, wanted in (
        ("spec.gatewayClassName%3Dfast", ["outer"]),
        ("spec.gatewayClassName!%3Dfast", ["inner"]),
        ("spec.gatewayClassName%3Dother", []),
        ("metadata.name%3Dinner", ["inner"]),
        ("metadata.name%3Dinner,spec.gatewayClassName%3Dfast", []),
        ("metadata.namespace%3Ddefault", ["inner", "outer"]),
    ):
        found = await api.get(f"{path}?fieldSelector={selector}")
        assert (found.status, found.names) == (200, wanted), selector
    refused = await api.get(f"{path}?fieldSelector=spec.minReplicas%3D1")
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert "field label not supported: spec.minReplicas" in refused.message
    selector = "fieldSelector=spec.gatewayClassName%3Dslow"
    watch = await api.watch(f"{path}?resourceVersion=0&{selector}")
    event = await watch.next()
    assert event is not None
    assert event["object"]["metadata"]["name"] == "inner"
    await api.delete(family.path("outer"))
    await api.delete(family.path("inner"))
    event = await watch.next()
    assert event is not None
    assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "inner")


async def test_label_selectors(group: str, custom: Custom, api: ApiClient) -> None:
    """Label selectors work for custom objects as for all others."""
    family = await custom.use(small.widget(group))
    for name, tier in (("a", "front"), ("b", "back"), ("c", "")):
        obj = Maker(group, "v1", "Widget").good(name)
        obj["metadata"]["labels"] = {"tier": tier} if tier else {}
        await custom.create(family, obj)
    for selector, wanted in (
        ("tier%3Dfront", ["a"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier%20notin%20(front)", ["b", "c"]),
    ):
        assert (await api.get(f"{family.path()}?labelSelector={selector}")).names == wanted
