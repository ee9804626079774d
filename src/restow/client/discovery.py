"""Discovery: groups, resources, storage version hashes, and lookup by name.

It reads the unaggregated documents, because the aggregated one has no `storageVersionHash`. Types
are checked: invalid entries are skipped.

Pure. Not here: fetching the documents (`client`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from restow.apimachinery.names import (
    GroupKind,
    GroupResource,
    GroupVersion,
    GroupVersionResource,
)
from restow.client.errors import NoSuchResource

GROUP_VERSIONS_MAX: Final = 5_000
RESOURCES_MAX: Final = 50_000
NAME_LENGTH_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """An API group and its versions, in the server's order; the core group has no name."""

    name: str
    versions: tuple[str, ...]
    preferred: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """A resource in one version: its names and verbs."""

    group: str
    version: str
    name: str
    kind: str
    is_namespaced: bool
    verbs: frozenset[str] = frozenset()
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    storage_version_hash: str = ""
    """Empty if the resource is not stored, or the server does not send it."""
    subresources: frozenset[str] = frozenset()

    @property
    def resource(self) -> GroupVersionResource:
        """The name for the verbs of a client."""
        return GroupVersionResource(self.group, self.version, self.name)

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.name)

    @property
    def group_kind(self) -> GroupKind:
        return GroupKind(self.group, self.kind)


@dataclass(frozen=True, slots=True)
class DiscoveredResources:
    """All resources of a server, in the order of name lookups."""

    groups: tuple[ApiGroup, ...]
    resources: tuple[ApiResource, ...]
    failures: Mapping[GroupVersion, Exception] = field(default_factory=dict)
    """Group versions that could not be read, for example because an aggregated server is down."""

    def preferred(self) -> tuple[ApiResource, ...]:
        """Each resource once: in its group's preferred version, or the first one that has it."""
        wanted = {group.name: group.preferred for group in self.groups}
        found: dict[GroupResource, ApiResource] = {}
        for each in self.resources:
            is_preferred = wanted.get(each.group) == each.version
            if each.group_resource not in found or is_preferred:
                found[each.group_resource] = each
        return tuple(found.values())

    def find(self, text: str) -> ApiResource:
        """Find a resource by name: `deploy`, `deployments.apps`, `deployments.v1.apps`.

        Names, singulars, short names and kinds, case-insensitive. The first matching group is used.
        """
        wanted = text.strip().lower()
        if 0 < len(wanted) <= NAME_LENGTH_MAX:
            name, _, group = wanted.partition(".")
            version, _, group_behind_version = group.partition(".")
            preferred = self.preferred()
            for names in (_names, _short_names, _kinds):
                for each in preferred:
                    if name in names(each) and group in {"", each.group}:
                        return each
                for each in self.resources:
                    place = (each.version, each.group)
                    if name in names(each) and place == (version, group_behind_version):
                        return each
        raise self._unknown(text)

    def _unknown(self, text: str) -> NoSuchResource:
        message = f"the server has no resource {text[:NAME_LENGTH_MAX]!r}"
        known = [str(each.group_resource) for each in self.preferred()]
        known += [name for each in self.preferred() for name in (*each.short_names, each.singular)]
        if close := difflib.get_close_matches(text.lower()[:64], known, n=3):
            message += f"; did you mean {', '.join(close)}?"
        if self.failures:
            failed = ", ".join(sorted(map(str, self.failures))[:10])
            message += f" (not searched, because discovery failed: {failed})"
        return NoSuchResource(message)


def read_core(document: Mapping[str, Any]) -> ApiGroup | None:
    """Read the core group from `/api`; None if the server has none."""
    versions = tuple(_texts(document.get("versions")))
    return ApiGroup("", versions, versions[0]) if versions else None


def read_groups(document: Mapping[str, Any]) -> list[ApiGroup]:
    """Read the named groups from `/apis`, in order."""
    return [found for each in _mappings(document.get("groups")) if (found := _group(each))]


def read_resources(document: Mapping[str, Any], group_version: GroupVersion) -> list[ApiResource]:
    """Read the resources of `/api/v1` or `/apis/G/V`, each with the names of its subresources."""
    entries = [each for each in _mappings(document.get("resources")) if _text(each.get("name"))]
    parts: dict[str, set[str]] = {}
    for each in entries:
        name, slash, part = each["name"].partition("/")
        if slash:
            parts.setdefault(name, set()).add(part)
    return [
        ApiResource(
            group=group_version.group,
            version=group_version.version,
            name=each["name"],
            kind=_text(each.get("kind")),
            is_namespaced=each.get("namespaced") is True,
            verbs=frozenset(_texts(each.get("verbs"))),
            singular=_text(each.get("singularName")),
            short_names=tuple(_texts(each.get("shortNames"))),
            categories=tuple(_texts(each.get("categories"))),
            storage_version_hash=_text(each.get("storageVersionHash")),
            subresources=frozenset(parts.get(each["name"], ())),
        )
        for each in entries
        if "/" not in each["name"]
    ]


def _group(entry: Mapping[str, Any]) -> ApiGroup | None:
    name = _text(entry.get("name"))
    found = [_text(each.get("version")) for each in _mappings(entry.get("versions"))]
    versions = tuple(each for each in found if each)
    if not name or not versions:
        return None
    wanted = entry.get("preferredVersion")
    preferred = _text(wanted.get("version")) if isinstance(wanted, dict) else ""
    return ApiGroup(name, versions, preferred if preferred in versions else versions[0])


def _names(each: ApiResource) -> Iterable[str]:
    return (each.name, each.singular or each.kind.lower())


def _short_names(each: ApiResource) -> Iterable[str]:
    return each.short_names


def _kinds(each: ApiResource) -> Iterable[str]:
    return (each.kind.lower(),)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _mappings(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
