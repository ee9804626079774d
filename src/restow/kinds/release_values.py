"""Releases: named catalogues of kinds, with their versions and storage versions.

Not here: parsing one (`release_reader`), and the shipped ones (`releases`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from restow.apimachinery.conversion import Converter, renaming
from restow.apimachinery.names import GroupKind, GroupResource
from restow.kinds.conversions import converter_of
from restow.kinds.kind import Kind, api_version

ConversionName = Literal["builtin", "rename", "none"]
SchemaName = Literal["builtin", "open"]


class ReleaseError(Exception):
    """A release that cannot be used; the text names the place and the reason."""


@dataclass(frozen=True, slots=True)
class ReleaseVersion:
    """One version of a kind in a release."""

    name: str
    served: bool = True
    """Whether clients may use it."""
    decodable: bool = True
    """Whether objects that are stored in it can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKind:
    """One kind in a release."""

    definition: Kind
    """Its properties, independent of versions."""
    versions: tuple[ReleaseVersion, ...]
    """The preferred one first."""
    storage: str
    """The storage version. For a kind that shares a store: that store's version."""
    conversion: ConversionName = "builtin"
    schema: SchemaName = "builtin"

    @property
    def served_versions(self) -> tuple[str, ...]:
        return tuple(version.name for version in self.versions if version.served)

    @property
    def decodable_versions(self) -> tuple[str, ...]:
        return tuple(version.name for version in self.versions if version.decodable)

    @property
    def storage_api_version(self) -> str:
        """The `apiVersion` in stored bytes."""
        return api_version(self.definition.store.group, self.storage)

    def converter(self) -> Converter:
        """Return the converter between the versions."""
        definition = self.definition
        if self.conversion == "builtin":
            return converter_of(definition.group, definition.kind)
        names = [definition.api_version(version.name) for version in self.versions]
        return renaming(f"{definition.group_kind}", names)


@dataclass(frozen=True, slots=True)
class Release:
    """A named catalogue of kinds."""

    name: str
    kinds: tuple[ReleaseKind, ...]

    def kind(self, group: str, kind: str) -> ReleaseKind | None:
        """Find one of its kinds, by group and kind."""
        wanted = GroupKind(group, kind)
        return next((each for each in self.kinds if each.definition.group_kind == wanted), None)

    def resource(self, group: str, plural: str) -> ReleaseKind | None:
        """Find one of its kinds, by group and plural."""
        wanted = GroupResource(group, plural)
        return next((each for each in self.kinds if each.definition.group_resource == wanted), None)


def builtin_release_kind(kind: Kind) -> ReleaseKind:
    """Return a built-in kind with its default versions."""
    return ReleaseKind(
        definition=kind,
        versions=tuple(
            ReleaseVersion(version, served=version in kind.served_versions)
            for version in kind.versions
        ),
        storage=kind.storage_version,
    )
