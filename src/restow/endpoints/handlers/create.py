"""create: POST of a new object."""

from __future__ import annotations

from functools import partial
from typing import Final

import orjson

from restow.apimachinery import status
from restow.apimachinery.apply.entries import Manager
from restow.endpoints.field_manager import manager_of
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.pending_commit import PendingCommit
from restow.endpoints.handlers.server import Server
from restow.endpoints.representations import object_in_form
from restow.httpserver.response import HttpResponse, Promise, Shielded
from restow.registry.resource import Object, Resource
from restow.registry.store import Begun, PlaceMoved, Written
from restow.request.bodies import must_wait, read_later, read_object
from restow.request.context import Context
from restow.request.parameters import is_dry_run
from restow.request.responses import respond
from restow.storage.interface import Revision, RevisionIs

NAMESPACE_ATTEMPTS_MAX: Final = 4


def create(server: Server, context: Context) -> Promise | PendingCommit:
    """POST to a collection."""
    resource = resource_of(context)
    if must_wait(context, resource):
        return Shielded(_read_and_create(server, context, resource))
    obj = read_object(context, resource)
    begun = _begin(server, context, resource, obj)
    if begun is None:
        return Shielded(create_object(server, context, obj))
    return PendingCommit(
        begun,
        partial(_created, server, context),
        partial(create_object, server, context, obj),
    )


def _begin(server: Server, context: Context, resource: Resource, obj: Object) -> Begun | None:
    """Hand the object to the store if nothing must be waited for."""
    info, place = context.info, None
    if is_dry_run(info) or server.admission.asked(context, "CREATE") is not None:
        return None
    if resource.kind.namespaced:
        place = _known_place(server, info.namespace)
        if place is None:
            return None
    return server.store.begin_create(
        resource,
        info.version,
        obj,
        namespace=info.namespace,
        place=place,
        manager=manager_of(context),
        check=server.admission.check_of(context),
    )


def _known_place(server: Server, namespace: str) -> RevisionIs | None:
    """A namespace that is known here and is not going away; the guard says the rest."""
    namespaces = server.catalog.of_kind("", "Namespace")
    cache = None if namespaces is None else server.store.ready(namespaces)
    entry = None if cache is None else cache.get(namespace)
    if namespaces is None or entry is None or b'"deletionTimestamp":' in entry[2]:
        return None
    return RevisionIs(namespaces.key_of(namespace), Revision(entry[0]))


async def _read_and_create(server: Server, context: Context, resource: Resource) -> HttpResponse:
    return await create_object(server, context, await read_later(server.store, context, resource))


async def create_object(
    server: Server, context: Context, obj: Object, *, is_tracked: bool = False
) -> HttpResponse:
    """Store a new object and answer with it. `is_tracked`: it says itself who manages it."""
    manager = None if is_tracked else manager_of(context)
    written = await _store(server, context, resource_of(context), obj, manager)
    return _created(server, context, written)


def _created(server: Server, context: Context, written: Written) -> HttpResponse:
    kind = resource_of(context).kind
    if kind.behaviour_missing:
        context.warn(f"{kind.group_resource} are stored, but nothing acts on them in this release")
    body = written.body
    if context.form.as_kind:
        body = object_in_form(context, body, clock=server.runtime.clock)
    return respond(context, 201, body)


async def _store(
    server: Server, context: Context, resource: Resource, obj: Object, manager: Manager | None
) -> Written:
    info, dry_run = context.info, is_dry_run(context.info)
    metadata = obj["metadata"]
    name = metadata.get("name") or metadata.get("generateName") or "Unknown"  # in refusals
    asked = server.admission.asked(context, "CREATE")
    for attempt in range(NAMESPACE_ATTEMPTS_MAX):
        place = None
        if resource.kind.namespaced:
            place = await check_namespace(
                server, resource, info.namespace, name, must_be_fresh=attempt > 0
            )
        try:
            return await server.store.create(
                resource,
                info.version,
                obj,
                namespace=info.namespace,
                place=place,
                manager=manager,
                mutate=None if asked is None else asked.mutate,
                check=server.admission.check_of(context),
                review=None if asked is None else asked.review,
                dry_run=dry_run,
            )
        except PlaceMoved:
            continue  # it was changed since this server heard of it
        except status.AlreadyExists:
            if context.give_back is not None:
                context.give_back()
            raise
    raise status.server_timeout(resource.kind.group_resource, "create")


async def check_namespace(
    server: Server, resource: Resource, namespace: str, name: str, *, must_be_fresh: bool = False
) -> RevisionIs | None:
    """Refuse what would be created in a namespace that is missing or going away.

    What was found may be old. The guard that is returned makes sure that it still holds when the
    object is stored, which costs less than asking first.
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
