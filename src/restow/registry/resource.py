"""A resource as this server hosts it: a kind, its served and decodable versions, and its shape.

Routes, discovery, storage and conversion all use `Resource`. It is immutable: when the CRD of a
custom resource changes, a new `Resource` replaces it. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """Types, defaults and validation of a kind. Versions are `apiVersion`s."""

    def to_prepare(self, version: str) -> Callable[[], object] | None:
        """Return what must run before the first object is processed, if it is too long for the
        event loop."""

    def check(self, version: str, obj: Object) -> tuple[Object, list[str]]:
        """Check types; return the object with known fields only, and the paths of unknown fields.

        Raises a 400 when a field has the wrong type.
        """

    def default(self, version: str, obj: Object) -> Object:
        """Return the object with defaults filled in; may change the object it is given."""

    def prepare_create(self, obj: Object) -> None:
        """Set fields that the server initializes in a new object; changes the object."""

    def prepare_update(self, new: Object, old: Object) -> None:
        """Set fields that follow from the old object, regardless of the request; changes `new`."""

    def problems(
        self, version: str, new: Object, old: Object | None, *, subresource: str = ""
    ) -> list[StatusCause]:
        """Validate an object beyond its types and metadata; return the errors.

        `subresource` is the subresource by which it is written, if any.
        """

    def merge_schema(self, version: str) -> MergeSchema | None:
        """Return the merge keys for strategic merge patches; None: the kind does not support
        them."""

    def field_schema(self, version: str) -> SchemaNode:
        """Return the schema for server-side apply and managed fields; a deduced one for an unknown
        version."""

    def blank(self, version: str) -> Object:
        """Return an object without any values: a field that differs from it was set by the creator.
        Callers must not change it."""

    def decode_protobuf(self, version: str, raw: bytes) -> Object:
        """Decode an object from its protobuf message. Raises a 415 if the kind has no such form."""


class OpenShape:
    """The shape of a kind without a schema: only its metadata is known."""

    def to_prepare(self, _version: str) -> None:
        return None

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
    """A webhook that converts objects between the versions of a kind."""

    async def convert(self, objects: Sequence[Object], target: str) -> list[Object]:
        """Return the objects in version `target`, in the same order. Raises a StatusError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column of the tables that `kubectl get` prints."""

    name: str
    type: str
    path: str
    """A JSONPath, without braces."""
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """The paths of the replicas of an object; each a JSONPath such as `.spec.replicas`."""

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTraits:
    """Properties of one version of a custom resource, from its CRD."""

    schema: Mapping[str, Any] | None = None
    """The schema as declared, for publication."""
    subresources: tuple[Subresource, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: ScalePaths | None = None
    selectable_fields: tuple[SelectableField, ...] = ()
    deprecation: str = ""
    """The warning for clients that use the version; empty: not deprecated."""


class CrdOrigin:
    """The stored CRD that a custom resource was made from."""

    __slots__ = ("is_closing", "is_replaced", "key", "revision", "uid")

    def __init__(self, key: Key, *, uid: str, revision: Revision, is_closing: bool = False) -> None:
        self.key = key
        self.uid = uid
        self.revision = revision
        """The newest revision with the same meaning: a change of the status keeps the resource."""
        self.is_closing = is_closing
        """The CRD is being deleted: no new custom resources can be created."""
        self.is_replaced = False
        """The resource was removed or replaced; a request that still uses it must start again."""

    def note_newer(self, revision: Revision) -> None:
        """Record that the CRD was written again with the same meaning."""
        self.revision = revision

    def mark_replaced(self) -> None:
        """Record that the resource was removed or replaced."""
        self.is_replaced = True

    def begin_closing(self) -> None:
        """Record that the CRD is being deleted."""
        self.is_closing = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind as this server hosts it."""

    kind: Kind
    served: tuple[str, ...]
    """Versions in which clients may access objects, the preferred one first."""
    decodable: tuple[str, ...]
    """`apiVersion`s in which objects may be stored."""
    storage_api_version: str
    """The `apiVersion` that this server prefers for storage."""
    converter: Converter
    shape: Shape
    traits: Mapping[str, VersionTraits] = field(default_factory=dict)
    """The traits of each version, from the CRD; empty for kinds without a CRD."""
    remote: RemoteConversion | None = None
    """The conversion webhook; if set, it is used instead of the converter."""
    origin: CrdOrigin | None = None
    """For custom resources: the stored CRD, which may change."""
    root: str = field(init=False)
    """The common prefix of its keys."""
    location: str = field(init=False)
    """The form of its keys: root and scope. Servers with another form do not find its objects."""

    _api_versions: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", f"{OBJECTS_PREFIX}{self.kind.key_prefix}/")
        path = "{namespace}/{name}" if self.kind.namespaced else "{name}"
        object.__setattr__(self, "location", self.root + path)
        versions = {version: self.kind.api_version(version) for version in self.served}
        object.__setattr__(self, "_api_versions", versions)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The supported verbs; while the CRD is being deleted, no create, update or patch."""
        if self.origin is not None and self.origin.is_closing:
            return tuple(verb for verb in self.kind.verbs if verb in _CLOSING_VERBS)
        return self.kind.verbs

    @property
    def is_custom(self) -> bool:
        """Whether the kind is defined by a CRD, in the store or in a file."""
        return bool(self.traits)

    @property
    def group(self) -> str:
        return self.kind.group

    @property
    def plural(self) -> str:
        return self.kind.plural

    @property
    def own_version(self) -> str:
        """The version in which the server's own controllers read and write objects: the preferred
        served version, or the storage version if none is served."""
        if self.served:
            return self.served[0]
        return GroupVersion.parse(self.storage_api_version).version

    def api_version(self, version: str) -> str:
        return self._api_versions.get(version) or self.kind.api_version(version)

    def gvk(self, version: str) -> GroupVersionKind:
        return GroupVersionKind(self.kind.group, version, self.kind.kind)

    def path_of(self, namespace: str, name: str) -> str:
        """Return the part of a key after the root."""
        return f"{namespace}/{name}" if self.kind.namespaced else name

    def key_of(self, path: str) -> Key:
        return Key(self.root + path)

    def has_key(self, key: Key) -> bool:
        """Whether a key under the root has the form that this resource uses."""
        return key.count("/", len(self.root)) == int(self.kind.namespaced)

    def subresources(self, version: str) -> tuple[Subresource, ...]:
        """Return the subresources in one version."""
        traits = self.traits.get(version)
        return self.kind.subresources if traits is None else traits.subresources

    def subresource(self, version: str, name: str) -> Subresource | None:
        for each in self.subresources(version):
            if each.name == name:
                return each
        return None

    def has_status(self, api_version: str) -> bool:
        """Whether the kind has a status subresource, which alone writes the status."""
        if not self.traits:
            return self.kind.has_status
        return self.subresource(api_version.rpartition("/")[2], "status") is not None
