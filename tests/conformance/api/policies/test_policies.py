"""ValidatingAdmissionPolicies over HTTP: tables of policies and writes, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from restow.request.context import Context
from restow.request.offload import Offload
from tests.conformance.api.policies.cases import (
    BINDINGS,
    GROUP,
    MAPS,
    OUTCOMES,
    PARAMS,
    POLICIES,
    RIGHTS,
    WRITES,
    Case,
    Step,
    config_map,
    must,
    policy,
    rule,
    x,
)
from tests.conformance.api.rights import client_of, give
from tests.conformance.api.rights import rule as right
from tests.conformance.api.servers import RunningServer
from tests.support.api_client import MERGE_PATCH, ApiClient, Reply

WAIT_SECONDS = 10.0

pytestmark = pytest.mark.parametrize("driver", ["memory"], indirect=True)


async def set_up(server: RunningServer, name: str, case: Case) -> None:
    """Creates a namespace, a policy, and a binding limited to that namespace."""
    api = server.client
    labels = {"case": name}
    place = {"metadata": {"name": name, "labels": labels}}
    assert (await api.post("/api/v1/namespaces", place)).status == 201
    made = await api.post(POLICIES, {"metadata": {"name": f"{name}-p"}, "spec": case.policy})
    assert (made.status, made.warnings) == (201, []), made.body
    spec = {
        "policyName": f"{name}-p",
        "validationActions": case.actions,
        "matchResources": {"namespaceSelector": {"matchLabels": labels}},
        **case.binding,
    }
    made = await api.post(BINDINGS, {"metadata": {"name": f"{name}-b"}, "spec": spec})
    assert (made.status, made.warnings) == (201, []), made.body


async def bind(server: RunningServer, spec: dict[str, Any], **binding: Any) -> None:
    """Creates a policy that applies everywhere."""
    made = await server.client.post(POLICIES, {"metadata": {"name": "p"}, "spec": spec})
    assert made.status == 201, made.body
    bound = {"policyName": "p", "validationActions": ["Deny"], **binding}
    made = await server.client.post(BINDINGS, {"metadata": {"name": "b"}, "spec": bound})
    assert made.status == 201, made.body
    await server.assembly.admission.freshen()


async def send(api: ApiClient, step: Step, namespace: str) -> Reply:
    target = step.target.replace("{ns}", namespace)
    return await api.request(step.method, target, step.body, content_type=step.content_type)


def check(name: str, case: Case, step: Step, reply: Reply) -> None:
    assert reply.status == step.status, (name, step, reply.body)
    if not step.message:
        return
    bound = "" if case.is_policy_named_alone else f" with binding '{name}-b'"
    why = f"ValidatingAdmissionPolicy '{name}-p'{bound} denied request: {step.message}"
    assert reply.message.endswith(f" is forbidden: {why}"), (name, step, reply.message)
    reason = {403: "Forbidden", 413: "RequestEntityTooLarge"}.get(step.status, "Invalid")
    assert reply.reason == reason
    assert reply.json["details"]["causes"] == [{"message": why}]


@pytest.mark.parametrize("table", [OUTCOMES, WRITES, PARAMS, RIGHTS])
async def test_tables(server: RunningServer, table: dict[str, Case]) -> None:
    """Each write gets the reference's answer, with the exact message."""
    await give(server, "maps", right("*", "configmaps"))
    for name, case in table.items():
        await set_up(server, name, case)
    await server.assembly.admission.freshen()
    jane = client_of(server)
    for name, case in table.items():
        for step in case.steps:
            await server.client.get(MAPS.replace("{ns}", name))  # parameters are cached from now on
            reply = await send(jane if step.is_jane else server.client, step, name)
            check(name, case, step, reply)
    await jane.close()


async def test_warnings(server: RunningServer) -> None:
    """A binding with action Warn allows the write, with a warning."""
    spec = policy(must("object.data.x == 'ok'", message="not ok"))
    await bind(server, spec, validationActions=["Warn"])
    maps = MAPS.replace("{ns}", "default")
    reply = await server.client.post(maps, x("no"))
    assert reply.status == 201
    told = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': not ok"
    assert reply.warnings == [f'299 - "{told}"']
    assert (await server.client.post(maps, config_map("b", x="ok"))).warnings == []


