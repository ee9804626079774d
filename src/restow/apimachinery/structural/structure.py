"""Checks that a schema is structural: a typed skeleton, and only restrictions below junctors.

Every field that a restriction names has a type in the skeleton, so pruning and defaulting need not
read restrictions. Wording and paths are those of Kubernetes.

Not here: rules for each node by itself (`schema_rules`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from restow.apimachinery import field_errors
from restow.apimachinery.field_errors import Causes
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural import paths
from restow.apimachinery.structural.patterns import compile_pattern
from restow.apimachinery.structural.schema import Schema


class SchemaLevel(Enum):
    """The position of a node; only the wording of one message depends on it."""

    ROOT = "at the root"
    ITEM = "for specified array items"
    FIELD = "for specified object fields"


def structural_problems(schema: Schema, path: str) -> list[StatusCause]:
    """Return why a schema is not structural, sorted; empty if it is."""
    causes = _invariants(schema, SchemaLevel.ROOT, path)
    _Completeness(causes).restrictions(schema, schema, path, path)
    return sorted(causes, key=str)


def _invariants(schema: Schema, level: SchemaLevel, path: str) -> Causes:
    causes = Causes()
    if schema.type == "array" and schema.items is None:
        causes.required(paths.child(path, "items"), "must be specified")
    if schema.items is not None:
        causes += _invariants(schema.items, SchemaLevel.ITEM, paths.child(path, "items"))
    for name, each in schema.properties.items():
        if not each.is_plain:
            causes += _invariants(each, SchemaLevel.FIELD, _property(path, name))
    if schema.additional is not None:
        below = paths.child(path, "additionalProperties")
        if level is SchemaLevel.ROOT:
            causes.forbidden(below, "must not be used at the root")
        if schema.embedded:
            causes.forbidden(below, "must not be used if x-kubernetes-embedded-resource is set")
        if isinstance(schema.additional, Schema):
            causes += _invariants(schema.additional, SchemaLevel.FIELD, below)
    causes += _extension_problems(schema, path)
    causes += _restrictions(
        schema,
        path,
        skips_any_of=_is_int_or_string(schema.any_of),
        skips_first_all_of=bool(schema.all_of) and _is_int_or_string(schema.all_of[0].any_of),
    )
    causes += _type_problems(schema, level, path)
    causes += _meta_problems(schema, level, path)
    return causes


def _property(path: str, name: str) -> str:
    return paths.key(paths.child(path, "properties"), name)


def _extension_problems(schema: Schema, path: str) -> list[StatusCause]:
    causes = Causes()
    if schema.int_or_string:
        for name, is_set in (
            ("x-kubernetes-preserve-unknown-fields", schema.preserves),
            ("x-kubernetes-embedded-resource", schema.embedded),
        ):
            if is_set:
                why = "must be false if x-kubernetes-int-or-string is true"
                causes.invalid(paths.child(path, name), True, why)
    if schema.embedded and not schema.preserves and not schema.properties:
        why = (
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields"
        )
        causes.required(paths.child(path, "properties"), why)
    return causes


def _type_problems(schema: Schema, level: SchemaLevel, path: str) -> list[StatusCause]:
    where = paths.child(path, "type")
    causes = Causes()
    if schema.embedded and schema.type != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        causes.append(
            field_errors.invalid(where, schema.type, why)
            if schema.type
            else field_errors.required(where, why)
        )
    elif not schema.type and not schema.int_or_string and not schema.preserves:
        causes.required(where, f"must not be empty {level.value}")
    if level is SchemaLevel.ROOT and schema.type not in ("", "object"):
        causes.invalid(where, schema.type, "must be object at the root")
    return causes


def _meta_problems(schema: Schema, level: SchemaLevel, path: str) -> list[StatusCause]:
    causes = Causes()
    is_object = level is SchemaLevel.ROOT or schema.embedded
    if is_object:
        for name in ("kind", "apiVersion"):
            each = schema.properties.get(name)
            if each is not None and each.type != "string":
                where = paths.child(_property(path, name), "type")
                causes.invalid(where, each.type, "must be string")
    metadata = schema.properties.get("metadata")
    if metadata is not None:
        where = _property(path, "metadata")
        if is_object and metadata.type != "object":
            below = paths.child(where, "type")
            causes.invalid(below, metadata.type, "must be object")
        if level is SchemaLevel.ROOT and _restricts_more_than_names(metadata):
            why = (
                "must not specify anything other than name and generateName, but metadata is "
                "implicitly specified"
            )
            causes.forbidden(where, why)
    return causes


_NAMES: Final = frozenset({"name", "generateName"})


def _restricts_more_than_names(metadata: Schema) -> bool:
    given = {name for name, value in metadata.raw.items() if value not in (None, "", [], {}, False)}
    return bool(given - {"type", "default", "properties"}) or not set(metadata.properties) <= _NAMES


def _is_int_or_string(alternatives: tuple[Schema, ...]) -> bool:
    """Report whether this is the one case in which a junctor may specify a type."""
    if len(alternatives) != 2 or [each.type for each in alternatives] != ["integer", "string"]:
        return False
    return all(set(each.raw) == {"type"} for each in alternatives)


def _restrictions(
    schema: Schema, path: str, *, skips_any_of: bool = False, skips_first_all_of: bool = False
) -> Causes:
    causes = Causes()
    if not skips_any_of:
        for index, each in enumerate(schema.any_of):
            causes += _nested(each, paths.index(paths.child(path, "anyOf"), index))
    for index, each in enumerate(schema.all_of):
        where = paths.index(paths.child(path, "allOf"), index)
        causes += _nested(each, where, skips_any_of=skips_first_all_of and index == 0)
    for index, each in enumerate(schema.one_of):
        causes += _nested(each, paths.index(paths.child(path, "oneOf"), index))
    if schema.none_of is not None:
        causes += _nested(schema.none_of, paths.child(path, "not"))
    if schema.pattern:
        try:
            compile_pattern(schema.pattern)
        except ValueError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            causes.invalid(paths.child(path, "pattern"), schema.pattern, why)
    return causes


_EMPTY: Final = "must be empty to be structural"
_UNDEFINED: Final = "must be undefined to be structural"
_FALSE: Final = "must be false to be structural"


def _nested(schema: Schema, path: str, *, skips_any_of: bool = False) -> Causes:
    causes = _restrictions(schema, path, skips_any_of=skips_any_of)
    if schema.items is not None:
        causes += _nested(schema.items, paths.child(path, "items"))
    for name, each in schema.properties.items():
        causes += _nested(each, _property(path, name))
    for name, is_given, why in (
        ("type", bool(schema.type), _EMPTY),
        ("additionalProperties", schema.additional not in (None, False), _UNDEFINED),
        ("default", schema.default is not None, _UNDEFINED),
        ("title", bool(schema.title), _EMPTY),
        ("description", bool(schema.description), _EMPTY),
        ("nullable", schema.nullable, _FALSE),
        ("x-kubernetes-preserve-unknown-fields", schema.preserves, _FALSE),
        ("x-kubernetes-embedded-resource", schema.embedded, _FALSE),
        ("x-kubernetes-int-or-string", schema.int_or_string, _FALSE),
        ("x-kubernetes-list-map-keys", bool(schema.list_keys), _EMPTY),
        ("x-kubernetes-list-type", schema.list_type is not None, _UNDEFINED),
        ("x-kubernetes-map-type", schema.map_type is not None, _UNDEFINED),
        ("x-kubernetes-validations", bool(schema.rules), _EMPTY),
    ):
        if is_given:
            causes.forbidden(paths.child(path, name), why)
    if "metadata" in schema.properties:
        causes.forbidden(_property(path, "metadata"), "must not be specified in a nested context")
    return causes


class _Completeness:
    """Checks that the skeleton declares every field that restrictions mention."""

    def __init__(self, causes: Causes) -> None:
        self.causes = causes

    def restrictions(
        self, schema: Schema, skeleton: Schema, path: str, restriction_path: str
    ) -> None:
        if schema.none_of is not None:
            self._nested(schema.none_of, skeleton, path, paths.child(restriction_path, "not"))
        for name, nodes in (
            ("allOf", schema.all_of),
            ("anyOf", schema.any_of),
            ("oneOf", schema.one_of),
        ):
            for index, each in enumerate(nodes):
                where = paths.index(paths.child(restriction_path, name), index)
                self._nested(each, skeleton, path, where)

    def _nested(self, schema: Schema, skeleton: Schema, path: str, restriction_path: str) -> None:
        self.restrictions(schema, skeleton, path, restriction_path)
        if schema.items is not None:
            below, origin = paths.child(path, "items"), paths.child(restriction_path, "items")
            self._require(schema.items, skeleton.items, below, origin)
        for name, each in schema.properties.items():
            known = skeleton.properties.get(name)
            self._require(each, known, _property(path, name), _property(restriction_path, name))

    def _require(
        self, schema: Schema, skeleton: Schema | None, path: str, restriction_path: str
    ) -> None:
        if skeleton is None:
            self.causes.append(
                field_errors.required(path, f"because it is defined in {restriction_path}")
            )
        else:
            self._nested(schema, skeleton, path, restriction_path)
