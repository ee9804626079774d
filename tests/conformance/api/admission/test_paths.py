"""Webhooks are called on every path that writes an object, with the correct objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from tests.conformance.api.admission.conftest import BASE, Configure
from tests.conformance.api.servers import CONFIG_MAPS, NS, config_map
from tests.support.admission_webhook import AdmissionWebhook, allow, deny, patch
from tests.support.api_client import JSON_PATCH, STRATEGIC_PATCH, ApiClient, Reply

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVERYTHING = {
    "operations": ["*"],
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*/*"],
}
Write = Callable[[ApiClient], Awaitable[Reply]]

ITEM = f"{CONFIG_MAPS}/a"
WRITES: dict[str, Write] = {
    "create": lambda api: api.post(CONFIG_MAPS, config_map("new")),
    "create with a generated name": lambda api: api.post(
        CONFIG_MAPS, {"metadata": {"generateName": "new-"}}
    ),
    "update": lambda api: api.put(ITEM, config_map("a", {"x": "2"})),
    "JSON patch": lambda api: api.patch(
        ITEM, [{"op": "add", "path": "/data/x", "value": "2"}], content_type=JSON_PATCH
    ),
    "merge patch": lambda api: api.patch(ITEM, {"data": {"x": "2"}}),
    "strategic merge patch": lambda api: api.patch(
        ITEM, {"data": {"x": "2"}}, content_type=STRATEGIC_PATCH
    ),
    "create by update": lambda api: api.put(f"{LEASES}/new", {"metadata": {"name": "new"}}),
    "status": lambda api: api.patch(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 1}}),
    "scale": lambda api: api.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 3}}),
    "delete": lambda api: api.delete(ITEM),
    "deletecollection": lambda api: api.delete(CONFIG_MAPS),
    "finalize": lambda api: api.put(
        "/api/v1/namespaces/default/finalize", {"metadata": {"name": "default"}, "spec": {}}
    ),
}


def dry(write: Write) -> Write:
    """The same write as a dry run."""

    class Dry:
        def __init__(self, api: ApiClient) -> None:
            self._api = api

        def __getattr__(self, verb: str) -> Any:
            send = getattr(self._api, verb)
            return lambda path, *rest, **more: send(f"{path}?dryRun=All", *rest, **more)

    return lambda api: write(Dry(api))  # type: ignore[arg-type]


async def plant(api: ApiClient) -> None:
    assert (await api.post(CONFIG_MAPS, config_map("a", {"x": "1"}))).status == 201
    labels = {"app": "d"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    assert (await api.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})).status == 201


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_cve_2016_1905_denied_on_every_path(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure, kind: str
) -> None:
    """A write that a webhook denies is denied on every write path, in a dry run too, and changes
    nothing."""
    await plant(api)
    before = [(await api.get(path)).json["items"] for path in (CONFIG_MAPS, DEPLOYMENTS, LEASES)]
    await configure(kind, webhook.hook(rules=[EVERYTHING]))
    webhook.respond = deny("not that", code=403, reason="Forbidden")
    for name, write in WRITES.items():
        for each in (write, dry(write)):
            reply = await each(api)
            assert (reply.status, reply.reason) == (403, "Forbidden"), name
            told = 'admission webhook "rules.example.com" denied the request: not that'
            assert reply.message == told
            # Repeated refusals are throttled.
            assert (await api.get(ITEM)).status == 200
    after = [(await api.get(path)).json["items"] for path in (CONFIG_MAPS, DEPLOYMENTS, LEASES)]
    assert after == before


async def test_cve_2021_25735_the_old_object_is_the_stored_one(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """Whatever the client or a webhook changed before, `oldObject` is the stored object: for the
    next mutating webhook, and for validating ones."""
    await plant(api)
    stored = (await api.get(ITEM)).json
    change = patch({"op": "add", "path": "/data/x", "value": "changed"})
    webhook.respond = lambda request: change(request) if "first" in last_path() else ALLOWED

    def last_path() -> str:
        return webhook.paths[-1]

    first = webhook.hook("first.example.com", clientConfig=webhook.client_config("/first"))
    await configure("Mutating", first, webhook.hook("second.example.com"))
    await configure("Validating", webhook.hook("third.example.com"))
    for name in ("update", "JSON patch", "merge patch", "strategic merge patch"):
        for write in (dry(WRITES[name]), WRITES[name]):
            webhook.forget()
            assert (await write(api)).status == 200
            assert [each["oldObject"] for each in webhook.requests] == [stored] * 3
            seen = [each["object"]["data"]["x"] for each in webhook.requests]
            assert seen == ["2", "changed", "changed"]
        stored = (await api.get(ITEM)).json
        assert stored["data"] == {"x": "changed"}
    webhook.forget()
    webhook.respond = allow
    assert (await api.delete(ITEM)).status == 200
    assert [each["oldObject"] for each in webhook.requests] == [stored] * 3
    assert [each["object"] for each in webhook.requests] == [None] * 3


ALLOWED = {"allowed": True}
GROUPS = ["system:masters", "system:authenticated"]


async def test_mutated_objects_are_stored(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """On every path; unknown fields are dropped, and defaults are set."""
    await plant(api)
    await configure("Mutating", webhook.hook(rules=[EVERYTHING]))
    webhook.respond = patch(
        {"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}},
        {"op": "add", "path": "/unknown", "value": 1},
    )
    for name in (
        "create",
        "create with a generated name",
        "update",
        "JSON patch",
        "merge patch",
        "strategic merge patch",
        "create by update",
    ):
        for write in (dry(WRITES[name]), WRITES[name]):
            reply = await write(api)
            assert reply.status in (200, 201), name
            assert reply.json["metadata"]["labels"] == {"by": "webhook"}, name
            assert "unknown" not in reply.json
            assert reply.warnings == []
    assert (await api.get(ITEM)).json["metadata"]["labels"] == {"by": "webhook"}
    webhook.respond = patch({"op": "replace", "path": "/spec/replicas", "value": 7})
    assert (await WRITES["scale"](api)).json["spec"]["replicas"] == 7
    assert (await api.get(f"{DEPLOYMENTS}/d")).json["spec"]["replicas"] == 7
    webhook.respond = patch({"op": "add", "path": "/data", "value": {"wrong": 7}})
    reply = await WRITES["update"](api)
    assert (reply.status, reply.reason) == (500, "InternalError")
    webhook.respond = patch({"op": "add", "path": "/data", "value": {"no key!": "x"}})
    assert (await WRITES["update"](api)).status == 422


async def test_fields_of_the_admission_request(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """The AdmissionRequest has kind, resource, user and options as in Kubernetes."""
    await plant(api)
    await configure("Mutating", webhook.hook(rules=[EVERYTHING]))
    await configure("Validating", webhook.hook(rules=[EVERYTHING]))
    path = f"{CONFIG_MAPS}?fieldManager=me&dryRun=All"
    assert (await api.post(path, {"metadata": {"generateName": "g-"}})).status == 201
    first, second = webhook.requests
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert first.pop("uid") != second["uid"]
    obj = first.pop("object")
    assert first == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": GROUPS},
        "oldObject": None,
        "dryRun": True,
        "options": {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "dryRun": ["All"],
            "fieldManager": "me",
        },
    }
    [entry] = obj["metadata"].pop("managedFields")
    assert (entry["manager"], entry["operation"]) == ("me", "Update")
    assert obj["metadata"] == {"generateName": "g-", "namespace": "default"}
    assert second["name"] == second["object"]["metadata"]["name"]
    assert second["object"]["metadata"]["uid"]
    assert webhook.paths == ["/review?timeout=10s"] * 2
    webhook.forget()
    assert (await WRITES["scale"](api)).status == 200
    scale = webhook.requests[0]
    assert scale["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (scale["subResource"], scale["options"]["kind"]) == ("scale", "UpdateOptions")
    assert (scale["object"]["kind"], scale["object"]["spec"]) == ("Scale", {"replicas": 3})
    assert scale["oldObject"]["spec"] == {"replicas": 1}
    webhook.forget()
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    assert (await api.delete(ITEM, body)).status == 200
    deleted = webhook.requests[0]
    assert deleted["options"]["propagationPolicy"] == "Background"
    assert (deleted["operation"], deleted["name"], deleted["object"]) == ("DELETE", "a", None)
    webhook.forget()
    assert (await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})).status == 201
    assert [each["namespace"] for each in webhook.requests] == ["n", "n"]


async def test_webhook_configurations_are_exempt(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """Otherwise a configuration that denies everything could never be removed."""
    await configure("Validating", webhook.hook(rules=[EVERYTHING]))
    await configure("Mutating", webhook.hook(rules=[EVERYTHING]))
    webhook.respond = deny("no")
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        item = f"{BASE}/{plural}/c"
        assert (await api.patch(item, {"metadata": {"labels": {"a": "b"}}})).status == 200
        assert (await api.delete(item)).status == 200
    assert webhook.requests == []
    assert (await api.post(CONFIG_MAPS, config_map("free"))).status == 201


async def test_reads_and_reviews_call_no_webhooks(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """They write nothing."""
    await plant(api)
    await configure("Validating", webhook.hook(rules=[EVERYTHING]))
    assert (await api.get(ITEM)).status == 200
    assert (await api.get(f"{NS}/configmaps")).status == 200
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await api.post(path, review)).status == 201
    assert webhook.requests == []
    assert orjson.loads((await api.get(ITEM)).body)["data"] == {"x": "1"}
