"""update: PUT of a whole object, or of its status, scale or finalizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson
from msgspec.structs import replace

from restow.apimachinery import body_codec, codec, field_errors, status
from restow.apimachinery.metadata_rules import check_types
from restow.apimachinery.names import GroupKind, GroupResource
from restow.authorization.authorizer import refusal
from restow.endpoints.handlers.create import create_object
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.write_options import write_options
from restow.endpoints.representations import respond_in_form
from restow.httpserver.response import HttpResponse
from restow.registry.resource import Object
from restow.registry.scales import API_VERSION, scale_of_object, scale_paths, with_replicas
from restow.registry.strategy import place
from restow.registry.write_planner import Change
from restow.request.bodies import PROTOBUF, decoded, read_body
from restow.request.context import Context
from restow.request.protobuf_messages import read_message

REPLICAS_MAX: Final = 2**31 - 1
_NO_VERSION: Final = (None, "", "0")


async def update(server: Server, context: Context) -> HttpResponse:
    """PUT to an object."""
    info = context.info
    if info.subresource == "scale":
        return await _update_scale(server, context)
    resource = resource_of(context)
    known = server.store.known_entries
    obj = await read_body(server.store, server.offload, context, resource, known=known)
    check_identity(context, obj)
    try:
        return await change_object(
            server, context, lambda current: _replaced(obj, current, info.subresource)
        )
    except status.NotFound:
        if not resource.kind.create_on_update or info.subresource:
            raise
    if obj["metadata"].get("uid") or obj["metadata"].get("resourceVersion") not in _NO_VERSION:
        # It was deleted after the client read it.
        why = "the object has been deleted; please read it again"
        raise status.conflict(resource.kind.group_resource, info.name, why=why)
    check_may_create(server, context)
    return await create_object(server, context, obj)


async def change_object(
    server: Server, context: Context, change: Change, *, is_patch: bool = False
) -> HttpResponse:
    """Change the object of a request, or a subresource of it, and respond with it."""
    resource, info = resource_of(context), context.info
    written = await server.store.update(
        resource,
        info.version,
        resource.path_of(info.namespace, info.name),
        change,
        # A Scale is not a part of the object, but a view of some of its fields.
        subresource="" if info.subresource == "scale" else info.subresource,
        is_patch=is_patch,
        options=write_options(server, context, "UPDATE"),
    )
    body = written.body
    if info.subresource == "scale":
        body = orjson.dumps(scale_of_object(resource, info.version, orjson.loads(body)))
    return respond_in_form(
        context, 201 if written.created else 200, body, clock=server.runtime.clock
    )


def check_may_create(server: Server, context: Context) -> None:
    """Check the permission to create: update does not include it. Raises 403."""
    wanted = replace(context.info, verb="create")
    if not server.access_reviewer.allows(context.user, wanted):
        raise refusal(context.user, wanted, server.access_reviewer.reason(context.user, wanted))


def _replaced(obj: Object, current: Object, subresource: str) -> Object:
    fresh = {**obj, "metadata": dict(obj["metadata"])}
    if subresource == "finalize":
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        current_spec = {k: v for k, v in (current.get("spec") or {}).items() if k != "finalizers"}
        spec = {**current_spec, "finalizers": finalizers} if finalizers else current_spec
        fresh = {**current, "metadata": fresh["metadata"], "spec": spec}
    return fresh


def check_identity(context: Context, obj: Object) -> None:
    """Check that the name and namespace in a body match the path. Raises 400."""
    check_name(context, obj)
    check_place(context, obj)


def check_place(context: Context, obj: Object) -> None:
    """Check the namespace only; if it is missing, that of the path is set."""
    kind = resource_of(context).kind
    # The path of a Namespace object itself is not in a namespace.
    place(kind, obj["metadata"], context.info.namespace if kind.namespaced else "")


def check_name(context: Context, obj: Object) -> None:
    """Check the name only, which is required."""
    info, name = context.info, obj["metadata"].get("name")
    if not name:
        raise status.bad_request(
            f"the name of the object ({info.name} based on URL) was undeterminable: name must be"
            " provided"
        )
    if name != info.name:
        raise status.bad_request(
            f"the name of the object ({name[:253]}) does not match the name on the URL"
            f" ({info.name})"
        )


async def _update_scale(server: Server, context: Context) -> HttpResponse:
    scale = await decoded(server.offload, context, _read_scale)
    return await change_scale(server, context, lambda _scale: scale, is_patch=False)


def _read_scale(context: Context) -> Any:
    content_type = context.request.headers.get("content-type") or ""
    if codec.media_type_name(content_type) == PROTOBUF:
        return read_message(context.request.body)
    return body_codec.decode(context.request.body, content_type).value


async def change_scale(
    server: Server, context: Context, change: Callable[[Object], Any], *, is_patch: bool
) -> HttpResponse:
    """Change an object's replicas through its Scale."""
    resource, info = resource_of(context), context.info

    def apply(current: Object) -> Object:
        shown = scale_of_object(resource, info.version, current, may_lack_replicas=True)
        scale = _checked_scale(context, change(shown))
        preconditions = {name: scale["metadata"].get(name) for name in ("resourceVersion", "uid")}
        found = current["metadata"].get("uid")
        if preconditions["uid"] and preconditions["uid"] != found:
            # The resource version of a Scale is a precondition, also in a patch.
            named = GroupResource(resource.group, f"{resource.plural}/scale")
            raise status.precondition_failed(
                named, info.name, what="UID", wanted=preconditions["uid"], found=found
            )
        replicas = replicas_of(context, scale, is_patch=is_patch)
        fresh = with_replicas(resource, info.version, current, replicas)
        fresh["metadata"] = current["metadata"] | {
            name: value for name, value in preconditions.items() if value
        }
        return fresh

    return await change_object(server, context, apply, is_patch=is_patch)


def _checked_scale(context: Context, scale: Any) -> Object:
    """A Scale with metadata of the right types, for the object of the path. Raises 400."""
    if not isinstance(scale, dict):
        raise status.bad_request("a Scale must be an object")
    kind, version = scale.get("kind") or "Scale", scale.get("apiVersion") or API_VERSION
    if (kind, version) != ("Scale", API_VERSION):
        raise status.bad_request(
            f"({str(version)[:128]}, Kind={str(kind)[:128]}) cannot be handled as a Scale"
        )
    check_types(scale.get("metadata"))
    metadata = scale.get("metadata") or {}
    check_identity(context, {"metadata": dict(metadata)})
    return {**scale, "metadata": metadata}


def replicas_of(context: Context, scale: Object, *, is_patch: bool) -> int:
    """The replicas that a Scale requests. Raises 400, 422."""
    spec = scale.get("spec") or {}
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if type(replicas) is not int or replicas > REPLICAS_MAX:
        why = "spec.replicas must be a 32-bit integer"
        raise status.unfit_patch(why) if is_patch else status.bad_request(why)
    # A custom kind validates them itself, at the path of its own field.
    if replicas < 0 and scale_paths(resource_of(context), context.info.version) is None:
        cause = field_errors.invalid(
            "spec.replicas", replicas, "must be greater than or equal to 0"
        )
        metadata = scale["metadata"]
        raise status.invalid(GroupKind("autoscaling", "Scale"), metadata.get("name", ""), [cause])
    return replicas
