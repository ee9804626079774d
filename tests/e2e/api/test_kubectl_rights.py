"""Roles as a user grants and shows them with kubectl."""

from __future__ import annotations

from tests.e2e.api.conftest import EVE_TOKEN
from tests.e2e.api.kubectl import Kubectl

AS_EVE = ("--token", EVE_TOKEN)
ASKED_MAX = 20


def rules(text: str) -> list[list[str]]:
    """The table of `auth can-i --list`, without the spaces between its columns."""
    return [line.split() for line in text.splitlines()]


def can(kubectl: Kubectl, *words: str) -> bool:
    said = kubectl.try_run("auth", "can-i", *words, *AS_EVE)
    answer = said.out.strip()
    assert (said.code, answer) in ((0, "yes"), (1, "no")), said
    return answer == "yes"


def becomes(kubectl: Kubectl, answer: bool, *words: str) -> bool:
    """Returns whether this is the answer, at once or once the server has processed the change."""
    return any(can(kubectl, *words) is answer for _ in range(ASKED_MAX))


def test_permissions_are_granted_and_revoked(kubectl: Kubectl) -> None:
    """Granted permissions count in their namespace, are listed, and can be checked with `can-i`."""
    before = rules(kubectl.run("auth", "can-i", "--list", "--no-headers", *AS_EVE))
    assert ["selfsubjectreviews.authentication.k8s.io", "[]", "[]", "[create]"] in before
    assert ["[/apis/*]", "[]", "[get]"] in before
    assert not can(kubectl, "list", "secrets")
    kubectl.run("create", "role", "maps", "--verb=get,list", "--resource=configmaps")
    kubectl.run("create", "rolebinding", "maps", "--role=maps", "--user=eve")
    kubectl.run("create", "rolebinding", "views", "--clusterrole=view", "--user=eve")
    assert becomes(kubectl, True, "list", "configmaps")
    assert becomes(kubectl, True, "get", "deployments.apps", "--subresource=scale")
    assert not can(kubectl, "list", "configmaps", "--all-namespaces")
    assert not can(kubectl, "list", "secrets")
    assert not can(kubectl, "create", "configmaps")
    after = rules(kubectl.run("auth", "can-i", "--list", "--no-headers", *AS_EVE))
    assert ["configmaps", "[]", "[]", "[get", "list", "watch]"] in after
    assert ["deployments.apps/scale", "[]", "[]", "[get", "list", "watch]"] in after
    assert [line for line in before if line not in after] == []
    kubectl.run("get", "configmaps", *AS_EVE)
    kubectl.run("delete", "rolebinding", "maps", "views")
    assert becomes(kubectl, False, "list", "configmaps")


def test_reconcile(kubectl: Kubectl) -> None:
    """`auth reconcile` creates roles and bindings, and adds missing rules and subjects."""
    document = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: keeper, namespace: {namespace}}}
rules:
- {{apiGroups: [""], resources: [{resources}], verbs: [get]}}
"""
    for resources in ("configmaps", "secrets"):
        text = document.format(namespace=kubectl.namespace, resources=resources)
        said = kubectl.run("auth", "reconcile", "-f", "-", stdin=text)
        assert said.strip().endswith("role.rbac.authorization.k8s.io/keeper reconciled")
    found = kubectl.json("get", "role", "keeper", "-o", "json")
    assert [each["resources"] for each in found["rules"]] == [["configmaps"], ["secrets"]]
    verbs = kubectl.run("get", "clusterroles", "view", "-o", "jsonpath={.rules[0].verbs}")
    assert verbs == '["get","list","watch"]'
