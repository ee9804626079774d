"""RBAC policy rules: matching requests, and coverage of rules by other rules.

Pure. Rules have the same meaning as in Kubernetes:

- `*` as a verb, group or resource matches all; `*/scale` matches that subresource of any resource;
- a rule with resourceNames does not match requests without a name, such as a create;
- a path that ends in `*` matches by prefix.

Not here: which subject has which rules (`restow.authorization`), and the stored objects
(`rbac_objects`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct, field

ALL: Final = "*"
PERMISSIONS_COMPARED_MAX: Final = 20_000
"""Maximum number of single permissions that are compared one by one.

A role can contain many more; then each of its rules must be covered as a whole, or it is missing.
"""


class PolicyRule(Struct, frozen=True, omit_defaults=True):
    """One rule of a role: verbs on resources, or on non-resource paths."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = field(default=(), name="apiGroups")
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = field(default=(), name="resourceNames")
    paths: tuple[str, ...] = field(default=(), name="nonResourceURLs")

    def matches(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Report whether the rule matches such requests, regardless of object names."""
        return (
            (verb in self.verbs or ALL in self.verbs)
            and (group in self.api_groups or ALL in self.api_groups)
            and _has_resource(self.resources, resource, subresource)
        )

    def allows_path(self, verb: str, path: str) -> bool:
        """Report whether the rule allows a non-resource request."""
        if verb not in self.verbs and ALL not in self.verbs:
            return False
        return any(_path_covers(each, path) for each in self.paths)

    @property
    def permission_count(self) -> int:
        """The maximum number of single permissions in the rule."""
        on_resources = len(self.api_groups) * len(self.resources) * max(1, len(self.resource_names))
        return len(self.verbs) * (on_resources + len(self.paths))


EVERYTHING: Final = (
    PolicyRule((ALL,), (ALL,), (ALL,)),
    PolicyRule((ALL,), paths=(ALL,)),
)


def _has_resource(resources: tuple[str, ...], resource: str, subresource: str) -> bool:
    if ALL in resources:
        return True
    if not subresource:
        return resource in resources
    return f"{resource}/{subresource}" in resources or f"{ALL}/{subresource}" in resources


def _path_covers(owner: str, path: str) -> bool:
    if owner == path:
        return True
    return owner.endswith(ALL) and path.startswith(owner.rstrip(ALL))


def missing(owned: Iterable[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return the single permissions in `wanted` that no owned rule covers.

    Each single permission is covered by one rule or by none; rules are not combined. If there are
    too many, the wanted rules are not broken down: each is covered as a whole, or it is missing.
    """
    owned_rules = _OwnedRules(owned)
    # A subject with all permissions needs no limit.
    left = [each for each in wanted if not owned_rules.covers_whole(each)]
    if sum(each.permission_count for each in left) > PERMISSIONS_COMPARED_MAX:
        return left
    return [permission for each in left for permission in owned_rules.lacking(each)]


class _OwnedRule:
    """An owned rule, indexed for many lookups: a role can contain thousands of names."""

    __slots__ = ("groups", "names", "paths", "prefixes", "resources", "verbs")

    def __init__(self, rule: PolicyRule) -> None:
        self.verbs, self.groups = frozenset(rule.verbs), frozenset(rule.api_groups)
        self.resources, self.names = frozenset(rule.resources), frozenset(rule.resource_names)
        self.paths = frozenset(rule.paths)
        self.prefixes = tuple(each.rstrip(ALL) for each in rule.paths if each.endswith(ALL))

    def has_verb(self, verb: str) -> bool:
        return ALL in self.verbs or verb in self.verbs

    def has_group(self, group: str) -> bool:
        return ALL in self.groups or group in self.groups

    def has_resource(self, resource: str) -> bool:
        if ALL in self.resources or resource in self.resources:
            return True
        _, slash, part = resource.partition("/")
        return bool(slash) and f"{ALL}/{part}" in self.resources

    def has_name(self, name: str) -> bool:
        return not self.names or name in self.names

    def has_path(self, path: str) -> bool:
        return not self.names and (path in self.paths or path.startswith(self.prefixes))


class _OwnedRules:
    """All owned rules. The rules that cover each verb, group or resource are computed once, as a
    bit mask, so checking one of many combinations is cheap.
    """

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self._rules = tuple(map(_OwnedRule, dict.fromkeys(rules)))
        self._known: dict[tuple[_Has, str], int] = {}
        self._unnamed = self._bits(lambda rule, _: not rule.names, "")

    def covers_whole(self, rule: PolicyRule) -> bool:
        """Report whether a single owned rule covers all permissions of a rule."""
        # A rule without resources and paths grants nothing, so it is covered.
        has_resources = bool(rule.api_groups and rule.resources)
        if not rule.verbs or not (has_resources or rule.paths):
            return True
        found = self._all_of(_OwnedRule.has_verb, rule.verbs)
        if has_resources:
            found &= self._all_of(_OwnedRule.has_group, rule.api_groups)
            found &= self._all_of(_OwnedRule.has_resource, rule.resources)
            for _, covered in self._names(rule):
                found &= covered
        return bool(found & self._all_of(_OwnedRule.has_path, rule.paths))

    def lacking(self, rule: PolicyRule) -> Iterator[PolicyRule]:
        """Return the permissions of a rule that no owned rule covers.

        Each is one verb on one resource, with at most one name, or on one path.
        """
        verbs = [(verb, self._covering(_OwnedRule.has_verb, verb)) for verb in rule.verbs]
        names = self._names(rule)
        for group in rule.api_groups:
            in_group = self._covering(_OwnedRule.has_group, group)
            for resource in rule.resources:
                on_resource = in_group & self._covering(_OwnedRule.has_resource, resource)
                for verb, with_verb in verbs:
                    for name, covered in names:
                        if not on_resource & with_verb & covered:
                            yield PolicyRule((verb,), (group,), (resource,), name)
        for path in rule.paths:
            on_path = self._covering(_OwnedRule.has_path, path)
            for verb, with_verb in verbs:
                if not on_path & with_verb:
                    yield PolicyRule((verb,), paths=(path,))

    def _names(self, rule: PolicyRule) -> list[tuple[tuple[str, ...], int]]:
        if not rule.resource_names:
            return [((), self._unnamed)]
        has = _OwnedRule.has_name
        return [((name,), self._covering(has, name)) for name in rule.resource_names]

    def _all_of(self, has: _Has, words: Iterable[str]) -> int:
        found = (1 << len(self._rules)) - 1
        for word in words:
            found &= self._covering(has, word)
        return found

    def _covering(self, has: _Has, word: str) -> int:
        found = self._known.get((has, word))
        if found is None:
            found = self._known[has, word] = self._bits(has, word)
        return found

    def _bits(self, has: _Has, word: str) -> int:
        return sum(1 << at for at, rule in enumerate(self._rules) if has(rule, word))


_Has = Callable[[_OwnedRule, str], bool]


def compact(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Merge rules that differ only in their verbs."""
    together: dict[PolicyRule, list[str]] = {}
    others: list[PolicyRule] = []
    for rule in rules:
        groups, resources = rule.api_groups, rule.resources
        if len(rule.resource_names) > 1 or rule.paths or len(groups) != 1 or len(resources) != 1:
            others.append(rule)
            continue
        key = PolicyRule((), groups, resources, rule.resource_names)
        together.setdefault(key, []).extend(rule.verbs)
    joined = (
        PolicyRule(tuple(verbs), key.api_groups, key.resources, key.resource_names)
        for key, verbs in together.items()
    )
    return [*others, *joined]


def union(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """Return the rules without duplicates, in order."""
    return tuple(dict.fromkeys(rules))


def description(rule: PolicyRule) -> str:
    """Format a rule on one line, for the message of a 403."""
    parts = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.paths),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    shown = (f"{name}:{quoted_list(values)}" for name, values in parts if values)
    return "{" + ", ".join(shown) + "}"


def quoted_list(values: Iterable[str]) -> str:
    """Format strings as a list in a message: `["a" "b"]`."""
    return "[" + " ".join(map(quoted, values)) + "]"


def quoted(text: str) -> str:
    """Quote a string; characters that could break a line or a terminal are escaped."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(each if each.isprintable() else _escaped(each) for each in plain) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(
        character,
        f"\\x{code:02x}"
        if code < 0x80
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}",
    )
