"""Custom resource definitions as they are stored, read for those who act on them.

A definition that is stored was checked when it was written. What is read here is therefore only
what somebody needs, and the schemas of its versions stay bytes until an object wants them: of a
thousand definitions most are never used. Two readings can be compared, so that a note in the
status does not look like another kind.

Not here: whether a definition is right (`restow.kinds`), and the resource made of it
(`custom_resource`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson

from restow.storage.errors import StoreDamaged
from restow.storage.interface import Item, Key, Revision

GROUP: Final = "apiextensions.k8s.io"
PLURAL: Final = "customresourcedefinitions"
ROOT: Final = f"/registry/{GROUP}/{PLURAL}/"
"""How the keys of all definitions begin."""


NAMES_ACCEPTED: Final = "NamesAccepted"
ESTABLISHED: Final = "Established"
TERMINATING: Final = "Terminating"

_SORTED: Final = orjson.OPT_SORT_KEYS


class CrdUnreadable(StoreDamaged):
    """What is stored as a definition is none."""


class Names(msgspec.Struct, frozen=True, rename="camel"):
    """What a kind is called."""

    plural: str = ""
    singular: str = ""
    short_names: list[str] | None = None
    kind: str = ""
    list_kind: str = ""
    categories: list[str] | None = None


class Column(msgspec.Struct, frozen=True, rename="camel"):
    """A column of the tables that people see."""

    name: str
    type: str
    json_path: str = msgspec.field(name="jsonPath", default="")
    format: str = ""
    description: str = ""
    priority: int = 0


class Selectable(msgspec.Struct, frozen=True):
    """A field that field selectors may name."""

    json_path: str = msgspec.field(name="jsonPath", default="")


class Scale(msgspec.Struct, frozen=True, rename="camel"):
    """Where replicas are."""

    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str | None = None


class Subresources(msgspec.Struct, frozen=True):
    """The paths of their own that a version has."""

    status: dict[str, Any] | None = None
    scale: Scale | None = None


class _Validation(msgspec.Struct, frozen=True):
    schema: msgspec.Raw = msgspec.field(name="openAPIV3Schema", default=msgspec.Raw(b"null"))


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """One version of a kind, its schema unread."""

    name: str
    served: bool = False
    storage: bool = False
    deprecated: bool = False
    deprecation_warning: str | None = None
    validation: _Validation | None = msgspec.field(name="schema", default=None)
    subresources: Subresources | None = None
    additional_printer_columns: list[Column] | None = None
    selectable_fields: list[Selectable] | None = None

    @property
    def has_status(self) -> bool:
        return self.subresources is not None and self.subresources.status is not None

    @property
    def scale(self) -> Scale | None:
        return None if self.subresources is None else self.subresources.scale

    def schema_bytes(self) -> bytes:
        """The declared schema as JSON; `null` if there is none."""
        return b"null" if self.validation is None else bytes(self.validation.schema)


class WebhookServiceReference(msgspec.Struct, frozen=True):
    """A service of the cluster that converts."""

    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int | None = None


class WebhookClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How to reach whoever converts."""

    url: str | None = None
    service: WebhookServiceReference | None = None
    ca_bundle: str | None = None
    """Certificates as PEM, in base64."""


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """Who converts, and in which words."""

    client_config: WebhookClientConfig | None = None
    conversion_review_versions: list[str] | None = None


class Conversion(msgspec.Struct, frozen=True):
    """How objects get from one version to another."""

    strategy: str = "None"
    webhook: Webhook | None = None

    @property
    def is_remote(self) -> bool:
        return self.strategy == "Webhook"


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    group: str
    names: Names
    scope: str
    versions: list[Version]
    conversion: Conversion | None = None
    preserve_unknown_fields: bool = False


