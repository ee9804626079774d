"""OpenAPI v2: one document for all served kinds, as JSON or protobuf.

Old clients validate and merge with this document only. Both forms are encoded from the same pieces,
one path or definition at a time. The contribution of one kind is a part that can be cached: when
one of a thousand kinds changes, the others are not encoded again. Pieces of aggregated servers'
documents follow our own.

Not here: the protobuf wire format (`v2_protobuf`), and renaming of conflicting pieces (`v2_merge`).
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from restow.apimachinery.types import StructResolver
from restow.openapi import v2_protobuf
from restow.openapi.aggregated_spec import ForeignSpec
from restow.openapi.documents import Document, finish
from restow.openapi.operations import (
    PARAMETERS,
    RESPONSE_DESCRIPTIONS,
    ApiOperation,
    Parameter,
    PathEntry,
    discovery_path,
    paths_of,
)
from restow.openapi.schemas import Definitions, Gvk, known_types
from restow.openapi.served import ApiInfo, ServedKind
from restow.openapi.v2_merge import Ours, merge

SWAGGER_VERSION: Final = "2.0"

V2_PROTOBUF_ACCEPTED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""The media type in requests."""
V2_PROTOBUF_ANSWERED: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The media type in responses, where the @ is not allowed."""

# There are many parts, rarely read; this shrinks them by ten in little time.
_PACKING_LEVEL: Final = 1

Item = dict[str, Any]


_Members = dict[str, Sequence[bytes]]
"""The members of "paths", "definitions" and "parameters", in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """One of the two encodings of a document."""

    path: Callable[[str, Item], bytes]
    definition: Callable[[str, Item], bytes]
    parameter: Callable[[str, Item], bytes]
    joined: Callable[[Iterable[bytes]], bytes]
    """Joins several members to one that can be joined again."""
    whole: Callable[[ApiInfo, _Members], Iterator[bytes]]


def _json_member(name: str, item: Item) -> bytes:
    return orjson.dumps(name) + b":" + orjson.dumps(item)


def _whole_json(info: ApiInfo, fields: _Members) -> Iterator[bytes]:
    about = orjson.dumps({"title": info.title, "version": info.version})
    yield b'{"swagger":"%b","info":%b' % (SWAGGER_VERSION.encode(), about)
    for name, members in fields.items():
        yield b',"%b":{' % name.encode()
        yield from _separated(members)
        yield b"}"
    yield b"}"


def _separated(members: Sequence[bytes]) -> Iterator[bytes]:
    for position, each in enumerate(members):
        if position:
            yield b","
        yield each


def _whole_protobuf(info: ApiInfo, fields: _Members) -> Iterator[bytes]:
    yield v2_protobuf.head(SWAGGER_VERSION, title=info.title, version=info.version)
    for name, members in fields.items():
        yield v2_protobuf.field_start(name, sum(map(len, members)))
        yield from members


_JSON: Final = _Form(
    path=_json_member,
    definition=_json_member,
    parameter=_json_member,
    joined=b",".join,
    whole=_whole_json,
)
_PROTOBUF: Final = _Form(
    path=v2_protobuf.path_member,
    definition=v2_protobuf.definition_member,
    parameter=v2_protobuf.parameter_member,
    joined=b"".join,
    whole=_whole_protobuf,
)


@dataclass(frozen=True, slots=True)
class V2Part:
    """The compressed contribution of one kind: there may be a thousand of them."""

    group: str
    version: str
    paths: bytes
    names: tuple[str, ...]
    """The names of its own definitions."""
    definitions: bytes
    shared: tuple[str, ...]
    """Names of definitions of built-in types that it needs."""
    kinds: tuple[tuple[str, Gvk], ...]
    """The kinds of those definitions."""


@dataclass(frozen=True, slots=True)
class _Made:
    """The cached encoding of a built-in type's definition."""

    kinds: tuple[Gvk, ...]
    member: bytes
    shared: list[str]


@dataclass(frozen=True, slots=True)
class _Foreign:
    """The cached encoding of aggregated servers' pieces."""

    key: tuple[object, ...]
    """Identifies all inputs."""
    paths: list[bytes]
    definitions: list[bytes]
    parameters: list[bytes]
    kinds: list[tuple[str, Gvk]]


