"""All roles and bindings, by whom they are for: who has which rules, and from where.

It is told of objects one by one and keeps no more than what decides. Objects that cannot be read
give nothing, and neither does a binding whose role is missing, which is said in the reason.

Default roles count until the store has shown an object of the same name, so that a cluster that
has just begun works like any other. Not here: decisions that are remembered (`rbac`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from restow.apimachinery.rbac import PolicyRule, quoted
from restow.apimachinery.rbac_objects import (
    GROUP,
    RbacBinding,
    RoleRef,
    Subject,
    read_binding,
    read_role,
)
from restow.registry.resource import Object
from restow.request.context import User

ROLES: Final = "roles"
CLUSTER_ROLES: Final = "clusterroles"
BINDINGS: Final = "rolebindings"
CLUSTER_BINDINGS: Final = "clusterrolebindings"
PLURALS: Final = (CLUSTER_ROLES, ROLES, CLUSTER_BINDINGS, BINDINGS)

Place = tuple[str, bool, str]
"""A namespace or none, whether it is a group, and the name of who has something there."""


class RuleSource(NamedTuple):
    """Where rules come from."""

    binding: RbacBinding
    subject: Subject

    def __str__(self) -> str:
        return self.binding.described(self.subject)


class Grant(NamedTuple):
    """What one binding gives somebody."""

    source: RuleSource
    rules: tuple[PolicyRule, ...]
    lack: str = ""
    """Why it gives nothing."""


class RoleIndex:
    """Roles and bindings of a cluster."""

    def __init__(self, defaults: Iterable[tuple[str, str, Object]] = ()) -> None:
        """`defaults`: kinds by their plurals, paths and objects that count until they are seen."""
        self._rules: dict[tuple[str, str], tuple[PolicyRule, ...]] = {}
        """By plural and path of a role."""
        self._bindings: dict[tuple[str, str], RbacBinding] = {}
        self._given: dict[Place, dict[str, RuleSource]] = {}
        """By who has something where: the bindings, by path."""
        for plural, path, obj in defaults:
            self.put(plural, path, obj)

    def put(self, plural: str, path: str, obj: Object | None) -> None:
        """What is at a path now; None: nothing."""
        if plural in (ROLES, CLUSTER_ROLES):
            role = None if obj is None else read_role(obj)
            if role is None:
                self._rules.pop((plural, path), None)
            else:
                self._rules[plural, path] = role.rules
            return
        before = self._bindings.pop((plural, path), None)
        if before is not None:
            for place in _places(before):
                self._withdraw(place, path)
        binding = None if obj is None else read_binding(obj)
        if binding is None or bool(binding.namespace) is not (plural == BINDINGS):
            return
        self._bindings[plural, path] = binding
        for place, subject in _places(binding).items():
            self._given.setdefault(place, {})[path] = RuleSource(binding, subject)

    def _withdraw(self, place: Place, path: str) -> None:
        given = self._given[place]
        del given[path]
        if not given:
            del self._given[place]

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """What a user has: in the whole cluster, then in a namespace; each binding once."""
        for place in ("", namespace) if namespace else ("",):
            found: dict[str, RuleSource] = {}
            for group in reversed(user.groups):
                found |= self._given.get((place, True, group), {})
            found |= self._given.get((place, False, user.name), {})
            for path in sorted(found):
                yield self._grant(found[path])

    def _grant(self, source: RuleSource) -> Grant:
        rules = self.rules_of(source.binding.role, source.binding.namespace)
        if rules is not None:
            return Grant(source, rules)
        role = source.binding.role
        return Grant(source, (), f"{role.kind.lower()}.{GROUP} {quoted(role.name)} not found")

    def rules_of(self, role: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of the role that a binding in a namespace names; None: there is no such."""
        if role.kind == "ClusterRole":
            return self._rules.get((CLUSTER_ROLES, role.name))
        return self._rules.get((ROLES, f"{namespace}/{role.name}")) if namespace else None


def _places(binding: RbacBinding) -> dict[Place, Subject]:
    """Who has something by a binding, each by the subject that is named first."""
    found: dict[Place, Subject] = {}
    for subject in binding.subjects:
        key = subject.key(binding.namespace)
        if key is not None:
            found.setdefault((binding.namespace, *key), subject)
    return found
