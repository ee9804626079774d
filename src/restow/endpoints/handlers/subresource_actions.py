"""Kinds that are posted to a subresource of another kind, and executed instead of stored.

A Binding or an Eviction is never stored: `SentKind` decodes one from a body like any object, so
that JSON, YAML, protobuf and unknown fields are treated alike.

Not here: the actions.
"""

from __future__ import annotations

from typing import Any

from restow.apimachinery import body_codec, codec, protobuf
from restow.apimachinery.conversion import Converter
from restow.endpoints.handlers.server import Server
from restow.httpserver.response import HttpResponse
from restow.kinds.kind import Kind
from restow.registry.resource import Object, Resource
from restow.registry.shapes import BuiltinShape
from restow.registry.strategy import place
from restow.request.bodies import PROTOBUF, check_type, complete, decoded
from restow.request.context import Context
from restow.request.responses import respond_object


class SentKind:
    """A kind that occurs in request bodies only."""

    def __init__(self, group: str, kind: str, *, also: tuple[str, ...] = ()) -> None:
        """`also` are older versions with the same fields, which are decoded as `v1`."""
        self.kind = Kind(
            group=group,
            kind=kind,
            plural=f"{kind.lower()}s",
            singular=kind.lower(),
            versions=("v1",),
            served_versions=("v1",),
            storage_version="v1",
            verbs=("create",),
            key_prefix=f"{kind.lower()}s",
            persisted=False,
        )
        self._api_version = self.kind.api_version("v1")
        self._also = tuple(self.kind.api_version(version) for version in also)
        converter = Converter(kind, hub=self._api_version, spokes={})
        self._resource = Resource(
            kind=self.kind,
            served=("v1",),
            decodable=(self._api_version,),
            storage_api_version=self._api_version,
            converter=converter,
            shape=BuiltinShape(self.kind, converter),
        )

    async def read(self, server: Server, context: Context) -> Object:
        """The object in the body, with the namespace of the request. Raises 400 or 415."""
        hosted, context.resource = context.resource, self._resource
        try:
            obj = await decoded(server.offload, context, self._read)
        finally:
            context.resource = hosted
        place(self.kind, obj["metadata"], context.info.namespace)
        return obj

    def _read(self, context: Context) -> Object:
        content_type = context.request.headers.get("content-type") or ""
        duplicates: tuple[str, ...] = ()
        if codec.media_type_name(content_type) == PROTOBUF:
            envelope = protobuf.read_envelope(context.request.body)
            api_version = self._known(envelope.api_version)
            check_type(self._resource, context, api_version, envelope.kind)
            obj = self._resource.shape.decode_protobuf(self._api_version, envelope.raw)
        else:
            decoded = body_codec.decode(context.request.body, content_type)
            obj, duplicates = decoded.value, decoded.duplicates
            obj = {**obj, "apiVersion": self._known(obj.get("apiVersion"))}
        return complete(context, self._resource, obj, duplicates)

    def _known(self, api_version: Any) -> Any:
        return self._api_version if api_version in self._also else api_version


async def stored_object(server: Server, resource: Resource, namespace: str, name: str) -> Object:
    """The current state of an object, in version `v1`. Raises 404."""
    cache = await server.store.read(resource)
    path = resource.path_of(namespace, name)
    entry = cache.get(path)
    if entry is None:
        raise server.store.missing(resource, path, cache)
    return server.store.object_of(resource, entry, resource.api_version("v1"))


def done(context: Context) -> HttpResponse:
    """The Status for an action that succeeded and returns no object."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    return respond_object(context, 201, body)
