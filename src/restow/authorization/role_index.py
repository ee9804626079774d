"""An index of all roles and bindings by subject: which rules a user has, and from which binding.

It is updated object by object and keeps only what decisions need. Invalid objects grant nothing.
A binding whose role is missing grants nothing either, and the reason of the decision reports it.

Default roles apply until the store delivers an object of the same name, so that a new cluster works
immediately.

Not here: cached decisions (`rbac`).
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

SubjectKey = tuple[str, bool, str]
"""A namespace or empty, whether the subject is a group, and the name of the subject."""


class RuleSource(NamedTuple):
    """The binding and subject that rules come from."""

    binding: RbacBinding
    subject: Subject

    def __str__(self) -> str:
        return self.binding.described(self.subject)


class Grant(NamedTuple):
    """The rules that one binding grants to a user."""

    source: RuleSource
    rules: tuple[PolicyRule, ...]
    error: str = ""
    """The reason why the binding grants nothing; empty if it grants its rules."""


class RoleIndex:
    """The roles and bindings of a cluster."""

    def __init__(self, defaults: Iterable[tuple[str, str, Object]] = ()) -> None:
        """`defaults`: plural, path and object of each default, valid until the store delivers
        one."""
        self._rules: dict[tuple[str, str], tuple[PolicyRule, ...]] = {}
        """By plural and path of a role."""
        self._bindings: dict[tuple[str, str], RbacBinding] = {}
        self._bindings_by_subject: dict[SubjectKey, dict[str, RuleSource]] = {}
        """By namespace and subject: the bindings, by path."""
        for plural, path, obj in defaults:
            self.put(plural, path, obj)

    def put(self, plural: str, path: str, obj: Object | None) -> None:
        """Set the object at a path; None: it was deleted."""
        if plural in (ROLES, CLUSTER_ROLES):
            role = None if obj is None else read_role(obj)
            if role is None:
                self._rules.pop((plural, path), None)
            else:
                self._rules[plural, path] = role.rules
            return
        before = self._bindings.pop((plural, path), None)
        if before is not None:
            for place in _subject_keys(before):
                self._withdraw(place, path)
        binding = None if obj is None else read_binding(obj)
        if binding is None or bool(binding.namespace) is not (plural == BINDINGS):
            return
        self._bindings[plural, path] = binding
        for place, subject in _subject_keys(binding).items():
            self._bindings_by_subject.setdefault(place, {})[path] = RuleSource(binding, subject)

    def _withdraw(self, place: SubjectKey, path: str) -> None:
        bindings = self._bindings_by_subject[place]
        del bindings[path]
        if not bindings:
            del self._bindings_by_subject[place]

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """Return the grants of a user: cluster-wide, then in a namespace; each binding once."""
        for place in ("", namespace) if namespace else ("",):
            found: dict[str, RuleSource] = {}
            for group in reversed(user.groups):
                found |= self._bindings_by_subject.get((place, True, group), {})
            found |= self._bindings_by_subject.get((place, False, user.name), {})
            for path in sorted(found):
                yield self._grant(found[path])

    def _grant(self, source: RuleSource) -> Grant:
        rules = self.rules_of(source.binding.role, source.binding.namespace)
        if rules is not None:
            return Grant(source, rules)
        role = source.binding.role
        return Grant(source, (), f"{role.kind.lower()}.{GROUP} {quoted(role.name)} not found")

    def rules_of(self, role: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """Return the rules of the role that a binding in a namespace references, or None."""
        if role.kind == "ClusterRole":
            return self._rules.get((CLUSTER_ROLES, role.name))
        return self._rules.get((ROLES, f"{namespace}/{role.name}")) if namespace else None


def _subject_keys(binding: RbacBinding) -> dict[SubjectKey, Subject]:
    """Return the subjects of a binding by namespace and name, each with its first mention."""
    found: dict[SubjectKey, Subject] = {}
    for subject in binding.subjects:
        key = subject.key(binding.namespace)
        if key is not None:
            found.setdefault((binding.namespace, *key), subject)
    return found
