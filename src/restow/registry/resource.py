"""One resource as this server hosts it: a kind in chosen versions, and what is known of its shape.

A `Resource` is what routes, discovery, storage and conversion all work with. It never changes: a
custom resource whose definition changes becomes another one. Nothing here reads or writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from restow.apimachinery import status
from restow.apimachinery.apply.schema import DEDUCED, SchemaNode
from restow.apimachinery.conversion import Converter
from restow.apimachinery.names import GroupVersion, GroupVersionKind
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.strategic_merge_lists import MergeSchema
from restow.kinds.kind import Kind, SelectableField, Subresource
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.interface import Key, Revision

Object = dict[str, Any]

_CLOSING_VERBS: Final = frozenset({"delete", "deletecollection", "get", "list", "watch"})


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

    def prepare_update(self, new: Object, old: Object) -> None:
        """Carry over what follows from the old object, whatever a client says; changes the new."""

    def problems(
        self, version: str, new: Object, old: Object | None, *, subresource: str = ""
    ) -> list[StatusCause]:
        """What is wrong with an object beyond its types and its metadata.

        `subresource` is the path by which it is written, if it is not its own.
        """

    def merge_schema(self, version: str) -> MergeSchema | None:
        """How lists are merged by strategic merge patches; None: the kind takes none."""

    def field_schema(self, version: str) -> SchemaNode:
        """How objects are put together, for those who manage their fields. Of a version that there
        is not, nothing is known."""

    def blank(self, version: str) -> Object:
        """An object of which nothing was said yet: what differs from it is its creator's. It is
        only to be looked at."""

    def decode_protobuf(self, version: str, raw: bytes) -> Object:
        """An object from its protobuf message. Raises 415 where there is no such form."""


class OpenShape:
    """A kind of which nothing is known but its metadata: one that is declared as data only."""

    def check(self, version: str, obj: Object) -> tuple[Object, list[str]]:
        return obj, []

    def default(self, version: str, obj: Object) -> Object:
        return obj

    def prepare_create(self, obj: Object) -> None:
        return None

    def prepare_update(self, new: Object, old: Object) -> None:
        return None

    def problems(
        self, version: str, new: Object, old: Object | None, *, subresource: str = ""
    ) -> list[StatusCause]:
        return []

    def merge_schema(self, version: str) -> MergeSchema | None:
        return None

    def field_schema(self, version: str) -> SchemaNode:
        return DEDUCED

    def blank(self, version: str) -> Object:
        return {}

    def decode_protobuf(self, version: str, raw: bytes) -> Object:
        raise status.unsupported_media_type(["application/json", "application/yaml"])


class RemoteConversion(Protocol):
    """Somebody else who converts objects between the versions of a kind."""

    async def convert(self, objects: Sequence[Object], target: str) -> list[Object]:
        """The objects in the version `target`, in the same order. Raises a StatusError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column of the tables that people see."""

    name: str
    type: str
    path: str
    """A JSONPath, without braces."""
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where the replicas of an object are; each a JSONPath such as `.spec.replicas`."""

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTraits:
    """What the definition of a custom resource says of one of its versions."""

    schema: Mapping[str, Any] | None = None
    """As it was declared, to be published."""
    subresources: tuple[Subresource, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: ScalePaths | None = None
    selectable_fields: tuple[SelectableField, ...] = ()
    deprecation: str = ""
    """What clients that use it are warned of; empty: nothing."""


class CrdOrigin:
    """The definition that a custom resource was made from, as it is stored now."""

    __slots__ = ("is_closing", "is_replaced", "key", "revision", "uid")

    def __init__(self, key: Key, *, uid: str, revision: Revision, is_closing: bool = False) -> None:
        self.key = key
        self.uid = uid
        self.revision = revision
        """The newest with the same meaning: a note in its status does not make another resource."""
        self.is_closing = is_closing
        """It is being deleted: nothing new is created."""
        self.is_replaced = False
        """Another resource is hosted in its place, or none: whoever still has it begins anew."""

    def note_newer(self, revision: Revision) -> None:
        """The CRD was written again, and means the same."""
        self.revision = revision

    def begin_closing(self) -> None:
        """The CRD is being deleted."""
        self.is_closing = True


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
    traits: Mapping[str, VersionTraits] = field(default_factory=dict)
    """By version, of what a definition describes; empty for all others."""
    remote: RemoteConversion | None = None
    """Converts instead of the converter, if there is one."""
    origin: CrdOrigin | None = None
    """Of a custom resource whose definition is stored, and may change."""
    root: str = field(init=False)
    """How all its keys begin."""
    location: str = field(init=False)
    """The form of its keys: root and scope. Servers with another one do not find its objects."""

    _api_versions: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", f"{OBJECTS_PREFIX}{self.kind.key_prefix}/")
        path = "{namespace}/{name}" if self.kind.namespaced else "{name}"
        object.__setattr__(self, "location", self.root + path)
        versions = {version: self.kind.api_version(version) for version in self.served}
        object.__setattr__(self, "_api_versions", versions)

    @property
    def verbs(self) -> tuple[str, ...]:
        """What can be done to its objects; of a custom resource that is going away, not much."""
        if self.origin is not None and self.origin.is_closing:
            return tuple(verb for verb in self.kind.verbs if verb in _CLOSING_VERBS)
        return self.kind.verbs

    @property
    def is_custom(self) -> bool:
        """Whether a definition says what it is, be it stored or in a file: its objects are data."""
        return bool(self.traits)

    @property
    def group(self) -> str:
        return self.kind.group

    @property
    def plural(self) -> str:
        return self.kind.plural

    @property
    def own_version(self) -> str:
        """The version in which the server itself reads and writes objects through the API's rules:
        the preferred one, or that of the store if clients are served none."""
        if self.served:
            return self.served[0]
        return GroupVersion.parse(self.storage_api_version).version

    def api_version(self, version: str) -> str:
        return self._api_versions.get(version) or self.kind.api_version(version)

    def gvk(self, version: str) -> GroupVersionKind:
        return GroupVersionKind(self.kind.group, version, self.kind.kind)

    def path_of(self, namespace: str, name: str) -> str:
        """The part of a key behind the root."""
        return f"{namespace}/{name}" if self.kind.namespaced else name

    def key_of(self, path: str) -> Key:
        return Key(self.root + path)

    def has_key(self, key: Key) -> bool:
        """Whether a key under the root has the form of this resource's keys."""
        return key.count("/", len(self.root)) == int(self.kind.namespaced)

    def subresources(self, version: str) -> tuple[Subresource, ...]:
        """The parts of an object with a path of their own, in one version."""
        traits = self.traits.get(version)
        return self.kind.subresources if traits is None else traits.subresources

    def subresource(self, version: str, name: str) -> Subresource | None:
        for each in self.subresources(version):
            if each.name == name:
                return each
        return None

    def has_status(self, api_version: str) -> bool:
        """Whether the status is written by a path of its own, and only there."""
        if not self.traits:
            return self.kind.has_status
        return self.subresource(api_version.rpartition("/")[2], "status") is not None
