"""patch: the patch types, refused patches, and subresources."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conformance.api.conftest import StartServer
from tests.conformance.api.objects import DEPLOYMENT
from tests.conformance.api.servers import CONFIG_MAPS, NS, catalog_of, config_map
from tests.support.api_client import (
    APPLY_PATCH,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiClient,
)

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONFIG_MAP = f"{CONFIG_MAPS}/a"


@EVERY_STORE
async def test_merge_patch(api: ApiClient) -> None:
    """Members are set, null removes them, the rest stays."""
    made = await api.post(CONFIG_MAPS, config_map("a", {"x": "1", "y": "2"}))
    reply = await api.patch(CONFIG_MAP, {"data": {"x": None, "z": "3"}})
    assert reply.status == 200
    assert reply.json["data"] == {"y": "2", "z": "3"}
    assert reply.version > made.version


async def test_json_patch(api: ApiClient) -> None:
    """Operations are applied in order, all or none."""
    made = await api.post(CONFIG_MAPS, config_map("a", {"x": "1"}))
    version = made.json["metadata"]["resourceVersion"]
    reply = await api.patch(
        CONFIG_MAP,
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/metadata/finalizers", "value": ["kopf.dev/f"]},
            {"op": "replace", "path": "/data/x", "value": "9"},
        ],
        JSON_PATCH,
    )
    assert reply.status == 200
    assert reply.json["metadata"]["finalizers"] == ["kopf.dev/f"]
    assert reply.json["data"] == {"x": "9"}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([{"op": "test", "path": "/data/x", "value": "no"}], 422),
        ([{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}], 422),
        ([{"op": "remove", "path": "/data/missing"}], 422),
        ([{"op": "replace", "path": "/nowhere/at/all", "value": 1}], 422),
        ([{"op": "add", "path": "data", "value": 1}], 422),
        ([{"op": "explode", "path": "/data"}], 422),
        ([{"path": "/data"}], 422),
        ([{"op": "add", "path": 1, "value": "1"}], 400),
        ({"op": "remove", "path": "/data"}, 400),
        (["remove"], 400),
        ([{"op": "replace", "path": "/metadata", "value": 5}], 422),
        ([{"op": "replace", "path": "", "value": []}], 422),
        ([{"op": "remove", "path": "/metadata/name"}], 400),
        ([{"op": "replace", "path": "/metadata/name", "value": "b"}], 400),
        ([{"op": "replace", "path": "/metadata/labels", "value": "b"}], 422),
        ([{"op": "add", "path": "/metadata/labels", "value": "b"}], 422),
        ([{"op": "replace", "path": "/data", "value": {"k": 5}}], 422),
    ],
)
async def test_json_patches_that_do_not_fit(api: ApiClient, operations: Any, code: int) -> None:
    """A malformed patch gets 400, one that does not apply, 422; nothing is changed."""
    made = await api.post(CONFIG_MAPS, config_map("a", {"x": "1"}))
    reply = await api.patch(CONFIG_MAP, operations, JSON_PATCH)
    assert reply.status == code
    assert reply.reason == ("BadRequest" if code == 400 else "Invalid")
    assert (await api.get(CONFIG_MAP)).json == made.json


async def test_strategic_merge_patch(api: ApiClient) -> None:
    """Lists of built-in kinds are merged by their keys."""
    await api.post(DEPLOYMENTS, DEPLOYMENT)
    patch = {
        "spec": {
            "template": {
                "spec": {"containers": [{"name": "side", "image": "s"}, {"name": "c", "tty": True}]}
            }
        }
    }
    reply = await api.patch(f"{DEPLOYMENTS}/web", patch, STRATEGIC_PATCH)
    assert reply.status == 200
    containers = reply.json["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["image"] for each in containers} == {"c": "i", "side": "s"}
    assert next(each for each in containers if each["name"] == "c")["tty"] is True


async def test_types_of_patches(api: ApiClient, start: StartServer) -> None:
    """Unknown types get 415, and so does strategic merge for kinds without a schema."""
    await api.post(CONFIG_MAPS, config_map("a"))
    for content_type in (JSON, "text/plain", "application/octet-stream"):
        reply = await api.patch(CONFIG_MAP, {"data": {}}, content_type)
        assert (reply.status, reply.reason) == (415, "UnsupportedMediaType"), content_type
        assert STRATEGIC_PATCH in reply.message
        assert APPLY_PATCH in reply.message
    widgets = (await start(catalog_of("x+1"))).client
    place = "/apis/example.com/v1/namespaces/default/widgets"
    made = await widgets.post(place, {"metadata": {"name": "w"}, "spec": {"list": [1]}})
    assert made.status == 201
    reply = await widgets.patch(f"{place}/w", {"spec": {}}, STRATEGIC_PATCH)
    assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")
    merged = await widgets.patch(f"{place}/w", {"spec": {"size": 3}}, MERGE_PATCH)
    assert merged.json["spec"] == {"list": [1], "size": 3}


async def test_a_patch_of_nothing(api: ApiClient) -> None:
    """A patch of a missing object gets 404."""
    reply = await api.patch(CONFIG_MAP, {})
    assert (reply.status, reply.reason) == (404, "NotFound")


async def test_preconditions_in_a_patch(api: ApiClient) -> None:
    """A resource version in a patch must be the object's; another UID is a change of an
    immutable field."""
    made = await api.post(CONFIG_MAPS, config_map("a"))
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"x": "1"}}
    reply = await api.patch(CONFIG_MAP, stale)
    assert (reply.status, reply.reason) == (409, "Conflict")
    other = await api.patch(CONFIG_MAP, {"metadata": {"uid": "other"}, "data": {"x": "1"}})
    assert (other.status, other.reason) == (422, "Invalid")
    assert 'metadata.uid: Invalid value: "other": field is immutable' in other.message
    good = {"resourceVersion": str(made.version), "uid": made.json["metadata"]["uid"]}
    assert (await api.patch(CONFIG_MAP, {"metadata": good, "data": {"x": "1"}})).status == 200


@EVERY_STORE
async def test_patches_at_the_same_time(api: ApiClient, start: StartServer) -> None:
    """Patches without a resource version never conflict: each is applied to the newest state."""
    await api.post(CONFIG_MAPS, config_map("a"))
    servers = [await start() for _ in range(2)]
    clients = [ApiClient(each.port, token="masters-token") for each in servers for _ in range(3)]
    try:
        replies = await asyncio.gather(
            *(
                client.patch(CONFIG_MAP, {"data": {f"k{i}": "v"}})
                for i, client in enumerate(clients)
            )
        )
        assert [reply.status for reply in replies] == [200] * len(clients)
    finally:
        for client in clients:
            await client.close()
    found = await api.get(CONFIG_MAP)
    assert found.json["data"] == {f"k{i}": "v" for i in range(len(clients))}


async def test_unknown_fields_in_patches(api: ApiClient) -> None:
    """Field validation applies to patches too."""
    await api.post(CONFIG_MAPS, config_map("a"))
    warned = await api.patch(CONFIG_MAP, {"nonsense": 1})
    assert (warned.status, warned.warnings) == (200, ['299 - "unknown field \\"nonsense\\""'])
    strict = await api.patch(f"{CONFIG_MAP}?fieldValidation=Strict", {"nonsense": 1})
    assert (strict.status, strict.reason) == (422, "Invalid")
    assert strict.json["details"]["causes"][0]["field"] == "patch"
    assert 'strict decoding error: unknown field "nonsense"' in strict.message
    odd = [{"op": "add", "path": "/data", "value": {}, "extra": 1}]
    noted = await api.patch(CONFIG_MAP, odd, JSON_PATCH)
    assert noted.warnings == ['299 - "json patch unknown field \\"[0].extra\\""']
    twice = await api.patch(
        f"{CONFIG_MAP}?fieldValidation=Strict", b'{"data":{"a":"1","a":"2"}}', MERGE_PATCH
    )
    assert 'duplicate field "data.a"' in twice.message


async def test_force_is_for_apply_alone(api: ApiClient) -> None:
    """`force` with another patch type gets 422."""
    await api.post(CONFIG_MAPS, config_map("a"))
    reply = await api.patch(f"{CONFIG_MAP}?force=true", {})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.json["details"]["kind"] == "PatchOptions"


async def test_status_subresource(api: ApiClient) -> None:
    """The main resource does not write status; the status subresource writes nothing else."""
    await api.post(DEPLOYMENTS, DEPLOYMENT)
    main = await api.patch(f"{DEPLOYMENTS}/web", {"status": {"replicas": 7}})
    assert main.json.get("status", {}) == {}
    both = {"spec": {"replicas": 9}, "status": {"replicas": 7}}
    state = await api.patch(f"{DEPLOYMENTS}/web/status", both)
    assert state.json["status"]["replicas"] == 7
    assert state.json["spec"]["replicas"] == 1
    found = await api.get(f"{DEPLOYMENTS}/web/status")
    assert found.json == state.json
    put = await api.put(f"{DEPLOYMENTS}/web/status", {**state.json, "status": {"replicas": 8}})
    assert put.json["status"]["replicas"] == 8
    kept = await api.put(f"{DEPLOYMENTS}/web", DEPLOYMENT)
    assert kept.json["status"]["replicas"] == 8
    assert (await api.delete(f"{DEPLOYMENTS}/web/status")).status == 405
    assert (await api.get(f"{DEPLOYMENTS}/web/nonsense")).status == 404
    assert (await api.get(f"{CONFIG_MAPS}/a/status")).reason == "NotFound"


async def test_scale(api: ApiClient) -> None:
    """A Scale shows the replicas of an object and changes them, by PUT and by three patch types."""
    made = await api.post(DEPLOYMENTS, DEPLOYMENT)
    scale = await api.get(f"{DEPLOYMENTS}/web/scale")
    assert scale.json == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            name: made.json["metadata"][name]
            for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        },
        "spec": {"replicas": 1},
        "status": {"replicas": 0, "selector": "app=web"},
    }
    put = await api.put(f"{DEPLOYMENTS}/web/scale", {**scale.json, "spec": {"replicas": 5}})
    assert (put.status, put.json["spec"]) == (200, {"replicas": 5})
    stale = await api.put(f"{DEPLOYMENTS}/web/scale", {**scale.json, "spec": {"replicas": 6}})
    assert (stale.status, stale.reason) == (409, "Conflict")
    other = await api.patch(f"{DEPLOYMENTS}/web/scale", {"metadata": {"uid": "other"}})
    assert (other.status, other.reason) == (409, "Conflict")
    unfit = await api.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": "many"}})
    assert (unfit.status, unfit.reason) == (422, "Invalid")
    for content_type, patch in (
        (MERGE_PATCH, {"spec": {"replicas": 2}}),
        (STRATEGIC_PATCH, {"spec": {"replicas": 3}}),
        (JSON_PATCH, [{"op": "replace", "path": "/spec/replicas", "value": 4}]),
    ):
        reply = await api.patch(f"{DEPLOYMENTS}/web/scale", patch, content_type)
        assert (reply.status, reply.json["kind"]) == (200, "Scale"), content_type
    assert (await api.get(f"{DEPLOYMENTS}/web")).json["spec"]["replicas"] == 4
    for body, code in (
        ({"metadata": {"name": "web"}, "spec": {"replicas": -1}}, 422),
        ({"metadata": {"name": "web"}, "spec": {"replicas": "many"}}, 400),
        ({"metadata": {"name": "web"}, "spec": {"replicas": 1 << 40}}, 400),
        ({"metadata": {"name": "web"}, "spec": 5}, 400),
        ({}, 400),
        ({"spec": {"replicas": 2}}, 400),
        ({"kind": "Deployment"}, 400),
        ({"metadata": {"name": "other"}}, 400),
        ({"metadata": 7}, 400),
    ):
        reply = await api.put(f"{DEPLOYMENTS}/web/scale", body)
        assert reply.status == code, body
    assert (await api.get(f"{DEPLOYMENTS}/web")).json["spec"]["replicas"] == 4
    assert (await api.get(f"{DEPLOYMENTS}/none/scale")).status == 404


async def test_finalize(api: ApiClient) -> None:
    """Only the finalize subresource changes a namespace's finalizers; removing the last one
    deletes it."""
    made = await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    changed = await api.put(
        "/api/v1/namespaces/team", {**made.json, "spec": {"finalizers": ["x.io/mine"]}}
    )
    assert changed.json["spec"] == {"finalizers": ["kubernetes"]}
    deleted = await api.delete("/api/v1/namespaces/team")
    assert deleted.status == 200
    assert deleted.json["metadata"]["deletionTimestamp"]
    assert deleted.json["status"] == {"phase": "Terminating"}
    reply = await api.put("/api/v1/namespaces/team/finalize", {**deleted.json, "spec": {}})
    assert reply.status == 200
    assert (await api.get("/api/v1/namespaces/team")).status == 404
    assert (await api.get("/api/v1/namespaces/default/finalize")).status == 405


async def test_namespace_status(api: ApiClient) -> None:
    """The status of a namespace has its own subresource."""
    reply = await api.patch(
        NS + "/status", {"status": {"conditions": [{"type": "X", "status": "True"}]}}
    )
    assert reply.status == 200
    assert reply.json["status"]["phase"] == "Active"
    assert reply.json["status"]["conditions"][0]["type"] == "X"


async def test_dry_run(api: ApiClient) -> None:
    """A dry run returns the result of the patch."""
    made = await api.post(CONFIG_MAPS, config_map("a"))
    reply = await api.patch(f"{CONFIG_MAP}?dryRun=All", {"data": {"k": "v"}})
    assert reply.json["data"] == {"k": "v"}
    assert (await api.get(CONFIG_MAP)).json == made.json
