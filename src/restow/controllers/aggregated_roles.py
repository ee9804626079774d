"""Aggregated ClusterRoles: which roles each of them selects, and the rules that result.

Updated with one role at a time, it returns the aggregated roles whose rules may change. The cost
depends on the number of aggregated roles, not of all roles, of which there may be thousands. Only a
new or changed aggregationRule is compared with all roles.

Pure: no store, no clock. Not here: writing the rules (`roles`).
"""

from __future__ import annotations

from restow.apimachinery import rbac
from restow.apimachinery.rbac import PolicyRule
from restow.apimachinery.rbac_objects import Role
from restow.kinds.validation.fields import selects


class AggregatedRoles:
    """Roles by name. An unreadable role counts as missing."""

    def __init__(self) -> None:
        self._roles: dict[str, Role] = {}
        self._selected: dict[str, tuple[set[str], ...]] = {}
        """By name of an aggregated role: for each selector, the names of the roles that it
        selects."""

    @property
    def aggregated_names(self) -> list[str]:
        """The names of all aggregated roles."""
        return sorted(self._selected)

    def put(self, name: str, role: Role | None) -> set[str]:
        """Set a role; None: it was deleted. Return the names of the aggregated roles whose rules
        may change, including the role itself if it is aggregated."""
        before = self._roles.pop(name, None)
        if role is not None:
            self._roles[name] = role
        found = self._put_aggregated(name, role, before)
        if role is not None and before is not None:
            is_same = role.metadata.labels == before.metadata.labels and role.rules == before.rules
            if is_same:
                return found
        for aggregated, selected in self._selected.items():
            if aggregated != name and self._move(name, role, aggregated, selected):
                found.add(aggregated)
        return found

    def _put_aggregated(self, name: str, role: Role | None, before: Role | None) -> set[str]:
        if role is None or role.aggregation is None:
            self._selected.pop(name, None)
            return set()
        if before is None or before.aggregation != role.aggregation:
            self._selected[name] = tuple(
                {
                    other
                    for other, each in self._roles.items()
                    if other != name and selects(selector, each.metadata.labels)
                }
                for selector in role.aggregation.selectors
            )
        return {name}

    def _move(
        self, name: str, role: Role | None, aggregated: str, selected: tuple[set[str], ...]
    ) -> bool:
        """Update the selection of an aggregated role; return whether it selects or selected
        `name`."""
        aggregation = self._roles[aggregated].aggregation
        assert aggregation is not None, "it is aggregated"
        is_affected = False
        for selector, names in zip(aggregation.selectors, selected, strict=True):
            if role is not None and selects(selector, role.metadata.labels):
                names.add(name)
                is_affected = True
            elif name in names:
                names.remove(name)
                is_affected = True
        return is_affected

    def lacking(self, name: str) -> tuple[PolicyRule, ...] | None:
        """Return the rules that an aggregated role should have: by selector, then by name, each
        rule once. None: the rules are correct, or the role is not aggregated."""
        selected = self._selected.get(name)
        if selected is None:
            return None
        rules = rbac.union(
            rule for names in selected for each in sorted(names) for rule in self._roles[each].rules
        )
        return None if rules == self._roles[name].rules else rules
