"""Server-side apply and managed fields, through the whole server, with the reference's answers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.conformance.api.objects import DEPLOYMENT
from tests.conformance.api.rights import client_of, give, rule
from tests.conformance.api.servers import (
    CONFIG_MAPS,
    NS,
    RunningServer,
    config_map,
)
from tests.support.api_client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, ApiClient, Reply

CONFIG_MAP = f"{CONFIG_MAPS}/a"
WEB = "/apis/apps/v1/namespaces/default/deployments/web"
EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
MIGRATOR = "storage-version-migrator-controller"

Object = dict[str, Any]


async def apply(
    api: ApiClient, path: str, config: Any, manager: str = "app", query: str = ""
) -> Reply:
    """Applies a configuration as a field manager."""
    return await api.patch(f"{path}?fieldManager={manager}{query}", config, APPLY_PATCH)


def managed(reply: Reply) -> dict[str, Any]:
    """Returns the fields of each manager, with the subresource of its entry."""
    found = {}
    for entry in reply.json["metadata"].get("managedFields", []):
        part = f"/{entry['subresource']}" if "subresource" in entry else ""
        found[f"{entry['manager']}{part} {entry['operation']}"] = entry["fieldsV1"]
    return found


def web(**spec: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": spec,
    }


@EVERY_STORE
async def test_apply_creates_changes_and_conflicts(api: ApiClient) -> None:
    """Apply creates an object, changes it, removes fields it no longer contains, and reports
    conflicts."""
    made = await apply(api, CONFIG_MAP, config_map("a", {"a": "1", "b": "2"}))
    assert (made.status, managed(made)) == (
        201,
        {"app Apply": {"f:data": {"f:a": {}, "f:b": {}}}},
    )
    same = await apply(api, CONFIG_MAP, config_map("a", {"a": "1", "b": "2"}))
    assert (same.status, same.json) == (200, made.json)
    await api.patch(f"{CONFIG_MAP}?fieldManager=other", {"data": {"b": "3", "c": "4"}})
    refused = await apply(api, CONFIG_MAP, config_map("a", {"b": "2", "c": "5"}))
    assert refused.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": (
            'Apply failed with 2 conflicts: conflicts with "other" using v1:\n- .data.b\n- .data.c'
        ),
        "reason": "Conflict",
        "details": {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": 'conflict with "other" using v1',
                    "field": field,
                }
                for field in (".data.b", ".data.c")
            ]
        },
        "code": 409,
    }
    forced = await apply(api, CONFIG_MAP, config_map("a", {"b": "2"}), query="&force=true")
    assert (forced.json["data"], managed(forced)) == (
        {"b": "2", "c": "4"},
        {"app Apply": {"f:data": {"f:b": {}}}, "other Update": {"f:data": {"f:c": {}}}},
    )
    assert (await api.get(CONFIG_MAP)).json == forced.json


async def test_field_manager_names(api: ApiClient) -> None:
    """The field manager is `fieldManager`, or the User-Agent up to its first slash."""
    await api.request(
        "POST", CONFIG_MAPS, config_map("a", {"a": "1"}), headers={"user-agent": "kopf/1.37 x"}
    )
    reply = await api.put(f"{CONFIG_MAP}?fieldManager=me", config_map("a", {"a": "2"}))
    assert managed(reply) == {
        "kopf Update": {"f:data": {}},
        "me Update": {"f:data": {"f:a": {}}},
    }
    version = reply.version
    again = await api.put(f"{CONFIG_MAP}?fieldManager=third", config_map("a", {"a": "2"}))
    assert (again.version, managed(again)) == (version, managed(reply))
    for name in ("x" * 129, "a%07"):
        wrong = await api.put(f"{CONFIG_MAP}?fieldManager={name}", config_map("a"))
        assert (wrong.status, wrong.reason) == (422, "Invalid")


async def test_entries_that_clients_write(api: ApiClient) -> None:
    """An empty managedFields list resets tracking, valid entries are kept, invalid ones change
    nothing."""
    await apply(api, CONFIG_MAP, config_map("a", {"a": "1"}))
    entry = {
        "manager": "kubectl",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}},
    }
    wrong = await api.patch(
        CONFIG_MAP, {"metadata": {"managedFields": [{**entry, "operation": "x"}]}}
    )
    assert list(managed(wrong)) == ["app Apply"]
    moved = [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]
    taken = await api.patch(CONFIG_MAP, moved, JSON_PATCH)
    assert taken.json["metadata"]["managedFields"] == [entry]
    long = [{**entry, "manager": "m" * 129}]
    refused = await api.patch(CONFIG_MAP, {"metadata": {"managedFields": long}})
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (
        422,
        "metadata.managedFields[0].manager",
    )
    reset = await api.patch(CONFIG_MAP, {"metadata": {"managedFields": [{}]}})
    assert managed(reset) == {}
    assert managed(await api.patch(CONFIG_MAP, {"data": {"b": "2"}})) == {}
    first = await apply(api, CONFIG_MAP, config_map("a", {"c": "3"}))
    assert managed(first) == {
        "app Apply": {"f:data": {"f:c": {}}},
        "before-first-apply Update": {"f:data": {".": {}, "f:a": {}, "f:b": {}}},
    }


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("[]", 400, "error decoding YAML: "),
        ("a: [1", 400, "error decoding YAML: "),
        ("{}", 400, "invalid object type: /, Kind="),
        ('{"apiVersion": "v1"}', 400, "invalid object type: /v1, Kind="),
        ('{"apiVersion": 5, "kind": "ConfigMap"}', 400, "invalid object type: /, Kind=ConfigMap"),
        ('{"apiVersion": "v1", "kind": "Secret"}', 400, "invalid object type: /v1, Kind=Secret"),
    ],
)
async def test_invalid_configurations(api: ApiClient, body: str, code: int, words: str) -> None:
    """A body that cannot be parsed, or has another type, gets 400 with the reference's message."""
    reply = await apply(api, CONFIG_MAP, body.encode())
    assert (reply.status, reply.message[: len(words)]) == (code, words)


