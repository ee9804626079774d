"""`/openapi/v3` and `/openapi/v2`: selects the document of a request, and caches it.

`openapi` builds the documents from the catalog, each on first use, in a thread. The catalog may
change meanwhile, so each document is cached with the view of the catalog from which it was built,
and a view is dropped on a change: no outdated document can be served. Parts of a kind are reused in
the next view while the kind is unchanged, so that the cost is that of the change. Documents of
remote APIs are included in the view as last seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

from restow.aggregator.documents_index import NoRemotes, Remotes, RemoteVersion
from restow.apimachinery import status
from restow.httpserver.response import NOSNIFF_LINE, HttpResponse, header_block
from restow.kinds.derived_types import all_types
from restow.kinds.kind import Kind, Subresource, type_name
from restow.openapi import (
    V2_PROTOBUF_ACCEPTED,
    V2_PROTOBUF_ANSWERED,
    ApiInfo,
    Document,
    SchemaSource,
    ServedKind,
    ServedSubresource,
    V2Assembly,
    V2Part,
    fingerprint_of,
    in_order,
    kind_digest,
    v3_document,
    v3_index_of,
)
from restow.registry.catalog import Catalog
from restow.registry.declared import DeclaredShape
from restow.registry.resource import Resource
from restow.registry.shapes import BuiltinShape
from restow.request.context import Context
from restow.request.responses import takes_gzip

UNPACKED_AT_ONCE_MAX: Final = 64 * 1024
"""Maximum of compressed bytes; decompressing more on the loop would delay other requests."""

_JSON: Final = "application/json"
_INDEX: Final = "index"
_V2: Final = "v2"
_V2_PROTOBUF: Final = "v2 protobuf"


class _Piece:
    """One kind in one version, and the parts of documents built for it."""

    def __init__(self, kind: ServedKind) -> None:
        self.kind = kind
        self.parts: dict[str, V2Part] = {}
        """By form of the v2 document."""

    @cached_property
    def digest(self) -> bytes:
        return kind_digest(self.kind)


class _Group:
    """The current kinds of one group, and the documents of its versions."""

    def __init__(self, name: str, resources: list[Resource], before: _Group | None) -> None:
        self.name = name
        self._resources = resources
        self._before = before
        self.documents: dict[str, Document] = {}
        """By version."""
        self._fingerprints: dict[str, str] = {}

    @cached_property
    def pieces(self) -> dict[str, tuple[Resource, list[_Piece]]]:
        """By plural, each with its resource. Built in a thread: there may be many."""
        before, self._before = self._before, None
        known = {} if before is None else before.pieces
        return {each.plural: _pieces(each, known.get(each.plural)) for each in self._resources}

    def kinds(self, version: str) -> list[ServedKind]:
        return [piece.kind for piece in self._members(version)]

    def fingerprint(self, version: str, info: ApiInfo) -> str:
        """The hash of the document of a version, which need not have been built."""
        if version not in self._fingerprints:
            by_kind = {id(piece.kind): piece.digest for piece in self._members(version)}
            ordered = in_order(self.kinds(version))
            self._fingerprints[version] = fingerprint_of(
                [by_kind[id(kind)] for kind in ordered], info
            )
        return self._fingerprints[version]

    def all(self) -> Iterator[_Piece]:
        for _, pieces in self.pieces.values():
            yield from pieces

    def _members(self, version: str) -> list[_Piece]:
        return [piece for piece in self.all() if piece.kind.version == version]


class _View:
    """All current groups, and the documents of the whole catalog."""

    def __init__(
        self, groups: list[tuple[_Group, tuple[str, ...]]], remotes: list[RemoteVersion]
    ) -> None:
        self.groups = groups
        """Each with its versions."""
        self.remotes = remotes
        self.documents: dict[str, Document] = {}


class OpenApi:
    """The documents of one catalog, and of remote APIs."""

    def __init__(self, catalog: Catalog, info: ApiInfo, remotes: Remotes | None = None) -> None:
        self._catalog = catalog
        self._info = info
        self._remotes = remotes or NoRemotes()
        self._groups: dict[str, _Group] = {}
        self._before: dict[str, _Group] = {}
        """Groups before their last change: unchanged parts are reused."""
        self._view: _View | None = None
        self._assemblies: dict[str, V2Assembly] = {}
        # One build at a time: each takes memory. The v2 document takes long, so it has a separate
        # lock.
        self._making = asyncio.Lock()
        self._making_v2 = asyncio.Lock()
        catalog.changed.subscribe(self._changed)
        self._remotes.openapi_changed.subscribe(self._remotes_changed)

    async def answer(self, context: Context, path: str) -> HttpResponse | None:
        """The response to a request below `/openapi`; None when there is no such document."""
        if path == "/openapi/v2":
            return await self._answer_v2(context)
        if path == "/openapi/v3":
            found = self._current().documents.get(_INDEX)
            if found is not None:
                return await _answer(context, found, _JSON)
            return await self._make(context, self._index, self._making)
        if path.startswith("/openapi/v3/"):
            return await self._answer_v3(context, path.removeprefix("/openapi/v3/"))
        return None

    def _changed(self, group: str) -> None:
        before = self._groups.pop(group, None)
        if group not in self._catalog.groups:
            self._before.pop(group, None)
        elif before is not None:
            self._before[group] = before
        self._view = None

    def _remotes_changed(self) -> None:
        self._view = None

    async def _answer_v3(self, context: Context, name: str) -> HttpResponse | None:
        group = ""
        match name.split("/"):
            case ["api", version]:
                pass
            case ["apis", group, version] if group:
                pass
            case _:
                return None
        if version not in self._catalog.groups.get(group, ()):
            remote = self._remotes.version(group, version)
            if remote is None or remote.v3 is None:
                return None
            return await _answer(context, remote.v3, _JSON)
        found = self._group(group).documents.get(version)
        if found is not None:
            return await _answer(context, found, _JSON)
        return await self._make(context, lambda: self._of_version(group, version), self._making)

    async def _answer_v2(self, context: Context) -> HttpResponse:
        accept = context.request.headers.get("accept") or ""
        is_protobuf = V2_PROTOBUF_ACCEPTED in accept
        if accept and not is_protobuf and not any(each in accept for each in ("json", "*/*")):
            raise status.not_acceptable([_JSON, V2_PROTOBUF_ACCEPTED])
        name, content_type = _V2, _JSON
        if is_protobuf:
            name, content_type = _V2_PROTOBUF, V2_PROTOBUF_ANSWERED
        found = self._current().documents.get(name)
        if found is not None:
            return await _answer(context, found, content_type)
        return await self._make(context, lambda: self._whole(name), self._making_v2, content_type)

    async def _make(
        self,
        context: Context,
        prepare: Callable[[], Callable[[], Document]],
        lock: asyncio.Lock,
        content_type: str = _JSON,
    ) -> HttpResponse:
        """Respond with a document that is built in a thread, unless it was built in the
        meantime."""
        async with lock:
            # Looked up only now: the catalog may have changed since the request arrived.
            document = await asyncio.to_thread(prepare())
        return await _answer(context, document, content_type)

    def _index(self) -> Callable[[], Document]:
        view = self._current()

        def make() -> Document:
            if _INDEX not in view.documents:
                entries = [
                    (group.name, version, group.fingerprint(version, self._info))
                    for group, versions in view.groups
                    for version in versions
                ]
                entries += [
                    (remote.api.group, remote.api.version, remote.v3.etag)
                    for remote in view.remotes
                    if remote.v3 is not None
                ]
                view.documents[_INDEX] = v3_index_of(entries)
            return view.documents[_INDEX]

        return make

    def _of_version(self, name: str, version: str) -> Callable[[], Document]:
        if version not in self._catalog.groups.get(name, ()):
            raise status.resource_not_found()  # removed in the meantime
        group = self._group(name)

        def make() -> Document:
            if version not in group.documents:
                group.documents[version] = v3_document(
                    group.kinds(version),
                    group=name,
                    version=version,
                    types=all_types(),
                    info=self._info,
                )
            return group.documents[version]

        return make

    def _whole(self, name: str) -> Callable[[], Document]:
        view = self._current()

        def make() -> Document:
            if name not in view.documents:
                view.documents[name] = self._assembled(view, name)
            return view.documents[name]

        return make

    def _assembled(self, view: _View, name: str) -> Document:
        """The v2 document in one of its forms. Only one thread at a time runs this."""
        assembly = self._assemblies.get(name)
        if assembly is None:
            assembly = V2Assembly(all_types(), self._info, protobuf=name == _V2_PROTOBUF)
            self._assemblies[name] = assembly
        pieces = {id(piece.kind): piece for group, _ in view.groups for piece in group.all()}
        ordered = [pieces[id(each)] for each in in_order([each.kind for each in pieces.values()])]
        for piece in ordered:
            if name not in piece.parts:
                piece.parts[name] = assembly.part(piece.kind)
        foreign = [remote.v2 for remote in view.remotes if remote.v2 is not None]
        digests = [piece.digest for piece in ordered] + [each.digest for each in foreign]
        etag = fingerprint_of(digests, self._info)
        return assembly.whole([piece.parts[name] for piece in ordered], etag, foreign)

    def _current(self) -> _View:
        if self._view is None:
            groups = self._catalog.groups
            self._view = _View(
                [(self._group(name), versions) for name, versions in groups.items()],
                # A version that is served locally is not also proxied.
                [
                    remote
                    for remote in self._remotes.versions()
                    if remote.api.version not in groups.get(remote.api.group, ())
                ],
            )
        return self._view

    def _group(self, name: str) -> _Group:
        group = self._groups.get(name)
        if group is None:
            before = self._before.pop(name, None)
            group = self._groups[name] = _Group(name, self._catalog.in_group(name), before)
        return group


def _pieces(
    resource: Resource, before: tuple[Resource, list[_Piece]] | None
) -> tuple[Resource, list[_Piece]]:
    if before is not None and before[0] is resource:
        return before
    return resource, [_Piece(served_kind(resource, version)) for version in resource.served]


def served_kind(resource: Resource, version: str) -> ServedKind:
    """One version of a resource, in the form of which OpenAPI documents are built."""
    kind, traits = resource.kind, resource.traits.get(version)
    is_typed = isinstance(resource.shape, BuiltinShape)
    return ServedKind(
        group=kind.group,
        version=version,
        kind=kind.kind,
        plural=kind.plural,
        singular=kind.singular,
        namespaced=kind.namespaced,
        verbs=kind.verbs,
        subresources=tuple(
            _served_subresource(kind, version, each) for each in resource.subresources(version)
        ),
        type_name=kind.type_name(version) if is_typed else None,
        schema=_schema(resource, version),
        list_kind=kind.list_kind,
        returns_deleted=kind.returns_deleted,
        selectable=tuple(each.label for each in traits.selectable_fields) if traits else (),
    )


def _schema(resource: Resource, version: str) -> dict[str, object] | SchemaSource | None:
    """The schema that a resource declares for a version."""
    traits = resource.traits.get(version)
    if traits is not None:
        declared = traits.schema
        if hasattr(declared, "read"):
            return declared  # kept as bytes until it is read
        return None if declared is None else dict(declared)
    if isinstance(resource.shape, DeclaredShape):
        found = resource.shape.schemas.get(resource.api_version(version))
        return None if found is None else dict(found)
    return None


def _served_subresource(kind: Kind, version: str, sub: Subresource) -> ServedSubresource:
    group, version = (sub.group, sub.version) if sub.version else (kind.group, version)
    return ServedSubresource(
        name=sub.name,
        verbs=sub.verbs,
        group=group,
        version=version,
        kind=sub.kind or kind.kind,
        type_name=type_name(group, version, sub.kind) if sub.kind else None,
        body_kind=sub.body_kind,
        body_type_name=type_name(group, version, sub.body_kind) if sub.body_kind else "",
        takes_path=sub.takes_path,
    )


async def _answer(context: Context, document: Document, content_type: str) -> HttpResponse:
    wanted = context.info.parameter("hash")
    if wanted and wanted != document.etag:
        place = f"{context.info.path}?hash={document.etag}"
        return HttpResponse(301, b"", header_block([("Location", place), ("Vary", "Accept")]))
    lines = [
        ("Content-Type", content_type),
        ("ETag", f'"{document.etag}"'),
        ("Vary", "Accept"),
        NOSNIFF_LINE,
        ("Cache-Control", "no-cache, private"),
    ]
    if wanted:
        lines[-1] = ("Cache-Control", "public, immutable, max-age=31536000")
    if context.request.headers.get("if-none-match") == f'"{document.etag}"':
        return HttpResponse(304, b"", header_block(lines))
    if takes_gzip(context):
        lines += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        return HttpResponse(200, document.compressed, header_block(lines))
    if len(document.compressed) > UNPACKED_AT_ONCE_MAX:
        return HttpResponse(200, await asyncio.to_thread(document.pieces), header_block(lines))
    return HttpResponse(200, document.body, header_block(lines))
