"""Webhook matching: which writes call a webhook, in which version and order, and how often."""

from __future__ import annotations

from typing import Any

from tests.conformance.api.admission.conftest import Configure
from tests.conformance.api.servers import CONFIG_MAPS, NS, config_map
from tests.support.admission_webhook import AdmissionWebhook, allow, deny, patch
from tests.support.api_client import ApiClient

Object = dict[str, Any]
WIDGETS = "/apis/example.com/{}/namespaces/default/widgets"


def rule(*resources: str, **changes: Any) -> Object:
    return {
        "operations": ["*"],
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": list(resources),
        **changes,
    }


async def test_rules_and_selectors(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """Operations, groups, resources, scope, namespace and object labels, labels of the old
    object too."""
    selected = {"matchLabels": {"watched": "yes"}}
    hooks = {
        "creates": [rule("configmaps", operations=["CREATE"])],
        "status": [rule("*/status")],
        "plain": [rule("*", apiGroups=[""])],
        "cluster": [rule("*", scope="Cluster")],
        "namespaced": [rule("*", scope="Namespaced")],
        "other": [rule("secrets"), rule("configmaps", apiGroups=["apps"])],
    }
    await configure(
        "Validating",
        *(
            webhook.hook(f"{name}.a.b", rules=rules, clientConfig=webhook.client_config(f"/{name}"))
            for name, rules in hooks.items()
        ),
        *(
            webhook.hook(
                f"{name.lower()}.a.b",
                rules=[rule("configmaps", "namespaces")],
                clientConfig=webhook.client_config(f"/{name}"),
                **{name: selected},
            )
            for name in ("namespaceSelector", "objectSelector")
        ),
    )

    async def is_called() -> set[str]:
        found = {path.partition("?")[0][1:] for path in webhook.paths}
        webhook.forget()
        return found

    assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
    assert await is_called() == {"creates", "plain", "namespaced"}
    change = {"metadata": {"labels": {"watched": "yes"}}}
    assert (await api.patch(f"{CONFIG_MAPS}/a", change)).status == 200
    assert await is_called() == {"plain", "namespaced", "objectSelector"}
    assert (await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": None}})).status == 200
    assert await is_called() == {"plain", "namespaced", "objectSelector"}
    assert (await api.patch("/api/v1/namespaces/default", change)).status == 200
    assert await is_called() == {"plain", "cluster", "namespaceSelector", "objectSelector"}
    assert (await api.delete(f"{CONFIG_MAPS}/a")).status == 200
    assert await is_called() == {"plain", "namespaced", "namespaceSelector"}
    status = {"status": {"phase": "Active"}}
    assert (await api.patch("/api/v1/namespaces/default/status", status)).status == 200
    assert await is_called() == {"status"}


async def test_match_conditions(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """A false condition skips the webhook; one that cannot be evaluated is a failure."""
    conditions = [
        {"name": "not-mine", "expression": "request.userInfo.username != 'nobody'"},
        {"name": "watched", "expression": "object.data.x == '1'"},
    ]
    await configure("Validating", webhook.hook(matchConditions=conditions))
    webhook.respond = deny("no", code=403)
    assert (await api.post(CONFIG_MAPS, config_map("a", {"x": "2"}))).status == 201
    assert (await api.post(CONFIG_MAPS, config_map("b", {"x": "1"}))).status == 403
    reply = await api.post(CONFIG_MAPS, config_map("c", {"y": "1"}))
    assert (reply.status, reply.reason, len(webhook.requests)) == (403, "Forbidden", 1)
    assert "no such key: x" in reply.message
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/c"
    ignore = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    assert (await api.patch(path, ignore, "application/json-patch+json")).status == 200
    assert (await api.post(CONFIG_MAPS, config_map("c", {"y": "1"}))).status == 201


async def test_equivalent_versions(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """With matchPolicy Equivalent, a webhook for one version of a kind is called for the others
    in that version, and its changes are converted back. With Exact, it is not called."""
    rules = [rule("widgets", apiVersions=["v1"])]
    await configure(
        "Mutating",
        webhook.hook("exact.a.b", rules=rules, matchPolicy="Exact"),
        webhook.hook("same.a.b", rules=rules, clientConfig=webhook.client_config("/same")),
    )
    change = patch({"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}})
    webhook.respond = change
    made = await api.post(WIDGETS.format("v2"), {"metadata": {"name": "w"}, "spec": {}})
    assert made.status == 201
    assert (made.json["apiVersion"], made.json["metadata"]["labels"]) == (
        "example.com/v2",
        {"by": "webhook"},
    )
    [is_called] = webhook.requests
    assert webhook.paths == ["/same?timeout=10s"]
    assert (is_called["kind"]["version"], is_called["requestKind"]["version"]) == ("v1", "v2")
    assert (is_called["resource"]["version"], is_called["object"]["apiVersion"]) == (
        "v1",
        "example.com/v1",
    )
    webhook.forget()
    body = {"metadata": {"name": "x"}, "spec": {}}
    assert (await api.post(WIDGETS.format("v1"), body)).status == 201
    assert len(webhook.requests) == 2


async def test_mutating_webhooks_in_order_and_reinvocation(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """In the order of their configurations' names; one with reinvocationPolicy IfNeeded is
    called once more if a later webhook changed the object, the last one that changed it is not."""

    def respond(request: Object) -> Any:
        name = webhook.paths[-1].partition("?")[0][1:]
        if name == "a":
            return allow(request)
        value = f"{request['object'].get('data', {}).get('x', '')}{name}"
        return patch({"op": "add", "path": "/data", "value": {"x": value}})(request)

    webhook.respond = respond
    for name in ("c", "a", "b"):
        hook = webhook.hook(
            f"{name}.a.b",
            clientConfig=webhook.client_config(f"/{name}"),
            reinvocationPolicy="Never" if name == "b" else "IfNeeded",
        )
        await configure("Mutating", hook, name=name)
    made = await api.post(CONFIG_MAPS, {"metadata": {"name": "m"}})
    assert made.json["data"] == {"x": "bc"}
    assert [path[1] for path in webhook.paths] == ["a", "b", "c", "a"]


async def test_validating_webhooks_see_the_last_state(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """All of them review the object as it would be stored; the first refusal in order is
    returned."""
    await configure("Validating", *(webhook.hook(f"{name}.a.b") for name in ("y", "x", "z")))
    webhook.respond = deny("no", code=403)
    reply = await api.post(CONFIG_MAPS, config_map("a"))
    assert reply.message == 'admission webhook "y.a.b" denied the request: no'
    assert len(webhook.requests) == 3
    assert len({request["uid"] for request in webhook.requests}) == 3


async def test_configurations_come_and_go(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """A changed configuration applies to the next write; a webhook that no configuration names
    is not called."""
    webhook.respond = deny("no", code=403)
    assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
    await configure("Validating", webhook.hook())
    assert (await api.post(CONFIG_MAPS, config_map("b"))).status == 403
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/c"
    assert (await api.delete(path)).status == 200
    assert (await api.post(CONFIG_MAPS, config_map("b"))).status == 201
    assert (await api.get(f"{NS}/configmaps/b")).status == 200
