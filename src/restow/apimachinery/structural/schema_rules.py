"""Validates the schema of a custom resource, with Kubernetes' messages.

`definition_problems` runs all checks in Kubernetes' order: structure, defaults, single nodes, CEL
rules and their cost.

Not here: the CRD around the schema (names, versions, scope), and objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from restow.apimachinery import field_errors
from restow.apimachinery.field_errors import Causes
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural import paths
from restow.apimachinery.structural.cel.budget import CostContext, TotalCost
from restow.apimachinery.structural.cel.field_paths import FieldPathError, read_field_path
from restow.apimachinery.structural.cel.rule_checks import rule_problems
from restow.apimachinery.structural.limits import work_problems
from restow.apimachinery.structural.prune import META_FIELDS
from restow.apimachinery.structural.schema import Schema, ValidationRule
from restow.apimachinery.structural.structure import structural_problems

TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
REASONS: Final = (
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
)
# Fields allowed at the root if the status subresource is enabled, in Kubernetes' spelling.
_BESIDE_STATUS: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength "
    "MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties "
    "ExternalDocs Example XPreserveUnknownFields XValidations"
)
_BESIDE_STATUS_NAMES: Final = frozenset(
    [
        "description",
        "type",
        "format",
        "title",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "required",
        "items",
        "properties",
        "externalDocs",
        "example",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ]
)
_LINE_BREAK: Final = re.compile(r"[\n\r]")


@dataclass(slots=True, frozen=True, kw_only=True)
class Leniency:
    """Invalid features that an existing CRD may keep; a new one may have none of them."""

    any_type: bool = False
    """An unknown type."""
    unpruned_defaults: bool = False
    """Defaults with fields that the schema does not specify."""
    sets_of_anything: bool = False
    """Sets whose items are not atomic."""
    loose_list_keys: bool = False
    """Keys of map lists that are neither required nor have a default."""


STRICT: Final = Leniency()


def definition_problems(
    schema: Schema,
    *,
    path: str = "openAPIV3Schema",
    has_status: bool = False,
    leniency: Leniency = STRICT,
) -> list[StatusCause]:
    """Validate the schema of one version; empty if it can be served."""
    if too_much := work_problems(schema, path):
        return too_much
    causes = _root_problems(schema, path, has_status=has_status)
    structural = structural_problems(schema, path)
    # Unsupported fields are reported node by node, so structural errors would be duplicates.
    readable = not _has_unsupported(schema)
    if readable:
        causes += structural
    is_sound = readable and not structural
    if is_sound:
        defaults = _default_problems(schema, path, leniency)
        causes += defaults
        is_sound = not defaults
    total = TotalCost() if is_sound else None
    checks = _Checks(leniency)
    context = CostContext.of_root(schema, total) if total is not None else None
    causes += checks.node(schema, path, _Context(), context=context, is_root=True)[0]
    if total is not None:
        causes += total.problems(path)
    return causes


def leniency_of(schemas: Iterable[Schema]) -> Leniency:
    """Return the invalid features that existing schemas have."""
    found = {"any_type": False, "sets_of_anything": False, "loose_list_keys": False}
    unpruned = False
    for schema in schemas:
        _collect_leniency(schema, found)
        if not _has_unsupported(schema) and not structural_problems(schema, ""):
            strict = _default_problems(schema, "", STRICT)
            lenient = _default_problems(schema, "", Leniency(unpruned_defaults=True))
            unpruned = unpruned or len(strict) > len(lenient)
    return Leniency(unpruned_defaults=unpruned, **found)


def _collect_leniency(schema: Schema, found: dict[str, bool]) -> None:
    if schema.type and schema.type not in TYPES:
        found["any_type"] = True
    if schema.list_type == "set" and _set_problems(schema, ""):
        found["sets_of_anything"] = True
    if schema.list_type in ("set", "map") and _list_item_problems(schema, ""):
        found["loose_list_keys"] = True
    for each in (*schema.children(), *schema.junctors()):
        _collect_leniency(each, found)


def _default_problems(schema: Schema, path: str, leniency: Leniency) -> list[StatusCause]:
    # Defaults are validated as objects are, which depends on everything else in this package.
    from restow.apimachinery.structural.default_checks import default_problems  # noqa: PLC0415

    return default_problems(schema, path, must_be_pruned=not leniency.unpruned_defaults)


def _root_problems(schema: Schema, path: str, *, has_status: bool) -> list[StatusCause]:
    causes = Causes()
    if has_status:
        if schema.type not in ("", "object"):
            why = (
                'only "object" is allowed as the type at the root of the schema if the status '
                "subresource is enabled"
            )
            causes.invalid(paths.child(path, "type"), schema.type, why)
        else:
            given = {
                name for name, value in schema.raw.items() if value not in (None, "", [], {}, False)
            }
            if given - _BESIDE_STATUS_NAMES:
                why = (
                    f"only [{_BESIDE_STATUS}] fields are allowed at the root of the schema if the "
                    "status subresource is enabled"
                )
                causes.invalid(path, dict(schema.raw), why)
    if schema.nullable:
        causes.forbidden(paths.child(path, "nullable"), "nullable cannot be true at the root")
    return causes


def _has_unsupported(schema: Schema) -> bool:
    if schema.is_plain:
        return False
    if schema.unsupported or schema.items_are_list or schema.preserve_unknown is False:
        return True
    return any(map(_has_unsupported, (*schema.children(), *schema.junctors())))


@dataclass(slots=True, frozen=True)
class _Context:
    """Properties that a node inherits from its ancestors."""

    no_defaults_reason: str = ""
    is_inside_meta: bool = False
    uncorrelatable_at: str | None = None

    def without_old(self, path: str) -> _Context:
        """Return the place below a list whose items have no old values; the topmost list is
        reported.
        """
        return self if self.uncorrelatable_at is not None else replace(self, uncorrelatable_at=path)


class _Checks:
    """Walks all nodes. Returns all errors, and whether none of them is outside CEL rules."""

    def __init__(self, leniency: Leniency) -> None:
        self.leniency = leniency

    def node(
        self,
        schema: Schema,
        path: str,
        place: _Context,
        *,
        context: CostContext | None = None,
        is_root: bool = False,
    ) -> tuple[list[StatusCause], bool]:
        causes = _unsupported_problems(schema, path, place, leniency=self.leniency)
        rule_causes: list[StatusCause] = []
        is_sound = True

        def walk(below: Schema, where: str, at: _Context, child_cost: CostContext | None) -> None:
            nonlocal is_sound
            found, sound = self.node(below, where, at, context=child_cost)
            rule_causes.extend(found)
            is_sound = is_sound and sound

        if schema.unique_items:
            why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            causes.forbidden(paths.child(path, "uniqueItems"), why)
        self._walk_fields(schema, path, place, context, walk=walk, is_root=is_root)
        for name, nodes in (
            ("allOf", schema.all_of),
            ("oneOf", schema.one_of),
            ("anyOf", schema.any_of),
        ):
            for index, each in enumerate(nodes):
                walk(each, paths.index(paths.child(path, name), index), place, None)
        if schema.none_of is not None:
            walk(schema.none_of, paths.child(path, "not"), place, None)
        if schema.additional is not None and schema.properties and schema.additional is not True:
            why = "additionalProperties and properties are mutual exclusive"
            causes.forbidden(paths.child(path, "additionalProperties"), why)
        causes += _list_and_map_problems(schema, path, self.leniency)
        for index, rule in enumerate(schema.rules):
            where = paths.index(paths.child(path, "x-kubernetes-validations"), index)
            causes += _rule_text_problems(rule, schema, where)
        is_sound = is_sound and not causes
        if schema.rules and is_sound and context is not None:
            rule_causes += rule_problems(
                schema,
                path,
                context,
                uncorrelatable_at=place.uncorrelatable_at,
            )
        return [*causes, *rule_causes], is_sound

    def _walk_fields(
        self,
        schema: Schema,
        path: str,
        place: _Context,
        context: CostContext | None,
        *,
        walk: Any,
        is_root: bool,
    ) -> None:
        if isinstance(schema.additional, Schema):
            below = place
            if place.is_inside_meta:
                reason = "inside additionalProperties applying to object metadata"
                below = replace(place, no_defaults_reason=reason)
            child_cost = context.values(schema.additional) if context is not None else None
            walk(schema.additional, paths.child(path, "additionalProperties"), below, child_cost)
        for name, each in schema.properties.items():
            if each.is_plain:
                continue
            below = place
            if schema.map_type not in (None, "granular", "atomic"):
                below = below.without_old(path)
            if (is_root or schema.embedded) and name in META_FIELDS:
                below = replace(below, is_inside_meta=True)
                if is_root:
                    below = replace(below, no_defaults_reason=f"in top-level {name}")
            child_cost = context.member(each, name) if context is not None else None
            walk(each, paths.key(paths.child(path, "properties"), name), below, child_cost)
        if schema.items is not None:
            below = place if schema.list_type == "map" else place.without_old(path)
            child_cost = context.items(schema.items) if context is not None else None
            walk(schema.items, paths.child(path, "items"), below, child_cost)


_NOT_SUPPORTED: Final = {
    name: f"{name} is not supported"
    for name in (
        "id",
        "$ref",
        "patternProperties",
        "definitions",
        "dependencies",
        "additionalItems",
    )
}


def _unsupported_problems(
    schema: Schema, path: str, place: _Context, *, leniency: Leniency
) -> Causes:
    causes = Causes()
    if schema.type and schema.type not in TYPES and not leniency.any_type:
        where = paths.child(path, "type")
        causes.not_supported(where, schema.type, TYPES)
    if schema.default is not None and place.no_defaults_reason:
        why = f"must not be set {place.no_defaults_reason}"
        causes.forbidden(paths.child(path, "default"), why)
    for name in schema.unsupported:
        if why := _NOT_SUPPORTED.get(name, ""):
            causes.forbidden(paths.child(path, name), why)
        else:
            message = f"OpenAPIV3Schema '{name.removeprefix('$')}' is not supported"
            causes.invalid(path, "", message)
    if schema.type == "null":
        why = "type cannot be set to null, use nullable as an alternative"
        causes.forbidden(paths.child(path, "type"), why)
    if schema.items_are_list:
        why = "items must be a schema object and not an array"
        causes.forbidden(paths.child(path, "items"), why)
    if place.is_inside_meta and schema.embedded:
        where = paths.child(path, "x-kubernetes-embedded-resource")
        causes.forbidden(where, "must not be used inside of resource meta")
    if schema.preserve_unknown is False:
        where = paths.child(path, "x-kubernetes-preserve-unknown-fields")
        causes.invalid(where, False, "must be true or undefined")
    return causes


def _list_and_map_problems(schema: Schema, path: str, leniency: Leniency) -> list[StatusCause]:
    causes = Causes()
    for name, given, type_, known in (
        ("x-kubernetes-map-type", schema.map_type, "object", ("atomic", "granular")),
        ("x-kubernetes-list-type", schema.list_type, "array", ("atomic", "set", "map")),
    ):
        if given is None:
            continue
        if schema.type != type_:
            where, why = paths.child(path, "type"), f"must be {type_} if {name} is specified"
            causes.append(
                field_errors.invalid(where, schema.type, why)
                if schema.type
                else field_errors.required(where, why)
            )
        if given not in known:
            causes.not_supported(paths.child(path, name), given, known)
    if schema.list_type == "set" and schema.type == "array" and not leniency.sets_of_anything:
        causes += _set_problems(schema, path)
    if schema.list_keys and schema.list_type != "map":
        where = paths.child(path, "x-kubernetes-list-type")
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        causes.append(
            field_errors.required(where, why)
            if schema.list_type is None
            else field_errors.invalid(where, schema.list_type, why)
        )
    if schema.list_type == "map":
        causes += _map_list_problems(schema, path)
    if schema.list_type in ("set", "map") and not leniency.loose_list_keys:
        causes += _list_item_problems(schema, path)
    return causes


def _set_problems(schema: Schema, path: str) -> list[StatusCause]:
    items = schema.items
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    where = paths.child(path, "items")
    if items is None:
        return []
    if items.type == "array" and items.list_type not in (None, "atomic"):
        below = paths.child(where, "x-kubernetes-list-type")
        return [field_errors.invalid(below, items.list_type, why)]
    if items.type == "object" and items.map_type != "atomic":
        below = paths.child(where, "x-kubernetes-map-type")
        return [field_errors.invalid(below, items.list_type, why)]
    return []


def _map_list_problems(schema: Schema, path: str) -> list[StatusCause]:
    causes = Causes()
    keys_at = paths.child(path, "x-kubernetes-list-map-keys")
    items_at = paths.child(path, "items")
    if not schema.list_keys:
        causes.required(keys_at, "must not be empty if x-kubernetes-list-type is map")
    items = schema.items
    if items is None:
        if schema.items_are_list:
            why = "must only have a single schema if x-kubernetes-list-type is map"
            causes.invalid(items_at, schema.raw.get("items"), why)
        else:
            causes.required(items_at, "must have a schema if x-kubernetes-list-type is map")
        return causes
    if items.type != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        causes.invalid(paths.child(items_at, "type"), items.type, why)
        return causes
    keys = list(schema.list_keys)
    for place, key in enumerate(keys):
        known = items.properties.get(key)
        if known is None:
            causes.invalid(keys_at, keys, "entries must all be names of item properties")
        elif known.type in ("array", "object"):
            where = paths.child(paths.key(paths.child(items_at, "properties"), key), "type")
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            causes.invalid(where, items.type, why)
        if key in keys[:place]:
            causes.invalid(keys_at, keys, "must not contain duplicate entries")
    return causes


def _list_item_problems(schema: Schema, path: str) -> list[StatusCause]:
    items = schema.items
    if items is None:
        return []
    causes = Causes()
    items_at = paths.child(path, "items")
    if items.nullable:
        why = f"cannot be nullable when x-kubernetes-list-type is {schema.list_type}"
        causes.forbidden(paths.child(items_at, "nullable"), why)
    for key in schema.list_keys if schema.list_type == "map" else ():
        known = items.properties.get(key)
        if known is None:
            continue
        where = paths.key(paths.child(items_at, "properties"), key)
        about = "this property is in x-kubernetes-list-map-keys, so it"
        if key not in items.required and known.default is None:
            why = f"{about} must have a default or be a required property"
            causes.required(paths.child(where, "default"), why)
        if known.nullable:
            causes.forbidden(paths.child(where, "nullable"), f"{about} cannot be nullable")
    return causes


def _rule_text_problems(rule: ValidationRule, schema: Schema, path: str) -> list[StatusCause]:
    causes = Causes()
    message = rule.message.strip()
    if not rule.rule.strip():
        causes.required(paths.child(path, "rule"), "rule is not specified")
    elif rule.message and not message:
        where, why = paths.child(path, "message"), "must be non-empty if specified"
        causes.invalid(where, rule.message, why)
    elif _LINE_BREAK.search(message):
        where, why = paths.child(path, "message"), "must not contain line breaks"
        causes.invalid(where, rule.message, why)
    elif _LINE_BREAK.search(rule.rule.strip()) and not message:
        why = "message must be specified if rule contains line breaks"
        causes.required(paths.child(path, "message"), why)
    if rule.message_expression and not rule.message_expression.strip():
        why = "messageExpression must be non-empty if specified"
        causes.required(paths.child(path, "messageExpression"), why)
    if rule.reason is not None and rule.reason not in REASONS:
        where = paths.child(path, "reason")
        causes.not_supported(where, rule.reason, REASONS)
    where = paths.child(path, "fieldPath")
    if rule.field_path and not rule.field_path.strip():
        causes.invalid(where, rule.field_path, "must be non-empty if specified")
    if _LINE_BREAK.search(rule.field_path):
        causes.invalid(where, rule.field_path, "must not contain line breaks")
    if rule.field_path:
        try:
            read_field_path(rule.field_path, schema)
        except FieldPathError:
            causes.invalid(where, rule.field_path, "must be a valid path")
    return causes
