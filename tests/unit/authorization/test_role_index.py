"""Who has which rules, whatever is found in the store."""

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


def held(book: RoleIndex, namespace: str = "") -> list[str]:
    """The bindings from which jane has something."""
    return [each.source.binding.name for each in book.grants(JANE, namespace) if each.rules]


def test_what_cannot_be_read_gives_nothing() -> None:
    """An object that is broken is as if it were not there; a later one counts."""
    book = RoleIndex([("clusterroles", "r", role())])
    for broken in (
        binding(subjects="jane"),
        binding(subjects=[{"kind": "User", "name": 1}]),
        binding(roleRef=[]),
        binding(subjects=[{"kind": "Robot", "name": "jane"}]),
        binding(subjects=[{"kind": "ServiceAccount", "name": "jane"}]),
        # Of one kind at a path of the other.
        {**binding(), "metadata": {"name": "b", "namespace": "n"}},
    ):
        book.put("clusterrolebindings", "b", broken)
        assert held(book, "n") == [], broken
    book.put("clusterrolebindings", "b", binding())
    assert held(book) == ["b"]
    book.put("clusterroles", "r", {"metadata": {"name": "r"}, "rules": [{"verbs": 1}]})
    assert held(book) == []
    book.put("clusterroles", "r", role())
    book.put("clusterrolebindings", "b", None)
    assert held(book) == []
    book.put("clusterrolebindings", "b", None)


def test_each_binding_once() -> None:
    """Who is meant several times over has a binding once, as the one who is named first by it."""
    book = RoleIndex([("clusterroles", "r", role())])
    group = {"kind": "Group", "name": "developers"}
    book.put("clusterrolebindings", "b", binding(subjects=[group, SUBJECT, SUBJECT]))
    local = binding("a", metadata={"name": "a", "namespace": "n"}, subjects=[group])
    book.put("rolebindings", "n/a", local)
    assert held(book, "n") == ["b", "a"], "those of the cluster first"
    assert held(book, "m") == ["b"]
    book.put("clusterrolebindings", "b", binding(subjects=[group]))
    assert held(book) == ["b"]
    assert list(book.grants(ANONYMOUS, "n")) == []


def test_a_binding_counts_by_its_path() -> None:
    """An object that says it has the name of another is one of its own, and can go."""
    book = RoleIndex([("clusterroles", "r", role())])
    book.put("clusterrolebindings", "b", binding())
    book.put("clusterrolebindings", "c", binding())
    assert held(book) == ["b", "b"]
    book.put("clusterrolebindings", "b", None)
    book.put("clusterrolebindings", "c", None)
    assert held(book) == []


async def test_long_questions_are_not_remembered() -> None:
    """A review asks in words of any length: they are answered, and take no room."""
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
        assert len(found._decisions) == 1  # of a long name: names are no part of it
        await found.close()


async def test_decisions_are_bounded() -> None:
    """However many different things are asked for, no more is remembered than there is room for."""
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
        # Names are no part of what is remembered.
        before = len(found._decisions)
        for number in range(100):
            assert found.allows(JANE, parse_request("GET", f"/api/v1/namespaces/n/pods/p{number}"))
        assert len(found._decisions) == before
        await found.close()
