"""OpenAPI v3: an index, and one document per group version.

A document is encoded piece by piece, so that only its bytes are in memory as a whole.

Not here: HTTP headers and caching, which are the caller's.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import orjson

from restow.apimachinery.types import StructResolver
from restow.openapi.documents import Document, fingerprint, finish
from restow.openapi.operations import (
    PARAMETERS,
    RESPONSE_DESCRIPTIONS,
    ApiOperation,
    Parameter,
    PathEntry,
    discovery_path,
    paths_of,
)
from restow.openapi.schemas import Definitions, known_types
from restow.openapi.served import ApiInfo, ServedKind, api_prefix

OPENAPI_VERSION: Final = "3.0.0"


def document_path(group: str, version: str) -> str:
    """Return the name of a group version in the index, and the end of its path: `apis/apps/v1`."""
    return api_prefix(group, version)


def group_versions(kinds: Iterable[ServedKind]) -> list[tuple[str, str]]:
    """Return the group versions that have a document, sorted."""
    return sorted({(kind.group, kind.version) for kind in kinds})


def v3_index_of(entries: Iterable[tuple[str, str, str]]) -> Document:
    """Build the index from each group version and the hash of its document."""
    paths = {}
    for group, version, etag in sorted(entries):
        path = document_path(group, version)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={etag}"}
    return finish([orjson.dumps({"paths": paths})])


def v3_document(
    kinds: Sequence[ServedKind], *, group: str, version: str, types: StructResolver, info: ApiInfo
) -> Document:
    """Build the document of one group version. Its ETag is the hash in the index."""
    members = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    parts = _parts(known_types(members, types), group, version, types=types, info=info)
    return finish(parts, fingerprint(members, info))


def _parts(
    kinds: list[ServedKind], group: str, version: str, *, types: StructResolver, info: ApiInfo
) -> Iterator[bytes]:
    definitions = Definitions(types, v3=True)
    definitions.add_shared(group, version)
    about = orjson.dumps({"title": info.title, "version": info.version})
    yield b'{"openapi":"%b","info":%b,"paths":{' % (OPENAPI_VERSION.encode(), about)
    yield _member(discovery_path(group, version), definitions)
    for kind in kinds:
        definitions.add_kind(kind)
        for entry in paths_of(kind, info):
            yield b"," + _member(entry, definitions)
    yield b'},"components":{"schemas":{'
    for position, (name, schema) in enumerate(definitions.all()):
        yield b"," * (position > 0) + orjson.dumps(name) + b":" + orjson.dumps(schema)
    yield b"}}}"


def _member(entry: PathEntry, definitions: Definitions) -> bytes:
    item: dict[str, Any] = {each.method: _operation(each, definitions) for each in entry.operations}
    if entry.parameters:
        item["parameters"] = [_parameter(PARAMETERS[name]) for name in entry.parameters]
    return orjson.dumps(entry.path) + b":" + orjson.dumps(item)


def _operation(operation: ApiOperation, definitions: Definitions) -> dict[str, Any]:
    written: dict[str, Any] = {
        "tags": [operation.tag],
        "description": operation.about,
        "operationId": operation.id,
    }
    if operation.query:
        written["parameters"] = [_parameter(PARAMETERS[name]) for name in operation.query]
    if operation.body:
        schema = definitions.reference(operation.body)
        content = {each: {"schema": schema} for each in operation.body_types}
        written["requestBody"] = {"content": content}
        if operation.method != "delete":
            written["requestBody"]["required"] = True
    written["responses"] = {
        code: _response(code, name, operation, definitions)
        for code, name in operation.answers.items()
    }
    return written | operation.extensions()


def _response(
    code: str, name: str, operation: ApiOperation, definitions: Definitions
) -> dict[str, Any]:
    response: dict[str, Any] = {"description": RESPONSE_DESCRIPTIONS[code]}
    if name:
        schema = definitions.answer(name)
        response["content"] = {each: {"schema": schema} for each in operation.answer_types}
    return response


def _parameter(parameter: Parameter) -> dict[str, Any]:
    written: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.location,
        "description": parameter.about,
        "schema": {"type": parameter.type, "uniqueItems": True},
    }
    if parameter.location == "path":
        written["required"] = True
    return written
