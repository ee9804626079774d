"""The target version of each resource: given by the user, or read from the store.

Three kinds of objects in the store define it; the first that exists counts:

- a StorageVersion (`internal.apiserver.k8s.io`): the common encoding version of all servers,
- a CustomResourceDefinition: the version marked as the storage version,
- a StorageState (`migration.k8s.io`): a hash of the version, which can be compared but not
inverted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource, GroupVersionKind
from restow.apimachinery.protobuf_values import read_small
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.internal_v1alpha1 import resource_of_name
from restow.census.resource_names import DEFINITIONS, STORAGE_STATES, STORAGE_VERSIONS
from restow.census.values import Stored, unwrap

SourceName = Literal["argument", "StorageVersion", "CustomResourceDefinition", "StorageState"]

_ORDER: Final[tuple[SourceName, ...]] = (
    "argument",
    "StorageVersion",
    "CustomResourceDefinition",
    "StorageState",
)

# Fields of a StorageVersion in protobuf.
_STATUS, _COMMON = 3, 2

_WRONG: Final = (msgspec.MsgspecError, IndexError, ValueError, RecursionError)
"""Errors of the decoders for an object that is damaged, encrypted, or of another type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusTarget:
    """The version in which all objects of a resource should be stored."""

    source: SourceName
    version: str = ""
    hash: str = ""
    """The version's hash, if the version itself is unknown."""
    problem: str = ""
    """The reason why both are unknown."""

    def accepts(self, stored: Stored) -> bool | None:
        """Whether a value is in the target version; None if that is unknown."""
        if not stored.api_version or self.problem:
            return None
        if self.version:
            return stored.api_version == self.version
        try:
            kind = GroupVersionKind.of(stored.api_version, stored.kind)
        except InvalidName:
            return None
        return storage_version_hash(kind) == self.hash

    def __str__(self) -> str:
        return self.version or (f"hash {self.hash}" if self.hash else self.problem)


class Targets:
    """Collects target versions while a store is read."""

    def __init__(self) -> None:
        self._found: dict[str, CensusTarget] = {}

    def note(self, root: str, name: str, value: bytes) -> None:
        """Evaluate an object of one of `resource_names.TARGET_ROOTS`."""
        match root:
            case _ if root == STORAGE_VERSIONS:
                self._add(str(resource_of_name(name)), _of_storage_version(value))
            case _ if root == DEFINITIONS:
                self._add(name, _of_definition(value))
            case _ if root == STORAGE_STATES:
                self._add_state(name, value)

    def found(self) -> Mapping[str, CensusTarget]:
        """The targets by resource, as the census names it."""
        return self._found

    def _add_state(self, name: str, value: bytes) -> None:
        try:
            state = msgspec.json.decode(value, type=_State)
        except _WRONG:
            return  # the source of last resort; it is counted as unreadable itself
        current = state.status.currentStorageVersionHash
        if current:
            self._add(state.named() or name, CensusTarget(source="StorageState", hash=current))

    def _add(self, resource: str, target: CensusTarget) -> None:
        known = self._found.get(resource)
        if known is None or _ORDER.index(target.source) < _ORDER.index(known.source):
            self._found[resource] = target


def target_of_argument(resource: str, version: str) -> CensusTarget:
    """A target given by the user; a version without group belongs to the resource's group."""
    group = "" if resource.startswith("/") else resource.partition(".")[2]
    if "/" not in version and group:
        version = f"{group}/{version}"
    return CensusTarget(source="argument", version=version)


class _StorageVersion(msgspec.Struct):
    class Status(msgspec.Struct):
        commonEncodingVersion: str | None = None  # noqa: N815  (the JSON name)

    status: Status = msgspec.field(default_factory=Status)


class _Definition(msgspec.Struct):
    class Spec(msgspec.Struct):
        class Version(msgspec.Struct):
            name: str
            storage: bool = False

        group: str
        versions: list[Version] | None = None
        version: str = ""

    spec: Spec


class _State(msgspec.Struct):
    class Spec(msgspec.Struct):
        class Resource(msgspec.Struct):
            group: str = ""
            resource: str = ""

        resource: Resource = msgspec.field(default_factory=Resource)

    class Status(msgspec.Struct):
        currentStorageVersionHash: str = ""  # noqa: N815  (the JSON name)

    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    def named(self) -> str:
        """The resource of the object; empty if it has none."""
        resource = self.spec.resource
        return str(GroupResource(resource.group, resource.resource)) if resource.resource else ""


def state_resource(value: bytes) -> str:
    """The resource of a stored StorageState; empty if it has none. Raises MsgspecError."""
    return msgspec.json.decode(value, type=_State).named()


def _of_storage_version(value: bytes) -> CensusTarget:
    version: str | None
    try:
        raw = unwrap(value)
        if raw is None:
            version = msgspec.json.decode(value, type=_StorageVersion).status.commonEncodingVersion
        else:
            status = _bytes(read_small(raw, 0, len(raw)).get(_STATUS))
            version = _bytes(read_small(status, 0, len(status)).get(_COMMON)).decode()
    except _WRONG:
        return CensusTarget(source="StorageVersion", problem="its StorageVersion is unreadable")
    if not version:
        return CensusTarget(source="StorageVersion", problem="the servers do not agree")
    return CensusTarget(source="StorageVersion", version=version)


def _of_definition(value: bytes) -> CensusTarget:
    source: SourceName = "CustomResourceDefinition"
    try:
        spec = msgspec.json.decode(value, type=_Definition).spec
    except _WRONG:
        return CensusTarget(source=source, problem="its CustomResourceDefinition is unreadable")
    names = [each.name for each in spec.versions or () if each.storage] or [spec.version]
    if not names[0]:
        return CensusTarget(
            source=source, problem="its CustomResourceDefinition has no storage version"
        )
    return CensusTarget(source=source, version=f"{spec.group}/{names[0]}")


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, bytes):
        raise ValueError("a field has another type")  # noqa: TRY004  (handled like all decoding errors)
    return value