async def test_configurations_that_do_not_fit(api: ApiClient) -> None:
    """Managed fields, another name or namespace, unknown fields and duplicates are refused; nothing
    is created."""
    unfit = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): "
    cases: list[tuple[Object, str]] = [
        (config_map("a", managedFields=[]), "metadata.managedFields must be nil"),
        (config_map("b"), "the name of the object (b) does not match the name on the URL (a)"),
        (
            {"apiVersion": "v1", "kind": "ConfigMap"},
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            config_map("a", namespace="other"),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ({**config_map("a"), "datax": {}}, f"{unfit}.datax: field not declared in schema"),
        (
            config_map("a", finalizers=["a.b/c", "a.b/c"]),
            f'{unfit}.metadata.finalizers: duplicate entries for key [="a.b/c"]',
        ),
    ]
    for config, message in cases:
        reply = await apply(api, CONFIG_MAP, config)
        assert (reply.status, reply.reason, reply.message) == (400, "BadRequest", message)
    without_manager = await api.patch(CONFIG_MAP, config_map("a"), APPLY_PATCH)
    assert (without_manager.status, without_manager.json["details"]["causes"]) == (
        422,
        [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: is required for apply patch",
                "field": "fieldManager",
            }
        ],
    )
    nowhere = await apply(api, CONFIG_MAP.replace("default", "nowhere"), config_map("a"))
    assert (nowhere.status, nowhere.message) == (404, 'namespaces "nowhere" not found')
    assert (await api.get(CONFIG_MAP)).status == 404


async def test_duplicate_keys(api: ApiClient) -> None:
    """A duplicate key gets a warning, or 400 with strict field validation."""
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a: '1'\n  a: '2'\n"
    for mode, code in (("Strict", 400), ("Ignore", 201), ("Warn", 200)):
        reply = await apply(api, CONFIG_MAP, body, query=f"&fieldValidation={mode}")
        assert reply.status == code
        assert ("warning" in reply.headers) == (mode == "Warn")
    assert (await api.get(CONFIG_MAP)).json["data"] == {"a": "2"}


