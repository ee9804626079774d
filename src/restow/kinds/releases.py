"""Releases: named catalogues of which kinds exist, in which versions, and which one is stored.

A release is a YAML file. Reading it checks everything that can be known without a server, and each
error names the file, the line, and what to do. docs/reference/releases.md describes the format.

Not here: what a server makes of a release (`restow.registry`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, Literal

from restow.apimachinery.conversion import Converter, renaming
from restow.apimachinery.names import GroupKind, GroupResource
from restow.kinds.builtin import all_kinds
from restow.kinds.conversions import converter_of
from restow.kinds.definitions import Kind, api_version

__all__ = [
    "Release",
    "ReleaseError",
    "ReleaseKind",
    "ReleaseVersion",
    "default_release",
    "load_release",
    "shipped_release",
    "shipped_releases",
]

ConversionName = Literal["builtin", "rename", "none"]
SchemaName = Literal["builtin", "open"]

DEFAULT_NAME: Final = "builtin"
FILE_SIZE_MAX: Final = 4 * 1024 * 1024
_SUFFIX: Final = ".yaml"


class ReleaseError(Exception):
    """A release that cannot be used; the text says where it is wrong and why."""


@dataclass(frozen=True, slots=True)
class ReleaseVersion:
    """One version of a kind in a release."""

    name: str
    served: bool = True
    """Clients may use it."""
    decodable: bool = True
    """What is stored in it can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKind:
    """One kind in a release."""

    definition: Kind
    """How it behaves, whatever its versions."""
    versions: tuple[ReleaseVersion, ...]
    """The one to prefer first."""
    storage: str
    """The version that is written. Of a kind that shares a store: that store's version."""
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
        """What converts objects between the versions."""
        definition = self.definition
        if self.conversion == "builtin":
            return converter_of(definition.group, definition.kind)
        names = [definition.api_version(version.name) for version in self.versions]
        return renaming(f"{definition.group_kind}", names)


@dataclass(frozen=True, slots=True)
class Release:
    """A catalogue with a name."""

    name: str
    kinds: tuple[ReleaseKind, ...]

    def kind(self, group: str, kind: str) -> ReleaseKind | None:
        """One of its kinds, by group and kind."""
        wanted = GroupKind(group, kind)
        return next((each for each in self.kinds if each.definition.group_kind == wanted), None)

    def resource(self, group: str, plural: str) -> ReleaseKind | None:
        """One of its kinds, by group and plural."""
        wanted = GroupResource(group, plural)
        return next((each for each in self.kinds if each.definition.group_resource == wanted), None)


def builtin_release_kind(kind: Kind) -> ReleaseKind:
    """A built-in kind as it is when no release says otherwise."""
    return ReleaseKind(
        definition=kind,
        versions=tuple(
            ReleaseVersion(version, served=version in kind.served_versions)
            for version in kind.versions
        ),
        storage=kind.storage_version,
    )


@cache
def default_release() -> Release:
    """All built-in kinds."""
    return Release(DEFAULT_NAME, tuple(builtin_release_kind(kind) for kind in all_kinds()))


def load_release(path: str | Path) -> Release:
    """Reads a release from a file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_release(data, str(path))


def parse_release(data: bytes, source: str) -> Release:
    """Reads a release from the bytes of a file; `source` is what errors call it."""
    # YAML is read only by those who have a file, and its library takes longer to load than this.
    from restow.kinds.release_reader import read_release  # noqa: PLC0415

    if len(data) > FILE_SIZE_MAX:
        raise ReleaseError(f"{source}: is larger than {FILE_SIZE_MAX} bytes")
    return read_release(data, source)


def shipped_releases() -> tuple[str, ...]:
    """Names of the releases that come with the package, in order."""
    folder = resources.files("restow.kinds") / "releases"
    return tuple(
        sorted(
            each.name.removesuffix(_SUFFIX) for each in folder.iterdir() if _is_release(each.name)
        )
    )


def shipped_release(name: str) -> Release:
    """One of the releases that come with the package, or the default one."""
    if name == DEFAULT_NAME:
        return default_release()
    if name not in shipped_releases():
        known = ", ".join((DEFAULT_NAME, *shipped_releases()))
        raise ReleaseError(f"no release {name!r} comes with restow; there are: {known}")
    file = resources.files("restow.kinds") / "releases" / f"{name}{_SUFFIX}"
    return parse_release(file.read_bytes(), f"{name}{_SUFFIX}")


def _is_release(name: str) -> bool:
    return name.endswith(_SUFFIX)
