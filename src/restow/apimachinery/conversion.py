"""Conversion between the versions of one kind: one version is the hub, the others are spokes.

A version is identified by its `apiVersion`, because two groups may share storage (`v1` and
`events.k8s.io/v1`). Every conversion goes through the hub, so a kind with five versions needs four
pairs of functions instead of twenty.

Functions are pure: they never modify their argument, and results may share parts with it. So
converted objects must not be modified, except at the top level.

Not here: the conversions of particular kinds (`restow.kinds.conversions`), and encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from restow.apimachinery.errors import ConversionFailed

Object = dict[str, Any]
Convert = Callable[[Object], Object]

# Raised by conversion functions if stored data do not match their version.
_BAD_DATA: Final = (AttributeError, KeyError, IndexError, TypeError, ValueError)


class Spoke(NamedTuple):
    """Conversions of one version to and from the hub. They ignore `apiVersion`."""

    to_hub: Convert
    from_hub: Convert


def _same(obj: Object) -> Object:
    return obj


# A version that differs from the hub only in its name.
SAME_SHAPE: Final = Spoke(_same, _same)


class Converter:
    """Converts between all versions of one kind."""

    __slots__ = ("_paths", "hub", "name", "spokes")

    def __init__(self, name: str, *, hub: str, spokes: Mapping[str, Spoke]) -> None:
        self.name = name
        """The kind's name in error messages."""
        self.hub = hub
        self.spokes = {hub: SAME_SHAPE, **spokes}
        self._paths: dict[tuple[str, str], tuple[Convert, ...]] = {}

    @property
    def versions(self) -> tuple[str, ...]:
        """Every convertible `apiVersion`, the hub first."""
        return tuple(self.spokes)

    def keeps_shape(self, from_version: str, to_version: str) -> bool:
        """Report whether two versions differ only in `apiVersion`."""
        return not self._path(from_version, to_version)

    def convert(self, obj: Object, from_version: str, to_version: str) -> Object:
        """Return the object in another version; the object itself if it already has that
        version.
        """
        if from_version == to_version and from_version in self.spokes:
            return obj
        converted = obj
        try:
            for step in self._path(from_version, to_version):
                converted = step(converted)
        except _BAD_DATA as error:
            raise ConversionFailed(
                f"{self.name} cannot be converted from {from_version} to {to_version}: {error}"
            ) from error
        if converted is obj:
            return {**obj, "apiVersion": to_version}
        converted["apiVersion"] = to_version
        return converted

    def _path(self, from_version: str, to_version: str) -> tuple[Convert, ...]:
        path = self._paths.get((from_version, to_version))
        if path is None:
            steps = (self._spoke(from_version).to_hub, self._spoke(to_version).from_hub)
            path = tuple(step for step in steps if step is not _same)
            # Two spokes with the same functions have the same shape: nothing to convert.
            if from_version == to_version or self._spoke(from_version) is self._spoke(to_version):
                path = ()
            self._paths[from_version, to_version] = path
        return path

    def _spoke(self, version: str) -> Spoke:
        spoke = self.spokes.get(version)
        if spoke is None:
            raise ConversionFailed(
                f"{self.name} has no version {version}; it has {', '.join(self.spokes)}"
            )
        return spoke


def renaming(name: str, versions: Iterable[str]) -> Converter:
    """Return a converter of versions that differ only in `apiVersion`. The first is the hub."""
    hub, *others = versions
    return Converter(name, hub=hub, spokes=dict.fromkeys(others, SAME_SHAPE))


def renamed_keys(obj: Object, names: Mapping[str, str]) -> Object:
    """Return a copy of an object with some top-level keys renamed, in the same order."""
    return {names.get(key, key): value for key, value in obj.items()}


def with_part(obj: Object, name: str, part: Any) -> Object:
    """Return a copy of an object with one member replaced, or removed if the part is None."""
    changed = {**obj, name: part}
    if part is None:
        del changed[name]
    return changed


def part_of(obj: Object, name: str) -> Object:
    """Return a member that is an object; empty if it is absent or null."""
    part = obj.get(name)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise TypeError(f"{name} is not an object")
    return part
