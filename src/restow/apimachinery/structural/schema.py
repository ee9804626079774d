"""The model of a v1 JSONSchemaProps, and its parser.

One class represents both kinds of nodes: structural ones, and those below `allOf`, `anyOf`, `oneOf`
and `not`, which only restrict values. `structure` defines which rules apply to which. A schema is a
tree: references are rejected, so there are no cycles.

Not here: validation of schemas (`structure`, `schema_rules`), and of objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from restow.apimachinery.status import BadRequest, bad_request

# Far above realistic schemas; recursive walks take a few Python frames per level.
SCHEMA_DEPTH_MAX: Final = 100
# Nodes of one schema; the largest in known use have about ten thousand.
SCHEMA_NODES_MAX: Final = 100_000

# Fields of JSONSchemaProps that are always rejected, by their JSON names.
UNSUPPORTED: Final = (
    "id",
    "$schema",
    "$ref",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
)


_UNSUPPORTED: Final = frozenset(UNSUPPORTED)
_PLAIN_TYPES: Final = frozenset(("string", "integer", "number", "boolean"))
_PLAIN_FIELDS: Final = frozenset(
    (
        "description",
        "enum",
        "format",
        "maxLength",
        "maximum",
        "minLength",
        "minimum",
        "nullable",
        "title",
        "type",
    )
)
# Fields that contain nodes.
_FIELDS_WITH_NODES: Final = frozenset(
    ("properties", "additionalProperties", "items", "allOf", "anyOf", "oneOf", "not")
)


@dataclass(slots=True, frozen=True, kw_only=True)
class ValidationRule:
    """One item of `x-kubernetes-validations`."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str | None = None
    field_path: str = ""
    optional_old_self: bool | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(slots=True, kw_only=True, eq=False)
class Schema:
    """One node. An absent field has the zero value of its type; None where zero has a meaning."""

    type: str = ""
    format: str = ""
    title: str = ""
    description: str = ""
    nullable: bool = False
    default: Any = None
    """None also if the schema has null, which Kubernetes treats as absent."""
    example: Any = None
    external_docs: Mapping[str, Any] | None = None

    properties: dict[str, Schema] = field(default_factory=dict)
    additional: Schema | bool | None = None
    items: Schema | None = None
    items_are_list: bool = False
    """`items` was a list of schemas, which is rejected."""

    required: tuple[str, ...] = ()
    enum: tuple[Any, ...] = ()
    maximum: float | None = None
    exclusive_maximum: bool = False
    minimum: float | None = None
    exclusive_minimum: bool = False
    multiple_of: float | None = None
    max_length: int | None = None
    min_length: int | None = None
    pattern: str = ""
    max_items: int | None = None
    min_items: int | None = None
    unique_items: bool = False
    max_properties: int | None = None
    min_properties: int | None = None
    all_of: tuple[Schema, ...] = ()
    any_of: tuple[Schema, ...] = ()
    one_of: tuple[Schema, ...] = ()
    none_of: Schema | None = None
    """The keyword `not` of JSON schema, which is reserved in Python."""

    preserve_unknown: bool | None = None
    embedded: bool = False
    int_or_string: bool = False
    list_type: str | None = None
    list_keys: tuple[str, ...] = ()
    map_type: str | None = None
    rules: tuple[ValidationRule, ...] = ()

    unsupported: tuple[str, ...] = ()
    """Fields from `UNSUPPORTED` that are present."""
    is_plain: bool = False
    """Whether this is a scalar to which no schema rule applies: most nodes are, and can be skipped.
    False means unknown.
    """
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The parsed JSON; owned by the caller, and never modified here."""

    @property
    def preserves(self) -> bool:
        """Report whether unknown fields of this node are preserved."""
        return bool(self.preserve_unknown)

    @property
    def additional_schema(self) -> Schema | None:
        """Return the schema of map values; None if there is none."""
        return self.additional if isinstance(self.additional, Schema) else None

    def field_schema(self, name: str) -> Schema | None:
        """Return the schema of an object's member: a property, or a value of a map."""
        found = self.properties.get(name)
        return found if found is not None else self.additional_schema

    def children(self) -> Iterator[Schema]:
        """Iterate over the structural child nodes."""
        yield from self.properties.values()
        if self.items is not None:
            yield self.items
        if isinstance(self.additional, Schema):
            yield self.additional

    def junctors(self) -> Iterator[Schema]:
        """Iterate over the child nodes that only restrict values."""
        yield from self.all_of
        yield from self.any_of
        yield from self.one_of
        if self.none_of is not None:
            yield self.none_of


def read_schema(raw: Any, path: str = "openAPIV3Schema") -> Schema:
    """Parse a decoded JSONSchemaProps; BadRequest if a field has a wrong type.

    Objects created through the API were validated before; this covers all others.
    """
    return _Reader().read(raw, path, 0)


