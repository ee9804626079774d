"""Access reviews: the authorizer's decisions and their reasons."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api.rights import (
    JANE,
    RBAC,
    at,
    binding,
    client_of,
    freshen,
    give,
    place,
    rule,
)
from tests.conformance.api.servers import RunningServer
from tests.support.api_client import ApiClient

ROOT = "/apis/authorization.k8s.io/v1"
PODS = {"verb": "get", "resource": "pods", "namespace": "default"}


async def status_of(client: ApiClient, plural: str, spec: Any, namespace: str = "") -> Any:
    where = f"{ROOT}/namespaces/{namespace}" if namespace else ROOT
    reply = await client.post(f"{where}/{plural}", {"spec": spec})
    assert reply.status == 201, reply.body
    return reply.json["status"]


async def test_reasons(server: RunningServer) -> None:
    """The answer names the binding that allows it, or the error in the roles."""
    await give(server, "reader", rule("get", "pods", names="a"), namespace="default")
    jane, admin = client_of(server), server.client
    about_a = {"resourceAttributes": {**PODS, "name": "a"}}
    found = await status_of(jane, "selfsubjectaccessreviews", about_a)
    assert found == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "reader/default" of Role "reader" to User "jane"',
    }
    assert await status_of(jane, "selfsubjectaccessreviews", {"resourceAttributes": PODS}) == {
        "allowed": False
    }
    path = {"nonResourceAttributes": {"path": "/apis", "verb": "get"}}
    assert await status_of(jane, "selfsubjectaccessreviews", path) == {
        "allowed": True,
        "reason": 'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole'
        ' "system:discovery" to Group "system:authenticated"',
    }
    assert await status_of(admin, "selfsubjectaccessreviews", path) == {"allowed": True}
    other = {**about_a, "user": "jane"}
    assert (await status_of(admin, "subjectaccessreviews", other))["allowed"] is True
    assert await status_of(admin, "subjectaccessreviews", {**about_a, "user": "bob"}) == {
        "allowed": False
    }
    masters = {**about_a, "groups": ["system:masters"]}
    assert (await status_of(admin, "subjectaccessreviews", masters))["allowed"] is True
    assert (await status_of(admin, "localsubjectaccessreviews", other, "default"))["allowed"]
    for plural in ("subjectaccessreviews", "namespaces/default/localsubjectaccessreviews"):
        assert (await jane.post(f"{ROOT}/{plural}", {"spec": other})).status == 403
    dangling = binding("dangling", "none", JANE)
    await admin.post(place("clusterrolebindings"), dangling)
    await freshen(server)
    assert await status_of(jane, "selfsubjectaccessreviews", {"resourceAttributes": PODS}) == {
        "allowed": False,
        "reason": f'RBAC: clusterrole.{RBAC} "none" not found',
    }
    await jane.close()


async def test_accounts(server: RunningServer) -> None:
    """A service account is authorized under its username."""
    account = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    await give(server, "reader", rule("get", "pods"), namespace="default")
    bound = binding("robots", "reader", account, kind="Role")
    await server.client.post(place("rolebindings", "default"), bound)
    await freshen(server)
    for name, allowed in (("default:robot", True), ("other:robot", False), ("robot", False)):
        spec = {"user": f"system:serviceaccount:{name}", "resourceAttributes": PODS}
        found = await status_of(server.client, "subjectaccessreviews", spec)
        assert found["allowed"] is allowed, name
    spec = {"user": "system:serviceaccount:default:robot", "resourceAttributes": PODS}
    found = await status_of(server.client, "subjectaccessreviews", spec)
    assert found["reason"].endswith('of Role "reader" to ServiceAccount "robot/default"')


@pytest.mark.parametrize(
    ("plural", "body", "said"),
    [
        (
            "selfsubjectaccessreviews",
            {"spec": {}},
            (
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes"
                " or resourceAttributes must be specified"
            ),
        ),
        (
            "subjectaccessreviews",
            {
                "spec": {
                    "user": "a",
                    "resourceAttributes": PODS,
                    "nonResourceAttributes": {"path": "/x", "verb": "get"},
                }
            },
            (
                'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be'
                " specified in combination with resourceAttributes"
            ),
        ),
        (
            "subjectaccessreviews",
            {"spec": {"resourceAttributes": PODS}},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
        (
            "subjectaccessreviews",
            {"metadata": {"name": "x"}, "spec": {"user": "a", "resourceAttributes": PODS}},
            'metadata: Invalid value: {"name":"x"}: must be empty',
        ),
        (
            "namespaces/other/localsubjectaccessreviews",
            {"spec": {"user": "a", "resourceAttributes": PODS}},
            (
                'spec.resourceAttributes.namespace: Invalid value: "default": must match'
                " metadata.namespace"
            ),
        ),
        (
            "namespaces/other/localsubjectaccessreviews",
            {"spec": {"user": "a", "nonResourceAttributes": {"path": "/x", "verb": "get"}}},
            (
                'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed'
                " on this kind of request"
            ),
        ),
        (
            "selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": {**PODS, "labelSelector": {}}}},
            (
                "spec.resourceAttributes.labelSelector.requirements: Required value: when"
                " spec.resourceAttributes.labelSelector is specified, requirements or rawSelector"
                " is required"
            ),
        ),
    ],
)
async def test_invalid_reviews(
    server: RunningServer, plural: str, body: dict[str, Any], said: str
) -> None:
    """422, with the reason."""
    reply = await server.client.post(f"{ROOT}/{plural}", body)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.message.endswith(f'"" is invalid: {said}')


async def test_the_namespace_of_a_review(server: RunningServer) -> None:
    """A review in a namespace cannot name another one."""
    body = {"metadata": {"namespace": "x"}, "spec": {"user": "a", "resourceAttributes": PODS}}
    reply = await server.client.post(f"{ROOT}/namespaces/default/localsubjectaccessreviews", body)
    assert (reply.status, reply.reason) == (400, "BadRequest")


async def test_selectors(server: RunningServer) -> None:
    """Selectors are accepted, parse errors are reported; RBAC ignores them."""
    labels = {"requirements": [{"key": "a", "operator": "Foo", "values": ["x"]}]}
    both = {"requirements": [*labels["requirements"], {"key": "b", "operator": "Exists"}]}
    good = {"rawSelector": "metadata.name=x"}
    at_all = "spec.resourceAttributes.{} ignored due to parse error"
    for selectors, said in (
        ({"fieldSelector": good, "labelSelector": {"rawSelector": "a in (b)"}}, ""),
        (
            {"fieldSelector": {"rawSelector": "&&"}, "labelSelector": labels},
            f"{at_all.format('fieldSelector')}; {at_all.format('labelSelector')}",
        ),
        ({"labelSelector": both}, at_all.format("labelSelector partially")),
    ):
        spec = {"resourceAttributes": {**PODS, "verb": "list", **selectors}}
        found = await status_of(server.client, "selfsubjectaccessreviews", spec)
        assert found == {"allowed": True} | ({"evaluationError": said} if said else {})


async def test_all_rules(server: RunningServer) -> None:
    """The rules in a namespace: from cluster role bindings and from role bindings there."""
    mine = rule("get", "pods", names="a")
    await give(server, "reader", mine, namespace="default")
    await give(server, "paths", at("get", "/metrics"))
    jane, plural = client_of(server), "selfsubjectrulesreviews"
    found = await status_of(jane, plural, {"namespace": "default"})
    assert found["incomplete"] is False
    assert found["resourceRules"][-1] == mine
    assert at("get", "/metrics") in found["nonResourceRules"]
    assert len(found["resourceRules"]) == 3
    elsewhere = await status_of(jane, plural, {"namespace": "other"})
    assert elsewhere["resourceRules"] == found["resourceRules"][:-1]
    admin = await status_of(server.client, plural, {"namespace": "default"})
    assert rule("*", "*", "*") in admin["resourceRules"]
    assert at("*", "*") in admin["nonResourceRules"]
    reply = await jane.post(f"{ROOT}/{plural}", {"spec": {}})
    assert (reply.status, reply.message) == (400, "no namespace on request")
    await server.client.post(place("clusterrolebindings"), binding("d", "none", JANE))
    await freshen(server)
    found = await status_of(jane, plural, {"namespace": "default"})
    assert found["evaluationError"] == f'clusterrole.{RBAC} "none" not found'
    await jane.close()
