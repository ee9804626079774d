"""Shapes of built-in kinds, from their tables.

`BuiltinShape` combines types, defaults and validation of a built-in kind. It implements
`resource.Shape`.
"""

from __future__ import annotations

from copy import deepcopy

from restow.apimachinery import protobuf, status
from restow.apimachinery.apply.blank import blank
from restow.apimachinery.apply.schema import DEDUCED, SchemaNode, from_struct
from restow.apimachinery.conversion import Converter
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.strategic_merge_lists import MergeSchema
from restow.apimachinery.strategic_merge_types import merge_schema
from restow.apimachinery.typed_json import check as check_typed
from restow.apimachinery.types import Struct
from restow.kinds.defaults import apply_defaults, has_defaults, prepare_create, prepare_update
from restow.kinds.derived_types import all_types
from restow.kinds.kind import Kind
from restow.kinds.validation import validate
from restow.registry.resource import Object


class BuiltinShape:
    """The shape of a built-in kind."""

    def __init__(self, kind: Kind, converter: Converter) -> None:
        self._kind = kind
        self._converter = converter
        self._has_defaults = has_defaults(kind.group, kind.kind)
        self._structs: dict[str, Struct | None] = {}
        self._nodes: dict[str, SchemaNode] = {}

    def to_prepare(self, _version: str) -> None:
        return None

    def check(self, version: str, obj: Object) -> tuple[Object, list[str]]:
        struct = self._struct(version)
        if struct is None:
            return obj, []
        checked = check_typed(struct, obj)
        return checked.value, checked.unknown

    def default(self, version: str, obj: Object) -> Object:
        if self._has_defaults:
            group, kind = self._kind.group, self._kind.kind
            apply_defaults(group, GroupVersion.parse(version).version, kind, obj)
        return obj

    def prepare_create(self, obj: Object) -> None:
        prepare_create(self._kind.group, self._kind.kind, obj)

    def prepare_update(self, new: Object, old: Object) -> None:
        prepare_update(self._kind.group, self._kind.kind, new, old)

    def problems(
        self, version: str, new: Object, old: Object | None, *, subresource: str = ""
    ) -> list[StatusCause]:
        causes = self._problems(version, new, old, subresource=subresource)
        if causes and old is not None:
            # An object that an older release stored may lack newer defaults or empty structs.
            # Filling them in is not a change by the client.
            new, old = self._completed(version, new), self._completed(version, old)
            causes = self._problems(version, new, old, subresource=subresource)
        return causes

    def _problems(
        self, version: str, new: Object, old: Object | None, *, subresource: str
    ) -> list[StatusCause]:
        hub = self._converter.hub
        if version != hub:
            new = self._converter.convert(new, version, hub)
            old = None if old is None else self._converter.convert(old, version, hub)
        return validate(self._kind.group, self._kind.kind, new, old, subresource=subresource)

    def _completed(self, version: str, obj: Object) -> Object:
        """Return a copy of an object with the defaults it would have if it were written now."""
        try:
            checked = self.check(version, obj)[0]
        except status.StatusError:
            return obj  # stored before the kind had types: cannot be normalized
        return self.default(version, deepcopy(checked))

    def merge_schema(self, version: str) -> MergeSchema | None:
        struct = self._struct(version)
        return None if struct is None else merge_schema(struct)

    def field_schema(self, version: str) -> SchemaNode:
        found = self._nodes.get(version)
        if found is None:
            struct = self._struct(version)
            found = self._nodes[version] = DEDUCED if struct is None else from_struct(struct)
        return found

    def blank(self, version: str) -> Object:
        struct = self._struct(version)
        return {} if struct is None else blank(struct)

    def decode_protobuf(self, version: str, raw: bytes) -> Object:
        struct = self._struct(version)
        if struct is None:
            raise status.unsupported_media_type(["application/json", "application/yaml"])
        return protobuf.decode(struct, raw)

    def _struct(self, version: str) -> Struct | None:
        if version not in self._structs:
            group, name = GroupVersion.parse(version)
            self._structs[version] = all_types().of_kind(group, name, self._kind.kind)
        return self._structs[version]
