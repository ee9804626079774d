"""Translates a schema for the JSON schema library, whose acceptance is trusted.

There are two translations: one accepts valid objects, the other accepts objects without anything to
prune, default or null to replace.

The library is many times faster than Python, but its messages and paths differ from Kubernetes'. So
it only decides whether an object is valid; if not, `validate` checks again and is authoritative.
Translations may therefore be stricter than the rules, never laxer. Below `not` and `oneOf` stricter
becomes laxer, so there the translation is exact.

Not here: lists that are sets or maps, and CEL rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jsonschema_rs

from restow.apimachinery.structural.formats import format_check
from restow.apimachinery.structural.patterns import compile_pattern, is_plain
from restow.apimachinery.structural.prune import META_FIELDS
from restow.apimachinery.structural.schema import Schema
from restow.apimachinery.type_values import FLOAT_EXACT_MAX, INT32_MAX, INT32_MIN

Accepts = Callable[[Any], bool]

# A prefix, so that names do not collide with the library's built-in formats.
_FORMAT_PREFIX: Final = "x-"
_LIMITS: Final = (
    ("max_length", "maxLength"),
    ("min_length", "minLength"),
    ("max_items", "maxItems"),
    ("min_items", "minItems"),
    ("max_properties", "maxProperties"),
    ("min_properties", "minProperties"),
)


def compile_fast_check(schema: Schema) -> Accepts:
    """Compile a check that accepts only what `validate` accepts."""
    translator = _Translator()
    translated = translator.node(schema)
    return _test(translated, translator.formats) if translated is not None else _never


def compile_settled(schema: Schema) -> Accepts:
    """Compile a check that accepts only objects that nulls, defaults and pruning do not change."""
    return _test(_settled(schema, closes=True, is_object=True), {})


def _test(translated: dict[str, Any], formats: dict[str, Accepts]) -> Accepts:
    try:
        validator = jsonschema_rs.Draft202012Validator(
            translated,
            formats=formats,
            validate_formats=True,
            ignore_unknown_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (ValueError, jsonschema_rs.ValidationError):
        return _never
    accepts: Accepts = validator.is_valid
    return accepts


def _never(_: Any) -> bool:
    return False


_NOT_NULL: Final = ["string", "number", "boolean", "object", "array"]
_SCALAR: Final = ["string", "number", "boolean", "null"]


def _settled(schema: Schema, *, closes: bool, is_object: bool = False) -> dict[str, Any]:
    """Translate the skeleton: types, no unknown fields, and all fields that have a default.

    `is_object`: the node has metadata, as the object itself and embedded objects do.
    """
    is_object = is_object or schema.embedded
    translated: dict[str, Any] = {"type": _types(schema) or _NOT_NULL}
    if schema.nullable and "null" not in translated["type"]:
        translated["type"] = [*translated["type"], "null"]
    if schema.items is not None:
        translated["items"] = _settled(schema.items, closes=True)
    if schema.type != "object" and not schema.properties:
        return translated
    # Metadata is pruned elsewhere, and its schema does not list its other fields.
    translated["properties"] = {
        name: _settled(each, closes=not (is_object and name in META_FIELDS))
        for name, each in schema.properties.items()
    }
    if is_object:
        for name in META_FIELDS:
            translated["properties"].setdefault(name, True)
    translated["required"] = [
        name for name, each in schema.properties.items() if each.default is not None
    ]
    if isinstance(schema.additional, Schema):
        translated["additionalProperties"] = _settled(schema.additional, closes=True)
    elif schema.additional is not None:
        translated["additionalProperties"] = {"type": _SCALAR}
    elif closes and not schema.preserves:
        translated["additionalProperties"] = False
    return translated


class _Translator:
    def __init__(self) -> None:
        self.formats: dict[str, Accepts] = {}
        self.must_be_exact = False
        """Below `not` and `oneOf`, where rejecting too much would accept too much."""

    def node(self, schema: Schema) -> dict[str, Any] | None:
        """Translate a node; None for a limit that the library does not support, such as a negative
        one.
        """
        translated: dict[str, Any] = {}
        if types := _types(schema):
            translated["type"] = types if len(types) > 1 else types[0]
        if schema.enum:
            # Null never matches an enum, even if it is listed.
            translated["enum"] = [each for each in schema.enum if each is not None]
            if not translated["enum"]:
                return None
        for attribute, name in _LIMITS:
            if (limit := getattr(schema, attribute)) is not None:
                if limit < 0:
                    return None
                translated[name] = limit
        if not self._numbers(schema, translated):
            return None
        if schema.required:
            translated["required"] = list(schema.required)
        extra = self._texts(schema, translated)
        if schema.additional is False:
            translated["additionalProperties"] = False
        return self._below(schema, translated, extra)

    def _below(
        self, schema: Schema, translated: dict[str, Any], extra: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        if schema.properties:
            properties = {name: self.node(each) for name, each in schema.properties.items()}
            if None in properties.values():
                return None
            translated["properties"] = properties
        if isinstance(schema.additional, Schema):
            translated["additionalProperties"] = self.node(schema.additional)
        if schema.items is not None:
            translated["items"] = self.node(schema.items)
        if None in (translated.get("additionalProperties", ()), translated.get("items", ())):
            return None
        junction = self._junction(schema)
        if junction is None:
            return None
        if junction:
            # For null only type and enum are checked.
            takes_null = schema.nullable or not _types(schema)
            extra.append({"anyOf": [{"type": "null"}, junction]} if takes_null else junction)
        if extra:
            translated["allOf"] = extra
        return translated

    def _junction(self, schema: Schema) -> dict[str, Any] | None:
        translated: dict[str, Any] = {}
        for name, nodes in (
            ("allOf", schema.all_of),
            ("anyOf", schema.any_of),
            ("oneOf", schema.one_of),
        ):
            if nodes:
                was_exact = self.must_be_exact
                self.must_be_exact = was_exact or name == "oneOf"
                translated[name] = [self.node(each) for each in nodes]
                self.must_be_exact = was_exact
                if None in translated[name]:
                    return None
        if schema.none_of is not None:
            was_exact, self.must_be_exact = self.must_be_exact, True
            translated["not"] = self.node(schema.none_of)
            self.must_be_exact = was_exact
            if translated["not"] is None:
                return None
        return translated

    def _numbers(self, schema: Schema, translated: dict[str, Any]) -> bool:
        if (bound := schema.maximum) is not None:
            translated["exclusiveMaximum" if schema.exclusive_maximum else "maximum"] = bound
        if (bound := schema.minimum) is not None:
            translated["exclusiveMinimum" if schema.exclusive_minimum else "minimum"] = bound
        if schema.type == "integer" and not schema.int_or_string:
            # Beyond this range a float may be mistaken for an integer.
            low, high = -FLOAT_EXACT_MAX, FLOAT_EXACT_MAX
            if schema.format == "int32":
                low, high = INT32_MIN, INT32_MAX
            translated["minimum"] = max(low, translated.get("minimum", low))
            translated["maximum"] = min(high, translated.get("maximum", high))
        elif schema.int_or_string or (schema.type == "number" and schema.format == "float"):
            translated["minimum"] = max(
                -FLOAT_EXACT_MAX, translated.get("minimum", -FLOAT_EXACT_MAX)
            )
            translated["maximum"] = min(FLOAT_EXACT_MAX, translated.get("maximum", FLOAT_EXACT_MAX))
        if schema.multiple_of is not None:
            if schema.multiple_of <= 0:
                return False
            translated["multipleOf"] = schema.multiple_of
        return True

    def _texts(self, schema: Schema, translated: dict[str, Any]) -> list[dict[str, Any]]:
        extra = []
        if schema.format and schema.type in ("", "string"):
            check = format_check(schema.format)
            if schema.format == "date-time" and not self.must_be_exact:
                # The library's own check is stricter, except for leap seconds.
                translated["format"] = "date-time"
                extra.append({"pattern": "^[0-9Tt:-]{17}[0-5]"})
            elif check is not None:
                name = _FORMAT_PREFIX + schema.format
                self.formats[name] = check
                translated["format"] = name
        if schema.pattern:
            if is_plain(schema.pattern):
                translated["pattern"] = schema.pattern
            else:
                name = f"{_FORMAT_PREFIX}pattern-{len(self.formats)}"
                self.formats[name] = _pattern_test(schema.pattern)
                extra.append({"format": name})
        return extra


def _pattern_test(pattern: str) -> Accepts:
    try:
        return compile_pattern(pattern).found_in
    except ValueError:
        # Reported when the schema is validated, if it ever was.
        return _never


def _types(schema: Schema) -> list[str]:
    if schema.int_or_string:
        types = ["integer", "string"]
    elif schema.type:
        types = [schema.type]
    else:
        return []
    # Null never matches an enum.
    return [*types, "null"] if schema.nullable and not schema.enum else types