async def test_a_dry_run(api: ApiClient) -> None:
    """A dry run returns the result, or the conflicts, and stores nothing."""
    made = await apply(api, CONFIG_MAP, config_map("a", {"a": "1"}), query="&dryRun=All")
    assert (made.status, managed(made)) == (201, {"app Apply": {"f:data": {"f:a": {}}}})
    assert (await api.get(CONFIG_MAP)).status == 404
    stored = await api.post(CONFIG_MAPS, config_map("a", {"a": "1"}))
    refused = await apply(api, CONFIG_MAP, config_map("a", {"a": "2"}), query="&dryRun=All")
    assert refused.status == 409
    shown = await apply(api, CONFIG_MAP, config_map("a", {"b": "2"}), query="&dryRun=All")
    assert shown.json["data"] == {"a": "1", "b": "2"}
    assert (await api.get(CONFIG_MAP)).json == stored.json


@EVERY_STORE
async def test_a_rewrite_by_a_migrator(server: RunningServer) -> None:
    """A configuration of UID and resourceVersion alone changes nothing, and conflicts with another
    UID."""
    api = server.client
    made = (await apply(api, CONFIG_MAP, config_map("a", {"a": "1"}))).json["metadata"]

    def rewrite(**metadata: str) -> Object:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    known = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    reply = await apply(api, CONFIG_MAP, rewrite(**known), MIGRATOR)
    assert (reply.status, reply.json["metadata"]) == (200, made)
    await api.patch(CONFIG_MAP, {"data": {"b": "2"}})
    stale = await apply(api, CONFIG_MAP, rewrite(**known), MIGRATOR)
    assert (stale.status, stale.reason) == (409, "Conflict")
    await api.delete(CONFIG_MAP)
    gone = await apply(api, CONFIG_MAP, rewrite(**known), MIGRATOR)
    assert (gone.status, gone.reason, gone.message) == (
        409,
        "Conflict",
        (
            'Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object '
            f"specified uid {made['uid']}, and no existing object was found"
        ),
    )
    untracked = await server.put_raw(
        "/registry/configmaps/default/u",
        {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": "u", "namespace": "default", "uid": "u-1"},
            "data": {"a": "1"},
        },
    )
    known = {"uid": "u-1", "resourceVersion": str(untracked)}
    again = await apply(api, f"{CONFIG_MAPS}/u", rewrite(**known), MIGRATOR)
    assert (again.status, again.version, managed(again)) == (200, untracked, {})


async def test_the_status_has_managers_of_its_own(api: ApiClient) -> None:
    """Apply to `status` manages only the status; apply to the main resource leaves it unchanged."""
    made = await apply(api, WEB, {**web(), **DEPLOYMENT, "metadata": {"name": "web"}})
    assert "f:status" not in managed(made)["app Apply"]
    state = web(replicas=7) | {"status": {"observedGeneration": 1}}
    reply = await apply(api, f"{WEB}/status", state, "controller")
    assert reply.json["status"]["observedGeneration"] == 1
    assert managed(reply)["controller/status Apply"] == {"f:status": {"f:observedGeneration": {}}}
    state["status"] = {"observedGeneration": 2}
    refused = await apply(api, f"{WEB}/status", state, "second")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "controller" with subresource "status": '
        ".status.observedGeneration"
    )
    missing = await apply(api, f"{WEB}x/status", web() | {"metadata": {"name": "webx"}})
    assert missing.status == 404


