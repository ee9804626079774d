"""Prepares schemas that users declare for publication.

The schema of a custom kind may be deep, may use keywords that OpenAPI v2 lacks, and may contain
values that break strict parsers of the whole document. No kind may break the document for all.

Not here: validation of schemas, and of objects against them.
"""

from typing import Any, Final, TypeGuard

import orjson

Schema = dict[str, Any]

# Deeper parts of a schema are published as "anything".
DEPTH_MAX: Final = 64

# References cannot be resolved in the published document; the others concern other documents.
_UNPUBLISHED: Final = frozenset(("$ref", "$schema", "$id", "$defs", "$anchor", "definitions", "id"))
# v2 has no unions and no null. Defaults and examples are arbitrary values that v2 clients ignore.
_KEPT_IN_V2: Final = frozenset(
    (
        "additionalProperties",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
        "uniqueItems",
    )
)
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_RULES: Final = "x-kubernetes-validations"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_EXTENSION: Final = "x-kubernetes-"


def encoded(schema: Schema | None) -> bytes | None:
    """Encode a declared schema as JSON; None if there is none, or if it is too deep or not JSON.

    A schema without JSON is published as a kind that accepts anything.
    """
    try:
        return None if schema is None else orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None


def open_kind(head: Schema, *, v3: bool) -> Schema:
    """Return a schema that accepts anything. Old clients reject unknown fields if any is
    declared.
    """
    if not v3:
        return {"type": "object"}
    return {"type": "object", "properties": head, _PRESERVE: True}


def declared_kind(schema: Schema, head: Schema, *, v3: bool) -> Schema:
    """Return a kind's own schema, with the fields that all objects have."""
    published = publish(schema, head, v3=v3)
    published["type"] = "object"
    properties = published.get("properties")
    if not v3 and not isinstance(properties, dict):
        published.pop(_PRESERVE, None)
        return published  # as for an open kind
    published["properties"] = {**(properties if isinstance(properties, dict) else {}), **head}
    return published


def publish(schema: object, head: Schema, *, v3: bool, depth: int = 0) -> Schema:
    """Return a publishable copy of a schema; embedded objects get the common fields."""
    if not isinstance(schema, dict) or depth >= DEPTH_MAX:
        return {}
    if v3:
        kept = {key: value for key, value in schema.items() if key not in _UNPUBLISHED}
    else:
        kept = _for_v2(schema)
    for key in ("properties", "patternProperties"):
        inner = kept.get(key)
        if isinstance(inner, dict):
            kept[key] = {
                name: publish(each, head, v3=v3, depth=depth + 1) for name, each in inner.items()
            }
    for key in ("items", "additionalProperties", "not"):
        if isinstance(kept.get(key), dict):
            kept[key] = publish(kept[key], head, v3=v3, depth=depth + 1)
    for key in ("allOf", "anyOf", "oneOf"):
        if isinstance(kept.get(key), list):
            kept[key] = [publish(each, head, v3=v3, depth=depth + 1) for each in kept[key]]
    if kept.get(_EMBEDDED) is True and (v3 or kept.get("type") == "object"):
        _embed(kept, head)
    return kept


def _embed(kept: Schema, head: Schema) -> None:
    """Add the common fields to an embedded object, and require its apiVersion and kind."""
    properties, required = kept.get("properties"), kept.get("required")
    kept["properties"] = {**(properties if isinstance(properties, dict) else {}), **head}
    listed = [each for each in required if isinstance(each, str)] if _is_list(required) else []
    kept["required"] = list(dict.fromkeys([*listed, "kind", "apiVersion"]))


def _for_v2(schema: Schema) -> Schema:
    """Reduce a schema to what v2 can express: anything, or one type. In doubt it accepts
    anything.
    """
    about = {"description": schema["description"]} if _is_text(schema, "description") else {}
    if schema.get("nullable") is True:
        return about
    if schema.get(_INT_OR_STRING) is True:
        return {**about, _INT_OR_STRING: True}
    if schema.get(_PRESERVE) is True:
        # With a type or properties, clients would treat the schema as complete.
        embedded = {_EMBEDDED: True} if schema.get(_EMBEDDED) is True else {}
        return {**about, **embedded, _PRESERVE: True}
    if not _is_text(schema, "type"):
        return about
    if schema["type"] == "array" and not isinstance(schema.get("items"), dict):
        return about  # v2 clients require the type of the items
    return {
        key: value
        for key, value in schema.items()
        if key in _KEPT_IN_V2 or (key.startswith(_EXTENSION) and key != _RULES)
    }


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_text(schema: Schema, key: str) -> bool:
    return isinstance(schema.get(key), str)
