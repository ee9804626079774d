"""Webhook responses and their effects; failed webhook calls and theirs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable
from typing import Any

import pytest

from restow.admission import webhooks_transport
from tests.conformance.api.admission.conftest import Configure
from tests.conformance.api.rights import client_of, give, rule
from tests.conformance.api.servers import CONFIG_MAPS, NS, RunningServer, config_map
from tests.support.admission_webhook import AdmissionWebhook, allow, answer, deny, patch
from tests.support.api_client import JSON_PATCH, ApiClient
from tests.support.webhook_server import Raw

Object = dict[str, Any]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


REFUSALS: list[tuple[Object, int, str, str]] = [
    ({"message": "no", "code": 403, "reason": "Forbidden"}, 403, "Forbidden", ": no"),
    ({"message": "no"}, 400, "", ": no"),
    ({"reason": "Teapot", "code": 418}, 418, "Teapot", ": Teapot"),
    ({"message": "no", "code": 200, "status": "Success"}, 400, "", ": no"),
    ({}, 400, "", " without explanation"),
    ({"message": "no", "code": 9999}, 599, "", ": no"),
    ({"message": ["no"], "code": "x"}, 400, "", " without explanation"),
]


async def test_a_refusal(api: ApiClient, webhook: AdmissionWebhook, configure: Configure) -> None:
    """The client gets the webhook's status with its name; never a success."""
    await configure("Validating", webhook.hook())
    for result, status, reason, message in REFUSALS:
        webhook.respond = answer({"allowed": False, "status": result})
        reply = await api.post(CONFIG_MAPS, config_map("a"))
        assert (reply.status, reply.reason) == (status, reason), result
        told = 'admission webhook "rules.example.com" denied the request'
        assert reply.message == told + message
        assert reply.json["status"] == "Failure"


async def test_warnings_and_audit_annotations(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """Warnings reach the client as headers, whatever they contain; none can end a header line."""
    await configure("Mutating", webhook.hook())
    await configure("Validating", webhook.hook())
    webhook.respond = lambda _request: {
        "allowed": True,
        "warnings": ["mind the gap", "a\r\nSet-Cookie: x=y", 7],
        "auditAnnotations": {"a": "b", "c": 7},
    }
    reply = await api.post(CONFIG_MAPS, config_map("a"))
    assert reply.status == 201
    assert reply.warnings == ['299 - "mind the gap"', '299 - "a??Set-Cookie: x=y"']


FAILURES: dict[str, tuple[str, Object | Raw]] = {
    "no JSON": ("Validating", Raw(b"{")),
    "no object": ("Validating", Raw(b"[]")),
    "no response": ("Validating", Raw(b"{}")),
    "another uid": ("Validating", {"allowed": True, "uid": "x"}),
    "another kind": ("Validating", Raw(b'{"response":{"uid":"x","allowed":true}}')),
    "a patch of a validating one": ("Validating", {"allowed": True, "patch": encoded("[]")}),
    "a type of a patch that is none": ("Validating", {"allowed": True, "patchType": "JSONPatch"}),
    "a patch without a type": ("Mutating", {"allowed": True, "patch": encoded("[]")}),
    "a type without a patch": ("Mutating", {"allowed": True, "patchType": "JSONPatch"}),
    "another type of patch": (
        "Mutating",
        {"allowed": True, "patch": encoded("{}"), "patchType": "Merge"},
    ),
    "no base64": ("Mutating", {"allowed": True, "patch": "%%%", "patchType": "JSONPatch"}),
    "no patch": ("Mutating", {"allowed": True, "patch": encoded("{}"), "patchType": "JSONPatch"}),
    "too long a patch": (
        "Mutating",
        {
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": encoded("[" + ",".join(['{"op":"remove","path":"/x"}'] * 10_001) + "]"),
        },
    ),
    "an error": ("Validating", Raw(b"secret text", "500 Internal Server Error")),
    "nothing there": ("Validating", Raw(b"secret text", "404 Not Found")),
    "compressed": ("Validating", Raw(b"x", headers=(("Content-Encoding", "gzip"),))),
}


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_a_webhook_that_fails(
    api: ApiClient,
    webhook: AdmissionWebhook,
    configure: Configure,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    """The write is refused with 500, or the webhook is ignored, by its failurePolicy. The
    response body of the webhook is neither returned nor logged."""
    await configure(kind, webhook.hook())
    for policy in ("Fail", "Ignore"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}webhookconfigurations/c"
        change = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy}]
        assert (await api.patch(path, change, JSON_PATCH)).status == 200
        for name, (of_kind, said) in FAILURES.items():
            if of_kind != kind:
                continue
            webhook.respond = answer(said)
            reply = await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("a"))
            if policy == "Ignore":
                assert reply.status == 201, name
                continue
            assert (reply.status, reply.reason) == (500, "InternalError"), name
            told = 'Internal error occurred: failed calling webhook "rules.example.com": '
            assert reply.message.startswith(told)
            assert "secret text" not in reply.message + caplog.text