class CrdCondition(msgspec.Struct, frozen=True, rename="camel"):
    """One of the conditions, as it was written."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[CrdCondition] | None = None
    accepted_names: Names | None = None
    stored_versions: list[str] | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


class _Stored(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: msgspec.Raw
    status: _Status | None = None


_decode_stored: Final = msgspec.json.Decoder(_Stored).decode
_decode_spec: Final = msgspec.json.Decoder(_Spec).decode
_NO_NAMES: Final = Names()
_NO_STATUS: Final = _Status()


class CustomResourceDefinition:
    """A definition at one revision. Nobody changes it."""

    __slots__ = ("_metadata", "_raw_spec", "_spec", "_status", "key", "revision")

    def __init__(self, key: Key, value: bytes, revision: Revision) -> None:
        """Raises `CrdUnreadable`."""
        try:
            stored = _decode_stored(value)
            self._spec = _decode_spec(stored.spec)
        except msgspec.MsgspecError as error:
            raise CrdUnreadable(f"{key} holds no definition: {error}") from error
        self.key = key
        self.revision = revision
        self._raw_spec = stored.spec
        self._metadata = stored.metadata
        self._status = stored.status or _NO_STATUS
        if not any(version.storage for version in self._spec.versions):
            raise CrdUnreadable(f"{key} holds a definition without a storage version")

    def __repr__(self) -> str:
        return f"<definition {self.name} at {self.revision}>"

    # Who it is.

    @property
    def name(self) -> str:
        return self._metadata.name

    @property
    def uid(self) -> str:
        return self._metadata.uid

    @property
    def generation(self) -> int:
        return self._metadata.generation

    @property
    def created_at(self) -> str:
        return self._metadata.creation_timestamp or ""

    @property
    def finalizers(self) -> tuple[str, ...]:
        return tuple(self._metadata.finalizers or ())

    # What it asks for.

    @property
    def group(self) -> str:
        return self._spec.group

    @property
    def names(self) -> Names:
        """The names it asks for."""
        return self._spec.names

    @property
    def is_namespaced(self) -> bool:
        return self._spec.scope == "Namespaced"

    @property
    def versions(self) -> tuple[Version, ...]:
        """All its versions, in the order in which they were declared."""
        return tuple(self._spec.versions)

    @property
    def storage_version(self) -> str:
        return next(version.name for version in self._spec.versions if version.storage)

    @property
    def conversion(self) -> Conversion:
        return self._spec.conversion or Conversion()

    @property
    def preserves_unknown_fields(self) -> bool:
        """Set only by definitions from before schemas were required: nothing is pruned."""
        return self._spec.preserve_unknown_fields

    # What has come of it.

    @property
    def accepted_names(self) -> Names:
        """The names that it has; empty until some were accepted."""
        return self._status.accepted_names or _NO_NAMES

    @property
    def stored_versions(self) -> tuple[str, ...]:
        return tuple(self._status.stored_versions or ())

    @property
    def conditions(self) -> tuple[CrdCondition, ...]:
        return tuple(self._status.conditions or ())

    def condition(self, kind: str) -> CrdCondition | None:
        return next((each for each in self.conditions if each.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Whether a condition is there and true."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def names_accepted(self) -> bool:
        return self.is_true(NAMES_ACCEPTED)

    @property
    def established(self) -> bool:
        return self.is_true(ESTABLISHED)

    @property
    def is_closing(self) -> bool:
        """It is being deleted: nothing new is created."""
        return bool(self._metadata.deletion_timestamp)

    @property
    def is_hostable(self) -> bool:
        """Whether there is a resource to make of it.

        It keeps the names it once had when others that it asks for later are refused.
        """
        names = self.accepted_names
        return bool(names.plural and names.kind) and (self.names_accepted or self.established)

    def means_the_same_as(self, other: CustomResourceDefinition) -> bool:
        """Whether the same resource is made of both: what differs is only a note."""
        return (
            self.uid == other.uid
            and self.is_hostable == other.is_hostable
            and self.accepted_names == other.accepted_names
            and _equal_json(self._raw_spec, other._raw_spec)
        )


def read_definition(item: Item) -> CustomResourceDefinition:
    """The definition that a key of the store holds. Raises `CrdUnreadable`."""
    return CustomResourceDefinition(item.key, item.value, item.revision)


def definition_of(obj: Mapping[str, Any], revision: int = 0) -> CustomResourceDefinition:
    """A definition from an object. Raises `CrdUnreadable`."""
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    key = definition_key(name if isinstance(name, str) else "")
    try:
        value = orjson.dumps(obj)
    except TypeError as error:
        raise CrdUnreadable(f"{key} holds no definition: {error}") from error
    return CustomResourceDefinition(key, value, Revision(revision))


def definition_key(name: str) -> Key:
    """Where the definition of this name is stored."""
    return Key(ROOT + name)


def _equal_json(one: msgspec.Raw, other: msgspec.Raw) -> bool:
    first, second = bytes(one), bytes(other)
    if first == second:
        return True
    try:
        # Python takes 1, 1.0 and true for equal; their bytes are not.
        return orjson.dumps(orjson.loads(first), option=_SORTED) == orjson.dumps(
            orjson.loads(second), option=_SORTED
        )
    except ValueError:
        return False  # a schema that only looks like JSON: whoever uses it will say so
