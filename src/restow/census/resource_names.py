"""Maps keys of the store to resources, and resources to key prefixes.

Kubernetes stores built-in resources under their plural, some under other names, and those of other
groups under `<group>/<plural>`. That part of the key is the *root*: `minions`, `services/specs`,
`example.com/widgets`. A resource without a known name is identified by its prefix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource, GroupVersion
from restow.kinds.builtin import all_kinds, builtin_roots, find_kind, find_resource

PREFIX_DEFAULT: Final = "/registry/"

STORAGE_VERSIONS: Final = "storageversions"
DEFINITIONS: Final = "apiextensions.k8s.io/customresourcedefinitions"
STORAGE_STATES: Final = "migration.k8s.io/storagestates"
TARGET_ROOTS: Final = (STORAGE_VERSIONS, DEFINITIONS, STORAGE_STATES)
"""Objects that define the target version of resources."""


@cache
def pinned_names() -> frozenset[str]:
    """Resources that servers never encrypt, because the agreement on keys depends on them."""
    return frozenset(str(kind.group_resource) for kind in all_kinds() if kind.pinned)


@cache
def _long_heads() -> frozenset[str]:
    """First segments of roots that have two."""
    return frozenset(root.partition("/")[0] for root in builtin_roots() if "/" in root)


def root_of(rest: str) -> str:
    """The root of a key, given without the common prefix of all objects."""
    head, slash, tail = rest.partition("/")
    if not slash:
        return ""
    if "." not in head and head not in _long_heads():
        return head
    word, slash, _ = tail.partition("/")
    return f"{head}/{word}" if slash else head


def is_whole(root: str) -> bool:
    """Whether every key with this root as its prefix belongs to it.

    For a key without a name under a group, such as `example.com/a`, the root is the group alone;
    the keys of the group's resources have that prefix as well.
    """
    return "/" in root or bool(root and "." not in root and root not in _long_heads())


def name_of(root: str, api_version: str) -> GroupResource | None:
    """The resource of a root; None if it has no name.

    A root of one segment that is not built in here is the plural of a kind that another server
    builds in; only the value contains its group. The core group has no such kinds: a root that
    looks like one is a list of addresses or ports.
    """
    builtin = builtin_roots().get(root)
    if builtin is not None:
        return builtin
    head, slash, word = root.partition("/")
    if slash:
        return GroupResource(head, word) if "." in head and word else None
    group = _group_of(api_version)
    return GroupResource(group, root) if root and group and "." not in root else None


def canonical(text: str) -> str:
    """The census' name of a resource that the user may name differently."""
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
    """The resources to count: the named ones, or all if none is named."""

    names: tuple[str, ...] = ()
    """`deployments.apps`, `deployments`, or a prefix as the census prints it."""

    @classmethod
    def of(cls, words: Iterable[str]) -> ResourceSelection:
        return cls(tuple(dict.fromkeys(canonical(word) for word in words)))

    def prefixes(self, prefix: str) -> tuple[str, ...]:
        """Disjoint prefixes of all keys that must be read, including those of the targets."""
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
    """Whether a name given by the user selects this resource; a bare plural matches any group."""
    return name == resource or (
        "." not in name and not name.startswith("/") and name == resource.partition(".")[0]
    )


def is_builtin(name: str) -> bool:
    """Whether a name given by the user is a built-in resource."""
    return any(means(name, str(resource)) for resource in builtin_roots().values())


def _possible_roots(name: str) -> set[str]:
    builtin = {root for root, resource in builtin_roots().items() if means(name, str(resource))}
    if builtin or "." not in name:
        return builtin
    plural, _, group = name.partition(".")
    return {f"{group}/{plural}", plural}


def _group_of(api_version: str) -> str:
    try:
        return GroupVersion.parse(api_version).group
    except InvalidName:
        return ""
