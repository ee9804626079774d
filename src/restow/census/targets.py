"""In which version a resource should be stored: what a person says, or the store itself.

The store says it in three kinds of objects, and the first that there is counts:

- a StorageVersion (`internal.apiserver.k8s.io`): the common encoding version of all servers,
- a CustomResourceDefinition: the version marked as the one that is stored,
- a StorageState (`migration.k8s.io`): a hash of the version, which cannot be turned back but can be
  compared.
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
"""What decoders raise for an object that is damaged, encrypted, or something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusTarget:
    """The version in which all objects of a resource should be stored."""

    source: SourceName
    version: str = ""
    hash: str = ""
    """Instead of the version, if only this is known."""
    problem: str = ""
    """Why neither is known."""

    def accepts(self, stored: Stored) -> bool | None:
        """Whether a value is stored so; None if that cannot be known."""
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
    """Collects what the store says while it is read."""

    def __init__(self) -> None:
        self._found: dict[str, CensusTarget] = {}

    def note(self, root: str, name: str, value: bytes) -> None:
        """Look at an object of one of `resource_names.TARGET_ROOTS`."""
        match root:
            case _ if root == STORAGE_VERSIONS:
                self._add(str(resource_of_name(name)), _of_report(value))
            case _ if root == DEFINITIONS:
                self._add(name, _of_definition(value))
            case _ if root == STORAGE_STATES:
                self._add_state(name, value)

    def found(self) -> Mapping[str, CensusTarget]:
        """Resources, as the census names them, and their targets."""
        return self._found

    def _add_state(self, name: str, value: bytes) -> None:
        try:
            state = msgspec.json.decode(value, type=_State)
        except _WRONG:
            return  # it is only a second opinion, and counted as unreadable itself
        current = state.status.currentStorageVersionHash
        if current:
            self._add(state.named() or name, CensusTarget(source="StorageState", hash=current))

    def _add(self, resource: str, target: CensusTarget) -> None:
        known = self._found.get(resource)
        if known is None or _ORDER.index(target.source) < _ORDER.index(known.source):
            self._found[resource] = target


def target_of_argument(resource: str, version: str) -> CensusTarget:
    """What a person says; a bare version is one of the resource's own group."""
    group = "" if resource.startswith("/") else resource.partition(".")[2]
    if "/" not in version and group:
        version = f"{group}/{version}"
    return CensusTarget(source="argument", version=version)


class _Report(msgspec.Struct):
    class Status(msgspec.Struct):
        commonEncodingVersion: str | None = None  # noqa: N815  (as it is written)

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
        currentStorageVersionHash: str = ""  # noqa: N815  (as it is written)

    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    def named(self) -> str:
        """The resource that it is about; empty if it does not say."""
        resource = self.spec.resource
        return str(GroupResource(resource.group, resource.resource)) if resource.resource else ""


def state_resource(value: bytes) -> str:
    """The resource that a stored StorageState is about; empty if it does not say. Raises
    MsgspecError."""
    return msgspec.json.decode(value, type=_State).named()


def _of_report(value: bytes) -> CensusTarget:
    version: str | None
    try:
        raw = unwrap(value)
        if raw is None:
            version = msgspec.json.decode(value, type=_Report).status.commonEncodingVersion
        else:
            status = _bytes(read_small(raw, 0, len(raw)).get(_STATUS))
            version = _bytes(read_small(status, 0, len(status)).get(_COMMON)).decode()
    except _WRONG:
        return CensusTarget(source="StorageVersion", problem="its StorageVersion cannot be read")
    if not version:
        return CensusTarget(source="StorageVersion", problem="the servers do not agree")
    return CensusTarget(source="StorageVersion", version=version)


def _of_definition(value: bytes) -> CensusTarget:
    source: SourceName = "CustomResourceDefinition"
    try:
        spec = msgspec.json.decode(value, type=_Definition).spec
    except _WRONG:
        return CensusTarget(source=source, problem="its definition cannot be read")
    names = [each.name for each in spec.versions or () if each.storage] or [spec.version]
    if not names[0]:
        return CensusTarget(source=source, problem="its definition names no stored version")
    return CensusTarget(source=source, version=f"{spec.group}/{names[0]}")


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, bytes):
        raise ValueError("a field has another type")  # noqa: TRY004  (read like all that is wrong)
    return value
