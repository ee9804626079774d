"""The resource that a key belongs to, and the keys that a resource may have.

Kubernetes keeps built-in resources under their plural, some under other words, and those of groups
that it does not build in under `<group>/<plural>`. A *root* is that part of the key: `minions`,
`services/specs`, `example.com/widgets`. What cannot be named is called by its prefix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource, GroupVersion
from restow.kinds.builtin import all_kinds, find_kind, find_resource

PREFIX_DEFAULT: Final = "/registry/"

STORAGE_VERSIONS: Final = "storageversions"
DEFINITIONS: Final = "apiextensions.k8s.io/customresourcedefinitions"
STORAGE_STATES: Final = "migration.k8s.io/storagestates"
TARGET_ROOTS: Final = (STORAGE_VERSIONS, DEFINITIONS, STORAGE_STATES)
"""Where the store itself says in which version resources should be stored."""


@cache
def _builtin_roots() -> dict[str, GroupResource]:
    return {
        kind.key_prefix: kind.group_resource
        for kind in all_kinds()
        if kind.persisted and kind.cohabits_with is None
    }


@cache
def pinned_names() -> frozenset[str]:
    """The resources that servers never encrypt: they agree on keys through them."""
    return frozenset(str(kind.group_resource) for kind in all_kinds() if kind.pinned)


@cache
def _long_heads() -> frozenset[str]:
    """First words of roots that have two."""
    return frozenset(root.partition("/")[0] for root in _builtin_roots() if "/" in root)


def root_of(rest: str) -> str:
    """The root in a key, given without the prefix that all objects have."""
    head, slash, tail = rest.partition("/")
    if not slash:
        return ""
    if "." not in head and head not in _long_heads():
        return head
    word, slash, _ = tail.partition("/")
    return f"{head}/{word}" if slash else head


def is_whole(root: str) -> bool:
    """Whether every key that begins with this root belongs to it.

    A key without a name under a group, such as `example.com/a`, has the group alone as its root;
    the keys of the resources of that group begin with it as well.
    """
    return "/" in root or bool(root and "." not in root and root not in _long_heads())


def name_of(root: str, api_version: str) -> GroupResource | None:
    """The resource of a root; None if it cannot be named.

    A root of one word that is no built-in kind of ours is the plural of one that another server
    builds in, whose group stands only in the value. The core group has no such kinds: what looks
    like it is a list of addresses or ports.
    """
    builtin = _builtin_roots().get(root)
    if builtin is not None:
        return builtin
    head, slash, word = root.partition("/")
    if slash:
        return GroupResource(head, word) if "." in head and word else None
    group = _group_of(api_version)
    return GroupResource(group, root) if root and group and "." not in root else None


def canonical(text: str) -> str:
    """How the census calls a resource that a person may call otherwise."""
    try:
        group, plural = GroupResource.parse(text)
    except InvalidName:
        return text
    kind = find_resource(group, plural)
    if kind is None or kind.cohabits_with is None:
        return text
    home = find_kind(kind.cohabits_with.group, kind.cohabits_with.kind)
    return str(home.group_resource) if home else text


@dataclass(frozen=True, slots=True)
class ResourceSelection:
    """The resources that are counted: those named, or all."""

    names: tuple[str, ...] = ()
    """`deployments.apps`, `deployments`, or a prefix as the census shows it."""

    @classmethod
    def of(cls, words: Iterable[str]) -> ResourceSelection:
        return cls(tuple(dict.fromkeys(canonical(word) for word in words)))

    def prefixes(self, prefix: str) -> tuple[str, ...]:
        """Prefixes of all keys that need be read, none inside another, with the targets' own."""
        roots: set[str] = set()
        for name in self.names:
            if name.startswith("/"):
                roots.add(name.removeprefix(prefix).rstrip("/"))
                continue
            possible = _possible_roots(name)
            if not possible:
                return (prefix,)
            roots |= possible
        if not roots:
            return (prefix,)
        wanted = sorted(f"{prefix}{root}/" for root in {*roots, *TARGET_ROOTS})
        return tuple(
            each
            for number, each in enumerate(wanted)
            if not any(each.startswith(other) for other in wanted[:number])
        )

    def __contains__(self, resource: str) -> bool:
        return not self.names or any(means(name, resource) for name in self.names)


def means(name: str, resource: str) -> bool:
    """Whether a name that a person gave means this resource; a bare plural means any group's."""
    return name == resource or (
        "." not in name and not name.startswith("/") and name == resource.partition(".")[0]
    )


def is_builtin(name: str) -> bool:
    """Whether a name that a person gave means a built-in resource."""
    return any(means(name, str(resource)) for resource in _builtin_roots().values())


def _possible_roots(name: str) -> set[str]:
    builtin = {root for root, resource in _builtin_roots().items() if means(name, str(resource))}
    if builtin or "." not in name:
        return builtin
    plural, _, group = name.partition(".")
    return {f"{group}/{plural}", plural}


def _group_of(api_version: str) -> str:
    try:
        return GroupVersion.parse(api_version).group
    except InvalidName:
        return ""
