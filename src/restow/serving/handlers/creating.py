"""create: POST of a new object."""

from __future__ import annotations

import asyncio

import orjson

from restow.machinery import status
from restow.resources.definition import Object, Resource
from restow.serving.answers import respond
from restow.serving.context import Context
from restow.serving.forms import object_in_form
from restow.serving.handlers.bodies import is_dry_run, needs_thread, read_object
from restow.serving.handlers.reading import resource_of
from restow.serving.handlers.server import Server
from restow.serving.listener.response import Promise, Response, Shielded


def create(server: Server, context: Context) -> Promise:
    """POST to a collection."""
    resource = resource_of(context)
    if needs_thread(context):
        return Shielded(_read_and_create(server, context, resource))
    return Shielded(create_object(server, context, read_object(context, resource)))


async def _read_and_create(server: Server, context: Context, resource: Resource) -> Response:
    obj = await asyncio.to_thread(read_object, context, resource)
    return await create_object(server, context, obj)


async def create_object(server: Server, context: Context, obj: Object) -> Response:
    """Store a new object and answer with it."""
    resource, info = resource_of(context), context.info
    dry_run = is_dry_run(context)
    if resource.kind.namespaced:
        if not info.namespace:
            raise status.bad_request("the server does not allow this method on all namespaces")
        await check_namespace(server, resource, info.namespace, obj["metadata"].get("name") or "")
    if resource.kind.behaviour_missing:
        context.warn(
            f"{resource.kind.group_resource} are stored, but nothing acts on them in this release"
        )
    written = await server.store.create(
        resource, info.version, obj, namespace=info.namespace, dry_run=dry_run
    )
    body = written.body
    if context.form.as_kind:
        body = object_in_form(server, context, body)
    return respond(context, 201, body)


async def check_namespace(server: Server, resource: Resource, namespace: str, name: str) -> None:
    """Refuse what would be created in a namespace that is missing or going away."""
    namespaces = server.catalog.of_kind("", "Namespace")
    if namespaces is None:
        return
    entry = (await server.store.loaded(namespaces)).get(namespace)
    if entry is None:
        entry = (await server.store.read(namespaces)).get(namespace)
    if entry is None:
        raise status.not_found(namespaces.kind.group_resource, namespace)
    if b'"deletionTimestamp":' in entry[2] and orjson.loads(entry[2])["metadata"].get(
        "deletionTimestamp"
    ):
        raise status.namespace_terminating(resource.kind.group_resource, name, namespace=namespace)
