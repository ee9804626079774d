"""Validation of roles and bindings, with the messages of the reference."""

from __future__ import annotations

from typing import Any

import pytest

from restow.kinds.validation import validate

RBAC = "rbac.authorization.k8s.io"
REF = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"}


def said(kind: str, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    place = {} if kind.startswith("Cluster") else {"namespace": "n"}
    obj = {"metadata": {"name": "x", **place}, **obj}
    return [f"{each.field}: {each.message}" for each in validate(RBAC, kind, obj, old)]


def test_rules() -> None:
    """Verbs, groups and resources are required; paths are separate, and only for cluster roles."""
    both = {"nonResourceURLs": ["/x"], "resources": ["pods"]}
    half = {"resources": [""], "verbs": ["get"]}
    at = 'rules[0].nonResourceURLs: Invalid value: ["/x"]: '
    shared = [
        f"{at}rules cannot apply to both regular resources and non-resource URLs",
        "rules[1].apiGroups: Required value: resource rules must supply at least one api group",
    ]
    verbs = "rules[0].verbs: Required value: verbs must contain at least one value"
    local = f"{at}namespaced rules cannot apply to non-resource URLs"
    assert said("Role", {"rules": [both, half]}) == [verbs, local, *shared]
    assert said("ClusterRole", {"rules": [both, half]}) == [verbs, *shared]
    good = [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]
    assert said("ClusterRole", {"rules": good}) == []


def test_selectors_of_roles() -> None:
    """An aggregation rule needs selectors, which must not be empty."""
    [empty] = said("ClusterRole", {"aggregationRule": {}})
    assert empty == (
        "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector"
        " required if aggregationRule is non-nil"
    )
    selector = {
        "matchLabels": {"a b": "c d"},
        "matchExpressions": [
            {"key": "x", "operator": "Foo"},
            {"key": "y", "operator": "In"},
            {"key": "z", "operator": "Exists", "values": ["q"]},
            {"key": "!", "operator": "In", "values": ["q q"]},
        ],
    }
    found = said("ClusterRole", {"aggregationRule": {"clusterRoleSelectors": [selector]}})
    at = "aggregationRule.clusterRoleSelectors[0]."
    assert [each.removeprefix(at).split(": ")[0] for each in found] == [
        "matchLabels",
        "matchLabels",
        "matchExpressions[0].operator",
        "matchExpressions[1].values",
        "matchExpressions[2].values",
        "matchExpressions[3].key",
        "matchExpressions[3].values[0]",
    ]
    good = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}
    assert said("ClusterRole", {"aggregationRule": {"clusterRoleSelectors": [good]}}) == []


def test_bindings() -> None:
    """A binding names a valid role, and valid subjects."""
    subjects = [
        {"kind": "User"},
        {"kind": "Foo", "name": "x"},
        {"kind": "ServiceAccount", "name": "A_b", "apiGroup": "x"},
        {"kind": "Group", "name": "x", "apiGroup": "y"},
    ]
    role = {"apiGroup": RBAC, "kind": "Foo", "name": "a/b"}
    found = said("RoleBinding", {"roleRef": role, "subjects": subjects})
    assert found[:4] == [
        'roleRef.kind: Unsupported value: "Foo": supported values: "Role", "ClusterRole"',
        "roleRef.name: Invalid value: \"a/b\": may not contain '/'",
        "subjects[0].name: Required value",
        f'subjects[0].apiGroup: Unsupported value: "": supported values: "{RBAC}"',
    ]
    assert found[4] == (
        'subjects[1].kind: Unsupported value: "Foo": supported values: "ServiceAccount", "User",'
        ' "Group"'
    )
    assert found[5].startswith('subjects[2].name: Invalid value: "A_b": a lowercase RFC 1123')
    assert found[6:] == [
        'subjects[2].apiGroup: Unsupported value: "x": supported values: ""',
        f'subjects[3].apiGroup: Unsupported value: "y": supported values: "{RBAC}"',
    ]
    account = {"kind": "ServiceAccount", "name": "b"}
    found = said(
        "ClusterRoleBinding",
        {"roleRef": {"apiGroup": "z", "kind": "Role", "name": ""}, "subjects": [account]},
    )
    assert found == [
        f'roleRef.apiGroup: Unsupported value: "z": supported values: "{RBAC}"',
        'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"',
        "roleRef.name: Required value",
        "subjects[0].namespace: Required value",
    ]
    assert said("RoleBinding", {"roleRef": REF, "subjects": [account]}) == []


@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
def test_a_binding_keeps_its_role(kind: str) -> None:
    """The roleRef is immutable."""
    other = {**REF, "name": "other"}
    [cause] = said(kind, {"roleRef": other}, {"roleRef": REF})
    shown = f'{{"APIGroup":"{RBAC}","Kind":"ClusterRole","Name":"other"}}'
    assert cause == f"roleRef: Invalid value: {shown}: cannot change roleRef"
    assert said(kind, {"roleRef": REF}, {"roleRef": REF}) == []
