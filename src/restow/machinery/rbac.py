"""Rules of roles: what one allows, and whether some rules cover others.

Pure: rules and questions in, answers out. The words are the reference's, so that a role means here
what it means on any cluster:

- `*` as a verb, group or resource stands for all; `*/scale` for that part of every resource;
- a rule with names allows nothing to a request without a name, such as a create;
- a path that ends in `*` stands for all that begin so.

Not here: who has which rules (`restow.serving.authorization`), and the objects they are stored in
(`rbac_objects`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct, field

ALL: Final = "*"
BROKEN_DOWN_MAX: Final = 100_000
"""How many single rights rules may stand for, to be compared one by one. A role that fits into a
request can name many more: it is refused to whoever does not hold all of everything."""


class Rule(Struct, frozen=True, omit_defaults=True):
    """One rule of a role: verbs on resources, or on paths that are none."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = field(default=(), name="apiGroups")
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = field(default=(), name="resourceNames")
    paths: tuple[str, ...] = field(default=(), name="nonResourceURLs")

    def matches(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Whether it is about such requests, whatever they name."""
        return (
            (verb in self.verbs or ALL in self.verbs)
            and (group in self.api_groups or ALL in self.api_groups)
            and _has_resource(self.resources, resource, subresource)
        )

    def allows_path(self, verb: str, path: str) -> bool:
        """Whether it allows a request that is about no resource."""
        if verb not in self.verbs and ALL not in self.verbs:
            return False
        return any(_path_covers(each, path) for each in self.paths)

    @property
    def rights(self) -> int:
        """How many single rights it stands for, at most."""
        on_resources = len(self.api_groups) * len(self.resources) * max(1, len(self.resource_names))
        return len(self.verbs) * (on_resources + len(self.paths))


EVERYTHING: Final = (
    Rule((ALL,), (ALL,), (ALL,)),
    Rule((ALL,), paths=(ALL,)),
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


def missing(owned: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The single rights among those wanted that no rule of the owned ones covers.

    Each single right is covered by one rule or by none: rights are never added up. What is wanted
    is not taken apart when there is too much of it; then it is covered whole or it is missing.
    """
    held = list(dict.fromkeys(owned))
    # Whoever holds everything need not have it counted.
    left = [each for each in wanted if not any(_covers_whole(rule, each) for rule in held)]
    if sum(each.rights for each in left) > BROKEN_DOWN_MAX:
        return left
    return [
        right
        for each in left
        for right in broken_down(each)
        if not any(_covers(rule, right) for rule in held)
    ]


def broken_down(rule: Rule) -> Iterator[Rule]:
    """A rule as rules with one verb on one resource, of at most one name, or on one path."""
    names: tuple[tuple[str, ...], ...] = tuple((name,) for name in rule.resource_names) or ((),)
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for name in names:
                    yield Rule((verb,), (group,), (resource,), name)
    for path in rule.paths:
        for verb in rule.verbs:
            yield Rule((verb,), paths=(path,))


def _covers_whole(owner: Rule, rule: Rule) -> bool:
    """Whether one rule covers all that another stands for."""
    # What names no resource and no path stands for nothing, and is covered by anybody.
    has_resources = bool(rule.api_groups and rule.resources)
    if not rule.verbs or not (has_resources or rule.paths):
        return True
    on_resources = Rule(rule.verbs, rule.api_groups, rule.resources, rule.resource_names)
    return (not has_resources or _covers(owner, on_resources)) and (
        not rule.paths or _covers(owner, Rule(rule.verbs, paths=rule.paths))
    )


def _covers(owner: Rule, rule: Rule) -> bool:
    """Whether a rule covers all rights of another, which is about resources or about paths."""
    if owner.resource_names and not rule.resource_names:
        return False
    return (
        _all_in(rule.verbs, owner.verbs)
        and _all_in(rule.api_groups, owner.api_groups)
        and all(_covers_resource(owner.resources, each) for each in rule.resources)
        and all(any(_path_covers(own, each) for own in owner.paths) for each in rule.paths)
        and (not owner.resource_names or set(rule.resource_names) <= set(owner.resource_names))
    )


def _all_in(wanted: tuple[str, ...], held: tuple[str, ...]) -> bool:
    return ALL in held or set(wanted) <= set(held)


def _covers_resource(held: tuple[str, ...], resource: str) -> bool:
    if ALL in held or resource in held:
        return True
    _, slash, part = resource.partition("/")
    return bool(slash) and f"{ALL}/{part}" in held


def compact(rules: Iterable[Rule]) -> list[Rule]:
    """Rules that differ only in their verbs, put together."""
    together: dict[Rule, list[str]] = {}
    others: list[Rule] = []
    for rule in rules:
        groups, resources = rule.api_groups, rule.resources
        if len(rule.resource_names) > 1 or rule.paths or len(groups) != 1 or len(resources) != 1:
            others.append(rule)
            continue
        key = Rule((), groups, resources, rule.resource_names)
        together.setdefault(key, []).extend(rule.verbs)
    joined = (
        Rule(tuple(verbs), key.api_groups, key.resources, key.resource_names)
        for key, verbs in together.items()
    )
    return [*others, *joined]


def union(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Each rule once, in order."""
    return tuple(dict.fromkeys(rules))


def description(rule: Rule) -> str:
    """A rule in one line, as refusals show it."""
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
    """Texts as a list in a message: `["a" "b"]`."""
    return "[" + " ".join(map(quoted, values)) + "]"


def quoted(text: str) -> str:
    """A text in quotes; what could break a line or a terminal is escaped."""
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
