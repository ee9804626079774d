"""Cluster roles that are known, and which of them gather the rules of which others.

Told of one role at a time, it says whose rules may be others now. That costs by the number of roles
that gather, not of all roles: there may be thousands, and each change of one is looked at. Only
one that begins to gather, or to gather others, is held against all.

Pure: no store, no clock. Not here: who writes what was gathered (`roles`).
"""

from __future__ import annotations

from restow.apimachinery import rbac
from restow.apimachinery.rbac import PolicyRule
from restow.apimachinery.rbac_objects import Role
from restow.kinds.validation.fields import selects


class AggregatedRoles:
    """Roles by name. A name with a role that cannot be read is one without a role."""

    def __init__(self) -> None:
        self._roles: dict[str, Role] = {}
        self._gathered: dict[str, tuple[set[str], ...]] = {}
        """By name of a role that gathers: the names that each of its selectors fits."""

    @property
    def gatherers(self) -> list[str]:
        """The names of all that gather others."""
        return sorted(self._gathered)

    def put(self, name: str, role: Role | None) -> set[str]:
        """What there is by a name now; None: nothing. The names of those that gather whose rules
        may be others by that, its own among them."""
        before = self._roles.pop(name, None)
        if role is not None:
            self._roles[name] = role
        found = self._put_gatherer(name, role, before)
        if role is not None and before is not None:
            is_same = role.metadata.labels == before.metadata.labels and role.rules == before.rules
            if is_same:
                return found
        for gatherer, gathered in self._gathered.items():
            if gatherer != name and self._move(name, role, gatherer, gathered):
                found.add(gatherer)
        return found

    def _put_gatherer(self, name: str, role: Role | None, before: Role | None) -> set[str]:
        if role is None or role.aggregation is None:
            self._gathered.pop(name, None)
            return set()
        if before is None or before.aggregation != role.aggregation:
            self._gathered[name] = tuple(
                {
                    other
                    for other, each in self._roles.items()
                    if other != name and selects(selector, each.metadata.labels)
                }
                for selector in role.aggregation.selectors
            )
        return {name}

    def _move(
        self, name: str, role: Role | None, gatherer: str, gathered: tuple[set[str], ...]
    ) -> bool:
        """Whether a role is, or was, one of those that another gathers."""
        aggregation = self._roles[gatherer].aggregation
        assert aggregation is not None, "it gathers"
        is_affected = False
        for selector, names in zip(aggregation.selectors, gathered, strict=True):
            if role is not None and selects(selector, role.metadata.labels):
                names.add(name)
                is_affected = True
            elif name in names:
                names.remove(name)
                is_affected = True
        return is_affected

    def lacking(self, name: str) -> tuple[PolicyRule, ...] | None:
        """The rules that a role should have: by selector, then by name, each rule once. None: it
        has them, or gathers nothing."""
        gathered = self._gathered.get(name)
        if gathered is None:
            return None
        rules = rbac.union(
            rule for names in gathered for each in sorted(names) for rule in self._roles[each].rules
        )
        return None if rules == self._roles[name].rules else rules
