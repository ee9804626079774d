"""update: PUT of a whole object, or of its status, scale or finalizers."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from restow.machinery import codec, status
from restow.resources.definition import Object, Resource
from restow.resources.store import Written
from restow.serving.answers import respond
from restow.serving.context import Context
from restow.serving.forms import object_in_form
from restow.serving.handlers.bodies import is_dry_run, needs_thread, read_object
from restow.serving.handlers.creating import check_namespace, create_object
from restow.serving.handlers.reading import make_scale, resource_of
from restow.serving.handlers.server import Server
from restow.serving.listener.response import Promise, Response, Shielded


def update(server: Server, context: Context) -> Promise:
    """PUT to an object."""
    if context.info.subresource == "scale":
        return Shielded(_update_scale(server, context))
    resource = resource_of(context)
    if needs_thread(context):
        return Shielded(_read_and_update(server, context, resource))
    return Shielded(_update(server, context, read_object(context, resource)))


async def _read_and_update(server: Server, context: Context, resource: Resource) -> Response:
    return await _update(server, context, await asyncio.to_thread(read_object, context, resource))


async def _update(server: Server, context: Context, obj: Object) -> Response:
    resource, info = resource_of(context), context.info
    check_identity(context, obj)
    try:
        written = await server.store.update(
            resource,
            info.version,
            resource.path_of(info.namespace, info.name),
            lambda current: _replaced(obj, current, info.subresource),
            subresource=info.subresource,
            dry_run=is_dry_run(context),
        )
    except status.NotFound:
        if not resource.kind.create_on_update or info.subresource:
            raise
        if resource.kind.namespaced:
            await check_namespace(server, resource, info.namespace, info.name)
        obj["metadata"].pop("resourceVersion", None)
        return await create_object(server, context, obj)
    return written_answer(server, context, written)


def _replaced(obj: Object, current: Object, subresource: str) -> Object:
    fresh = {**obj, "metadata": dict(obj["metadata"])}
    if subresource == "finalize":
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        current_spec = {k: v for k, v in (current.get("spec") or {}).items() if k != "finalizers"}
        spec = {**current_spec, "finalizers": finalizers} if finalizers else current_spec
        fresh = {**current, "metadata": fresh["metadata"], "spec": spec}
    return fresh


def check_identity(context: Context, obj: Object) -> None:
    """The name and namespace in a body must be those of its path."""
    info, metadata = context.info, obj["metadata"]
    name = metadata.get("name")
    if not name:
        raise status.bad_request("name must be provided")
    if name != info.name:
        raise status.bad_request(
            f"the name of the object ({name[:253]}) does not match the name on the URL"
            f" ({info.name})"
        )
    if not resource_of(context).kind.namespaced:
        if metadata.pop("namespace", None):
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        return
    namespace = metadata.get("namespace")
    if namespace and namespace != info.namespace:
        raise status.bad_request(
            f"the namespace of the object ({namespace[:253]}) does not match the namespace on the"
            f" URL ({info.namespace})"
        )
    metadata["namespace"] = info.namespace


def written_answer(server: Server, context: Context, written: Written) -> Response:
    """The answer to an update or patch."""
    body = written.body
    if context.info.subresource == "scale":
        body = orjson.dumps(make_scale(orjson.loads(body)))
    elif context.form.as_kind:
        body = object_in_form(server, context, body)
    return respond(context, 201 if written.created else 200, body)


async def _update_scale(server: Server, context: Context) -> Response:
    decoded = codec.decode(context.request.body, context.request.headers.get("content-type") or "")
    return await change_scale(server, context, lambda _scale: decoded.value, is_patch=False)


async def change_scale(
    server: Server, context: Context, change: Any, *, is_patch: bool
) -> Response:
    """Change an object's replicas by a change of its Scale."""
    resource, info = resource_of(context), context.info

    def apply(current: Object) -> Object:
        scale = change(make_scale(current))
        spec = scale.get("spec") if isinstance(scale, dict) else None
        replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
        if type(replicas) is not int or replicas < 0:
            raise status.bad_request("spec.replicas must be a whole number, zero or more")
        metadata = scale.get("metadata") if isinstance(scale.get("metadata"), dict) else {}
        current["spec"] = {**(current.get("spec") or {}), "replicas": replicas}
        for name in ("resourceVersion", "uid"):
            if metadata.get(name):
                current["metadata"][name] = metadata[name]
        return current

    written = await server.store.update(
        resource,
        info.version,
        resource.path_of(info.namespace, info.name),
        apply,
        is_patch=is_patch,
        dry_run=is_dry_run(context),
    )
    return written_answer(server, context, written)
