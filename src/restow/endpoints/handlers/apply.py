"""apply: PATCH by server-side apply, with a configuration of all fields that the applier manages.

A configuration is YAML, of which JSON is a subset. If the object does not exist it is created,
which also requires the permission to create. Not here: the merge of a configuration into an object
(`restow.apimachinery.apply`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from restow.apimachinery import body_codec, codec, field_errors, status
from restow.apimachinery.apply.schema import from_struct
from restow.apimachinery.apply.schema_check import ApplySchemaError, check
from restow.endpoints.field_manager import manager_of
from restow.endpoints.handlers.create import create_object
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.update import (
    change_object,
    check_may_create,
    check_name,
    check_place,
    replicas_of,
)
from restow.endpoints.handlers.write_options import write_options
from restow.httpserver.response import HttpResponse
from restow.kinds.types import load_types
from restow.registry.custom.replicas import names_of
from restow.registry.field_management import Converting
from restow.registry.resource import Object
from restow.registry.scales import API_VERSION as SCALE_VERSION
from restow.registry.scales import scale_paths
from restow.registry.store import Apply
from restow.request.bodies import check_object, fill_in
from restow.request.context import Context
from restow.request.parameters import field_validation, invalid_options, is_dry_run

APPLY_PATCH: Final = "application/apply-patch+yaml"
YAML: Final = "application/yaml"
SHOWN_MAX: Final = 128
_NO: Final = ("", "0", "false", "False", "FALSE", "F", "f")


async def apply(server: Server, context: Context) -> HttpResponse:
    """PATCH of an object or a subresource with a configuration."""
    _check_options(context)
    if codec.takes_long(context.request.body, YAML):
        options = await server.offload.run(context, partial(read_options, context))
    else:
        options = read_options(context)
    resource = resource_of(context)
    while True:
        try:
            return await change_object(server, context, options, is_patch=True)
        except status.NotFound:
            if context.info.subresource or "create" not in resource.verbs:
                raise
        try:
            return await _create(server, context, options)
        except status.AlreadyExists:
            if not context.retries.take():
                raise status.server_timeout(resource.kind.group_resource, "patch") from None


async def _create(server: Server, context: Context, options: Apply) -> HttpResponse:
    """Create an object that does not exist. Raises 409 if the configuration names the uid of
    another."""
    resource, info = resource_of(context), context.info
    now, api_version = server.runtime.clock.wall(), resource.api_version(info.version)
    work = partial(
        options.to, resource, api_version, None, now=now, converting=Converting(resource)
    )
    obj = await write_options(server, context, "CREATE").runner().run(work)
    metadata = obj["metadata"]
    if uid := metadata.get("uid"):
        why = (
            f"uid mismatch: the provided object specified uid {uid[:SHOWN_MAX]}, and no existing"
            " object was found"
        )
        raise status.conflict(resource.kind.group_resource, info.name, why=why)
    metadata.pop("resourceVersion", None)
    check_may_create(server, context)
    return await create_object(server, context, obj, is_tracked=True)


def _check_options(context: Context) -> None:
    """Raise 422 if the request names no field manager."""
    info = context.info
    if not info.parameter("fieldManager"):
        cause = field_errors.required("fieldManager", "is required for apply patch")
        raise invalid_options(info, [cause])
    field_validation(info)
    is_dry_run(info)


def read_options(context: Context) -> Apply:
    """The configuration in the body. Raises 400, 413."""
    value = _read(context)
    config = _of_scale(context, value) if context.info.subresource == "scale" else value
    _check_type(context, config)
    metadata = config.get("metadata")
    if type(metadata) is dict and metadata.get("managedFields") is not None:
        raise status.bad_request("metadata.managedFields must be nil")
    return Apply(
        config=config,
        manager=manager_of(context),
        force=context.info.parameter("force") not in _NO,
        complete=partial(_completed, context),
    )


def _read(context: Context) -> Object:
    body = context.request.body
    if not body.strip():
        return {}
    try:
        decoded = body_codec.decode(body, YAML)
    except status.BadRequest as error:
        raise status.bad_request(f"error decoding YAML: {error.message}") from error
    if decoded.duplicates:
        _report(context, decoded.duplicates)
    return decoded.value


def _report(context: Context, duplicates: tuple[str, ...]) -> None:
    """Report keys that a configuration contains more than once; the last one is used."""
    mode = field_validation(context.info)
    problems = [f'key "{path}" already set in map' for path in duplicates]
    if mode == "Strict":
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise status.bad_request(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
            + lines
        )
    for problem in problems if mode == "Warn" else ():
        context.warn(problem)


def _check_type(context: Context, config: Object) -> None:
    """Check the apiVersion and kind of a configuration against the path. Raises 400."""
    resource = resource_of(context)
    wanted = (resource.api_version(context.info.version), resource.kind.kind)
    if (config.get("apiVersion"), config.get("kind")) != wanted:
        raise _wrong_type(config)


def _wrong_type(config: Object) -> status.StatusError:
    api_version, kind = config.get("apiVersion"), config.get("kind")
    group, _, version = (api_version if type(api_version) is str else "").rpartition("/")
    shown = f"{group[:SHOWN_MAX]}/{version[:SHOWN_MAX]}"
    name = kind[:SHOWN_MAX] if type(kind) is str else ""
    return status.bad_request(f"invalid object type: {shown}, Kind={name}")


def _completed(context: Context, applied: Object) -> Object:
    """An applied configuration as an object of its kind: with name and namespace of the path, and
    defaults.

    Raises 400, and 422 for an object that its schema allows but its kind does not.
    """
    resource = resource_of(context)
    try:
        checked, _ = check_object(context, resource, applied)
    except status.BadRequest as error:
        raise status.invalid_patch(error.message) from error
    obj = fill_in(context, resource, checked)
    metadata = obj["metadata"]
    if metadata.get("uid") and not metadata.get("creationTimestamp"):
        return obj  # its uid is no existing object's: that error comes first
    check_place(context, obj)
    check_name(context, obj)
    return obj


def _of_scale(context: Context, scale: Object) -> Object:
    """The object with the replicas of a Scale, at the path where its kind has them. Raises 400,
    422."""
    resource, version = resource_of(context), context.info.version
    if (scale.get("apiVersion"), scale.get("kind")) != (SCALE_VERSION, "Scale"):
        raise _wrong_type(scale)
    struct = load_types().of_kind("autoscaling", "v1", "Scale")
    assert struct is not None
    try:
        check(from_struct(struct), scale)
    except ApplySchemaError as error:
        text = f"failed to create typed patch object (autoscaling/v1, Kind=Scale): {error}"
        raise status.bad_request(text) from error
    metadata = scale.get("metadata") or {}
    kept_fields = ("name", "namespace", "uid", "resourceVersion", "managedFields")
    config: dict[str, Any] = {
        "apiVersion": resource.api_version(version),
        "kind": resource.kind.kind,
        "metadata": {name: metadata[name] for name in kept_fields if name in metadata},
    }
    if (scale.get("spec") or {}).get("replicas") is None:
        return config
    paths = scale_paths(resource, version)
    names = ["spec", "replicas"] if paths is None else names_of(paths.spec_replicas)
    at = config
    for name in names[:-1]:
        at[name] = at = {}
    at[names[-1]] = replicas_of(context, {**scale, "metadata": metadata}, is_patch=True)
    return config
