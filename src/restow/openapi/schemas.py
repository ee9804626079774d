"""OpenAPI definitions: the schema of each type, and the types that it refers to.

Built-in types come from the type tables, declared kinds have their own schema. Definitions are
built one at a time and not kept, so that a large document needs little memory.

Not here: paths, and the frame of the document.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from restow.apimachinery.apply.schema import ATOMIC_STRUCTS
from restow.apimachinery.types import (
    Field,
    ListOf,
    MapOf,
    Scalar,
    Special,
    Struct,
    StructRef,
    StructResolver,
    UnknownType,
)
from restow.kinds.schema_facts import (
    default_of,
    is_required,
    union_of,
    words_of,
    zero_of,
)
from restow.openapi.declared import declared_kind, encoded, open_kind
from restow.openapi.operations import (
    DELETE_OPTIONS,
    META,
    PATCH,
    RESOURCE_LIST,
    STATUS,
    TEXT,
)
from restow.openapi.served import (
    ServedKind,
    definition_name,
    group_version,
    in_order,
    list_definition_name,
    list_kind_of,
)

Schema = dict[str, Any]
Gvk = tuple[str, str, str]

_CORE: Final = "io.k8s.api.core.v1."
_OF_KINDS: Final = {"apiVersion", "kind", "metadata"}
_SELECTABLE: Final = "x-kubernetes-selectable-fields"
OBJECT_META: Final = META + "ObjectMeta"
LIST_META: Final = META + "ListMeta"

_SCALARS: Final[dict[Scalar, Schema]] = {
    Scalar.STRING: {"type": "string"},
    Scalar.BOOL: {"type": "boolean"},
    Scalar.INT32: {"type": "integer", "format": "int32"},
    Scalar.INT64: {"type": "integer", "format": "int64"},
    Scalar.FLOAT64: {"type": "number", "format": "double"},
    Scalar.BYTES: {"type": "string", "format": "byte"},
}
# v2 allows one type or any, so unions are described by their string form.
_SPECIALS_V2: Final[dict[str, Schema]] = {
    Special.TIME.value: {"type": "string", "format": "date-time"},
    Special.MICRO_TIME.value: {"type": "string", "format": "date-time"},
    Special.DURATION.value: {"type": "string"},
    Special.QUANTITY.value: {"type": "string"},
    Special.INT_OR_STRING.value: {"type": "string", "format": "int-or-string"},
    Special.RAW_EXTENSION.value: {"type": "object"},
    Special.FIELDS_V1.value: {"type": "object"},
    Special.JSON.value: {"description": "Any JSON value."},
    Special.SCHEMA_OR_ARRAY.value: {"description": "A schema, or a list of schemas."},
    Special.SCHEMA_OR_BOOL.value: {"description": "A schema, or true or false."},
    Special.SCHEMA_OR_STRINGS.value: {"description": "A schema, or a list of strings."},
    PATCH: {
        "type": "object",
        "description": "A patch in the format of its content type.",
    },
}
_SPECIALS_V3: Final[dict[str, Schema]] = {
    **_SPECIALS_V2,
    Special.QUANTITY.value: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    Special.INT_OR_STRING.value: {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}

# Descriptions of fields that every kind has; others would have to be copied from Kubernetes.
_ABOUT: Final = {
    "apiVersion": "Group and version of the kind, as in `apps/v1`.",
    "kind": "Name of the kind.",
    "metadata": "Standard object metadata.",
    "spec": "Desired state.",
    "status": "Observed state.",
    "items": "The objects of the list.",
}


class Definitions:
    """The definitions of one document: collected by name, built one after the other.

    `reference` records that a type is needed; `all` then yields each needed type once, including
    those that they need in turn.
    """

    def __init__(self, types: StructResolver, *, v3: bool) -> None:
        self._types = types
        self._v3 = v3
        self._prefix = "#/components/schemas/" if v3 else "#/definitions/"
        self._specials = _SPECIALS_V3 if v3 else _SPECIALS_V2
        self._declared: dict[str, ServedKind] = {}
        self._kinds: dict[str, dict[Gvk, None]] = {}  # insertion order; each once
        self._wanted: dict[str, None] = {}  # insertion order; each once

    def add_kind(self, kind: ServedKind) -> None:
        """Add a kind, its list and the kinds of its subresources to the document."""
        name = definition_name(kind)
        self.name_kind(name, (kind.group, kind.version, kind.kind))
        if not self._is_built_in(name):
            self._declared[name] = kind
        self.reference(name)
        if "list" in kind.verbs:
            of_list = list_definition_name(kind)
            self.name_kind(of_list, (kind.group, kind.version, list_kind_of(kind)))
            if not self._is_built_in(of_list):
                self._declared[of_list] = kind
            self.reference(of_list)
        for sub in kind.subresources:
            if sub.connects:
                continue
            if sub.type_name is not None and sub.type_name != name:
                self.name_kind(sub.type_name, (sub.group, sub.version, sub.kind))
                self.reference(sub.type_name)
            if sub.body_type_name:
                self.name_kind(sub.body_type_name, (sub.group, sub.version, sub.body_kind))
                self.reference(sub.body_type_name)

    def add_shared(self, group: str, version: str) -> None:
        """Add the types that operations of every group version use."""
        self.name_kind(STATUS, ("", "v1", "Status"))
        self.name_kind(RESOURCE_LIST, ("", "v1", "APIResourceList"))
        self.name_kind(DELETE_OPTIONS, ("", "v1", "DeleteOptions"))
        self.name_kind(DELETE_OPTIONS, (group, version, "DeleteOptions"))
        for name in (RESOURCE_LIST, STATUS, DELETE_OPTIONS, PATCH):
            self.reference(name)

    def reference(self, name: str) -> Schema:
        """Return a reference to a type, and add the type to the document."""
        self._wanted.setdefault(name)
        return {"$ref": self._prefix + name}

    def answer(self, name: str) -> Schema:
        """Return the schema of an operation's response."""
        return {"type": "string"} if name == TEXT else self.reference(name)

    def all(self) -> Iterator[tuple[str, Schema]]:
        """Iterate over all needed definitions with their names."""
        done = 0
        while done < len(self._wanted):
            names = list(self._wanted)[done:]
            done = len(self._wanted)
            for name in names:
                yield name, self._definition(name)

    def one(self, name: str) -> Schema:
        """Return a single definition, and record the types that it refers to."""
        return self._definition(name)

    def declared(self) -> Iterator[tuple[str, Schema]]:
        """Iterate over the definitions of declared kinds, to which no other kind refers."""
        for name in self._declared:
            yield name, self._definition(name)

    def shared(self) -> list[str]:
        """Return the names of all other definitions that are needed so far."""
        return [name for name in self._wanted if name not in self._declared]

    def shared_kinds(self) -> Iterator[tuple[str, Gvk]]:
        """Iterate over those definitions that are kinds, with their kinds."""
        for name, kinds in self._kinds.items():
            if name not in self._declared:
                yield from ((name, gvk) for gvk in kinds)

    def name_kind(self, name: str, gvk: Gvk) -> None:
        """Record that a definition is that of a kind."""
        self._kinds.setdefault(name, {})[gvk] = None

    def kinds_of(self, name: str) -> tuple[Gvk, ...]:
        """Return the kinds of a definition."""
        return tuple(self._kinds.get(name, ()))

    def _is_built_in(self, name: str) -> bool:
        return _has(self._types, name)

    def _definition(self, name: str) -> Schema:
        special = self._specials.get(name)
        if special is not None:
            return special
        declared = self._declared.get(name)
        if declared is None:
            schema = self._struct(name)
        elif name == definition_name(declared):
            schema = self._declared_kind(declared)
        else:
            schema = self._declared_list(declared)
        kinds = self._kinds.get(name) or _own_kind(name, schema)
        if kinds:
            schema["x-kubernetes-group-version-kind"] = [
                {"group": group, "version": version, "kind": kind} for group, version, kind in kinds
            ]
        return schema

    def _struct(self, name: str) -> Schema:
        try:
            struct = self._types.struct(name)
        except UnknownType:
            # A dangling reference would break clients; an object of any shape does not.
            return {"type": "object"}
        schema: Schema = {"type": "object"}
        if struct.is_kind:
            schema["description"] = self._about(name, struct.short_name)
        properties = {each.json: self._property(struct, each) for each in struct.fields}
        if properties:
            schema["properties"] = properties
        required = [each.json for each in struct.fields if is_required(struct, each)]
        if required:
            schema["required"] = required
        if struct.name in ATOMIC_STRUCTS:
            schema["x-kubernetes-map-type"] = "atomic"
        union = union_of(struct)
        if union is not None:
            extensions: Schema = {"fields-to-discriminateBy": union[1]}
            schema["x-kubernetes-unions"] = [
                {"discriminator": union[0], **extensions} if union[0] else extensions
            ]
        return schema

    def _about(self, name: str, kind: str) -> str:
        known = self._kinds.get(name)
        if not known:
            return f"{kind}."
        group, version, kind = next(iter(known))
        return f"{kind} in version {group_version(group, version)}."

    def _property(self, struct: Struct, field: Field) -> Schema:
        schema = self._expression(field.type)
        extra: Schema = {}
        if struct.is_kind and field.json in _ABOUT:
            extra["description"] = _ABOUT[field.json]
        words = words_of(struct, field)
        if words:
            inner = schema.get("items") or schema.get("additionalProperties") or schema
            inner["enum"] = list(words)
        default = default_of(struct, field)
        if default is not None and self._v3:
            extra["default"] = default
        extra |= _merging(field)
        if "$ref" not in schema:
            return {**schema, **extra}
        return self._with_reference(schema, extra, pointer=field.pointer)

    def _with_reference(self, schema: Schema, extra: Schema, *, pointer: bool) -> Schema:
        """Wrap a reference in v3, where it allows no sibling keywords, in an allOf of one."""
        if not self._v3:
            return {**schema, **extra}
        if not pointer and schema["$ref"][len(self._prefix) :] not in self._specials:
            extra["default"] = {}
        return {"allOf": [schema], **extra} if extra else schema

    def _expression(self, expression: object) -> Schema:
        match expression:
            case Scalar():
                return dict(_SCALARS[expression])
            case Special():
                return self.reference(expression.value)
            case StructRef(name=name):
                return self.reference(name)
            case ListOf(item=item):
                return {"type": "array", "items": self._inner(item)}
            case MapOf(value=value):
                return {"type": "object", "additionalProperties": self._inner(value)}
            case _:
                raise TypeError(f"no schema for {expression!r}")

    def _inner(self, expression: object) -> Schema:
        """Return the schema of list items or map values. They are never absent, so v3 has a
        default.
        """
        schema = self._expression(expression)
        if isinstance(expression, StructRef):
            return self._with_reference(schema, {}, pointer=False)
        zero = zero_of(expression) if isinstance(expression, Scalar) and self._v3 else None
        return schema if zero is None else {**schema, "default": zero}

    def _declared_kind(self, kind: ServedKind) -> Schema:
        about = f"{kind.kind} in version {group_version(kind.group, kind.version)}."
        head = self._head(OBJECT_META)
        schema = kind.declared_schema()
        if schema is None or encoded(schema) is None:
            made = {"description": about, **open_kind(head, v3=self._v3)}
        else:
            made = {"description": about, **declared_kind(schema, head, v3=self._v3)}
        if kind.selectable:
            made[_SELECTABLE] = [{"fieldPath": path} for path in kind.selectable]
        return made

    def _declared_list(self, kind: ServedKind) -> Schema:
        return {
            "description": f"A list of objects of kind {kind.kind}.",
            "type": "object",
            "required": ["items"],
            "properties": {
                **self._head(LIST_META),
                "items": {
                    "type": "array",
                    "description": _ABOUT["items"],
                    "items": self.reference(definition_name(kind)),
                },
            },
        }

    def _head(self, metadata: str) -> Schema:
        reference = self.reference(metadata)
        about = {"description": _ABOUT["metadata"]}
        return {
            "apiVersion": {"type": "string", "description": _ABOUT["apiVersion"]},
            "kind": {"type": "string", "description": _ABOUT["kind"]},
            "metadata": self._with_reference(reference, about, pointer=False),
        }


