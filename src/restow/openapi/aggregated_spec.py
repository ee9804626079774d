"""Extracts an aggregated server's part of the OpenAPI v2 document.

One bad field must not break the document for all clients, so nothing is copied unchecked. Each
piece is parsed by a table of supported fields and their types; everything else is dropped. Only
paths of one group version are taken, and the definitions and parameters that they refer to.

Not here: names that conflict with our own document (`v2_merge`), and HTTP.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

DEPTH_MAX: Final = 128
"""Levels of JSON. The encoders of the pieces recurse once per level."""

DEFINITION_REF: Final = "#/definitions/"
PARAMETER_REF: Final = "#/parameters/"
GVK: Final = "x-kubernetes-group-version-kind"

_PACKING_LEVEL: Final = 1
_METHODS: Final = ("get", "put", "post", "delete", "patch")

Item = dict[str, Any]


class ForeignDocumentBad(ValueError):
    """Not a valid document; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignPieces:
    """Paths, definitions and parameters, by name."""

    paths: dict[str, Item]
    definitions: dict[str, Item]
    parameters: dict[str, Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSpec:
    """The compressed pieces of one group version; decompressed when a document is built."""

    digest: bytes
    names: frozenset[str]
    """The names of the definitions."""
    packed: bytes

    def read(self) -> ForeignPieces:
        """Return the pieces; the caller may modify them."""
        paths, definitions, parameters = orjson.loads(zlib.decompress(self.packed))
        return ForeignPieces(paths=paths, definitions=definitions, parameters=parameters)


def foreign_spec(document: object, *, group: str, version: str) -> ForeignSpec | None:
    """Extract a group version from a document; None if there are no paths for it.

    Raises ForeignDocumentBad if it is not a v2 document.
    """
    if not isinstance(document, dict) or not str(document.get("swagger")).startswith("2"):
        raise ForeignDocumentBad("it is not an OpenAPI v2 document")
    paths = document.get("paths")
    if not isinstance(paths, dict):
        raise ForeignDocumentBad("it has no paths")
    start = f"/apis/{group}/{version}/"
    taken = {
        name: _path_item(item)
        for name, item in paths.items()
        if name.startswith(start) and isinstance(item, dict)
    }
    if not taken:
        return None
    parameters = _used(taken, PARAMETER_REF, document.get("parameters"), _parameter)
    _drop_dangling(taken, parameters)
    definitions = _used([taken, parameters], DEFINITION_REF, document.get("definitions"), _schema)
    pieces = [taken, definitions, parameters]
    # Sorted by name, so that equal content has an equal hash, whatever its original order.
    body = orjson.dumps(pieces, option=orjson.OPT_SORT_KEYS)
    return ForeignSpec(
        digest=hashlib.sha512(body).digest(),
        names=frozenset(definitions),
        packed=zlib.compress(body, level=_PACKING_LEVEL),
    )


def _used(
    start: object, prefix: str, known: object, read: Callable[[Item], Item | None]
) -> dict[str, Item]:
    """Return everything that is referred to, transitively; each item is parsed once."""
    source = known if isinstance(known, dict) else {}
    found: dict[str, Item] = {}
    pending = [start]
    while pending:
        for reference in references(pending.pop()):
            name = reference.removeprefix(prefix)
            if name in found or not reference.startswith(prefix):
                continue
            item = source.get(name)
            made = read(item) if isinstance(item, dict) else None
            if made is None:
                if prefix == PARAMETER_REF:
                    continue
                # A dangling reference would break clients.
                made = {"type": "object"}
            found[name] = made
            pending.append(made)
    return found


def _drop_dangling(paths: dict[str, Item], parameters: dict[str, Item]) -> None:
    """Remove references to parameters that do not exist."""

    def existing(item: Item) -> list[Item]:
        listed: list[Item] = item["parameters"]
        return [
            each
            for each in listed
            if "$ref" not in each or each["$ref"].removeprefix(PARAMETER_REF) in parameters
        ]

    for path in paths.values():
        for item in (path, *(path[method] for method in _METHODS if method in path)):
            if "parameters" in item:
                item["parameters"] = existing(item)


def references(value: object) -> Iterator[str]:
    """Iterate over all references in a piece."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            reference = each.get("$ref")
            if isinstance(reference, str):
                yield reference
            pending += each.values()
        elif isinstance(each, list):
            pending += each


# ---- Parsing one piece. Each function returns what it can parse; the depth is counted for nested
# schemas and for arbitrary JSON.


def _path_item(item: Item) -> Item:
    made: Item = {
        method: _operation(item[method])
        for method in _METHODS
        if isinstance(item.get(method), dict)
    }
    parameters = _parameters(item.get("parameters"))
    if parameters:
        made["parameters"] = parameters
    return made


def _operation(item: Item) -> Item:
    responses = item.get("responses")
    made: Item = {
        "tags": _texts(item.get("tags")),
        "description": _text(item.get("description")) or _text(item.get("summary")),
        "operationId": _text(item.get("operationId")),
        "consumes": _texts(item.get("consumes")),
        "produces": _texts(item.get("produces")),
        "schemes": _texts(item.get("schemes")),
        "parameters": _parameters(item.get("parameters")),
        "responses": {
            code: _response(each)
            for code, each in (responses.items() if isinstance(responses, dict) else ())
            if isinstance(each, dict)
        },
    }
    return made | _extensions(item, 0)


def _response(item: Item) -> Item:
    made: Item = {"description": _text(item.get("description"))}
    if isinstance(item.get("schema"), dict):
        made["schema"] = _schema(item["schema"])
    return made


def _parameters(value: object) -> list[Item]:
    if not isinstance(value, list):
        return []
    found = (_parameter_or_reference(each) for each in value if isinstance(each, dict))
    return [each for each in found if each is not None]


def _parameter_or_reference(item: Item) -> Item | None:
    reference = item.get("$ref")
    if reference is None:
        return _parameter(item)
    if isinstance(reference, str) and reference.startswith(PARAMETER_REF):
        return {"$ref": reference}
    return None


def _parameter(item: Item) -> Item | None:
    """Parse a path, query or body parameter; Kubernetes APIs have no others."""
    location, name = item.get("in"), _text(item.get("name"))
    if not name or location not in ("body", "path", "query"):
        return None
    made: Item = {"name": name, "in": location}
    if _text(item.get("description")):
        made["description"] = item["description"]
    if location == "body":
        made["required"] = item.get("required") is True
        made["schema"] = _schema(item.get("schema") or {})
        return made
    for key in ("type", "format"):
        if _text(item.get(key)):
            made[key] = item[key]
    for key in ("required", "uniqueItems"):
        if isinstance(item.get(key), bool):
            made[key] = item[key]
    return made


def _schema(item: object, depth: int = 0) -> Item:
    if not isinstance(item, dict):
        return {}
    _check_depth(depth)
    made = _extensions(item, depth)
    for key, value in item.items():
        read = _SCHEMA.get(key)
        if read is not None:
            found = read(value, depth + 1)
            if found is not None:
                made[key] = found
    # Next to a reference to another document the other keywords would be ignored.
    if "$ref" in made and not made["$ref"].startswith(DEFINITION_REF):
        del made["$ref"]
    return made


def _extensions(item: Item, depth: int) -> Item:
    found = {key: _any(each, depth + 1) for key, each in item.items() if key.startswith("x-")}
    if GVK in found and not _is_gvk(found[GVK]):
        del found[GVK]
    return found


def _is_gvk(value: object) -> bool:
    """Report whether a value is one kind, as in an operation, or a list, as in a definition."""
    listed = value if isinstance(value, list) else [value]
    return all(
        isinstance(each, dict)
        and all(isinstance(each.get(key), str) for key in ("group", "version", "kind"))
        for each in listed
    )


def _any(value: Any, depth: int) -> Any:
    """Return any JSON that is not too deep to encode."""
    _check_depth(depth)
    if isinstance(value, dict):
        return {key: _any(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_any(each, depth + 1) for each in value]
    return value


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ForeignDocumentBad(f"it is nested more than {DEPTH_MAX} levels deep")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _read_text(value: object, _depth: int) -> object:
    return value if isinstance(value, str) else None


def _read_flag(value: object, _depth: int) -> object:
    return value if isinstance(value, bool) else None


def _read_number(value: object, _depth: int) -> object:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _read_count(value: object, _depth: int) -> object:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_texts(value: object, _depth: int) -> object:
    return _texts(value) or None


def _read_values(value: object, depth: int) -> object:
    return _any(value, depth) if isinstance(value, list) else None


def _read_schema(value: object, depth: int) -> object:
    return _schema(value, depth) if isinstance(value, dict) else None


def _read_schema_or_flag(value: object, depth: int) -> object:
    return value if isinstance(value, bool) else _read_schema(value, depth)


def _read_schemas(value: object, depth: int) -> object:
    return [_schema(each, depth + 1) for each in value] if isinstance(value, list) else None


def _read_properties(value: object, depth: int) -> object:
    if not isinstance(value, dict):
        return None
    return {name: _schema(each, depth + 1) for name, each in value.items()}


_Read = Callable[[Any, int], object]

_SCHEMA: Final[dict[str, _Read]] = {
    "$ref": _read_text,
    "format": _read_text,
    "title": _read_text,
    "description": _read_text,
    "pattern": _read_text,
    "type": _read_text,
    "multipleOf": _read_number,
    "maximum": _read_number,
    "minimum": _read_number,
    "exclusiveMaximum": _read_flag,
    "exclusiveMinimum": _read_flag,
    "uniqueItems": _read_flag,
    "maxLength": _read_count,
    "minLength": _read_count,
    "maxItems": _read_count,
    "minItems": _read_count,
    "maxProperties": _read_count,
    "minProperties": _read_count,
    "required": _read_texts,
    "enum": _read_values,
    "default": _any,
    "items": _read_schema,
    "additionalProperties": _read_schema_or_flag,
    "properties": _read_properties,
    "allOf": _read_schemas,
}
