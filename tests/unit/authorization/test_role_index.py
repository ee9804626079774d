"""The index of roles and bindings, also with invalid objects in the store."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from restow.authorization import rbac as decisions
from restow.authorization.rbac import Rbac
from restow.authorization.role_index import RoleIndex
from restow.registry.catalog import builtin_catalog
from restow.request.context import ANONYMOUS, User
from restow.request.request_info import RequestInfo, parse_request
from tests.unit.controllers.world import open_world

JANE = User("jane", ("developers", "system:authenticated"))
RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
SUBJECT = {"kind": "User", "name": "jane"}
REF = {"kind": "ClusterRole", "name": "r"}


def role(name: str = "r") -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": [RULE]}


def binding(name: str = "b", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "roleRef": REF, "subjects": [SUBJECT], **fields}


def held(index: RoleIndex, namespace: str = "") -> list[str]:
    """Return the bindings that grant something to jane."""
    return [each.source.binding.name for each in index.grants(JANE, namespace) if each.rules]


def test_invalid_objects_grant_nothing() -> None:
    """An invalid object is treated as missing; a later valid one counts."""
    index = RoleIndex([("clusterroles", "r", role())])
    for broken in (
        binding(subjects="jane"),
        binding(subjects=[{"kind": "User", "name": 1}]),
        binding(roleRef=[]),
        binding(subjects=[{"kind": "Robot", "name": "jane"}]),
        binding(subjects=[{"kind": "ServiceAccount", "name": "jane"}]),
        # A role and a cluster role at each other's path.
        {**binding(), "metadata": {"name": "b", "namespace": "n"}},
    ):
        index.put("clusterrolebindings", "b", broken)
        assert held(index, "n") == [], broken
    index.put("clusterrolebindings", "b", binding())
    assert held(index) == ["b"]
    index.put("clusterroles", "r", {"metadata": {"name": "r"}, "rules": [{"verbs": 1}]})
    assert held(index) == []
    index.put("clusterroles", "r", role())
    index.put("clusterrolebindings", "b", None)
    assert held(index) == []
    index.put("clusterrolebindings", "b", None)


def test_each_binding_once() -> None:
    """A user who is several subjects of a binding gets it once, as its first subject."""
    index = RoleIndex([("clusterroles", "r", role())])
    group = {"kind": "Group", "name": "developers"}
    index.put("clusterrolebindings", "b", binding(subjects=[group, SUBJECT, SUBJECT]))
    local = binding("a", metadata={"name": "a", "namespace": "n"}, subjects=[group])
    index.put("rolebindings", "n/a", local)
    assert held(index, "n") == ["b", "a"], "those of the cluster first"
    assert held(index, "m") == ["b"]
    index.put("clusterrolebindings", "b", binding(subjects=[group]))
    assert held(index) == ["b"]
    assert list(index.grants(ANONYMOUS, "n")) == []


def test_a_binding_counts_by_its_path() -> None:
    """A binding whose metadata names another object is indexed by its own path and can be
    deleted."""
    index = RoleIndex([("clusterroles", "r", role())])
    index.put("clusterrolebindings", "b", binding())
    index.put("clusterrolebindings", "c", binding())
    assert held(index) == ["b", "b"]
    index.put("clusterrolebindings", "b", None)
    index.put("clusterrolebindings", "c", None)
    assert held(index) == []


async def test_long_keys_are_not_cached() -> None:
    """Access checks with long values are answered, but not cached."""
    async with open_world() as world:
        found = Rbac(
            world.store,
            builtin_catalog(),
            world.runtime,
            defaults=[("clusterroles", "r", role()), ("clusterrolebindings", "b", binding())],
        )
        await found.start()
        long = "x" * (decisions.KEY_LENGTH_MAX + 1)
        pods = RequestInfo(method="", path="", verb="get", is_resource=True, resource="pods")
        asked = [
            replace(pods, verb=long),
            replace(pods, namespace=long),
            replace(pods, group=long),
            replace(pods, resource=long),
            replace(pods, subresource=long),
        ]
        assert [found.allows(JANE, each) for each in asked] == [False, True, False, False, False]
        assert [bool(found.reason(JANE, each)) for each in asked] == [False, True, *[False] * 3]
        assert found.reason(JANE, replace(pods, name=long))
        assert found.reason(JANE, RequestInfo(method="", path=f"/{long}", verb="get")) == ""
        assert len(found._decisions) == 1  # with a long object name, which is not part of the key
        await found.close()


async def test_decisions_are_bounded() -> None:
    """The number of cached decisions has a limit."""
    async with open_world() as world:
        found = Rbac(
            world.store,
            builtin_catalog(),
            world.runtime,
            defaults=[("clusterroles", "r", role()), ("clusterrolebindings", "b", binding())],
        )
        await found.start()
        asked = parse_request("GET", "/api/v1/namespaces/n/pods/a")
        assert found.allows(JANE, asked)
        for number in range(decisions.DECISIONS_MAX + 10):
            path = f"/api/v1/namespaces/n{number}/secrets/a"
            assert not found.allows(JANE, parse_request("GET", path))
        assert len(found._decisions) <= decisions.DECISIONS_MAX
        assert found.allows(JANE, asked)
        # Object names are not part of the key.
        before = len(found._decisions)
        for number in range(100):
            assert found.allows(JANE, parse_request("GET", f"/api/v1/namespaces/n/pods/p{number}"))
        assert len(found._decisions) == before
        await found.close()
