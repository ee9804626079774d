"""The catalogue: all that this server hosts. It alone says so.

Routes, discovery, hashes, OpenAPI and reports are read from here, so they cannot disagree. What a
release hosts stays as long as the server runs; custom resources come, change and go. Each change
costs the same however many there are, and counts up `changes`: whoever keeps something that was
made from the catalogue compares it, or is told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from restow.apimachinery.names import GroupKind, GroupVersion, GroupVersionKind, version_priority
from restow.apimachinery.version_hash import storage_version_hash
from restow.kinds.builtin import group_order
from restow.kinds.releases import Release, ReleaseKind, default_release
from restow.registry.resource import OpenShape, Resource, Shape
from restow.registry.shapes import BuiltinShape

OnChange = Callable[[str], None]
"""Told of the group in which something has changed."""


class Catalog:
    """Hosted resources, by every name they can be asked for."""

    def __init__(self, resources: Iterable[Resource], *, name: str = "") -> None:
        self.name = name
        """The release it was made from."""
        self.changes = 0
        """How often something has been hosted or dropped."""
        self.listeners: list[OnChange] = []
        self._resources: dict[tuple[str, str], Resource] = {}
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[GroupKind, Resource] = {}
        self._by_group: dict[str, dict[str, Resource]] = {}
        self._versions: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By group, in how many resources a version is served."""
        self.groups: dict[str, tuple[str, ...]] = {}
        """Groups in the order of discovery, each with its versions, the preferred first."""
        for resource in resources:
            self._add(resource)
        self._order_groups()

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._resources.values()))

    def __len__(self) -> int:
        return len(self._resources)

    def host(self, resource: Resource) -> None:
        """Serve a resource from now on, in the place of what was there by its name."""
        before = self._resources.get((resource.group, resource.plural))
        if before is not None:
            self._remove(before)
        self._add(resource)
        self._changed(resource.group)

    def drop(self, group: str, plural: str) -> None:
        """Serve a resource no more."""
        before = self._resources.get((group, plural))
        if before is not None:
            self._remove(before)
            self._changed(group)

    def named(self, group: str, plural: str) -> Resource | None:
        """A resource in whatever version."""
        return self._resources.get((group, plural))

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource at a path."""
        return self._by_path.get((group, version, plural))

    def of_kind(self, group: str, kind: str) -> Resource | None:
        # A plain tuple is as good a key, and cheaper: every create asks for its namespace's kind.
        return self._by_kind.get((group, kind))  # type: ignore[call-overload, no-any-return]

    def in_group(self, group: str) -> list[Resource]:
        return list(self._by_group.get(group, {}).values())

    def in_version(self, group: str, version: str) -> list[Resource]:
        """The resources that are served in a group version."""
        return [resource for resource in self.in_group(group) if version in resource.served]

    def persisted(self) -> list[Resource]:
        """The resources whose objects are stored, those that share a store once."""
        found: dict[str, Resource] = {}
        for resource in self._resources.values():
            if resource.kind.persisted and resource.kind.cohabits_with is None:
                found[resource.root] = resource
        return list(found.values())

    def _add(self, resource: Resource) -> None:
        self._resources[resource.group, resource.plural] = resource
        self._by_kind[resource.kind.group_kind] = resource
        self._by_group.setdefault(resource.group, {})[resource.plural] = resource
        for version in resource.served:
            self._by_path[resource.group, version, resource.plural] = resource
            self._versions[resource.group][version] += 1

    def _remove(self, resource: Resource) -> None:
        del self._resources[resource.group, resource.plural]
        del self._by_group[resource.group][resource.plural]
        if self._by_kind.get(resource.kind.group_kind) is resource:
            del self._by_kind[resource.kind.group_kind]
        for version in resource.served:
            del self._by_path[resource.group, version, resource.plural]
            self._versions[resource.group][version] -= 1

    def _changed(self, group: str) -> None:
        self._order_group(group)
        self.changes += 1
        for listener in self.listeners:
            listener(group)

    def _order_group(self, group: str) -> None:
        versions = [version for version, count in self._versions[group].items() if count]
        is_new = group not in self.groups
        if versions:
            self.groups[group] = tuple(sorted(versions, key=version_priority))
            if is_new:
                self._sort_groups()
        elif not is_new:
            del self.groups[group]

    def _order_groups(self) -> None:
        for group in self._by_group:
            self._order_group(group)
        self._sort_groups()

    def _sort_groups(self) -> None:
        self.groups = {group: self.groups[group] for group in sorted(self.groups, key=group_order)}


def version_hash_of(resource: Resource, api_version: str) -> str:
    """What discovery says of a version in which a resource is stored."""
    group, version = GroupVersion.parse(api_version)
    return storage_version_hash(GroupVersionKind(group, version, resource.kind.store.kind))


def release_catalog(release: Release) -> Catalog:
    """What a server of this release hosts."""
    return Catalog([_hosted(kind) for kind in release.kinds], name=release.name)


def builtin_catalog() -> Catalog:
    """Every built-in kind."""
    return release_catalog(default_release())


def _hosted(kind: ReleaseKind) -> Resource:
    definition, converter = kind.definition, kind.converter()
    shape: Shape = OpenShape()
    if kind.schema == "builtin":
        shape = BuiltinShape(definition, converter)
    decodable = [definition.api_version(version) for version in kind.decodable_versions]
    if kind.conversion == "builtin":
        # Versions of the groups that share this store are as good as its own.
        decodable += [
            version
            for version in converter.versions
            if GroupVersion.parse(version).group != definition.group
        ]
    return Resource(
        kind=definition,
        served=kind.served_versions,
        decodable=tuple(decodable),
        storage_api_version=kind.storage_api_version,
        converter=converter,
        shape=shape,
    )