class _Reader:
    """Counts nodes while parsing, to enforce the limits."""

    def __init__(self) -> None:
        self.nodes_left = SCHEMA_NODES_MAX

    def read(self, raw: Any, path: str, depth: int) -> Schema:
        if not isinstance(raw, Mapping):
            raise _wrong(path, "object")
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise bad_request(f"{path}: the schema has more than {SCHEMA_NODES_MAX} nodes")
        if depth > SCHEMA_DEPTH_MAX:
            raise bad_request(f"{path}: the schema is nested deeper than {SCHEMA_DEPTH_MAX} levels")
        node = Schema(raw=raw)
        for name, value in raw.items():
            if value is None or name in ("default", "example", "enum"):
                continue
            if plain := _PLAIN.get(name):
                attribute, types, wanted = plain
                if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                    raise _wrong(f"{path}.{name}", wanted)
                setattr(node, attribute, value)
            elif texts := _TEXT_LISTS.get(name):
                setattr(node, texts, _texts(value, f"{path}.{name}"))
        node.default, node.example = raw.get("default"), raw.get("example")
        if (enum := raw.get("enum")) is not None:
            node.enum = tuple(_list(enum, f"{path}.enum"))
        # Most nodes have none of the following fields, and there may be tens of thousands of nodes.
        if _PLAIN_FIELDS.issuperset(raw):
            node.is_plain = node.type in _PLAIN_TYPES
            return node
        if not _UNSUPPORTED.isdisjoint(raw):
            node.unsupported = tuple(name for name in UNSUPPORTED if _is_given(raw.get(name), name))
        if not _FIELDS_WITH_NODES.isdisjoint(raw):
            self._read_below(node, raw, path=path, depth=depth + 1)
        if rules := raw.get("x-kubernetes-validations"):
            where = f"{path}.x-kubernetes-validations"
            node.rules = tuple(
                _read_rule(each, f"{where}[{index}]")
                for index, each in enumerate(_list(rules, where))
            )
        return node

    def _read_below(self, node: Schema, raw: Mapping[str, Any], *, path: str, depth: int) -> None:
        properties = raw.get("properties")
        if properties is not None:
            if not isinstance(properties, Mapping):
                raise _wrong(f"{path}.properties", "object")
            node.properties = {
                name: self.read(each, f"{path}.properties[{name[:100]}]", depth)
                for name, each in properties.items()
            }
        additional = raw.get("additionalProperties")
        if isinstance(additional, bool):
            node.additional = additional
        elif additional is not None:
            node.additional = self.read(additional, f"{path}.additionalProperties", depth)
        items = raw.get("items")
        if isinstance(items, list):
            node.items_are_list = bool(items)
        elif items is not None:
            node.items = self.read(items, f"{path}.items", depth)
        for name, attribute in _JUNCTORS:
            if not raw.get(name):
                continue
            junctor = _list(raw[name], f"{path}.{name}")
            setattr(
                node,
                attribute,
                tuple(
                    self.read(each, f"{path}.{name}[{index}]", depth)
                    for index, each in enumerate(junctor)
                ),
            )
        if (none_of := raw.get("not")) is not None:
            node.none_of = self.read(none_of, f"{path}.not", depth)


_JUNCTORS: Final = (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of"))
_TEXT_LISTS: Final = {"required": "required", "x-kubernetes-list-map-keys": "list_keys"}
_STR, _BOOL, _INT, _NUMBER = (str,), (bool,), (int,), (int, float)
_PLAIN: Final[dict[str, tuple[str, tuple[type, ...], str]]] = {
    "type": ("type", _STR, "string"),
    "format": ("format", _STR, "string"),
    "title": ("title", _STR, "string"),
    "description": ("description", _STR, "string"),
    "nullable": ("nullable", _BOOL, "boolean"),
    "externalDocs": ("external_docs", (dict,), "object"),
    "maximum": ("maximum", _NUMBER, "number"),
    "exclusiveMaximum": ("exclusive_maximum", _BOOL, "boolean"),
    "minimum": ("minimum", _NUMBER, "number"),
    "exclusiveMinimum": ("exclusive_minimum", _BOOL, "boolean"),
    "multipleOf": ("multiple_of", _NUMBER, "number"),
    "maxLength": ("max_length", _INT, "integer"),
    "minLength": ("min_length", _INT, "integer"),
    "pattern": ("pattern", _STR, "string"),
    "maxItems": ("max_items", _INT, "integer"),
    "minItems": ("min_items", _INT, "integer"),
    "uniqueItems": ("unique_items", _BOOL, "boolean"),
    "maxProperties": ("max_properties", _INT, "integer"),
    "minProperties": ("min_properties", _INT, "integer"),
    "x-kubernetes-preserve-unknown-fields": ("preserve_unknown", _BOOL, "boolean"),
    "x-kubernetes-embedded-resource": ("embedded", _BOOL, "boolean"),
    "x-kubernetes-int-or-string": ("int_or_string", _BOOL, "boolean"),
    "x-kubernetes-list-type": ("list_type", _STR, "string"),
    "x-kubernetes-map-type": ("map_type", _STR, "string"),
}
_RULE_TEXTS: Final = {
    "rule": "rule",
    "message": "message",
    "messageExpression": "message_expression",
    "reason": "reason",
    "fieldPath": "field_path",
}


def _read_rule(raw: Any, path: str) -> ValidationRule:
    if not isinstance(raw, Mapping):
        raise _wrong(path, "object")
    members: dict[str, Any] = {"rule": "", "raw": raw}
    for name, attribute in _RULE_TEXTS.items():
        value = raw.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise _wrong(f"{path}.{name}", "string")
        members[attribute] = value
    optional = raw.get("optionalOldSelf")
    if optional is not None and not isinstance(optional, bool):
        raise _wrong(f"{path}.optionalOldSelf", "boolean")
    return ValidationRule(optional_old_self=optional, **members)


def _is_given(value: Any, name: str) -> bool:
    # Kubernetes distinguishes null from absent only in pointer fields.
    return value is not None if name in ("$ref", "additionalItems", "dependencies") else bool(value)


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(path, "array")
    return value


def _texts(value: Any, path: str) -> tuple[str, ...]:
    if not all(isinstance(each, str) for each in _list(value, path)):
        raise _wrong(path, "array of strings")
    return tuple(value)


def _wrong(path: str, wanted: str) -> BadRequest:
    return bad_request(f"{path}: must be of type {wanted}")
