"""OpenAPI v2: one document for everything a server serves, as JSON or as protobuf.

Old clients validate and merge with this alone. Both forms are written from the same pieces, one
path or definition at a time.

Not here: the wire format of the protobuf form; that is in `v2_protobuf`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from restow.machinery.types import Resolver
from restow.serving.openapi import v2_protobuf
from restow.serving.openapi.documents import Document, fingerprint, finish
from restow.serving.openapi.operations import (
    PARAMETERS,
    Operation,
    Parameter,
    PathEntry,
    discovery_path,
    paths_of,
)
from restow.serving.openapi.schemas import Definitions, known_types
from restow.serving.openapi.served import ApiInfo, ServedKind

SWAGGER_VERSION: Final = "2.0"

V2_PROTOBUF_ACCEPTED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""What clients ask for."""
V2_PROTOBUF_ANSWERED: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""What the answer calls itself: the @ is not allowed in a content type."""

_RESPONSE_WORDS: Final = {"200": "OK", "201": "Created", "202": "Accepted", "401": "Unauthorized"}

Item = dict[str, Any]


def v2_document(
    kinds: Sequence[ServedKind], *, types: Resolver, info: ApiInfo, protobuf: bool
) -> Document:
    """The whole document. Its two forms have different hashes, since caches see one address."""
    etag = fingerprint(kinds, info)
    ordered = known_types(kinds, types)
    pieces = _protobuf(ordered, types, info) if protobuf else _json(ordered, types, info)
    # Upper hex again, but another hash than that of the other form.
    return finish(b"".join(pieces), etag[1:] + etag[0] if protobuf else etag)


def _json(kinds: list[ServedKind], types: Resolver, info: ApiInfo) -> Iterator[bytes]:
    definitions = Definitions(types, v3=False)
    about = orjson.dumps({"title": info.title, "version": info.version})
    yield b'{"swagger":"%b","info":%b,"paths":{' % (SWAGGER_VERSION.encode(), about)
    yield from _members(_paths(kinds, definitions, info))
    yield b'},"definitions":{'
    yield from _members(definitions.all())
    yield b'},"parameters":{'
    yield from _members(_shared_parameters())
    yield b"}}"


def _members(items: Iterator[tuple[str, Item]]) -> Iterator[bytes]:
    separator = b""
    for name, item in items:
        yield separator + orjson.dumps(name) + b":" + orjson.dumps(item)
        separator = b","


def _protobuf(kinds: list[ServedKind], types: Resolver, info: ApiInfo) -> Iterator[bytes]:
    definitions = Definitions(types, v3=False)
    yield v2_protobuf.head(SWAGGER_VERSION, title=info.title, version=info.version)
    yield v2_protobuf.paths(_paths(kinds, definitions, info))
    yield v2_protobuf.definitions(definitions.all())
    yield v2_protobuf.parameters(_shared_parameters())


def _shared_parameters() -> Iterator[tuple[str, Item]]:
    for name, parameter in PARAMETERS.items():
        if parameter.place == "query":
            yield name, _parameter(parameter)


def _paths(
    kinds: list[ServedKind], definitions: Definitions, info: ApiInfo
) -> Iterator[tuple[str, Item]]:
    seen: set[tuple[str, str]] = set()
    for kind in kinds:
        if (kind.group, kind.version) not in seen:
            seen.add((kind.group, kind.version))
            definitions.add_shared(kind.group, kind.version)
            entry = discovery_path(kind.group, kind.version)
            yield entry.path, _path_item(entry, definitions)
        definitions.add_kind(kind)
        for entry in paths_of(kind, info):
            yield entry.path, _path_item(entry, definitions)


def _path_item(entry: PathEntry, definitions: Definitions) -> Item:
    item: Item = {each.method: _operation(each, definitions) for each in entry.operations}
    if entry.parameters:
        item["parameters"] = [_parameter_or_reference(name) for name in entry.parameters]
    return item


def _operation(operation: Operation, definitions: Definitions) -> Item:
    # Clients look for query parameters in PATCH, and old ones follow no references there.
    whole = operation.method == "patch"
    parameters: list[Item] = []
    if operation.body:
        parameters.append(
            {
                "name": "body",
                "in": "body",
                "required": operation.method != "delete",
                "schema": definitions.reference(operation.body),
            }
        )
    for name in operation.query:
        shown = _parameter(PARAMETERS[name]) if whole else _parameter_or_reference(name)
        parameters.append(shown)
    written: Item = {
        "tags": [operation.tag],
        "description": operation.about,
        "operationId": operation.id,
        "consumes": list(operation.body_types) if operation.body else ["*/*"],
        "produces": list(operation.answer_types),
        "schemes": ["https"],
        "parameters": parameters,
        "responses": {
            code: _response(code, name, definitions) for code, name in operation.answers.items()
        },
    }
    if operation.action:
        written["x-kubernetes-action"] = operation.action
    if operation.kind is not None:
        group, version, kind = operation.kind
        written["x-kubernetes-group-version-kind"] = {
            "group": group,
            "version": version,
            "kind": kind,
        }
    return written


def _response(code: str, name: str, definitions: Definitions) -> Item:
    response: Item = {"description": _RESPONSE_WORDS[code]}
    if name:
        response["schema"] = definitions.reference(name)
    return response


def _parameter_or_reference(name: str) -> Item:
    parameter = PARAMETERS[name]
    if parameter.place == "path":
        return _parameter(parameter)
    return {"$ref": f"#/parameters/{name}"}


def _parameter(parameter: Parameter) -> Item:
    written: Item = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.about,
        "type": parameter.type,
        "uniqueItems": True,
    }
    if parameter.place == "path":
        written["required"] = True
    return written
