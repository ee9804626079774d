"""The shape of a custom resource: the schema of each of its versions, and what it does to objects.

Objects from clients and objects from the store are processed in the same way: nulls, defaults,
pruning. Objects from clients are then validated. A schema is parsed and compiled when the first
object needs it.

`CustomShape` implements `resource.Shape`. Not here: structural schemas
(`restow.apimachinery.structural`), metadata of objects (`registry.strategy`), conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final, Protocol

import orjson

from restow.apimachinery import status, typed_json
from restow.apimachinery.apply.schema import DEDUCED, SchemaNode
from restow.apimachinery.apply.structural_schema import from_structural
from restow.apimachinery.status_error import StatusCause, StatusError
from restow.apimachinery.strategic_merge_lists import MergeSchema
from restow.apimachinery.structural.compiled import CompiledSchema
from restow.apimachinery.structural.schema import read_schema
from restow.apimachinery.types import Field, Struct, StructRef
from restow.kinds.derived_types import all_types
from restow.registry.custom.replicas import scale_problems
from restow.registry.resource import Object, Resource, ScalePaths
from restow.registry.stored_bytes import Splicer, check_opened, encode, head_of, splice
from restow.storage.errors import StoreDamaged

_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
SCHEMA_BYTES_ON_LOOP_MAX: Final = 4 * 1024
"""Longer schemas, and those with rules, are compiled in a thread: about 1 ms per KiB."""
_RULES: Final = b'"x-kubernetes-validations"'
MEDIA_TYPES: Final = ("application/json", "application/yaml")


@cache
def _object_type() -> Struct:
    """Return the type that every object has: only its metadata is typed."""
    metadata = Field(json="metadata", type=StructRef(_OBJECT_META), omitempty=True)
    return Struct(name="CustomObject", fields=(metadata,), table=all_types())


class DeclaredSchema(Protocol):
    """An object that has the bytes of a schema."""

    def schema_bytes(self) -> bytes:
        """The schema as JSON; `null` if there is none."""


class VersionShape:
    """One version: its schema, compiled on first use, and the paths of its replicas."""

    __slots__ = ("_compiled", "_declared", "_fields", "_is_long", "_is_read", "prunes", "scale")

    def __init__(
        self, declared: DeclaredSchema, *, scale: ScalePaths | None = None, prunes: bool = True
    ) -> None:
        self._declared = declared
        self._compiled: CompiledSchema | None = None
        self._fields: SchemaNode | None = None
        self._is_read = False
        raw = declared.schema_bytes()
        self._is_long = len(raw) > SCHEMA_BYTES_ON_LOOP_MAX or _RULES in raw
        self.scale = scale
        self.prunes = prunes
        """False keeps unknown fields, as for CRDs from before schemas were required."""

    @property
    def schema(self) -> CompiledSchema | None:
        """The compiled schema; None if there is none. Raises a 500 if the stored CRD is damaged."""
        if not self._is_read:
            self._compiled = _compile(self._declared.schema_bytes())
            self._is_read = True
        return self._compiled

    @property
    def is_compiled(self) -> bool:
        """Whether everything is compiled that takes long; a short schema takes no time."""
        if not self._is_long:
            return True
        return self._is_read and (self._compiled is None or self._compiled.is_compiled)

    def compile(self) -> None:
        """Compile everything; may run in a thread. A damaged CRD is reported on use."""
        with suppress(StatusError):
            if (schema := self.schema) is not None:
                schema.compile()

    @property
    def fields(self) -> SchemaNode:
        """The schema of the fields for server-side apply and managed fields."""
        if self._fields is None:
            schema = self.coercing
            self._fields = DEDUCED if schema is None else from_structural(schema.schema)
        return self._fields

    @property
    def coercing(self) -> CompiledSchema | None:
        """The schema for nulls, defaults and pruning; None if they do nothing."""
        return self.schema if self.prunes else None


def _compile(raw: bytes) -> CompiledSchema | None:
    try:
        declared = orjson.loads(raw)
        return None if declared is None else CompiledSchema(read_schema(declared))
    except (orjson.JSONDecodeError, StatusError) as error:
        raise status.internal(
            f"the schema of the CustomResourceDefinition cannot be read: {error}"
        ) from error


class CustomShape:
    """The shape of a kind that is defined by a CRD."""

    def __init__(self, versions: Mapping[str, VersionShape]) -> None:
        """`versions` by `apiVersion`."""
        self.versions = versions

    def to_prepare(self, version: str) -> Callable[[], object] | None:
        shape = self.versions[version]
        return None if shape.is_compiled else shape.compile

    def check(self, version: str, obj: Object) -> tuple[Object, list[str]]:
        """Normalize an object and return its unknown fields. Changes the object it is given, which
        is never shared: a request body or a patched copy.

        Only wrong types in the metadata are rejected here; validation checks all other fields.
        """
        unknown: list[str] = []
        if (metadata := obj.get("metadata")) is not None:
            checked, unknown = typed_json.check(_object_type(), {"metadata": metadata})
            obj["metadata"] = checked.get("metadata", {})
        schema = self.versions[version].coercing
        if schema is not None:
            unknown += schema.coerce(obj)
            schema.coerce_integers(obj)
        return obj, unknown

    def default(self, version: str, obj: Object) -> Object:
        schema = self.versions[version].coercing
        if schema is not None:
            schema.coerce(obj)
        return obj

    def settle(self, version: str, obj: Object) -> bool:
        """Normalize an object from the store; return whether anything may have changed."""
        try:
            schema = self.versions[version].coercing
        except StatusError:
            return False  # the object can be read unchanged; writes report the error
        return schema is not None and schema.coerce_stored(obj)

    def prepare_create(self, obj: Object) -> None:
        self._default_status(obj)

    def prepare_update(self, new: Object, old: Object) -> None:
        self._default_status(new)

    def _default_status(self, obj: Object) -> None:
        """Fill in the default of a removed status, which reading the object would add anyway."""
        if "status" in obj:
            return
        shape = self.versions.get(obj.get("apiVersion", ""))
        schema = None if shape is None else shape.coercing
        if schema is not None and schema.has_default("status"):
            schema.coerce(obj)

    def problems(
        self, version: str, new: Object, old: Object | None, *, subresource: str = ""
    ) -> list[StatusCause]:
        shape = self.versions[version]
        is_status = subresource == "status" and old is not None
        more_problems: list[StatusCause] = []
        if shape.scale is not None:
            more_problems = scale_problems(new, shape.scale, is_status=is_status)
        schema = shape.schema
        if schema is None:
            return more_problems
        if is_status and old is not None:
            return schema.status_problems(new, old, besides=more_problems).causes
        return schema.problems(new, old, besides=more_problems).causes

    def merge_schema(self, version: str) -> MergeSchema | None:
        return None

    def field_schema(self, version: str) -> SchemaNode:
        found = self.versions.get(version)
        return DEDUCED if found is None else found.fields

    def blank(self, version: str) -> Object:
        return {}

    def decode_protobuf(self, version: str, raw: bytes) -> Object:
        raise status.unsupported_media_type(MEDIA_TYPES)


class CustomSplicer(Splicer):
    """Turns stored values into served bodies that conform to the current schema.

    The schema may have changed since an object was written: fields are pruned and defaults filled
    in. Most objects conform already, and their bytes are served unchanged.
    """

    def __init__(self, kind: str, api_versions: tuple[str, ...], shape: CustomShape) -> None:
        super().__init__(kind, api_versions)
        self._shape = shape

    def serve(self, value: bytes, revision: int) -> tuple[int, str, bytes]:
        fields, version = self.read(value)
        head = head_of(self._kind, version)
        if (
            self._shape.settle(version, fields)
            or not value.startswith(head)
            or "resourceVersion" in fields["metadata"]
        ):
            value = encode(fields, version, self._kind)
        return revision, version, splice(head, value, revision)

    def read(self, value: bytes) -> tuple[dict[str, Any], str]:
        """Return the fields as stored, and the version. Raises `StoreDamaged`."""
        check_opened(value)
        try:
            fields: dict[str, Any] = orjson.loads(value)
            kind, version, metadata = fields["kind"], fields["apiVersion"], fields["metadata"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise StoreDamaged(
                f"the value is not an object of kind {self._kind}: {error!r}"
            ) from error
        if type(metadata) is not dict:
            raise StoreDamaged(f"the value is not an object of kind {self._kind}: no metadata")
        self.check_type(kind, version)
        return fields, version


def splicer_of(resource: Resource) -> Splicer:
    """Return the splicer that turns stored values of a resource into served bodies."""
    versions = (resource.storage_api_version, *resource.decodable)
    if isinstance(resource.shape, CustomShape):
        return CustomSplicer(resource.kind.kind, versions, resource.shape)
    return Splicer(resource.kind.kind, versions)