async def test_webhook_calls_over_the_limit_wait(
    server: RunningServer,
    webhook: AdmissionWebhook,
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writes beyond the limit of concurrent calls wait for a slot: a webhook with failurePolicy
    Ignore that denies everything still denies each of them."""
    monkeypatch.setattr(webhooks_transport, "CALLS_MAX", 2)
    await give(server, "maps", rule("*", "configmaps"))
    await configure("Validating", webhook.hook(failurePolicy="Ignore"))
    webhook.respond = deny("no")
    clients = [client_of(server) for _ in range(10)]
    replies = await asyncio.gather(*(each.post(CONFIG_MAPS, config_map("a")) for each in clients))
    assert [reply.status for reply in replies] == [400] * len(clients)
    for each in clients:
        await each.close()


async def test_cve_2020_8561_no_redirect_is_followed(
    api: ApiClient,
    webhook: AdmissionWebhook,
    configure: Configure,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wherever the redirect leads, even back to the webhook itself: the call failed."""
    url = webhook.client_config("/elsewhere")["url"]
    await configure("Validating", webhook.hook())
    for code in (301, 302, 303, 307, 308):
        elsewhere = Raw(b"secret text", f"{code} Elsewhere", (("Location", url),))
        webhook.respond = answer(elsewhere)
        webhook.forget()
        reply = await api.post(CONFIG_MAPS, config_map("a"))
        assert (reply.status, reply.reason) == (500, "InternalError")
        assert f"the server responded with the status code {code}" in reply.message
        assert webhook.paths == ["/review?timeout=10s"]
    assert "secret text" not in caplog.text


async def test_unreachable_webhooks(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """A webhook that refuses connections, or has another certificate, fails; a Service that
    resolves to this machine is refused."""
    other = webhook.client_config() | {"caBundle": encoded("no certificate")}
    service = {"namespace": "default", "name": "hook", "port": webhook.port}
    place = {"metadata": {"name": "hook"}, "subsets": [subset(webhook.port)]}
    assert (await api.post(f"{NS}/services", service_object(webhook.port))).status == 201
    assert (await api.post(f"{NS}/endpoints", place)).status == 201
    by_service = {"service": service, "caBundle": webhook.client_config()["caBundle"]}
    plain = {"url": webhook.client_config()["url"]}
    for index, (client, told) in enumerate(
        (
            (other, "could not get REST client"),
            (by_service, "not permitted for a backend"),
            (plain, "certificate"),
        )
    ):
        await configure(
            "Validating", webhook.hook(clientConfig=client, failurePolicy="Fail"), name=f"c{index}"
        )
        reply = await api.post(CONFIG_MAPS, config_map("a"))
        assert reply.status == 500
        assert told in reply.message
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        assert (await api.delete(f"{path}/c{index}")).status == 200
    await webhook.stop()
    await configure("Validating", webhook.hook(failurePolicy="Ignore"))
    assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201


def subset(port: int) -> Object:
    return {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": port}]}


def service_object(port: int) -> Object:
    return {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": port}]}}


RENAMING: list[tuple[Object, str]] = [
    ({"op": "replace", "path": "/metadata/name", "value": "b"}, "metadata.name"),
    ({"op": "replace", "path": "/metadata/namespace", "value": "b"}, "metadata.namespace"),
    ({"op": "add", "path": "/metadata/uid", "value": "b"}, "metadata.uid"),
    ({"op": "replace", "path": "/kind", "value": "Secret"}, "kind"),
    ({"op": "remove", "path": "/metadata"}, "metadata.name"),
]
UNFIT: list[Object] = [
    {"op": "remove", "path": "/nowhere"},
    {"op": "replace", "path": "", "value": []},
    {"op": "add", "path": "/metadata/labels", "value": {"a": 1}},
]


async def test_a_patch_that_makes_another_object(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """It is refused whatever the failurePolicy, as is one that does not apply; the message names
    the webhook."""
    await configure("Mutating", webhook.hook(failurePolicy="Ignore"))
    told = 'admission webhook "rules.example.com"'
    for operation, path in RENAMING:
        webhook.respond = patch(operation)
        reply = await api.post(CONFIG_MAPS, config_map("a"))
        assert (reply.status, reply.reason) == (500, "InternalError")
        assert f"{told} attempted to change {path}" in reply.message
    for operation in UNFIT:
        webhook.respond = patch(operation)
        reply = await api.post(CONFIG_MAPS, config_map("a"))
        assert (reply.status, reply.reason) == (500, "InternalError")
        assert told in reply.message


async def test_a_patch_of_a_deleted_object(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """A patch of the object of a delete is refused."""
    assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
    await configure("Mutating", webhook.hook())
    webhook.respond = patch({"op": "add", "path": "/data", "value": {}})
    reply = await api.delete(f"{CONFIG_MAPS}/a")
    assert reply.status == 500
    assert "attempted to modify the object, which is not supported" in reply.message
    webhook.respond = allow
    assert (await api.delete(f"{CONFIG_MAPS}/a")).status == 200


async def test_a_webhook_may_set_a_name_instead_of_generate_name(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """The name is not generated yet when the webhook is called."""
    await configure("Mutating", webhook.hook())
    webhook.respond = patch({"op": "add", "path": "/metadata/name", "value": "given"})
    made = await api.post(CONFIG_MAPS, {"metadata": {"generateName": "g-"}})
    assert (made.status, made.json["metadata"]["name"]) == (201, "given")


async def test_dry_runs_and_side_effects(
    server: RunningServer, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """A dry run does not call a stored webhook that may have side effects, and fails instead."""
    api = server.client
    await configure("Validating", webhook.hook(sideEffects="NoneOnDryRun"))
    assert (await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("a"))).status == 201
    assert webhook.requests[-1]["dryRun"] is True
    key = "/registry/validatingwebhookconfigurations/c"
    stored = await server.raw(key)
    stored["webhooks"][0] |= {"sideEffects": "Some", "failurePolicy": "Ignore"}
    await server.put_raw(key, stored)
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/c"
    assert (await api.get(path)).json["webhooks"][0]["sideEffects"] == "Some"
    webhook.forget()
    reply = await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("a"))
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == 'admission webhook "rules.example.com" does not support dry run'
    assert webhook.requests == []
    assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
    assert len(webhook.requests) == 1


async def test_a_hanging_webhook_delays_no_other_requests(
    server: RunningServer, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """Other kinds are written, and all kinds are read, while a write waits for the webhook."""
    api, other = server.client, ApiClient(server.port, token="masters-token")
    release = asyncio.Event()

    async def wait() -> Object:
        await release.wait()
        return {"allowed": True}

    def respond(_request: Object) -> Awaitable[Object | Raw]:
        return wait()

    webhook.respond = respond
    await configure("Validating", webhook.hook())
    waiting = asyncio.ensure_future(api.post(CONFIG_MAPS, config_map("a")))
    try:
        while not webhook.requests:  # noqa: ASYNC110 - the webhook has no event to wait for
            await asyncio.sleep(0.001)
        assert (await other.post(f"{NS}/secrets", {"metadata": {"name": "s"}})).status == 201
        assert (await other.get(f"{CONFIG_MAPS}/a")).status == 404
        assert not waiting.done()
        release.set()
        assert (await waiting).status == 201
    finally:
        release.set()
        await waiting
        await other.close()


async def test_the_deadline_of_the_request(
    api: ApiClient, webhook: AdmissionWebhook, configure: Configure
) -> None:
    """A webhook call never outlasts the client's timeout; its `timeout` is the time remaining."""
    release = asyncio.Event()

    async def wait() -> Object:
        await release.wait()
        return {"allowed": True}

    webhook.respond = lambda _request: wait()
    await configure("Validating", webhook.hook())
    reply = await api.post(f"{CONFIG_MAPS}?timeout=100ms", config_map("a"))
    assert reply.status in (500, 504)
    assert webhook.paths == ["/review?timeout=1s"]
    release.set()
    assert (await api.get(f"{CONFIG_MAPS}/a")).status == 404


async def test_metrics(api: ApiClient, webhook: AdmissionWebhook, configure: Configure) -> None:
    """Webhook calls are counted in the metrics of Kubernetes, with their names."""
    await configure("Validating", webhook.hook())
    assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
    webhook.respond = deny("no", code=403)
    assert (await api.post(CONFIG_MAPS, config_map("b"))).status == 403
    text = (await api.get("/metrics")).body.decode()
    labels = 'name="rules.example.com",operation="CREATE"'
    assert _value(text, "apiserver_admission_webhook_request_total", labels, 'code="200"') == 1
    rejected = "apiserver_admission_webhook_rejection_count"
    assert _value(text, rejected, labels, 'rejection_code="403"', 'error_type="no_error"') == 1
    count = "apiserver_admission_webhook_admission_duration_seconds_count"
    assert _value(text, count, labels, 'rejected="true"') == 1


def _value(text: str, name: str, *labels: str) -> float:
    wanted = {label for each in labels for label in each.split(",")}
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            found = set(line.partition("{")[2].partition("}")[0].split(","))
            if wanted <= found:
                return float(line.rpartition(" ")[2])
    raise AssertionError(name)