async def test_the_scale_has_managers_of_its_own(api: ApiClient) -> None:
    """Replicas set through `scale` are managed there, and conflict with applies to the main
    resource."""
    await api.post(WEB.removesuffix("/web"), DEPLOYMENT | {"metadata": {"name": "web"}})
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3},
    }
    patched = await api.patch(f"{WEB}/scale?fieldManager=kubectl", {"spec": {"replicas": 2}})
    assert patched.json["spec"] == {"replicas": 2}
    replicas: Object = {"f:spec": {"f:replicas": {}}}
    assert managed(await api.get(WEB))["kubectl/scale Update"] == replicas
    refused = await apply(api, f"{WEB}/scale", scale)
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (
        409,
        ".spec.replicas",
    )
    forced = await apply(api, f"{WEB}/scale", scale, query="&force=true")
    assert (forced.json["kind"], forced.json["spec"]) == ("Scale", {"replicas": 3})
    found = managed(await api.get(WEB))
    assert found["app/scale Apply"] == replicas
    assert "kubectl/scale Update" not in found
    wrong = await apply(api, f"{WEB}/scale", web(replicas=3))
    assert (wrong.status, wrong.message) == (
        400,
        "invalid object type: apps/v1, Kind=Deployment",
    )


async def test_versions_of_a_kind(api: ApiClient) -> None:
    """Fields managed in one version conflict, and are kept, in another."""
    path = f"{NS.replace('/api/v1', '/apis/autoscaling/%s')}/horizontalpodautoscalers/h"
    spec: Object = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
    }

    def scaler(version: str, **more: Any) -> Object:
        return {
            "apiVersion": f"autoscaling/{version}",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h"},
            "spec": {**spec, **more},
        }

    made = await apply(api, path % "v1", scaler("v1", targetCPUUtilizationPercentage=50))
    assert made.status == 201, made.body
    refused = await apply(api, path % "v2", scaler("v2", maxReplicas=5), "second")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "app": .spec.maxReplicas'
    )
    cut = await apply(api, path % "v2", scaler("v2"))
    assert cut.status == 200
    entries = cut.json["metadata"]["managedFields"]
    assert [entry["apiVersion"] for entry in entries] == ["autoscaling/v2"]


async def test_apply_needs_create_permission(server: RunningServer) -> None:
    """A user who may patch an object but not create it cannot create it by applying."""
    jane = client_of(server)
    try:
        await give(server, "patcher", rule("patch", "configmaps"))
        refused = await apply(jane, CONFIG_MAP, config_map("a", {"a": "1"}))
        assert (refused.status, refused.reason) == (403, "Forbidden")
        assert 'cannot create resource "configmaps"' in refused.message
        await server.client.post(CONFIG_MAPS, config_map("a"))
        assert (await apply(jane, CONFIG_MAP, config_map("a", {"a": "1"}))).status == 200
    finally:
        await jane.close()


async def test_managed_fields_over_the_size_limit(api: ApiClient) -> None:
    """An object that is too large with its managed fields is stored without them, unless it is
    applied."""
    data = {f"key-{number:07}": "" for number in range(50_000)}
    made = await api.post(CONFIG_MAPS, config_map("a", data))
    assert (made.status, managed(made)) == (201, {})
    changed = await api.patch(CONFIG_MAP, {"data": {"more": "1"}})
    assert (changed.status, managed(changed)) == (200, {})
    applied = await apply(api, f"{CONFIG_MAPS}/b", config_map("b", data))
    assert (applied.status, applied.reason) == (413, "RequestEntityTooLarge")


async def test_writes_of_the_server(api: ApiClient) -> None:
    """The server's own writes have a manager name, and do not take over fields of clients."""
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin"
    found = await api.get(role)
    if found.status == 200:
        assert list(managed(found)) == ["restow Update"]
    namespace = await api.post("/api/v1/namespaces", {"metadata": {"name": "new"}})
    [fields] = managed(namespace).values()
    label: Object = {"f:kubernetes.io/metadata.name": {}}
    assert fields == {"f:metadata": {"f:labels": {".": {}, **label}}}


async def test_yaml_body_and_unknown_user(api: ApiClient) -> None:
    """YAML is parsed like JSON, and numbers keep their values."""
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: 'x'\n"
    made = await apply(api, CONFIG_MAP, body)
    assert (made.status, made.json["data"]) == (201, {"a": "x"})
    assert orjson.loads(made.body) == (await api.get(CONFIG_MAP)).json
    merged = await api.patch(CONFIG_MAP, {"data": {"a": "y"}}, MERGE_PATCH)
    assert merged.status == 200
