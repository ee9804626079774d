"""`/openapi/v3` and `/openapi/v2`: which document a request means, and how it may be kept.

The documents are made by `openapi` from what the catalogue hosts, each when first asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from restow.kinds.definitions import Kind, Subresource, type_name
from restow.kinds.derived_types import all_types
from restow.machinery import status
from restow.resources.catalog import Catalog
from restow.resources.definition import Resource
from restow.resources.shapes import BuiltinShape
from restow.serving.answers import takes_gzip
from restow.serving.context import Context
from restow.serving.listener.response import Promise, Response, header_block
from restow.serving.openapi import (
    V2_PROTOBUF_ACCEPTED,
    V2_PROTOBUF_ANSWERED,
    ApiInfo,
    Document,
    ServedKind,
    ServedSubresource,
    v2_document,
    v3_document,
    v3_index,
)

_JSON: Final = "application/json"


class OpenApi:
    """The documents of one catalogue."""

    def __init__(self, catalog: Catalog, info: ApiInfo) -> None:
        self._catalog = catalog
        self._info = info
        self._kinds: list[ServedKind] | None = None
        self._documents: dict[str, Document] = {}
        self._making = asyncio.Lock()  # one at a time: each takes some memory

    def answer(self, context: Context, path: str) -> Promise | None:
        """The answer to a request below `/openapi`; None when there is no such document."""
        if path == "/openapi/v2":
            return self._answer_v2(context)
        if path == "/openapi/v3":
            kinds = self._served()
            return self._later(context, "", _JSON, lambda: v3_index(kinds, self._info))
        if path.startswith("/openapi/v3/"):
            return self._answer_v3(context, path.removeprefix("/openapi/v3/"))
        return None

    def _answer_v3(self, context: Context, name: str) -> Promise | None:
        group = ""
        match name.split("/"):
            case ["api", version]:
                pass
            case ["apis", group, version]:
                pass
            case _:
                return None
        if version not in self._catalog.groups.get(group, ()):
            return None
        kinds = self._served()

        def make() -> Document:
            return v3_document(
                kinds, group=group, version=version, types=all_types(), info=self._info
            )

        return self._later(context, name, _JSON, make)

    def _answer_v2(self, context: Context) -> Promise:
        accept = context.request.headers.get("accept") or ""
        is_protobuf = V2_PROTOBUF_ACCEPTED in accept
        if accept and not is_protobuf and not any(each in accept for each in ("json", "*/*")):
            raise status.not_acceptable([_JSON, V2_PROTOBUF_ACCEPTED])
        kinds = self._served()

        def make() -> Document:
            return v2_document(kinds, types=all_types(), info=self._info, protobuf=is_protobuf)

        if is_protobuf:
            return self._later(context, "v2 protobuf", V2_PROTOBUF_ANSWERED, make)
        return self._later(context, "v2", _JSON, make)

    def _later(
        self, context: Context, name: str, content_type: str, make: Callable[[], Document]
    ) -> Promise:
        """Answer with a document, made in a thread when nobody has asked for it before."""
        document = self._documents.get(name)
        if document is not None:
            return _answer(context, document, content_type)
        return self._make(context, name, content_type, make)

    async def _make(
        self, context: Context, name: str, content_type: str, make: Callable[[], Document]
    ) -> Response:
        async with self._making:
            if name not in self._documents:
                self._documents[name] = await asyncio.to_thread(make)
        return _answer(context, self._documents[name], content_type)

    def _served(self) -> list[ServedKind]:
        if self._kinds is None:
            self._kinds = [
                served_kind(resource, version)
                for resource in self._catalog
                for version in resource.served
            ]
        return self._kinds


def served_kind(resource: Resource, version: str) -> ServedKind:
    """A resource in one version, as OpenAPI describes it."""
    kind = resource.kind
    is_typed = isinstance(resource.shape, BuiltinShape)
    return ServedKind(
        group=kind.group,
        version=version,
        kind=kind.kind,
        plural=kind.plural,
        singular=kind.singular,
        namespaced=kind.namespaced,
        verbs=kind.verbs,
        subresources=tuple(_served_subresource(kind, version, each) for each in kind.subresources),
        type_name=kind.type_name(version) if is_typed else None,
    )


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
    )


def _answer(context: Context, document: Document, content_type: str) -> Response:
    wanted = context.info.parameter("hash")
    if wanted and wanted != document.etag:
        place = f"{context.info.path}?hash={document.etag}"
        return Response(301, b"", header_block([("Location", place), ("Vary", "Accept")]))
    lines = [
        ("Content-Type", content_type),
        ("ETag", f'"{document.etag}"'),
        ("Vary", "Accept"),
        ("Cache-Control", "no-cache, private"),
    ]
    if wanted:
        lines[-1] = ("Cache-Control", "public, immutable, max-age=31536000")
    if context.request.headers.get("if-none-match") == f'"{document.etag}"':
        return Response(304, b"", header_block(lines))
    if takes_gzip(context):
        lines += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        return Response(200, document.compressed, header_block(lines))
    return Response(200, document.body, header_block(lines))
