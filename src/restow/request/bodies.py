"""Decodes request bodies into objects in the version of the request, validated and defaulted.

Bodies are JSON, YAML or protobuf. Unknown and duplicate fields become warnings or a 400, as
`fieldValidation` requests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import orjson

from restow.apimachinery import body_codec, codec, field_errors, protobuf, status
from restow.apimachinery.metadata_rules import check_types
from restow.apimachinery.names import GroupKind
from restow.registry.managed_fields_cache import ManagedFieldsCache
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.request.context import Context
from restow.request.offload import Offload
from restow.request.parameters import field_validation

T = TypeVar("T")
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_SORTED: Final = orjson.OPT_SORT_KEYS


def read_object(
    context: Context, resource: Resource, *, known: ManagedFieldsCache | None = None
) -> Object:
    """Read the object in the body of a create or update. An update may reuse known entries."""
    version = resource.api_version(context.info.version)
    content_type = context.request.headers.get("content-type") or ""
    if content_type != codec.JSON and codec.media_type_name(content_type) == PROTOBUF:
        envelope = protobuf.read_envelope(context.request.body)
        check_type(resource, context, envelope.api_version, envelope.kind)
        obj = resource.shape.decode_protobuf(version, envelope.raw)
        return complete(context, resource, obj, ())
    decoded = None
    if known is not None and content_type == codec.JSON:
        decoded = _decode_known(context, resource, known)
    if decoded is None:
        decoded = body_codec.decode(context.request.body, content_type)
    return complete(context, resource, decoded.value, decoded.duplicates)


def _decode_known(
    context: Context, resource: Resource, known: ManagedFieldsCache
) -> codec.Decoded | None:
    """Decode a body using the known entries; None if it must be decoded completely."""
    info = context.info
    key = resource.key_of(resource.path_of(info.namespace, info.name))
    short = known.cut(key, context.request.body)
    if short is None:
        return None
    try:
        decoded = codec.decode(short)
    except status.StatusError:
        return None  # the complete decoder reports the problem
    return decoded if known.put_back(key, decoded.value) else None


def complete(
    context: Context,
    resource: Resource,
    obj: Object,
    duplicates: tuple[str, ...],
    *,
    reports: bool = True,
) -> Object:
    """Check an object's type and fields, and fill in defaults; returns a new object.

    Without `reports` dropped fields are not reported: the client has not sent them.
    """
    checked, unknown = check_object(context, resource, obj)
    if reports and (unknown or duplicates or context.info.query):
        report_fields(context, unknown, duplicates)
    return fill_in(context, resource, checked)


def check_object(context: Context, resource: Resource, obj: Object) -> tuple[Object, list[str]]:
    """Check the type, and drop fields that are unknown to the kind; returns the object and those
    fields.

    Raises 400 if the object cannot be decoded as its kind.
    """
    version = resource.api_version(context.info.version)
    if obj.get("apiVersion") != version or obj.get("kind") != resource.kind.kind:
        metadata = obj.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else ""
        check_type(resource, context, obj.get("apiVersion"), obj.get("kind"), name=name)
    check_types(metadata := obj.get("metadata"))
    checked, unknown = resource.shape.check(version, obj)
    if metadata and metadata.get("managedFields") == []:
        # For a built-in kind an empty list removes all entries; for a custom one it is ignored.
        said = None if resource.is_custom else metadata["managedFields"]
        checked["metadata"] = {**checked["metadata"], "managedFields": said}
    return checked, unknown


def fill_in(context: Context, resource: Resource, checked: Object) -> Object:
    """Return a new object with its defaults."""
    version = resource.api_version(context.info.version)
    kind = resource.kind.kind
    metadata = checked.get("metadata")
    metadata = metadata.copy() if isinstance(metadata, dict) else {}
    # These come first, in this order and without duplicates.
    fresh: Object = {"kind": kind, "apiVersion": version, "metadata": metadata, **checked}
    fresh["kind"], fresh["apiVersion"], fresh["metadata"] = kind, version, metadata
    if "ownerReferences" in metadata and len(metadata["ownerReferences"] or ()) > 1:
        drop_duplicate_owners(context, metadata)
    return resource.shape.default(version, fresh)


def check_type(
    resource: Resource, context: Context, api_version: Any, kind: Any, *, name: Any = ""
) -> None:
    """Reject a body of another type. A body may omit its type, except that of a custom resource.

    Nothing else distinguishes custom resources: they have no type of their own in the server.
    """
    is_custom = bool(resource.traits)
    if is_custom and not kind:
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind.kind}):"
            " Object 'Kind' is missing"
        )
    expected = resource.api_version(context.info.version)
    if (api_version or is_custom) and api_version != expected:
        raise status.bad_request(
            f"the API version in the data ({str(api_version or '')[:128]}) does not match the"
            f" expected API version ({expected})"
        )
    if is_custom and kind != resource.kind.kind:
        cause = field_errors.invalid("kind", str(kind)[:128], f"must be {resource.kind.kind}")
        said = GroupKind(resource.group, str(kind)[:128])
        raise status.invalid(said, str(name or "")[:253], [cause])
    if kind and kind != resource.kind.kind:
        raise status.bad_request(
            f"{str(kind)[:128]} in version {context.info.version!r} cannot be handled as a"
            f" {resource.kind.kind}: converting ({api_version}, Kind={str(kind)[:128]}) is not"
            " possible"
        )


def drop_duplicate_owners(context: Context, metadata: Object) -> None:
    """Remove duplicate owner references, with a warning."""
    owners = metadata["ownerReferences"]
    kept = list({orjson.dumps(owner, option=_SORTED): owner for owner in owners}.values())
    if len(kept) < len(owners):
        context.warn("metadata.ownerReferences contained duplicate entries, which were removed")
        metadata["ownerReferences"] = kept


def report_fields(context: Context, unknown: list[str], duplicates: tuple[str, ...]) -> None:
    """Warn about dropped fields, or reject the request, as `fieldValidation` specifies."""
    problems = [f'unknown field "{path}"' for path in unknown]
    repeated = [f'duplicate field "{path}"' for path in duplicates]
    # Custom resources are pruned after decoding, so unknown fields come last.
    is_custom = context.resource is not None and bool(context.resource.traits)
    report_problems(context, repeated + problems if is_custom else problems + repeated)


def report_problems(context: Context, problems: list[str]) -> None:
    """Warn about problems, or reject the request, as the client requested."""
    mode = field_validation(context.info)
    if mode == "Ignore" or not problems:
        return
    if mode == "Strict":
        raise _strict(context, problems)
    for problem in problems:
        context.warn(problem)


def _strict(context: Context, problems: list[str]) -> status.StatusError:
    """The error for the fields of a body; that of a patch is a 422 without a kind."""
    error, resource = status.strict_decoding(problems), context.resource
    if context.info.verb == "patch":
        return status.unfit_patch(error.message)
    if resource is None:
        return error
    kind, version = resource.kind.kind, context.info.version
    unfit = f'{kind} in version "{version}" cannot be handled as a {kind}'
    return status.bad_request(f"{unfit}: {error.message}")


async def read_body(
    store: ResourceStore,
    offload: Offload,
    context: Context,
    resource: Resource,
    *,
    known: ManagedFieldsCache | None = None,
) -> Object:
    """Read the object in a request body; expensive kinds one at a time."""
    if needs_thread(context):
        return await offload.run(context, partial(read_object, context, resource))
    if resource.kind.is_heavy:
        await store.heavy_objects.enter()
    return read_object(context, resource, known=known)


async def decoded(offload: Offload, context: Context, decode: Callable[[Context], T]) -> T:
    """Return what `decode` reads from the body of a request."""
    if needs_thread(context):
        return await offload.run(context, partial(decode, context))
    return decode(context)


def needs_thread(context: Context) -> bool:
    """Whether decoding the body would block the event loop for too long."""
    content_type = context.request.headers.get("content-type") or ""
    return codec.takes_long(context.request.body, content_type)
