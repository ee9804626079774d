"""One resource as this server hosts it: a kind in chosen versions, and what is known of its shape.

A `Resource` is what routes, discovery, storage and conversion all work with. It is made by the
catalogue and never changes. Nothing here reads or writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from restow.kinds.definitions import Kind
from restow.machinery.conversion import Converter
from restow.machinery.names import GroupVersionKind
from restow.machinery.status_error import Cause
from restow.machinery.strategic_merge import MergeSchema
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.interface import Key

Object = dict[str, Any]


class Shape(Protocol):
    """What is known about the fields of a kind. Versions are `apiVersion`s."""

    def check(self, version: str, obj: Object) -> tuple[Object, list[str]]:
        """The object with known fields only, well typed, and the paths of the unknown ones.

        Raises a 400 when a field has the wrong type.
        """

    def default(self, version: str, obj: Object) -> Object:
        """The object with defaults filled in; may change what it is given."""

    def prepare_create(self, obj: Object) -> None:
        """Give a new object what it has from its first moment; changes it."""

    def problems(self, version: str, new: Object, old: Object | None) -> list[Cause]:
        """What is wrong with an object beyond its types and its metadata."""

    def merge_schema(self, version: str) -> MergeSchema | None:
        """How lists are merged by strategic merge patches; None: the kind takes none."""

    def decode_protobuf(self, version: str, raw: bytes) -> Object:
        """An object from its protobuf message. Raises 415 where there is no such form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind as it is hosted here."""

    kind: Kind
    served: tuple[str, ...]
    """Versions that clients may ask for, the preferred first."""
    decodable: tuple[str, ...]
    """`apiVersion`s that stored bytes may have."""
    storage_api_version: str
    """The `apiVersion` this server prefers to write."""
    converter: Converter
    shape: Shape
    root: str = field(init=False)
    """How all its keys begin."""

    _api_versions: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", f"{OBJECTS_PREFIX}{self.kind.key_prefix}/")
        versions = {version: self.kind.api_version(version) for version in self.served}
        object.__setattr__(self, "_api_versions", versions)

    @property
    def group(self) -> str:
        return self.kind.group

    @property
    def plural(self) -> str:
        return self.kind.plural

    def api_version(self, version: str) -> str:
        return self._api_versions.get(version) or self.kind.api_version(version)

    def gvk(self, version: str) -> GroupVersionKind:
        return GroupVersionKind(self.kind.group, version, self.kind.kind)

    def path_of(self, namespace: str, name: str) -> str:
        """The part of a key behind the root."""
        return f"{namespace}/{name}" if self.kind.namespaced else name

    def key_of(self, path: str) -> Key:
        return Key(self.root + path)
