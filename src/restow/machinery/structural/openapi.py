"""A schema as it is published: OpenAPI v3 in full, v2 as far as its readers understand it.

The object's own `apiVersion`, `kind` and `metadata` are added, and so are those of embedded
objects. Not here: paths, lists of objects, and names of definitions.
"""

from __future__ import annotations

from typing import Any, Final

from restow.machinery.structural.schema import Schema

_PLAIN: Final = (
    ("type", "type"),
    ("format", "format"),
    ("title", "title"),
    ("description", "description"),
    ("nullable", "nullable"),
    ("default", "default"),
    ("example", "example"),
    ("external_docs", "externalDocs"),
    ("pattern", "pattern"),
    ("exclusive_maximum", "exclusiveMaximum"),
    ("exclusive_minimum", "exclusiveMinimum"),
    ("unique_items", "uniqueItems"),
    ("embedded", "x-kubernetes-embedded-resource"),
    ("int_or_string", "x-kubernetes-int-or-string"),
    ("preserve_unknown", "x-kubernetes-preserve-unknown-fields"),
    ("list_type", "x-kubernetes-list-type"),
    ("map_type", "x-kubernetes-map-type"),
)
# Zero means something here.
_NUMBERS: Final = (
    ("maximum", "maximum"),
    ("minimum", "minimum"),
    ("multiple_of", "multipleOf"),
    ("max_length", "maxLength"),
    ("min_length", "minLength"),
    ("max_items", "maxItems"),
    ("min_items", "minItems"),
    ("max_properties", "maxProperties"),
    ("min_properties", "minProperties"),
)
_LISTS: Final = (
    ("required", "required"),
    ("enum", "enum"),
    ("list_keys", "x-kubernetes-list-map-keys"),
)
_JUNCTORS: Final = (("all_of", "allOf"), ("any_of", "anyOf"), ("one_of", "oneOf"))

API_VERSION_TEXT: Final = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should "
    "convert recognized schemas to the latest internal value, and may reject unrecognized values. "
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/"
    "api-conventions.md#resources"
)
KIND_TEXT: Final = (
    "Kind is a string value representing the REST resource this object represents. Servers may "
    "infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. "
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/"
    "api-conventions.md#types-kinds"
)
METADATA_TEXT: Final = (
    "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/"
    "sig-architecture/api-conventions.md#metadata"
)
_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def published_v3(schema: Schema | None) -> dict[str, Any]:
    """The schema of an object in OpenAPI v3; a version without a schema is any object."""
    if schema is None:
        return {"type": "object"}
    return _with_meta(_Writing(is_v2=False).node(schema), is_v2=False)


def published_v2(schema: Schema | None) -> dict[str, Any]:
    """The same in OpenAPI v2, without what its readers would take for a mistake."""
    if schema is None or schema.preserves:
        return {"type": "object"}
    return _with_meta(_Writing(is_v2=True).node(schema), is_v2=True)


def _with_meta(written: dict[str, Any], *, is_v2: bool) -> dict[str, Any]:
    properties = written.setdefault("properties", {})
    properties["apiVersion"] = {"description": API_VERSION_TEXT, "type": "string"}
    properties["kind"] = {"description": KIND_TEXT, "type": "string"}
    properties["metadata"] = _metadata(is_v2=is_v2)
    return written


def _metadata(*, is_v2: bool) -> dict[str, Any]:
    if is_v2:
        return {"description": METADATA_TEXT, "$ref": f"#/definitions/{_METADATA}"}
    reference = {"$ref": f"#/components/schemas/{_METADATA}"}
    return {"description": METADATA_TEXT, "allOf": [reference]}


def _plain_fields(schema: Schema) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for attribute, name in _PLAIN:
        if (value := getattr(schema, attribute)) or (name == "default" and value is not None):
            written[name] = value
    for attribute, name in _NUMBERS:
        if (value := getattr(schema, attribute)) is not None:
            written[name] = value
    for attribute, name in _LISTS:
        if value := getattr(schema, attribute):
            written[name] = list(value)
    return written


class _Writing:
    def __init__(self, *, is_v2: bool) -> None:
        self.is_v2 = is_v2

    def node(self, schema: Schema) -> dict[str, Any]:
        written = _plain_fields(schema)
        if schema.rules:
            written["x-kubernetes-validations"] = [dict(each.raw) for each in schema.rules]
        if schema.properties:
            written["properties"] = {
                name: self.node(each) for name, each in schema.properties.items()
            }
        if isinstance(schema.additional, Schema):
            written["additionalProperties"] = self.node(schema.additional)
        elif schema.additional is not None:
            written["additionalProperties"] = schema.additional
        if schema.items is not None:
            written["items"] = self.node(schema.items)
        if self.is_v2:
            _simplify(written, schema)
        else:
            for attribute, name in _JUNCTORS:
                if nodes := getattr(schema, attribute):
                    written[name] = [self.node(each) for each in nodes]
            if schema.none_of is not None:
                written["not"] = self.node(schema.none_of)
        if schema.embedded and not (self.is_v2 and schema.preserves):
            _with_meta(written, is_v2=self.is_v2)
            required = written.setdefault("required", [])
            required += [name for name in ("kind", "apiVersion") if name not in required]
        return written


def _simplify(written: dict[str, Any], schema: Schema) -> None:
    """Old clients take an untyped value with fields, or an open one, for a closed one."""
    if schema.nullable:
        for name in ("type", "nullable", "items", "properties"):
            written.pop(name, None)
    if schema.preserves:
        for name in ("items", "properties"):
            written.pop(name, None)
        if schema.type == "object":
            written.pop("type", None)
    if "items" not in written and written.get("type") == "array":
        del written["type"]
    nullable = {name for name, each in schema.properties.items() if each.nullable}
    values = schema.additional_schema
    if "required" in written:
        kept = [name for name in written["required"] if name not in nullable]
        if kept and not (values is not None and values.nullable):
            written["required"] = kept
        else:
            del written["required"]
