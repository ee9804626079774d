"""The catalog: all resources that this server hosts. It is the only source of that information.

Routes, discovery, hashes, OpenAPI and StorageVersions are derived from it, so they cannot disagree.
The resources of a release stay while the server runs; custom resources are added, changed and
removed. The cost of a change does not depend on their number. Each change increments `changes` and
emits `changed`, so that data derived from the catalog can be invalidated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from restow.aio.events import EventChannel
from restow.apimachinery.names import GroupKind, GroupVersion, GroupVersionKind, version_priority
from restow.apimachinery.version_hash import storage_version_hash
from restow.kinds.builtin import group_order
from restow.kinds.releases import Release, ReleaseKind, default_release
from restow.registry.resource import OpenShape, Resource, Shape
from restow.registry.shapes import BuiltinShape

OnChange = Callable[[str], None]
"""Called with the API group in which a resource was added, replaced or removed."""


class Catalog:
    """Hosted resources, indexed by path, kind and group."""

    def __init__(self, resources: Iterable[Resource], *, name: str = "") -> None:
        self.name = name
        """Name of the release from which it was made."""
        self.changes = 0
        """Number of changes since the start."""
        self.changed: EventChannel[[str]] = EventChannel()
        self._resources: dict[tuple[str, str], Resource] = {}
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[GroupKind, Resource] = {}
        self._by_group: dict[str, dict[str, Resource]] = {}
        self._versions: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By group: the number of resources that are served in each version."""
        self.groups: dict[str, tuple[str, ...]] = {}
        """Groups in the order of discovery, each with its versions, the preferred version first."""
        for resource in resources:
            self._add(resource)
        self._order_groups()

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._resources.values()))

    def __len__(self) -> int:
        return len(self._resources)

    def host(self, resource: Resource) -> None:
        """Serve a resource from now on; it replaces a resource of the same name."""
        before = self._resources.get((resource.group, resource.plural))
        if before is not None:
            self._remove(before)
        self._add(resource)
        self._changed(resource.group)

    def drop(self, group: str, plural: str) -> None:
        """Stop serving a resource."""
        before = self._resources.get((group, plural))
        if before is not None:
            self._remove(before)
            self._changed(group)

    def named(self, group: str, plural: str) -> Resource | None:
        """Return a resource regardless of its versions."""
        return self._resources.get((group, plural))

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource of a request path."""
        return self._by_path.get((group, version, plural))

    def of_kind(self, group: str, kind: str) -> Resource | None:
        # A plain tuple is an equal key and cheaper: each create looks up the kind of its namespace.
        return self._by_kind.get((group, kind))  # type: ignore[call-overload, no-any-return]

    def required(self, group: str, kind: str) -> Resource:
        """Return a resource that every release of its user hosts."""
        resource = self.of_kind(group, kind)
        assert resource is not None, f"this release hosts no {kind}"
        return resource

    def in_group(self, group: str) -> list[Resource]:
        return list(self._by_group.get(group, {}).values())

    def in_version(self, group: str, version: str) -> list[Resource]:
        """Return the resources that are served in a group version."""
        return [resource for resource in self.in_group(group) if version in resource.served]

    def persisted(self) -> list[Resource]:
        """Return the resources whose objects are stored; resources that share a store once."""
        found: dict[str, Resource] = {}
        for resource in self._resources.values():
            # KEP-2339 3.5, 3.66: one StorageVersion for resources that share a store
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
        for api_version in resource.decodable:
            version_hash_of(resource, api_version)  # so that tables can show it as a version

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
        self.changed.emit(group)

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
    """Return the storage version hash that discovery shows for a stored version."""
    group, version = GroupVersion.parse(api_version)
    return storage_version_hash(GroupVersionKind(group, version, resource.kind.store.kind))


def release_catalog(release: Release) -> Catalog:
    """Return the catalog of a release."""
    return Catalog([_hosted(kind) for kind in release.kinds], name=release.name)


def builtin_catalog() -> Catalog:
    """Return the catalog of the default release."""
    return release_catalog(default_release())


def _hosted(kind: ReleaseKind) -> Resource:
    definition, converter = kind.definition, kind.converter()
    shape: Shape = OpenShape()
    if kind.schema == "builtin":
        shape = BuiltinShape(definition, converter)
    decodable = [definition.api_version(version) for version in kind.decodable_versions]
    if kind.conversion == "builtin":
        # Objects may also be stored in versions of the groups that share this store.
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