async def test_generated_names_and_new_policies(server: RunningServer) -> None:
    """A generated name is visible; a removed or changed policy no longer applies."""
    spec = policy(must("false", message="never"))
    await bind(server, spec)
    maps = MAPS.replace("{ns}", "default")
    reply = await server.client.post(maps, {"metadata": {"generateName": "gen-"}})
    assert (reply.status, reply.json["details"]["name"][:4]) == (422, "gen-")
    changed = {"spec": {"validations": [must("true")]}}
    reply = await server.client.patch(f"{POLICIES}/p", changed, content_type=MERGE_PATCH)
    assert (reply.status, reply.json["metadata"]["generation"]) == (200, 2)
    await server.assembly.admission.freshen()
    assert (await server.client.post(maps, x("a"))).status == 201
    changed = {"spec": {"validations": [must("false")]}}
    await server.client.patch(f"{POLICIES}/p", changed, content_type=MERGE_PATCH)
    await server.assembly.admission.freshen()
    assert (await server.client.delete(f"{maps}/a")).status == 200  # the policy matches creates
    assert (await server.client.post(maps, x("a"))).status == 422
    assert (await server.client.delete(f"{BINDINGS}/b")).status == 200
    await server.assembly.admission.freshen()
    assert (await server.client.post(maps, x("a"))).status == 201


async def test_policies_can_always_be_deleted(server: RunningServer) -> None:
    """A policy that denies everything does not prevent its own deletion."""
    everything = rule(apiGroups=["*"], apiVersions=["*"], operations=["*"], resources=["*/*"])
    await bind(server, policy(must("false"), rules=[everything]))
    refused = await server.client.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    assert refused.status == 422
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    asked = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    assert (await server.client.post(review, asked)).status == 201
    changed = {"metadata": {"labels": {"a": "b"}}}
    target = f"{POLICIES}/p"
    reply = await server.client.patch(target, changed, content_type=MERGE_PATCH)
    assert reply.status == 200
    assert (await server.client.delete(target)).status == 200
    await server.assembly.admission.freshen()
    made = await server.client.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    assert made.status == 201


async def test_namespaces_are_selected_by_their_new_labels(
    server: RunningServer,
) -> None:
    """A namespace that is created or changed is matched with its new labels, as a cluster-scoped
    object."""
    spec = policy(
        must("!('bad' in object.metadata.labels)", message="bad label"),
        must("namespaceObject == null", message="has a namespace"),
        rules=[rule(resources=["namespaces"])],
    )
    selector = {"namespaceSelector": {"matchLabels": {"case": "ns"}}}
    await bind(server, spec, matchResources=selector)
    for labels, status in (
        ({"case": "ns", "bad": "1"}, 422),
        ({"case": "ns"}, 201),
        ({"bad": "ns"}, 201),
    ):
        body = {"metadata": {"name": "other", "labels": labels}}
        reply = await server.client.post("/api/v1/namespaces?dryRun=All", body)
        assert reply.status == status, reply.body


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
async def test_a_policy_that_was_not_validated(server: RunningServer, failure_policy: str) -> None:
    """An invalid policy written into the store directly causes no 500: its failurePolicy
    applies."""
    spec = policy(must("object.x +"), must("1"), failurePolicy=failure_policy)
    spec["variables"] = [{"name": "v", "expression": "variables.v"}]
    stored = {
        "kind": "ValidatingAdmissionPolicy",
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "p", "uid": "u", "generation": 1},
        "spec": spec,
    }
    await server.put_raw("/registry/validatingadmissionpolicies/p", stored)
    bound = {"policyName": "p", "validationActions": ["Deny"]}
    made = await server.client.post(BINDINGS, {"metadata": {"name": "b"}, "spec": bound})
    assert made.status == 201
    await server.assembly.admission.freshen()
    reply = await server.client.post(MAPS.replace("{ns}", "default"), x("a"))
    assert reply.status == (201 if failure_policy == "Ignore" else 422)
    if failure_policy == "Fail":
        assert "denied request: compilation error: compilation failed: ERROR" in reply.message


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
async def test_errors_in_an_expression(server: RunningServer, failure_policy: str) -> None:
    """As docs/how-to/admission.md describes: an expression that does not compile is refused on
    write; a missing field is found when an object is evaluated."""
    for wrong in ("object.data.x ==", "request.nonsense == 'a'", "nonsense == 'a'", "1"):
        spec = policy(must(wrong), failurePolicy=failure_policy)
        reply = await server.client.post(POLICIES, {"metadata": {"name": "p"}, "spec": spec})
        assert reply.status == 422, (wrong, reply.body)
        assert "spec.validations[0].expression" in reply.message
    await bind(server, policy(must("object.spce.x == 'a'"), failurePolicy=failure_policy))
    reply = await server.client.post(MAPS.replace("{ns}", "default"), x("a"))
    assert reply.status == (201 if failure_policy == "Ignore" else 422), reply.body
    if failure_policy == "Fail":
        assert "expression 'object.spce.x == 'a'' resulted in error: no such key: spce" in (
            reply.message
        )


