"""Incremental aggregation of roles, compared with a full computation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery import rbac
from restow.apimachinery.rbac_objects import Role, read_role
from restow.controllers.aggregated_roles import AggregatedRoles
from restow.kinds.validation.fields import selects

NAMES = "abcd"
RULES = [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]} for verb in ("get", "list")]
SELECTORS = [
    {"matchLabels": {"to": "x"}},
    {"matchExpressions": [{"key": "to", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "to", "operator": "DoesNotExist"}]},
]

roles = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries(
                {"labels": st.sampled_from([{}, {"to": "x"}, {"to": "y"}])}
            ),
            "rules": st.lists(st.sampled_from(RULES), max_size=2),
        },
        optional={
            "aggregationRule": st.fixed_dictionaries(
                {"clusterRoleSelectors": st.lists(st.sampled_from(SELECTORS), max_size=2)}
            )
        },
    ).map(read_role),
)


def expected(name: str, known: dict[str, Role]) -> tuple[rbac.PolicyRule, ...] | None:
    """Compute the rules from all roles."""
    role = known.get(name)
    if role is None or role.aggregation is None:
        return None
    rules = rbac.union(
        rule
        for selector in role.aggregation.selectors
        for other in sorted(known)
        if other != name and selects(selector, known[other].metadata.labels)
        for rule in known[other].rules
    )
    return None if rules == role.rules else rules


@given(st.lists(st.tuples(st.sampled_from(NAMES), roles), max_size=12))
def test_like_looking_at_all(changes: list[tuple[str, Role | None]]) -> None:
    """After each change the missing rules are correct, and every affected role is returned."""
    aggregated, known = AggregatedRoles(), dict[str, Role]()
    for name, role in changes:
        before = {each: expected(each, known) for each in NAMES}
        known.pop(name, None)
        if role is not None:
            known[name] = role
        affected = aggregated.put(name, role)
        for each in NAMES:
            found = expected(each, known)
            assert aggregated.lacking(each) == found
            if found is not None and found != before[each]:
                assert each in affected
        assert aggregated.aggregated_names == sorted(k for k, v in known.items() if v.aggregation)
