"""Default roles exist and are complete, and aggregated roles have the rules that they select."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.rbac import missing
from restow.apimachinery.rbac_objects import AUTO_UPDATE, read_role, rules_of
from restow.controllers.bootstrap_roles import BINDINGS, ROLES, default_objects
from restow.controllers.roles import (
    AT_ONCE_MAX,
    RoleController,
    completed,
    ensure_roles,
)
from restow.registry.catalog import builtin_catalog
from tests.unit.controllers.world import World, open_world

RBAC = "rbac.authorization.k8s.io"
# Subresources of kubelets, and names without objects: clients expect these rules.
NOT_HOSTED = {
    "bindings",
    "deployments/rollback",
    "nodes/metrics",
    "pods/attach",
    "pods/eviction",
    "pods/exec",
    "pods/log",
    "pods/portforward",
    "pods/proxy",
    "services/proxy",
}


def test_default_roles_name_hosted_resources() -> None:
    """Each resource in a default role is hosted; each binding refers to a role."""
    catalog = builtin_catalog()
    hosted = {
        (each.group, "/".join(filter(None, (each.plural, part))))
        for each in catalog
        for part in ("", *(subresource.name for subresource in each.kind.subresources))
    }
    for role in ROLES:
        for rule in role.rules:
            for group in rule.api_groups:
                for resource in set(rule.resources) - NOT_HOSTED - {"*"}:
                    assert (group, resource) in hosted, (role.name, group, resource)
    names = {role.name for role in ROLES}
    assert all(binding.name in names for binding in BINDINGS)


def test_view_and_edit_do_not_escalate() -> None:
    """`view` does not include Secrets, and `edit` cannot manage roles."""
    roles = {
        each.path: rules_of(each.obj["rules"]) for each in default_objects() if "rules" in each.obj
    }
    assert not any("secrets" in rule.resources for rule in roles["view"])
    assert not any(RBAC in rule.api_groups for rule in roles["edit"])
    for less, more in (("view", "edit"), ("edit", "admin"), ("admin", "cluster-admin")):
        assert missing(roles[more], roles[less]) == []
        assert missing(roles[less], roles[more])


async def test_they_are_made_once() -> None:
    """A second start changes nothing."""
    async with open_world() as world:
        await world.create("Namespace", "kube-system")
        await ensure_roles(world.store, world.catalog)
        for each in default_objects():
            kind = each.obj["kind"]
            found = await world.get(kind, each.path, group=RBAC)
            assert found is not None, each.path
            assert found.get("rules") == each.obj.get("rules")
            assert found["metadata"]["annotations"] == {AUTO_UPDATE: "true"}
        revision = await world.storage.revision()
        await ensure_roles(world.store, world.catalog)
        assert await world.storage.revision() == revision


async def test_missing_rules_and_subjects_are_added() -> None:
    """Missing rules and subjects are added, additions stay, other roleRefs are replaced."""
    async with open_world() as world:
        await world.create("Namespace", "kube-system")
        await ensure_roles(world.store, world.catalog)
        extra = {"verbs": ["get"], "nonResourceURLs": ["/extra"]}
        added = {"apiGroup": RBAC, "kind": "User", "name": "jane"}

        async def edit(kind: str, name: str, **fields: Any) -> None:
            await world.edit(kind, name, lambda obj: obj.update(**fields), group=RBAC)

        await edit("ClusterRole", "system:discovery", rules=[extra])
        await edit("ClusterRoleBinding", "system:discovery", subjects=[added])
        await edit("ClusterRole", "view", aggregationRule=None)
        await world.edit(
            "ClusterRole",
            "system:monitoring",
            lambda obj: obj.update(
                rules=[], metadata={**obj["metadata"], "annotations": {AUTO_UPDATE: "false"}}
            ),
            group=RBAC,
        )
        await world.delete("ClusterRoleBinding", "system:basic-user", group=RBAC)
        await ensure_roles(world.store, world.catalog)

        by_path = {(each.plural, each.path): each.obj for each in default_objects()}
        role = await world.get("ClusterRole", "system:discovery", group=RBAC)
        assert role is not None
        assert role["rules"][0] == extra
        wanted = rules_of(by_path["clusterroles", "system:discovery"]["rules"])
        assert missing(rules_of(role["rules"]), wanted) == []
        binding = await world.get("ClusterRoleBinding", "system:discovery", group=RBAC)
        assert binding is not None
        assert [each["name"] for each in binding["subjects"]] == ["jane", "system:authenticated"]
        view = await world.get("ClusterRole", "view", group=RBAC)
        assert view is not None
        assert view["aggregationRule"] == by_path["clusterroles", "view"]["aggregationRule"]
        left_alone = await world.get("ClusterRole", "system:monitoring", group=RBAC)
        assert left_alone is not None
        assert not left_alone.get("rules")
        assert await world.has("ClusterRoleBinding", "system:basic-user", group=RBAC)


async def test_a_binding_of_another_role_is_replaced() -> None:
    """A default binding whose roleRef was changed gets its default again."""
    async with open_world() as world:
        await world.create("Namespace", "kube-system")
        other = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
        await world.create(
            "ClusterRoleBinding", "system:discovery", group=RBAC, roleRef=other, subjects=[]
        )
        await ensure_roles(world.store, world.catalog)
        found = await world.get("ClusterRoleBinding", "system:discovery", group=RBAC)
        assert found is not None
        assert found["roleRef"]["name"] == "system:discovery"
        assert [each["name"] for each in found["subjects"]] == ["system:authenticated"]


@pytest.mark.parametrize("rules", [None, [], [{"verbs": 1}], "x"])
def test_whatever_is_found_is_survived(rules: Any) -> None:
    """A role with unreadable rules is not changed; one without rules gets the default ones."""
    default = default_objects()[0].obj
    found = completed(default, {**default, "rules": rules})
    if rules in (None, []):
        assert found is not None
        assert rules_of(found["rules"])
    else:
        assert found is None


async def settled(world: World, controller: RoleController) -> None:
    observed = await world.observe(controller)
    await observed.settle(controller.queue, controller.reconcile)
    await observed.close()


async def test_roles_gather_others() -> None:
    """Rules propagate through several aggregated roles, and are removed with their role."""
    async with open_world() as world:
        controller = RoleController(world.store, world.catalog, world.runtime)
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
        other = {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}

        def aggregating(label: str) -> dict[str, Any]:
            return {"clusterRoleSelectors": [{"matchLabels": {"to": label}}]}

        async def role(name: str, to: str = "", **fields: Any) -> None:
            metadata = {"labels": {"to": to} if to else {}}
            await world.create("ClusterRole", name, group=RBAC, metadata=metadata, **fields)

        async def rules(name: str) -> Any:
            found = await world.get("ClusterRole", name, group=RBAC)
            assert found is not None
            return found.get("rules") or []

        await role("top", aggregationRule=aggregating("top"))
        await role("middle", "top", aggregationRule=aggregating("middle"))
        await role("b", "middle", rules=[rule, other])
        await role("a", "middle", rules=[rule])
        await role("apart", rules=[{"verbs": ["*"], "nonResourceURLs": ["*"]}])
        await settled(world, controller)
        assert await rules("middle") == [rule, other]
        assert await rules("top") == [rule, other]
        # In a cycle all roles get all rules, and the updates end.
        await world.edit(
            "ClusterRole",
            "top",
            lambda obj: obj["metadata"].update(labels={"to": "middle"}),
            group=RBAC,
        )
        await settled(world, controller)
        assert await rules("top") == [rule, other]
        await world.edit(
            "ClusterRole", "top", lambda obj: obj["metadata"].update(labels={}), group=RBAC
        )
        await world.delete("ClusterRole", "b", group=RBAC)
        await settled(world, controller)
        assert await rules("top") == [rule]
        await world.edit("ClusterRole", "top", lambda obj: obj.update(rules=[other]), group=RBAC)
        await settled(world, controller)
        assert await rules("top") == [rule], "other rules are removed"


async def test_a_change_reads_only_affected_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the changed role is read again, and the aggregated roles that select it."""
    read: list[str] = []

    def reading(obj: Any) -> Any:
        read.append(obj["metadata"]["name"])
        return read_role(obj)

    monkeypatch.setattr("restow.controllers.roles.read_role", reading)
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    async with open_world() as world:
        controller = RoleController(world.store, world.catalog, world.runtime)
        for number in range(2 * AT_ONCE_MAX):
            await world.create("ClusterRole", f"r{number:03}", group=RBAC, rules=[rule])
        selector = {"matchExpressions": [{"key": "to", "operator": "Exists"}]}
        await world.create(
            "ClusterRole", "top", group=RBAC, aggregationRule={"clusterRoleSelectors": [selector]}
        )
        observed = await world.observe(controller)

        async def changed(name: str, change: Any) -> list[str]:
            await world.edit("ClusterRole", name, change, group=RBAC)
            read.clear()
            await observed.settle(controller.queue, controller.reconcile)
            return read

        await observed.settle(controller.queue, controller.reconcile)
        assert len(read) == 2 * AT_ONCE_MAX + 1
        labels = {"labels": {"to": "x"}}
        assert await changed("r001", lambda obj: obj["metadata"].update(labels)) == ["r001", "top"]
        assert await changed("r002", lambda obj: obj.update(rules=[])) == ["r002"]
        note = {"annotations": {"a": "b"}}
        assert await changed("r001", lambda obj: obj["metadata"].update(note)) == ["r001"]
        assert await changed("r001", lambda obj: obj.update(rules=[])) == ["r001", "top"]
        await controller.resync()
        read.clear()
        await observed.settle(controller.queue, controller.reconcile)
        assert read == [], "unchanged roles are not read again"
        found = await world.get("ClusterRole", "top", group=RBAC)
        assert found is not None
        assert found.get("rules") in ([], None)
        await observed.close()
