"""Requests for custom objects, by version: scales, selectors, tables, bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from restow.endpoints.handlers import watch as watch_handler
from restow.registry.catalog import builtin_catalog
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import RunningServer, start_server
from tests.support.api_client import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    TABLE,
    ApiClient,
    WatchStream,
)
from tests.unit.endpoints.custom_kinds import GROUP, gadget, gadgets

BASE = f"/apis/{GROUP}/v1/namespaces/default/gadgets"
OLD = f"/apis/{GROUP}/v1beta1/namespaces/default/gadgets"


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    catalog = builtin_catalog()
    storage = MemoryStorage()
    server = await start_server(storage, catalog)
    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}
    await server.client.post("/api/v1/namespaces", namespace)
    catalog.host(gadgets())
    yield server
    await server.stop()
    await storage.close()


@pytest.fixture
def client(server: RunningServer) -> ApiClient:
    return server.client


async def _made(client: ApiClient, *objects: dict[str, Any]) -> None:
    for each in objects:
        reply = await client.post(BASE, each)
        assert reply.status == 201, reply.body


async def test_a_scale_is_where_the_definition_says(client: ApiClient) -> None:
    """The scale reads and changes the replicas at the declared paths, and nothing else."""
    await _made(client, gadget("a", replicas=2, color="red"))
    status = {"status": {"replicas": 1, "selector": "x=y"}}
    await client.patch(f"{BASE}/a/status", status, MERGE_PATCH)
    scale = (await client.get(f"{BASE}/a/scale")).json
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "x=y"}
    patched = await client.patch(f"{BASE}/a/scale", {"spec": {"replicas": 5}}, MERGE_PATCH)
    assert patched.json["spec"] == {"replicas": 5}
    scale["metadata"].pop("resourceVersion")
    scale["spec"]["replicas"] = 7
    assert (await client.put(f"{BASE}/a/scale", scale)).status == 200
    stored = (await client.get(f"{BASE}/a")).json
    assert stored["spec"] == {"replicas": 7, "color": "red"}
    assert stored["status"] == {"replicas": 1, "selector": "x=y"}
    assert stored["metadata"]["generation"] == 3


async def test_a_scale_without_replicas(client: ApiClient) -> None:
    """Without replicas a scale cannot be read, but replicas can be set through it."""
    await _made(client, gadget("a"))
    reply = await client.get(f"{BASE}/a/scale")
    assert reply.status == 500
    assert 'the spec replicas field ".spec.replicas" does not exist' in reply.message
    patched = await client.patch(f"{BASE}/a/scale", {"spec": {"replicas": 4}}, MERGE_PATCH)
    assert patched.json["spec"] == {"replicas": 4}


async def test_errors_of_a_scale(client: ApiClient) -> None:
    """Invalid replicas, names, resource versions, kinds and patches get the errors of objects."""
    await _made(client, gadget("a", replicas=1))
    scale = f"{BASE}/a/scale"
    reply = await client.patch(scale, {"spec": {"replicas": -1}}, MERGE_PATCH)
    assert reply.status == 422
    why = "Invalid value: -1: should be a non-negative integer"
    assert reply.message == f'Gadget.{GROUP} "a" is invalid: .spec.replicas: {why}'
    assert (await client.patch(scale, {"spec": {"replicas": "x"}}, MERGE_PATCH)).status == 422
    stale = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}}
    assert (await client.patch(scale, stale, MERGE_PATCH)).status == 409
    other = {"metadata": {"name": "b"}, "spec": {"replicas": 2}}
    assert (await client.patch(scale, other, MERGE_PATCH)).status == 400
    assert (await client.patch(scale, {}, STRATEGIC_PATCH)).status == 415
    assert (await client.put(scale, gadget("a", replicas=2))).status == 400
    assert (await client.get(f"{BASE}/none/scale")).status == 404
    assert (await client.get(f"{OLD}/a/scale")).status == 404


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.color=red", ["a"]),
        ("spec.color!=red", ["b", "c"]),
        ("spec.color=", ["c"]),
        ("spec.count=3", ["b"]),
        ("spec.on=false", ["b"]),
        ("spec.on=true,metadata.name=a", ["a"]),
        ("spec.on=true,metadata.name=b", []),
    ],
)
async def test_selectable_fields(client: ApiClient, selector: str, names: list[str]) -> None:
    """Lists, watches and deletecollection select by the declared fields."""
    await _made(
        client,
        gadget("a", color="red", on=True),
        gadget("b", color="blue", count=3, on=False),
        gadget("c"),
    )
    query = f"?fieldSelector={selector}"
    assert (await client.get(BASE + query)).names == names
    assert (await client.delete(BASE + query)).status == 200
    left = (await client.get(BASE)).names
    assert left == [name for name in ("a", "b", "c") if name not in names]


@pytest.mark.parametrize(
    ("base", "label"),
    [(BASE, "spec.replicas"), (BASE, ".spec.color"), (OLD, "spec.color"), (OLD, "status.x")],
)
async def test_fields_that_are_not_selectable(client: ApiClient, base: str, label: str) -> None:
    """A field that this version does not declare is rejected by every verb that selects."""
    for query in (f"?fieldSelector={label}=x", f"?watch=1&fieldSelector={label}=x"):
        reply = await client.get(base + query)
        assert (reply.status, reply.message) == (400, f"field label not supported: {label}")
    assert (await client.delete(f"{base}?fieldSelector={label}=x")).status == 400


async def test_tables_by_version(client: ApiClient) -> None:
    """Each version has its own columns, and one without any shows name and age."""
    await _made(client, gadget("a", color="red", count=3))
    latest = (await client.get(BASE, accept=TABLE)).json
    assert [each["name"] for each in latest["columnDefinitions"]] == ["Name", "Color", "Count"]
    assert latest["columnDefinitions"][1]["description"] == "The value at .spec.color."
    assert [row["cells"] for row in latest["rows"]] == [["a", "red", 3]]
    old = (await client.get(OLD, accept=TABLE)).json
    assert [(each["name"], each["type"]) for each in old["columnDefinitions"]] == [
        ("Name", "string"),
        ("Age", "date"),
    ]
    (cells,) = [row["cells"] for row in old["rows"]]
    assert cells[1].endswith("s")


async def test_a_deprecated_version_warns(client: ApiClient) -> None:
    """Every response for a deprecated version has the warning; those for others have none."""
    await _made(client, gadget("a"))
    for path in (OLD, f"{OLD}/a", f"{OLD}/a", f"{OLD}/none"):
        assert (await client.get(path)).warnings == ['299 - "use another"']
    watch = await client.watch(f"{OLD}?watch=1")
    assert watch.headers["warning"] == ['299 - "use another"']
    await watch.close()
    assert (await client.get(f"{BASE}/a")).warnings == []


async def test_unknown_fields(client: ApiClient) -> None:
    """Fields that are not in the schema are pruned with a warning, or rejected if requested."""
    odd = gadget("a", color="red", odd=1, items=[{"name": "x", "size": 2}])
    problems = ['unknown field "spec.items[0].size"', 'unknown field "spec.odd"']
    refused = await client.post(f"{BASE}?fieldValidation=Strict", odd)
    assert refused.status == 400
    unfit = 'Gadget in version "v1" cannot be handled as a Gadget'
    assert refused.message == f"{unfit}: strict decoding error: {', '.join(problems)}"
    made = await client.post(BASE, odd)
    assert [each.replace('\\"', '"') for each in made.warnings] == [
        f'299 - "{each}"' for each in problems
    ]
    assert made.json["spec"] == {"color": "red", "items": [{"name": "x"}]}
    for patch, form in (
        ({"spec": {"odd": 1}}, MERGE_PATCH),
        ([{"op": "add", "path": "/spec/odd", "value": 1}], JSON_PATCH),
    ):
        refused = await client.patch(f"{BASE}/a?fieldValidation=Strict", patch, form)
        assert refused.status in (400, 422)
        assert 'unknown field "spec.odd"' in refused.message
        warned = await client.patch(f"{BASE}/a", patch, form)
        assert warned.status == 200
        assert "odd" not in warned.json["spec"]
        assert len(warned.warnings) == 1
        silent = await client.patch(f"{BASE}/a?fieldValidation=Ignore", patch, form)
        assert silent.warnings == []


async def test_repeated_fields_come_first(client: ApiClient) -> None:
    """For custom objects, duplicate fields are reported before unknown ones."""
    body = orjson.dumps(gadget("a", odd=1, color="x")).replace(b'"color":', b'"color":"y","color":')
    reply = await client.post(f"{BASE}?fieldValidation=Strict", body)
    assert reply.status == 400
    wanted = 'strict decoding error: duplicate field "spec.color", unknown field "spec.odd"'
    assert reply.message.endswith(wanted)


async def test_a_custom_object_must_have_the_type_of_its_path(client: ApiClient) -> None:
    """A type other than that of the path, or a missing one, is rejected."""
    for changes, code, part in (
        ({"kind": ""}, 400, "(must be of type Gadget): Object 'Kind' is missing"),
        ({"apiVersion": ""}, 400, f"data () does not match the expected API version ({GROUP}/v1)"),
        ({"apiVersion": "x/v1"}, 400, "the API version in the data (x/v1) does not match"),
        ({"kind": "Other"}, 422, f'Other.{GROUP} "a" is invalid: kind: Invalid value: "Other"'),
    ):
        reply = await client.post(BASE, {**gadget("a"), **changes})
        assert (reply.status, part in reply.message) == (code, True), reply.body


async def test_patches_of_a_custom_object(client: ApiClient) -> None:
    """Merge and JSON patches are supported; strategic merge patches are not."""
    await _made(client, gadget("a", color="red", count=1))
    merged = await client.patch(f"{BASE}/a", {"spec": {"color": None, "on": True}}, MERGE_PATCH)
    assert merged.json["spec"] == {"count": 1, "on": True}
    refused = await client.patch(f"{BASE}/a", {"spec": {"count": 2}}, STRATEGIC_PATCH)
    assert (refused.status, refused.reason) == (415, "UnsupportedMediaType")
    assert STRATEGIC_PATCH not in refused.message


async def test_generated_names(client: ApiClient) -> None:
    """A custom object may have a generated name."""
    unnamed = gadget("")
    unnamed["metadata"] = {"generateName": "made-"}
    names = {(await client.post(BASE, unnamed)).json["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("made-") for name in names)


async def _read_all(watch: WatchStream) -> None:
    """Read bookmarks until the stream ends. Raises TimeoutError if it stays open and silent."""
    while (event := await watch.next(seconds=0.3)) is not None:
        assert event["type"] == "BOOKMARK"


@pytest.mark.parametrize("is_served", [True, False])
async def test_a_watch_outlives_a_removed_resource(
    client: ApiClient, server: RunningServer, monkeypatch: pytest.MonkeyPatch, *, is_served: bool
) -> None:
    """The watch of a removed resource ends after a delay, so that clients get the change of the CRD
    first; it gets no bookmark. The watch of a replaced resource ends at once."""
    monkeypatch.setattr(watch_handler, "REMOVED_SECONDS", 3600.0)
    monkeypatch.setattr(watch_handler, "BOOKMARK_SECONDS", 0.05)
    watch = await client.watch(f"{BASE}?watch=1&allowWatchBookmarks=true")
    before = server.assembly.catalog.named(GROUP, "gadgets")
    assert before is not None
    if is_served:
        server.assembly.catalog.host(gadgets())
    else:
        server.assembly.catalog.drop(GROUP, "gadgets")
    server.assembly.store.forget(before)
    if is_served:
        await _read_all(watch)
        return
    assert (await client.get(BASE)).status == 404
    with pytest.raises(TimeoutError):  # bookmarks that were sent before the removal arrive first
        await _read_all(watch)
    await watch.close()


async def test_a_watch_by_a_declared_field(client: ApiClient) -> None:
    """A watch by a declared field gets ADDED and DELETED when an object starts or stops to
    match."""
    await _made(client, gadget("a", color="red"))
    watch = await client.watch(f"{BASE}?watch=1&fieldSelector=spec.color=blue")
    await client.patch(f"{BASE}/a", {"spec": {"color": "blue"}}, MERGE_PATCH)
    await client.patch(f"{BASE}/a", {"spec": {"color": "red"}}, MERGE_PATCH)
    assert [event["type"] for event in await watch.take(2)] == ["ADDED", "DELETED"]
    await watch.close()
