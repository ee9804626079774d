"""RBAC rules: matching, and coverage by other rules."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery import rbac
from restow.apimachinery.rbac import PolicyRule
from restow.apimachinery.rbac_objects import read_binding, read_role, rules_object, rules_of

WORDS = {
    "verb": ("get", "list", "*"),
    "group": ("", "apps", "*"),
    "resource": ("pods", "pods/log", "jobs/log", "*/log", "*"),
    "name": ("a", "b"),
    "path": ("/a", "/a/b", "/a*", "/a/*", "/b", "*"),
}
ASKED = [
    (verb, group, *resource, name)
    for verb, group, resource, name in product(
        ("get", "list"),
        ("", "apps"),
        (("pods", ""), ("pods", "log"), ("jobs", "log"), ("jobs", "")),
        ("", "a", "b"),
    )
]
PATHS = [(verb, path) for verb in ("get", "list") for path in ("/a", "/a/b", "/ab", "/b", "/c")]


def some(words: str, *, least: int = 1) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(WORDS[words]), min_size=least, max_size=2, unique=True).map(
        tuple
    )


RULES = st.builds(
    PolicyRule, some("verb"), some("group"), some("resource"), some("name", least=0)
) | (st.builds(lambda verbs, paths: PolicyRule(verbs, paths=paths), some("verb"), some("path")))


def allows(rule: PolicyRule, asked: tuple[str, str, str, str, str]) -> bool:
    """Match a request as the authorization index does."""
    *what, name = asked
    if not rule.matches(*what):
        return False
    return not rule.resource_names or name in rule.resource_names


def allows_naively(rule: PolicyRule, asked: tuple[str, str, str, str, str]) -> bool:
    """Reference implementation: try every combination of the rule's values."""
    verb, group, resource, part, name = asked
    whole = f"{resource}/{part}" if part else resource
    for one in product(rule.verbs, rule.api_groups, rule.resources, rule.resource_names or (None,)):
        star = one[2] == "*" or (part != "" and one[2] == f"*/{part}")
        if (
            one[0] in ("*", verb)
            and one[1] in ("*", group)
            and (star or one[2] == whole)
            and one[3] in (None, name)
        ):
            return True
    return False


@given(RULES)
def test_matching_agrees_with_the_reference(rule: PolicyRule) -> None:
    """Matching agrees with trying every combination."""
    for asked in ASKED:
        assert allows(rule, asked) is allows_naively(rule, asked), asked
    for verb, path in PATHS:
        expected = (verb in rule.verbs or "*" in rule.verbs) and any(
            each in ("*", path) or (each.endswith("*") and path.startswith(each[:-1]))
            for each in rule.paths
        )
        assert rule.allows_path(verb, path) is expected, (verb, path)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=2))
def test_covered_permissions_are_allowed(owned: list[PolicyRule], wanted: list[PolicyRule]) -> None:
    """If nothing is missing, every request that the wanted rules allow is allowed already."""
    missing = rbac.missing(owned, wanted)
    if missing:
        return
    for asked in ASKED:
        if any(allows(each, asked) for each in wanted):
            assert any(allows(each, asked) for each in owned), asked
    for verb, path in PATHS:
        if any(each.allows_path(verb, path) for each in wanted):
            assert any(each.allows_path(verb, path) for each in owned), (verb, path)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=2))
def test_adding_missing_rules_completes_coverage(
    owned: list[PolicyRule], wanted: list[PolicyRule]
) -> None:
    """Adding the missing rules leaves nothing missing, and each of them was wanted."""
    missing = rbac.missing(owned, wanted)
    assert rbac.missing([*owned, *missing], wanted) == []
    assert rbac.missing(wanted, missing) == []
    assert rbac.missing(rbac.EVERYTHING, wanted) == []
    assert rbac.missing(wanted, rbac.compact(wanted)) == []


def single(rule: PolicyRule) -> list[PolicyRule]:
    """Reference implementation of breaking down a rule."""
    names: list[tuple[str, ...]] = [(name,) for name in rule.resource_names] or [()]
    on = product(rule.api_groups, rule.resources, rule.verbs, names)
    at = product(rule.paths, rule.verbs)
    return [
        PolicyRule((verb,), (group,), (resource,), name) for group, resource, verb, name in on
    ] + [PolicyRule((verb,), paths=(path,)) for path, verb in at]