class V2Assembly:
    """One form of the document. Definitions that kinds share are encoded once and cached."""

    def __init__(self, types: StructResolver, info: ApiInfo, *, protobuf: bool) -> None:
        self._types = types
        self._info = info
        self._is_protobuf = protobuf
        self._form = _PROTOBUF if protobuf else _JSON
        self._made: dict[str, _Made] = {}
        self._foreign = _Foreign((), [], [], [], [])

    def part(self, kind: ServedKind) -> V2Part:
        """Return the contribution of a kind. It depends only on the kind, so it can be cached."""
        (kind,) = known_types([kind], self._types)
        definitions = Definitions(self._types, v3=False)
        definitions.add_kind(kind)
        paths = [
            self._form.path(entry.path, _path_item(entry, definitions))
            for entry in paths_of(kind, self._info)
        ]
        own = list(definitions.declared())
        members = [self._form.definition(name, item) for name, item in own]
        return V2Part(
            kind.group,
            kind.version,
            _packed(self._form.joined(paths)),
            tuple(name for name, _ in own),
            _packed(self._form.joined(members)),
            tuple(definitions.shared()),
            tuple(definitions.shared_kinds()),
        )

    def whole(
        self, parts: Iterable[V2Part], fingerprint: str, foreign: Sequence[ForeignSpec] = ()
    ) -> Document:
        """Build the document of all parts, in order, and of aggregated servers' pieces."""
        definitions = Definitions(self._types, v3=False)
        seen: set[tuple[str, str]] = set()
        named: set[str] = set()
        paths: list[bytes] = []
        members: list[bytes] = []
        for part in parts:
            if (part.group, part.version) not in seen:
                seen.add((part.group, part.version))
                definitions.add_shared(part.group, part.version)
                entry = discovery_path(part.group, part.version)
                paths.append(self._form.path(entry.path, _path_item(entry, definitions)))
            paths.append(zlib.decompress(part.paths))
            if part.names and named.isdisjoint(part.names):
                named.update(part.names)
                members.append(zlib.decompress(part.definitions))
            for name in part.shared:
                definitions.reference(name)
            for name, gvk in part.kinds:
                definitions.name_kind(name, gvk)
        shared = self._needed(definitions, named)
        others = self._foreign_pieces(foreign, shared=frozenset(shared), declared=named)
        for name, gvk in others.kinds:
            definitions.name_kind(name, gvk)
        members += [self._shared(definitions, name).member for name in shared]
        own = [self._form.parameter(name, item) for name, item in _shared_parameters()]
        fields: _Members = {
            "paths": [each for each in (*paths, *others.paths) if each],
            "definitions": [*members, *others.definitions],
            "parameters": [*own, *others.parameters],
        }
        pieces = self._form.whole(self._info, fields)
        # Upper-case hex as well, but different from the ETag of the other form.
        etag = fingerprint[1:] + fingerprint[0] if self._is_protobuf else fingerprint
        return finish(pieces, etag)

    def _needed(self, definitions: Definitions, named: set[str]) -> list[str]:
        """Return the built-in types that are needed, transitively."""
        names = dict.fromkeys(definitions.shared())
        pending = list(names)
        for name in pending:
            if name in named:
                continue
            # The types that a type needs do not depend on its kinds.
            made = self._made.get(name) or self._shared(definitions, name)
            for other in made.shared:
                if other not in names:
                    names[other] = None
                    pending.append(other)
        return [name for name in names if name not in named]

    def _shared(self, definitions: Definitions, name: str) -> _Made:
        kinds = definitions.kinds_of(name)
        made = self._made.get(name)
        if made is None or made.kinds != kinds:
            made = self._made[name] = self._make(name, kinds)
        return made

    def _make(self, name: str, kinds: tuple[Gvk, ...]) -> _Made:
        alone = Definitions(self._types, v3=False)
        for gvk in kinds:
            alone.name_kind(name, gvk)
        return _Made(kinds, self._form.definition(name, alone.one(name)), alone.shared())

    def _foreign_pieces(
        self, foreign: Sequence[ForeignSpec], *, shared: frozenset[str], declared: set[str]
    ) -> _Foreign:
        """Return aggregated servers' pieces, encoded again only if they or conflicting names
        changed.
        """
        foreign_names = frozenset[str]().union(*(spec.names for spec in foreign))
        key = (
            tuple(spec.digest for spec in foreign),
            foreign_names & shared,
            foreign_names & declared,
        )
        if self._foreign.key == key:
            return self._foreign

        def definition(name: str) -> Item | None:
            return Definitions(self._types, v3=False).one(name) if name in shared else None

        ours = Ours(
            definitions=shared | declared,
            definition=definition,
            parameters=dict(_shared_parameters()),
        )
        merged = merge(foreign, ours)
        self._foreign = _Foreign(
            key,
            [self._form.path(*each) for each in merged.paths.items()],
            [self._form.definition(*each) for each in merged.definitions.items()],
            [self._form.parameter(*each) for each in merged.parameters.items()],
            merged.kinds,
        )
        return self._foreign


def _packed(members: bytes) -> bytes:
    return zlib.compress(members, level=_PACKING_LEVEL)


def _shared_parameters() -> Iterator[tuple[str, Item]]:
    for name, parameter in PARAMETERS.items():
        if parameter.location == "query":
            yield name, _parameter(parameter)


def _path_item(entry: PathEntry, definitions: Definitions) -> Item:
    item: Item = {each.method: _operation(each, definitions) for each in entry.operations}
    if entry.parameters:
        item["parameters"] = [_parameter_or_reference(name) for name in entry.parameters]
    return item


def _operation(operation: ApiOperation, definitions: Definitions) -> Item:
    # Clients inspect the query parameters of PATCH, and old ones do not resolve references there.
    is_inline = operation.method == "patch"
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
        shown = _parameter(PARAMETERS[name]) if is_inline else _parameter_or_reference(name)
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
    return written | operation.extensions()


def _response(code: str, name: str, definitions: Definitions) -> Item:
    response: Item = {"description": RESPONSE_DESCRIPTIONS[code]}
    if name:
        response["schema"] = definitions.answer(name)
    return response


def _parameter_or_reference(name: str) -> Item:
    parameter = PARAMETERS[name]
    if parameter.location == "path":
        return _parameter(parameter)
    return {"$ref": f"#/parameters/{name}"}


def _parameter(parameter: Parameter) -> Item:
    written: Item = {
        "name": parameter.name,
        "in": parameter.location,
        "description": parameter.about,
        "type": parameter.type,
        "uniqueItems": True,
    }
    if parameter.location == "path":
        written["required"] = True
    return written
