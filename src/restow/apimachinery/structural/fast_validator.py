"""A schema in the form of the schema library, whose yes is taken for a yes.

There are two forms: one for what is valid, one for what has nothing to prune and no default or
null to replace.

The library is many times faster than Python, but has words and paths of its own. So it only says
whether an object is right; if it is not, `validate` looks again and has the last word. What is
written here may therefore be stricter than the rules, never laxer. Inside of `not` and `oneOf`
strict is lax, so there everything is said exactly.

Not here: lists that are sets or maps, and rules in CEL.
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

# The library's own formats have names without this, and must not be meant by accident.
_FORMAT_PREFIX: Final = "x-"
_LIMITS: Final = (
    ("max_length", "maxLength"),
    ("min_length", "minLength"),
    ("max_items", "maxItems"),
    ("min_items", "minItems"),
    ("max_properties", "maxProperties"),
    ("min_properties", "minProperties"),
)


def compile_quick(schema: Schema) -> Accepts:
    """A test that accepts only what `validate` accepts."""
    writing = _Writing()
    written = writing.node(schema)
    return _test(written, writing.formats) if written is not None else _never


def compile_settled(schema: Schema) -> Accepts:
    """A test that accepts only objects that nulls, defaults and pruning leave as they are."""
    return _test(_settled(schema, closes=True, is_object=True), {})


def _test(written: dict[str, Any], formats: dict[str, Accepts]) -> Accepts:
    try:
        validator = jsonschema_rs.Draft202012Validator(
            written,
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
    """The skeleton: types, no unknown names, and all names that have a default.

    `is_object`: it has metadata, as the object itself and embedded ones have.
    """
    is_object = is_object or schema.embedded
    written: dict[str, Any] = {"type": _types(schema) or _NOT_NULL}
    if schema.nullable and "null" not in written["type"]:
        written["type"] = [*written["type"], "null"]
    if schema.items is not None:
        written["items"] = _settled(schema.items, closes=True)
    if schema.type != "object" and not schema.properties:
        return written
    # Metadata is pruned by others, and its schema says nothing of what else is there.
    written["properties"] = {
        name: _settled(each, closes=not (is_object and name in META_FIELDS))
        for name, each in schema.properties.items()
    }
    if is_object:
        for name in META_FIELDS:
            written["properties"].setdefault(name, True)
    written["required"] = [
        name for name, each in schema.properties.items() if each.default is not None
    ]
    if isinstance(schema.additional, Schema):
        written["additionalProperties"] = _settled(schema.additional, closes=True)
    elif schema.additional is not None:
        written["additionalProperties"] = {"type": _SCALAR}
    elif closes and not schema.preserves:
        written["additionalProperties"] = False
    return written


class _Writing:
    def __init__(self) -> None:
        self.formats: dict[str, Accepts] = {}
        self.must_be_exact = False
        """Below `not` and `oneOf`, where refusing too much would accept too much."""

    def node(self, schema: Schema) -> dict[str, Any] | None:
        """None for a limit that the library does not take, such as a negative length."""
        written: dict[str, Any] = {}
        if types := _types(schema):
            written["type"] = types if len(types) > 1 else types[0]
        if schema.enum:
            # A null is never one of an enumeration; what is, is a list of other values.
            written["enum"] = [each for each in schema.enum if each is not None]
            if not written["enum"]:
                return None
        for attribute, name in _LIMITS:
            if (limit := getattr(schema, attribute)) is not None:
                if limit < 0:
                    return None
                written[name] = limit
        if not self._numbers(schema, written):
            return None
        if schema.required:
            written["required"] = list(schema.required)
        extra = self._texts(schema, written)
        if schema.additional is False:
            written["additionalProperties"] = False
        return self._below(schema, written, extra)

    def _below(
        self, schema: Schema, written: dict[str, Any], extra: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        if schema.properties:
            properties = {name: self.node(each) for name, each in schema.properties.items()}
            if None in properties.values():
                return None
            written["properties"] = properties
        if isinstance(schema.additional, Schema):
            written["additionalProperties"] = self.node(schema.additional)
        if schema.items is not None:
            written["items"] = self.node(schema.items)
        if None in (written.get("additionalProperties", ()), written.get("items", ())):
            return None
        junction = self._junction(schema)
        if junction is None:
            return None
        if junction:
            # A null is looked at by type and enumeration only.
            takes_null = schema.nullable or not _types(schema)
            extra.append({"anyOf": [{"type": "null"}, junction]} if takes_null else junction)
        if extra:
            written["allOf"] = extra
        return written

    def _junction(self, schema: Schema) -> dict[str, Any] | None:
        written: dict[str, Any] = {}
        for name, nodes in (
            ("allOf", schema.all_of),
            ("anyOf", schema.any_of),
            ("oneOf", schema.one_of),
        ):
            if nodes:
                was_exact = self.must_be_exact
                self.must_be_exact = was_exact or name == "oneOf"
                written[name] = [self.node(each) for each in nodes]
                self.must_be_exact = was_exact
                if None in written[name]:
                    return None
        if schema.none_of is not None:
            was_exact, self.must_be_exact = self.must_be_exact, True
            written["not"] = self.node(schema.none_of)
            self.must_be_exact = was_exact
            if written["not"] is None:
                return None
        return written

    def _numbers(self, schema: Schema, written: dict[str, Any]) -> bool:
        if (bound := schema.maximum) is not None:
            written["exclusiveMaximum" if schema.exclusive_maximum else "maximum"] = bound
        if (bound := schema.minimum) is not None:
            written["exclusiveMinimum" if schema.exclusive_minimum else "minimum"] = bound
        if schema.type == "integer" and not schema.int_or_string:
            # Beyond them an integer may be a float that only looks like one.
            low, high = -FLOAT_EXACT_MAX, FLOAT_EXACT_MAX
            if schema.format == "int32":
                low, high = INT32_MIN, INT32_MAX
            written["minimum"] = max(low, written.get("minimum", low))
            written["maximum"] = min(high, written.get("maximum", high))
        elif schema.int_or_string or (schema.type == "number" and schema.format == "float"):
            written["minimum"] = max(-FLOAT_EXACT_MAX, written.get("minimum", -FLOAT_EXACT_MAX))
            written["maximum"] = min(FLOAT_EXACT_MAX, written.get("maximum", FLOAT_EXACT_MAX))
        if schema.multiple_of is not None:
            if schema.multiple_of <= 0:
                return False
            written["multipleOf"] = schema.multiple_of
        return True

    def _texts(self, schema: Schema, written: dict[str, Any]) -> list[dict[str, Any]]:
        extra = []
        if schema.format and schema.type in ("", "string"):
            check = format_check(schema.format)
            if schema.format == "date-time" and not self.must_be_exact:
                # The library's own check is stricter but for leap seconds.
                written["format"] = "date-time"
                extra.append({"pattern": "^[0-9Tt:-]{17}[0-5]"})
            elif check is not None:
                name = _FORMAT_PREFIX + schema.format
                self.formats[name] = check
                written["format"] = name
        if schema.pattern:
            if is_plain(schema.pattern):
                written["pattern"] = schema.pattern
            else:
                name = f"{_FORMAT_PREFIX}pattern-{len(self.formats)}"
                self.formats[name] = _pattern_test(schema.pattern)
                extra.append({"format": name})
        return extra


def _pattern_test(pattern: str) -> Accepts:
    try:
        return compile_pattern(pattern).found_in
    except ValueError:
        # Refused with its schema, if that was ever looked at.
        return _never


def _types(schema: Schema) -> list[str]:
    if schema.int_or_string:
        types = ["integer", "string"]
    elif schema.type:
        types = [schema.type]
    else:
        return []
    # A null never passes an enumeration.
    return [*types, "null"] if schema.nullable and not schema.enum else types
