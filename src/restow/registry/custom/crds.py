"""Stored CustomResourceDefinitions, decoded for the code that uses them.

A stored CRD was validated when it was written, so only the fields that are used are decoded. The
schemas of its versions stay bytes until the first object needs them: of a thousand CRDs most are
never used. Two decoded CRDs can be compared, so that a change of the status does not replace the
resource.

Not here: validation of CRDs (`restow.kinds`), and the resource that is made from one
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
"""Prefix of the keys of all CRDs."""


NAMES_ACCEPTED: Final = "NamesAccepted"
ESTABLISHED: Final = "Established"
TERMINATING: Final = "Terminating"

_SORTED: Final = orjson.OPT_SORT_KEYS


class CrdUnreadable(StoreDamaged):
    """A stored value is not a CRD."""


class Names(msgspec.Struct, frozen=True, rename="camel"):
    """Names of a kind."""

    plural: str = ""
    singular: str = ""
    short_names: list[str] | None = None
    kind: str = ""
    list_kind: str = ""
    categories: list[str] | None = None


class Column(msgspec.Struct, frozen=True, rename="camel"):
    """An additional printer column."""

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
    """The paths of replicas in the scale subresource."""

    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str | None = None


class Subresources(msgspec.Struct, frozen=True):
    """The subresources of a version."""

    status: dict[str, Any] | None = None
    scale: Scale | None = None


class _Validation(msgspec.Struct, frozen=True):
    schema: msgspec.Raw = msgspec.field(name="openAPIV3Schema", default=msgspec.Raw(b"null"))


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """One version of a CRD; its schema is not decoded."""

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
    """The service of a conversion webhook."""

    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int | None = None


class WebhookClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The address of a conversion webhook: a URL or a service."""

    url: str | None = None
    service: WebhookServiceReference | None = None
    ca_bundle: str | None = None
    """CA certificates: PEM, encoded in base64."""


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """A conversion webhook and the versions of ConversionReview that it accepts."""

    client_config: WebhookClientConfig | None = None
    conversion_review_versions: list[str] | None = None


class Conversion(msgspec.Struct, frozen=True):
    """The conversion between the versions of a CRD."""

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
    """A condition of the status."""

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
    """A CRD at one revision; immutable."""

    __slots__ = ("_metadata", "_raw_spec", "_spec", "_status", "key", "revision")

    def __init__(self, key: Key, value: bytes, revision: Revision) -> None:
        """Raises `CrdUnreadable`."""
        try:
            stored = _decode_stored(value)
            self._spec = _decode_spec(stored.spec)
        except msgspec.MsgspecError as error:
            raise CrdUnreadable(f"{key} is not a CustomResourceDefinition: {error}") from error
        self.key = key
        self.revision = revision
        self._raw_spec = stored.spec
        self._metadata = stored.metadata
        self._status = stored.status or _NO_STATUS
        if not any(version.storage for version in self._spec.versions):
            raise CrdUnreadable(f"{key} is a CustomResourceDefinition without a storage version")

    def __repr__(self) -> str:
        return f"<CRD {self.name} at {self.revision}>"

    # Metadata.

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

    # Spec.

    @property
    def group(self) -> str:
        return self._spec.group

    @property
    def names(self) -> Names:
        """The names in the spec, which may not be accepted yet."""
        return self._spec.names

    @property
    def is_namespaced(self) -> bool:
        return self._spec.scope == "Namespaced"

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions, in the order of the spec."""
        return tuple(self._spec.versions)

    @property
    def storage_version(self) -> str:
        return next(version.name for version in self._spec.versions if version.storage)

    @property
    def conversion(self) -> Conversion:
        return self._spec.conversion or Conversion()

    @property
    def preserves_unknown_fields(self) -> bool:
        """True only for CRDs from before schemas were required: unknown fields are not pruned."""
        return self._spec.preserve_unknown_fields

    # Status.

    @property
    def accepted_names(self) -> Names:
        """The accepted names; empty until names were accepted."""
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
        """Whether a condition exists and is true."""
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
        """Whether the CRD is being deleted: no new custom resources can be created."""
        return bool(self._metadata.deletion_timestamp)

    @property
    def is_hostable(self) -> bool:
        """Whether the resource can be served.

        A CRD keeps its accepted names when later changes of its names are rejected.
        """
        names = self.accepted_names
        return bool(names.plural and names.kind) and (self.names_accepted or self.established)

    def means_the_same_as(self, other: CustomResourceDefinition) -> bool:
        """Whether both result in the same resource: at most the rest of the status differs."""
        return (
            self.uid == other.uid
            and self.is_hostable == other.is_hostable
            and self.accepted_names == other.accepted_names
            and _equal_json(self._raw_spec, other._raw_spec)
        )


def read_definition(item: Item) -> CustomResourceDefinition:
    """Decode the CRD that a key of the store holds. Raises `CrdUnreadable`."""
    return CustomResourceDefinition(item.key, item.value, item.revision)


def definition_of(obj: Mapping[str, Any], revision: int = 0) -> CustomResourceDefinition:
    """Decode a CRD from an object. Raises `CrdUnreadable`."""
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    key = definition_key(name if isinstance(name, str) else "")
    try:
        value = orjson.dumps(obj)
    except TypeError as error:
        raise CrdUnreadable(f"{key} is not a CustomResourceDefinition: {error}") from error
    return CustomResourceDefinition(key, value, Revision(revision))


def definition_key(name: str) -> Key:
    """Return the key under which the CRD of this name is stored."""
    return Key(ROOT + name)


def _equal_json(one: msgspec.Raw, other: msgspec.Raw) -> bool:
    first, second = bytes(one), bytes(other)
    if first == second:
        return True
    try:
        # Python considers 1, 1.0 and True equal; their JSON differs.
        return orjson.dumps(orjson.loads(first), option=_SORTED) == orjson.dumps(
            orjson.loads(second), option=_SORTED
        )
    except ValueError:
        return False  # a schema that is not valid JSON; compiling it raises an error