def _own_kind(name: str, schema: Schema) -> list[Gvk]:
    """Return the kind of a nested core/v1 definition, which is not served; empty if it is none."""
    if not name.startswith(_CORE) or not schema.get("properties", {}).keys() >= _OF_KINDS:
        return []
    return [("", "v1", name.removeprefix(_CORE))]


def known_types(kinds: Iterable[ServedKind], types: StructResolver) -> list[ServedKind]:
    """Return the kinds in order; one whose type is not in the tables is treated as declared."""
    return [
        kind if kind.type_name is None or _has(types, kind.type_name) else _untyped(kind)
        for kind in in_order(list(kinds))
    ]


def _untyped(kind: ServedKind) -> ServedKind:
    subresources = tuple(
        replace(sub, type_name=None) if sub.type_name == kind.type_name else sub
        for sub in kind.subresources
    )
    return replace(kind, type_name=None, subresources=subresources)


def _has(types: StructResolver, name: str) -> bool:
    try:
        types.struct(name)
    except UnknownType:
        return False
    return True


def _merging(field: Field) -> Schema:
    """Return the extensions that describe how a field merges, in patches and server-side apply."""
    extensions: Schema = {}
    if field.patch_strategies:
        extensions["x-kubernetes-patch-strategy"] = ",".join(field.patch_strategies)
    if field.merge_key is not None:
        extensions["x-kubernetes-patch-merge-key"] = field.merge_key
    if field.list_type is not None:
        extensions["x-kubernetes-list-type"] = field.list_type
    if field.list_keys:
        extensions["x-kubernetes-list-map-keys"] = list(field.list_keys)
    if field.map_type is not None:
        extensions["x-kubernetes-map-type"] = field.map_type
    return extensions