def covers(owner: PolicyRule, right: PolicyRule) -> bool:
    """Reference implementation of coverage of a single permission."""
    [verb] = right.verbs
    if not {verb, "*"} & set(owner.verbs):
        return False
    if owner.resource_names and not set(right.resource_names) & set(owner.resource_names):
        return False
    if right.paths:
        [path] = right.paths
        return any(
            own == path or (own.endswith("*") and path.startswith(own.rstrip("*")))
            for own in owner.paths
        )
    [group], [resource] = right.api_groups, right.resources
    wide = {resource, "*"} | ({f"*/{resource.partition('/')[2]}"} if "/" in resource else set())
    return bool({group, "*"} & set(owner.api_groups) and wide & set(owner.resources))


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=2))
def test_missing_permissions_are_enumerated(
    owned: list[PolicyRule], wanted: list[PolicyRule]
) -> None:
    """The missing permissions are those that no single rule covers, in order."""
    expected = [
        right
        for rule in wanted
        for right in single(rule)
        if not any(covers(each, right) for each in owned)
    ]
    assert rbac.missing(owned, wanted) == expected


def test_permission_on_one_name_is_not_permission_on_all() -> None:
    """A subject that may get one object cannot grant access to all, but to that one."""
    one = PolicyRule(("get",), ("",), ("pods",), ("a",))
    every = PolicyRule(("get",), ("",), ("pods",))
    assert rbac.missing([one], [every]) == [every]
    assert rbac.missing([every], [one]) == []
    assert rbac.missing([one], [one]) == []


def test_a_role_with_too_many_permissions_is_compared_as_a_whole() -> None:
    """Millions of permissions are not enumerated: they are covered as a whole, or missing."""
    many = tuple(f"w{number}" for number in range(1_000))
    huge = PolicyRule(many, many, many)
    assert rbac.missing([PolicyRule(("get",), ("",), ("pods",))], [huge]) == [huge]
    assert rbac.missing(rbac.EVERYTHING, [huge]) == []
    assert rbac.missing([huge], [huge]) == []


def test_descriptions() -> None:
    """Missing rules are formatted as in Kubernetes, and no name breaks the line."""
    rights = rbac.missing([], [PolicyRule(("get", "list"), ("apps",), ("deployments",), ("web",))])
    [rule] = rbac.compact(rights)
    assert rbac.description(rule) == (
        '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["web"],'
        ' Verbs:["get" "list"]}'
    )
    path = PolicyRule(("get",), paths=("/m*",))
    assert rbac.description(path) == '{NonResourceURLs:["/m*"], Verbs:["get"]}'
    assert rbac.quoted('a"\n\x1b\u2028\U000e0001') == r'"a\"\n\x1b\u2028\U000e0001"'


def test_objects_are_read() -> None:
    """Empty, null and absent are equal; objects of another shape are None."""
    role = read_role({"metadata": {"name": "r", "labels": None}, "rules": None})
    assert role is not None
    assert role.rules == ()
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    assert rules_object(rules_of(rules)) == rules
    broken: list[Any] = [None, [], {"rules": [1]}, {"rules": [{"verbs": "get"}]}, {"metadata": 1}]
    for bad in broken:
        assert read_role(bad) is None, bad
        assert read_binding({"subjects": bad} if isinstance(bad, dict) else bad) is None, bad


@pytest.mark.parametrize(
    ("subject", "key", "shown"),
    [
        ({"kind": "User", "name": "u"}, (False, "u"), 'User "u"'),
        ({"kind": "Group", "name": "g"}, (True, "g"), 'Group "g"'),
        (
            {"kind": "ServiceAccount", "name": "s", "namespace": "x"},
            (False, "system:serviceaccount:x:s"),
            'ServiceAccount "s/x"',
        ),
        (
            {"kind": "ServiceAccount", "name": "s"},
            (False, "system:serviceaccount:n:s"),
            'ServiceAccount "s/n"',
        ),
        ({"kind": "Robot", "name": "u"}, None, 'Robot "u"'),
    ],
)
def test_subjects(subject: dict[str, str], key: tuple[bool, str] | None, shown: str) -> None:
    """The user or group of a subject, for a binding in the namespace n."""
    binding = read_binding({"metadata": {"name": "b", "namespace": "n"}, "subjects": [subject]})
    assert binding is not None
    [read] = binding.subjects
    assert read.key("n") == key
    assert read.described("n") == shown
