"""patch: PATCH of an object by JSON patch, merge patch or strategic merge patch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from restow.apimachinery import codec, field_errors, status
from restow.apimachinery.json_patch import JsonPatch
from restow.apimachinery.merge_patch import apply_merge_patch
from restow.apimachinery.strategic_merge import apply_strategic_merge_patch
from restow.apimachinery.strategic_merge_lists import MergeSchema
from restow.apimachinery.strategic_merge_types import merge_schema
from restow.endpoints.handlers.apply import APPLY_PATCH, apply
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.update import change_object, change_scale, check_identity
from restow.httpserver.response import HttpResponse
from restow.kinds.types import load_types
from restow.registry.resource import Object
from restow.request.bodies import (
    check_object,
    decoded,
    fill_in,
    report_fields,
    report_problems,
)
from restow.request.context import Context
from restow.request.parameters import invalid_options

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

Patch = Callable[[Object], Any]


async def patch(server: Server, context: Context) -> HttpResponse:
    """PATCH of an object."""
    if _check_media_type(context) == APPLY_PATCH:
        return await apply(server, context)
    if "force" in context.info.query:
        cause = field_errors.forbidden("force", "may not be specified for non-apply patch")
        raise invalid_options(context.info, [cause])
    change = await decoded(server.offload, context, read_patch)
    if context.info.subresource == "scale":
        return await change_scale(server, context, change, is_patch=True)
    return await change_object(server, context, _completed(context, change), is_patch=True)


def _completed(context: Context, change: Patch) -> Callable[[Object], Object]:
    """A function that applies a patch, and then the checks and defaults of every write."""

    def apply(current: Object) -> Object:
        managed = current["metadata"].get("managedFields")
        patched = change(current)
        if not isinstance(patched, dict):
            raise status.invalid_patch("the patched document is not an object")
        _keep_type(patched, current)
        metadata = patched.get("metadata")
        if managed is not None:
            if type(metadata) is dict and metadata.get("managedFields") is managed:
                # Compared with the stored object: only what the client has changed is validated.
                del metadata["managedFields"]
            else:
                managed = None
        obj = _read_again(context, patched)
        if managed is not None:
            obj["metadata"]["managedFields"] = managed
        check_identity(context, obj)
        return obj

    return apply


def _read_again(context: Context, patched: Object) -> Object:
    """The result of a patch, decoded as an object of its kind.

    Errors that are a 400 in a body are a 422 here: the patch is well-formed, but does not fit the
    object.
    """
    resource = resource_of(context)
    try:
        checked, unknown = check_object(context, resource, patched)
    except status.BadRequest as error:
        raise status.unfit_patch(error.message) from error
    if unknown or context.info.query:
        report_fields(context, unknown, ())
    return fill_in(context, resource, checked)


def _keep_type(patched: Object, current: Object) -> None:
    """Keep apiVersion and kind if a patch does not set them."""
    for name in ("kind", "apiVersion"):
        if not patched.get(name):
            patched[name] = current[name]


def read_patch(context: Context) -> Patch:
    """The patch in the body, as a function of the current object. Raises 400, 413, 415."""
    body = context.request.body
    media_type = codec.media_type_name(context.request.headers.get("content-type") or "")
    if media_type == JSON_PATCH:
        return _read_operations(context, body).apply
    if media_type == MERGE_PATCH:
        merge = _read_object(context, body)
        return lambda current: apply_merge_patch(current, merge)
    schema = _merge_schema(context)
    strategic = _read_object(context, body)
    return lambda current: apply_strategic_merge_patch(current, strategic, schema)


def _read_operations(context: Context, body: bytes) -> JsonPatch:
    operations, duplicates = codec.decode_value(body)
    read = JsonPatch.parse(operations)
    if read.unknown or duplicates:
        problems = [f'json patch unknown field "{path}"' for path in read.unknown]
        # Only members of operations are checked: of duplicate keys inside a value the last one is
        # used.
        problems += [
            f'json patch duplicate field "{path}"' for path in duplicates if path.count(".") == 1
        ]
        report_problems(context, problems)
    return read


def _check_media_type(context: Context) -> str:
    """The type of the patch. Raises 415 for one that this kind does not support."""
    supported = [JSON_PATCH, MERGE_PATCH]
    if _merge_schema(context) is not None:
        supported.append(STRATEGIC_PATCH)
    supported.append(APPLY_PATCH)
    content_type = context.request.headers.get("content-type") or ""
    name = codec.media_type_name(content_type)
    if name not in supported:
        raise status.unsupported_media_type(supported)
    return name


def _merge_schema(context: Context) -> MergeSchema | None:
    resource = resource_of(context)
    if context.info.subresource == "scale" and not resource.traits:
        struct = load_types().of_kind("autoscaling", "v1", "Scale")
        return None if struct is None else merge_schema(struct)
    return resource.shape.merge_schema(resource.api_version(context.info.version))


def _read_object(context: Context, body: bytes) -> Object:
    value, duplicates = codec.decode_value(body)
    if not isinstance(value, dict):
        raise status.bad_request("a merge patch must be an object")
    report_fields(context, [], duplicates)
    return value