async def test_parameters_need_the_right_to_read_them(server: RunningServer) -> None:
    """A user without read permission on Secrets cannot use them as parameters; system:masters
    may."""
    await give(
        server,
        "policies",
        right("*", "validatingadmissionpolicies", "admissionregistration.k8s.io"),
        right("*", "validatingadmissionpolicybindings", "admissionregistration.k8s.io"),
    )
    jane = client_of(server)
    secrets = {"apiVersion": "v1", "kind": "Secret"}
    body = {"metadata": {"name": "p"}, "spec": policy(must("true"), paramKind=secrets)}
    reply = await jane.post(POLICIES, body)
    assert (reply.status, reply.json["details"]["causes"][0]["field"]) == (422, "spec.paramKind")
    assert 'must have "get" permission on all objects of the referenced paramKind' in reply.message
    assert (await server.client.post(POLICIES, body)).status == 201
    bound = {
        "policyName": "p",
        "validationActions": ["Deny"],
        "paramRef": {"name": "s", "namespace": "default", "parameterNotFoundAction": "Deny"},
    }
    binding = {"metadata": {"name": "b"}, "spec": bound}
    reply = await jane.post(BINDINGS, binding)
    assert (reply.status, reply.json["details"]["causes"][0]["field"]) == (422, "spec.paramRef")
    await give(server, "secrets", right("get", "secrets", names="s"), namespace="default")
    assert (await jane.post(BINDINGS, binding)).status == 201
    await jane.close()


async def test_expensive_expressions_do_not_block_other_requests(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expensive expressions, also in variables, messages and match conditions of webhooks, are
    evaluated off the event loop: they delay only their own write."""
    begun: asyncio.Queue[str] = asyncio.Queue()
    go_on: asyncio.Queue[None] = asyncio.Queue()
    run = Offload.run

    async def held(self: Offload, context: Context, work: Callable[[], Any]) -> Any:
        begun.put_nowait(context.user.name)
        await go_on.get()
        return await run(self, context, work)

    monkeypatch.setattr(Offload, "run", held)
    expensive = "object.data.all(a, object.data.all(b, object.data.all(c, 'x' != a + b + c)))"
    spec = policy(
        must("!variables.expensive", messageExpression=f"{expensive} ? 'expensive' : 'cheap'"),
        variables=[{"name": "expensive", "expression": expensive}],
    )
    await bind(server, spec)
    hook = {
        "name": "rules.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/never"},
        "rules": [rule()],
        "matchConditions": [{"name": "expensive", "expression": f"!({expensive})"}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body: dict[str, Any] = {"metadata": {"name": "c"}, "webhooks": [hook]}
    assert (await server.client.post(f"{GROUP}/mutatingwebhookconfigurations", body)).status == 201
    await give(server, "maps", right("*", "configmaps"))
    maps = MAPS.replace("{ns}", "default")
    jane = client_of(server)
    body = {"metadata": {"name": "a"}, "data": {f"key-{number}": "" for number in range(12)}}
    write = asyncio.ensure_future(jane.post(maps, body))
    for _ in range(3):  # match condition of the webhook, variable, message
        assert await asyncio.wait_for(begun.get(), WAIT_SECONDS) == "jane"
        assert (await server.client.get(maps)).status == 200
        assert not write.done()
        go_on.put_nowait(None)
    reply = await write
    await jane.close()
    assert reply.status == 422
    assert reply.message.endswith("denied request: expensive")
