"""Converts the v2 document of an aggregated server that has no v3 document.

Clients that found v3 documents once look up kinds only there. Input comes from `aggregated_spec`,
so every piece has valid types.

Pure. Not here: when this is needed.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from restow.openapi.aggregated_spec import (
    DEFINITION_REF,
    PARAMETER_REF,
    ForeignPieces,
    ForeignSpec,
)
from restow.openapi.documents import Document, finish
from restow.openapi.v3 import OPENAPI_VERSION

SCHEMA_REF: Final = "#/components/schemas/"

_ANYTHING: Final = ["*/*"]
_METHODS: Final = ("get", "put", "post", "delete", "patch")
# The members of a parameter outside of its schema.
_PARAMETER_FIELDS: Final = frozenset({"name", "in", "description", "required"})

Item = dict[str, Any]


def converted(spec: ForeignSpec, *, title: str) -> Document:
    """Convert the document. Its ETag is the hash of its content."""
    pieces = spec.read()
    document = {
        "openapi": OPENAPI_VERSION,
        "info": {"title": title, "version": "unversioned"},
        "paths": {name: _path_item(item, pieces) for name, item in pieces.paths.items()},
        "components": {
            "schemas": {name: _schema(item) for name, item in pieces.definitions.items()}
        },
    }
    return finish([orjson.dumps(document)])


def _path_item(item: Item, pieces: ForeignPieces) -> Item:
    made: Item = {method: _operation(item[method], pieces) for method in _METHODS if method in item}
    parameters = [_parameter(each) for each in _found(item.get("parameters", []), pieces)]
    if parameters:
        made["parameters"] = parameters
    return made


def _operation(item: Item, pieces: ForeignPieces) -> Item:
    made: Item = {key: item[key] for key in ("tags", "description", "operationId")}
    parameters = _found(item["parameters"], pieces)
    shown = [_parameter(each) for each in parameters if each["in"] != "body"]
    if shown:
        made["parameters"] = shown
    for body in (each for each in parameters if each["in"] == "body"):
        content = _content(item["consumes"] or _ANYTHING, body["schema"])
        made["requestBody"] = {"content": content, "required": body["required"]}
    made["responses"] = {
        code: _response(each, item["produces"] or _ANYTHING)
        for code, each in item["responses"].items()
    }
    return made | {key: each for key, each in item.items() if key.startswith("x-")}


def _found(parameters: list[Item], pieces: ForeignPieces) -> list[Item]:
    """Resolve references to parameters."""
    return [
        pieces.parameters[each["$ref"].removeprefix(PARAMETER_REF)] if "$ref" in each else each
        for each in parameters
    ]


def _parameter(item: Item) -> Item:
    made = {key: each for key, each in item.items() if key in _PARAMETER_FIELDS}
    schema = {key: each for key, each in item.items() if key not in _PARAMETER_FIELDS}
    return made | {"schema": schema}


def _response(item: Item, types: list[str]) -> Item:
    made: Item = {"description": item["description"]}
    if "schema" in item:
        made["content"] = _content(types, item["schema"])
    return made


def _content(types: list[str], schema: Item) -> Item:
    written = _schema(schema)
    return {each: {"schema": written} for each in types}


def _schema(item: Item) -> Item:
    made: Item = {}
    for key, value in item.items():
        match key:
            case "$ref":
                made[key] = SCHEMA_REF + value.removeprefix(DEFINITION_REF)
            case "items" | "additionalProperties" if isinstance(value, dict):
                made[key] = _schema(value)
            case "allOf":
                made[key] = [_schema(each) for each in value]
            case "properties":
                made[key] = {name: _schema(each) for name, each in value.items()}
            case _:
                made[key] = value
    if "$ref" in made and len(made) > 1:
        # v3 allows no siblings of a reference.
        reference = {"$ref": made.pop("$ref")}
        made["allOf"] = [reference, *made.get("allOf", [])]
    return made
