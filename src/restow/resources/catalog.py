"""The catalogue: all that this server hosts. It alone says so.

Routes, discovery, hashes, OpenAPI and reports are read from here, so they cannot disagree. A
catalogue never changes; a server that hosts something else has another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from restow.kinds.builtin import group_order
from restow.kinds.releases import Release, ReleaseKind, default_release
from restow.machinery.names import GroupKind, GroupVersion, GroupVersionKind, version_priority
from restow.machinery.version_hash import storage_version_hash
from restow.resources.definition import Resource, Shape
from restow.resources.shapes import BuiltinShape, OpenShape


class Catalog:
    """Hosted resources, by every name they can be asked for."""

    def __init__(self, resources: Iterable[Resource], *, name: str = "") -> None:
        self.name = name
        """The release it was made from."""
        self.resources: tuple[Resource, ...] = tuple(resources)
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[GroupKind, Resource] = {}
        versions: dict[str, set[str]] = {}
        for resource in self.resources:
            self._by_kind[resource.kind.group_kind] = resource
            for version in resource.served:
                self._by_path[resource.group, version, resource.plural] = resource
                versions.setdefault(resource.group, set()).add(version)
        self.groups: dict[str, tuple[str, ...]] = {
            group: tuple(sorted(versions[group], key=version_priority))
            for group in sorted(versions, key=group_order)
        }
        """Groups in the order of discovery, each with its versions, the preferred first."""

    def __iter__(self) -> Iterator[Resource]:
        return iter(self.resources)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource at a path."""
        return self._by_path.get((group, version, plural))

    def of_kind(self, group: str, kind: str) -> Resource | None:
        # A plain tuple is as good a key, and cheaper: every create asks for its namespace's kind.
        return self._by_kind.get((group, kind))  # type: ignore[call-overload, no-any-return]

    def in_version(self, group: str, version: str) -> list[Resource]:
        """The resources that are served in a group version."""
        return [
            resource
            for resource in self.resources
            if resource.group == group and version in resource.served
        ]

    def persisted(self) -> list[Resource]:
        """The resources whose objects are stored, those that share a store once."""
        found: dict[str, Resource] = {}
        for resource in self.resources:
            if resource.kind.persisted and resource.kind.cohabits_with is None:
                found[resource.root] = resource
        return list(found.values())


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
