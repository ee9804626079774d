"""get: one object. Also shared by all reads: resource version semantics.

A read without a resource version sees every write acknowledged before it; version 0 reads the cache
as it is; any other version waits until the cache has reached it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import orjson

from restow.apimachinery import status
from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.endpoints.handlers.server import Server
from restow.endpoints.representations import respond_in_form
from restow.httpserver.response import HttpResponse
from restow.registry.committer import check_current
from restow.registry.resource import Resource
from restow.registry.scales import scale_of_object
from restow.registry.watch_cache import Entry, WatchCache
from restow.request.context import Context

FUTURE_SECONDS_MAX: Final = 3.0
"""How long to wait for a resource version that the cache has not reached."""


async def get(server: Server, context: Context) -> HttpResponse:
    """GET of an object. Raises `ConversionNeeded` when a webhook must convert it first."""
    resource, info = resource_of(context), context.info
    cache = await fresh_enough(server, context, resource_version(context))
    path = resource.path_of(info.namespace, info.name)
    entry = cache.get(path)
    if entry is None:
        raise server.store.missing(resource, path, cache)
    if info.subresource == "scale":
        body = scale_of(server, context, entry)
    else:
        body = await body_of(server, context, entry, resource.api_version(info.version))
    return respond_in_form(context, 200, body, clock=server.runtime.clock)


async def body_of(server: Server, context: Context, entry: Entry, api_version: str) -> bytes:
    """The encoded object in a version."""
    if entry[1] == api_version:
        return entry[2]
    work = partial(server.store.body_of, resource_of(context), entry, api_version)
    return await server.offload.run(context, work) if len(entry[2]) > LONG_BODY_SIZE else work()


def scale_of(server: Server, context: Context, entry: Entry) -> bytes:
    """The Scale of an object."""
    resource = resource_of(context)
    obj = server.store.object_of(resource, entry, resource.api_version(context.info.version))
    return orjson.dumps(scale_of_object(resource, context.info.version, obj))


def resource_of(context: Context) -> Resource:
    """The resource of a request that has one."""
    assert context.resource is not None
    return context.resource


def resource_version(context: Context) -> int | None:
    """The resource version in a request; None if there is none."""
    text = context.info.parameter("resourceVersion")
    return parse_resource_version(text) if text else None


def parse_resource_version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise status.bad_request(f"Invalid value: {text[:64]!r}: must be a resource version")
    return int(text)


def turn_of(context: Context) -> str:
    """Whose turn a read is: that of its user; privileged ones do not wait for others."""
    return "" if context.user.is_master else context.user.name


async def fresh_enough(server: Server, context: Context, asked: int | None) -> WatchCache:
    """The cache of the resource, once it is as fresh as a request requires."""
    resource = resource_of(context)
    if asked is None:
        return await server.store.read(resource, turn=turn_of(context))
    cache = await server.store.loaded(resource)
    if asked > max(server.store.position, cache.changed_at):
        await wait_for_version(server, resource, asked)
    return cache


async def wait_for_version(server: Server, resource: Resource, asked: int) -> None:
    """Wait for a resource version until a deadline; 504 after it.

    Raises `ResourceReplaced` when the cache that should reach it is not updated any more.
    """
    try:
        async with server.runtime.clock.timeout(FUTURE_SECONDS_MAX):
            await server.store.caches.reach_future(asked)
    except TimeoutError:
        current = server.store.position
        raise status.resource_version_too_large(asked, current) from None
    check_current(resource)
