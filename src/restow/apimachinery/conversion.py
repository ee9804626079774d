"""Conversion between the versions of one kind: one version is the hub, each other one a spoke.

A version is named by its `apiVersion`, because two groups may share one store (`v1` and
`events.k8s.io/v1`). Every conversion goes through the hub, so a kind with five versions needs four
pairs of functions and not twenty.

Functions are pure: they never change what they are given, and what they return may share parts
with it. So nobody may change an object that was converted, except its top level.

Not here: the conversions of a particular kind (`restow.kinds.conversions`), and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from restow.apimachinery.errors import ConversionFailed

Object = dict[str, Any]
Convert = Callable[[Object], Object]

# What a conversion function raises when stored data are not what their version says.
_BAD_DATA: Final = (AttributeError, KeyError, IndexError, TypeError, ValueError)


class Spoke(NamedTuple):
    """How one version becomes the hub and comes back. `apiVersion` is not its business."""

    to_hub: Convert
    from_hub: Convert


def _same(obj: Object) -> Object:
    return obj


# A version that differs from the hub in nothing but its name.
SAME_SHAPE: Final = Spoke(_same, _same)


class Converter:
    """All versions of one kind, and the way from each to each other."""

    __slots__ = ("_paths", "hub", "name", "spokes")

    def __init__(self, name: str, *, hub: str, spokes: Mapping[str, Spoke]) -> None:
        self.name = name
        """What the kind is called in errors."""
        self.hub = hub
        self.spokes = {hub: SAME_SHAPE, **spokes}
        self._paths: dict[tuple[str, str], tuple[Convert, ...]] = {}

    @property
    def versions(self) -> tuple[str, ...]:
        """Every `apiVersion` that can be converted, the hub first."""
        return tuple(self.spokes)

    def keeps_shape(self, from_version: str, to_version: str) -> bool:
        """Whether the two versions differ in nothing but `apiVersion`."""
        return not self._path(from_version, to_version)

    def convert(self, obj: Object, from_version: str, to_version: str) -> Object:
        """The same object in another version; the object itself if it is already in it."""
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
            # Two spokes of one shape have the same functions: there and back again is nothing.
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
    """Versions that differ in nothing but `apiVersion`. The first is the hub."""
    hub, *others = versions
    return Converter(name, hub=hub, spokes=dict.fromkeys(others, SAME_SHAPE))


def renamed_keys(obj: Object, names: Mapping[str, str]) -> Object:
    """A copy of an object with some of its own keys called otherwise, in the same order."""
    return {names.get(key, key): value for key, value in obj.items()}


def with_part(obj: Object, name: str, part: Any) -> Object:
    """A copy of an object with one member replaced, or taken away if the part is None."""
    changed = {**obj, name: part}
    if part is None:
        del changed[name]
    return changed


def part_of(obj: Object, name: str) -> Object:
    """A member that is an object; empty if it is absent or null."""
    part = obj.get(name)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise TypeError(f"{name} is not an object")
    return part
