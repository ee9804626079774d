"""Rules of roles: what one allows, and whether some rules cover others.

Pure: rules and questions in, answers out. The words are the reference's, so that a role means here
what it means on any cluster:

- `*` as a verb, group or resource stands for all; `*/scale` for that part of every resource;
- a rule with names allows nothing to a request without a name, such as a create;
- a path that ends in `*` stands for all that begin so.

Not here: who has which rules (`restow.authorization`), and the objects they are stored in
(`rbac_objects`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct, field

ALL: Final = "*"
BROKEN_DOWN_MAX: Final = 20_000
"""How many single rights rules may stand for, to be compared one by one. A role that fits into a
request can name many more: it is refused to whoever does not hold each of its rules whole."""


class PolicyRule(Struct, frozen=True, omit_defaults=True):
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
    """The single rights among those wanted that no rule of the owned ones covers.

    Each single right is covered by one rule or by none: rights are never added up. What is wanted
    is not taken apart when there is too much of it; then it is covered whole or it is missing.
    """
    held = _Held(owned)
    # Whoever holds everything need not have it counted.
    left = [each for each in wanted if not held.covers_whole(each)]
    if sum(each.rights for each in left) > BROKEN_DOWN_MAX:
        return left
    return [right for each in left for right in held.lacking(each)]


class _Holder:
    """A rule that somebody holds, to be asked often: a role can name thousands of each."""

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


class _Held:
    """All rules that somebody holds. Which of them cover a word of a rule is found out once, as a
    number with a bit for each: then to ask for one of many combinations costs next to nothing."""

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self._holders = tuple(map(_Holder, dict.fromkeys(rules)))
        self._known: dict[tuple[_Has, str], int] = {}
        self._unnamed = self._bits(lambda holder, _: not holder.names, "")

    def covers_whole(self, rule: PolicyRule) -> bool:
        """Whether one rule covers all that another stands for."""
        # What names no resource and no path stands for nothing, and is covered by anybody.
        has_resources = bool(rule.api_groups and rule.resources)
        if not rule.verbs or not (has_resources or rule.paths):
            return True
        found = self._all_of(_Holder.has_verb, rule.verbs)
        if has_resources:
            found &= self._all_of(_Holder.has_group, rule.api_groups)
            found &= self._all_of(_Holder.has_resource, rule.resources)
            for _, covered in self._names(rule):
                found &= covered
        return bool(found & self._all_of(_Holder.has_path, rule.paths))

    def lacking(self, rule: PolicyRule) -> Iterator[PolicyRule]:
        """The rights of a rule that none covers: one verb on one resource, of at most one name, or
        on one path."""
        verbs = [(verb, self._covering(_Holder.has_verb, verb)) for verb in rule.verbs]
        names = self._names(rule)
        for group in rule.api_groups:
            in_group = self._covering(_Holder.has_group, group)
            for resource in rule.resources:
                on_it = in_group & self._covering(_Holder.has_resource, resource)
                for verb, doing in verbs:
                    for name, covered in names:
                        if not on_it & doing & covered:
                            yield PolicyRule((verb,), (group,), (resource,), name)
        for path in rule.paths:
            at_it = self._covering(_Holder.has_path, path)
            for verb, doing in verbs:
                if not at_it & doing:
                    yield PolicyRule((verb,), paths=(path,))

    def _names(self, rule: PolicyRule) -> list[tuple[tuple[str, ...], int]]:
        if not rule.resource_names:
            return [((), self._unnamed)]
        has = _Holder.has_name
        return [((name,), self._covering(has, name)) for name in rule.resource_names]

    def _all_of(self, has: _Has, words: Iterable[str]) -> int:
        found = (1 << len(self._holders)) - 1
        for word in words:
            found &= self._covering(has, word)
        return found

    def _covering(self, has: _Has, word: str) -> int:
        found = self._known.get((has, word))
        if found is None:
            found = self._known[has, word] = self._bits(has, word)
        return found

    def _bits(self, has: _Has, word: str) -> int:
        return sum(1 << at for at, holder in enumerate(self._holders) if has(holder, word))


_Has = Callable[[_Holder, str], bool]


def compact(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Rules that differ only in their verbs, put together."""
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
    """Each rule once, in order."""
    return tuple(dict.fromkeys(rules))


def description(rule: PolicyRule) -> str:
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
