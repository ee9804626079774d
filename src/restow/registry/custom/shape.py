"""What is known about the fields of a custom resource: the schema of each of its versions.

Objects from clients and objects from the store go the same way: nulls, defaults, pruning. What
clients write is then validated. A schema is read and compiled when the first object needs it.

`CustomShape` satisfies `resource.Shape`. Not here: the rules of schemas
(`restow.apimachinery.structural`), metadata of the object (`resources.strategy`), conversion.
"""

from __future__ import annotations

from collections.abc import Mapping
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
MEDIA_TYPES: Final = ("application/json", "application/yaml")


@cache
def _object_type() -> Struct:
    """What is known of every object: its metadata."""
    metadata = Field(json="metadata", type=StructRef(_OBJECT_META), omitempty=True)
    return Struct(name="CustomObject", fields=(metadata,), table=all_types())


class DeclaredSchema(Protocol):
    """Who has the bytes of a schema."""

    def schema_bytes(self) -> bytes:
        """The schema as JSON; `null` if there is none."""


class VersionShape:
    """One version: its schema, compiled when first needed, and where its replicas are."""

    __slots__ = ("_compiled", "_declared", "_fields", "_is_read", "prunes", "scale")

    def __init__(
        self, declared: DeclaredSchema, *, scale: ScalePaths | None = None, prunes: bool = True
    ) -> None:
        self._declared = declared
        self._compiled: CompiledSchema | None = None
        self._fields: SchemaNode | None = None
        self._is_read = False
        self.scale = scale
        self.prunes = prunes
        """False: whatever is there stays as it is, as it did before schemas were required."""

    @property
    def schema(self) -> CompiledSchema | None:
        """None if nothing is known. Raises a 500 if the definition was damaged in the store."""
        if not self._is_read:
            self._compiled = _compile(self._declared.schema_bytes())
            self._is_read = True
        return self._compiled

    @property
    def fields(self) -> SchemaNode:
        """How objects are put together, for those who manage their fields."""
        if self._fields is None:
            schema = self.coercing
            self._fields = DEDUCED if schema is None else from_structural(schema.schema)
        return self._fields

    @property
    def coercing(self) -> CompiledSchema | None:
        """What nulls, defaults and pruning go by; None if they do nothing."""
        return self.schema if self.prunes else None


def _compile(raw: bytes) -> CompiledSchema | None:
    try:
        declared = orjson.loads(raw)
        return None if declared is None else CompiledSchema(read_schema(declared))
    except (orjson.JSONDecodeError, StatusError) as error:
        raise status.internal(f"the schema of the definition cannot be read: {error}") from error


class CustomShape:
    """A kind that is defined by a CustomResourceDefinition."""

    def __init__(self, versions: Mapping[str, VersionShape]) -> None:
        """`versions` by `apiVersion`."""
        self.versions = versions

    def check(self, version: str, obj: Object) -> tuple[Object, list[str]]:
        """Changes what it is given, which is always fresh: a body or a patched copy.

        Only types in its metadata are refused; validation looks at all others.
        """
        unknown: list[str] = []
        if (metadata := obj.get("metadata")) is not None:
            checked, unknown = typed_json.check(_object_type(), {"metadata": metadata})
            obj["metadata"] = checked.get("metadata", {})
        schema = self.versions[version].coercing
        if schema is not None:
            unknown += schema.coerce(obj)
            schema.make_whole(obj)
        return obj, unknown

    def default(self, version: str, obj: Object) -> Object:
        schema = self.versions[version].coercing
        if schema is not None:
            schema.coerce(obj)
        return obj

    def settle(self, version: str, obj: Object) -> bool:
        """Bring an object from the store up to its schema; whether anything may have changed."""
        try:
            schema = self.versions[version].coercing
        except StatusError:
            return False  # it can be read as it is; writes say what is wrong
        return schema is not None and schema.settle(obj)

    def prepare_create(self, obj: Object) -> None:
        self._default_status(obj)

    def prepare_update(self, new: Object, old: Object) -> None:
        self._default_status(new)

    def _default_status(self, obj: Object) -> None:
        """A status that was taken away may have a default, with which it would be read back."""
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
        besides: list[StatusCause] = []
        if shape.scale is not None:
            besides = scale_problems(new, shape.scale, is_status=is_status)
        schema = shape.schema
        if schema is None:
            return besides
        if is_status and old is not None:
            return schema.status_problems(new, old, besides=besides).causes
        return schema.problems(new, old, besides=besides).causes

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
    """Turns stored values into served bodies that are as their schema says.

    A schema may have changed since an object was written: fields are pruned and defaults filled in
    that were neither then. Most objects are right already, and their bytes are served.
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
        """The fields as they are stored, and the version. Raises `StoreDamaged`."""
        check_opened(value)
        try:
            fields: dict[str, Any] = orjson.loads(value)
            kind, version, metadata = fields["kind"], fields["apiVersion"], fields["metadata"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise StoreDamaged(f"it holds no object of kind {self._kind}: {error!r}") from error
        if type(metadata) is not dict:
            raise StoreDamaged(f"it holds no object of kind {self._kind}: it has no metadata")
        self.check_type(kind, version)
        return fields, version


def splicer_of(resource: Resource) -> Splicer:
    """How stored values of a resource are turned into served bodies."""
    versions = (resource.storage_api_version, *resource.decodable)
    if isinstance(resource.shape, CustomShape):
        return CustomSplicer(resource.kind.kind, versions, resource.shape)
    return Splicer(resource.kind.kind, versions)
