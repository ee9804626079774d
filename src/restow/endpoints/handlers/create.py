"""create: POST of a new object."""

from __future__ import annotations

from functools import partial

import orjson

from restow.apimachinery import status
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.write_options import write_options
from restow.endpoints.representations import respond_in_form
from restow.httpserver.response import HttpResponse
from restow.registry.resource import Object, Resource
from restow.request.bodies import read_body
from restow.request.context import Context
from restow.storage.interface import Revision, RevisionIs


async def create(server: Server, context: Context) -> HttpResponse:
    """POST to a collection."""
    obj = await read_body(server.store, server.offload, context, resource_of(context))
    return await create_object(server, context, obj)


async def create_object(
    server: Server, context: Context, obj: Object, *, is_tracked: bool = False
) -> HttpResponse:
    """Store a new object and respond with it. `is_tracked`: its managedFields are computed
    already."""
    resource, info, metadata = resource_of(context), context.info, obj["metadata"]
    place = None
    if resource.kind.namespaced:
        name = metadata.get("name") or metadata.get("generateName") or "Unknown"  # in errors
        place = partial(check_namespace, server, resource, info.namespace, name)
    try:
        written = await server.store.create(
            resource,
            info.version,
            obj,
            namespace=info.namespace,
            place=place,
            options=write_options(server, context, "CREATE", is_tracked=is_tracked),
        )
    except status.AlreadyExists:
        if context.give_back is not None:
            context.give_back()
        raise
    kind = resource.kind
    if kind.behaviour_missing:
        context.warn(f"{kind.group_resource} are stored, but nothing acts on them in this release")
    body = written.body
    return respond_in_form(context, 201, body, clock=server.runtime.clock)


async def check_namespace(
    server: Server, resource: Resource, namespace: str, name: str, *, must_be_fresh: bool = False
) -> RevisionIs | None:
    """Reject a creation in a namespace that is missing or terminating.

    The namespace read here may be stale. The guard that is returned ensures that it is still the
    current one when the object is stored, which costs less than a consistent read before.
    """
    namespaces = server.catalog.of_kind("", "Namespace")
    if namespaces is None:
        return None
    entry = None
    if not must_be_fresh:
        cache = server.store.ready(namespaces) or await server.store.loaded(namespaces)
        entry = cache.get(namespace)
    if entry is None:
        cache = await server.store.read(namespaces)
        entry = cache.get(namespace)
        if entry is None:
            raise server.store.missing(namespaces, namespace, cache)
    if b'"deletionTimestamp":' in entry[2] and orjson.loads(entry[2])["metadata"].get(
        "deletionTimestamp"
    ):
        raise status.namespace_terminating(resource.kind.group_resource, name, namespace=namespace)
    return RevisionIs(namespaces.key_of(namespace), Revision(entry[0]))
