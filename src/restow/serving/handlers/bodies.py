"""Request bodies: from bytes to an object in the version of the request, checked and defaulted.

JSON, YAML and protobuf come in; one kind of object goes on. Unknown and repeated fields become
warnings or a 400, as the client asked by `fieldValidation`.
"""

from __future__ import annotations

from typing import Any, Final

from restow.machinery import codec, field_errors, protobuf, status
from restow.machinery.metadata_rules import check_types
from restow.machinery.names import GroupKind
from restow.resources.definition import Object, Resource
from restow.serving.context import Context

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_FIELD_VALIDATION: Final = ("Ignore", "Warn", "Strict")


def read_object(context: Context, resource: Resource) -> Object:
    """The object in the body of a create or update."""
    version = resource.api_version(context.info.version)
    content_type = context.request.headers.get("content-type") or ""
    if codec.media_type_name(content_type) == PROTOBUF:
        envelope = protobuf.read_envelope(context.request.body)
        check_type(resource, context, envelope.api_version, envelope.kind)
        obj = resource.shape.decode_protobuf(version, envelope.raw)
        return complete(context, resource, obj, ())
    decoded = codec.decode(context.request.body, content_type)
    return complete(context, resource, decoded.value, decoded.duplicates)


def complete(
    context: Context, resource: Resource, obj: Object, duplicates: tuple[str, ...]
) -> Object:
    """Check an object's type and fields, and fill in defaults; a fresh one is returned."""
    version = resource.api_version(context.info.version)
    kind = obj.get("kind")
    check_type(resource, context, obj.get("apiVersion"), kind)
    check_types(obj.get("metadata"))
    checked, unknown = resource.shape.check(version, obj)
    report_fields(context, unknown, duplicates)
    metadata = checked.get("metadata")
    fresh = {
        "kind": resource.kind.kind,
        "apiVersion": version,
        "metadata": dict(metadata) if isinstance(metadata, dict) else {},
    }
    for name, value in checked.items():
        if name not in fresh:
            fresh[name] = value
    return resource.shape.default(version, fresh)


def check_type(resource: Resource, context: Context, api_version: Any, kind: Any) -> None:
    """A body may leave out its type, but not claim another one."""
    expected = resource.api_version(context.info.version)
    if api_version and api_version != expected:
        raise status.bad_request(
            f"the API version in the data ({str(api_version)[:128]}) does not match the expected"
            f" API version ({expected})"
        )
    if kind and kind != resource.kind.kind:
        raise status.bad_request(
            f"{str(kind)[:128]} in version {context.info.version!r} cannot be handled as a"
            f" {resource.kind.kind}: converting ({api_version}, Kind={str(kind)[:128]}) is not"
            " possible"
        )


def report_fields(context: Context, unknown: list[str], duplicates: tuple[str, ...]) -> None:
    """Warn of fields that were dropped, or refuse the request because of them."""
    mode = field_validation(context)
    if mode == "Ignore" or not (unknown or duplicates):
        return
    problems = [f'unknown field "{path}"' for path in unknown]
    problems += [f'duplicate field "{path}"' for path in duplicates]
    if mode == "Strict":
        raise status.strict_decoding(problems)
    for problem in problems:
        context.warn(problem)


def field_validation(context: Context) -> str:
    mode = context.info.parameter("fieldValidation") or "Warn"
    if mode not in _FIELD_VALIDATION:
        cause = field_errors.not_supported("fieldValidation", mode, _FIELD_VALIDATION)
        raise _invalid_options("CreateOptions", [cause])
    return mode


def is_dry_run(context: Context) -> bool:
    """Whether nothing shall be stored. Raises 422 for a wish that is not known."""
    wishes = context.info.query.get("dryRun") or []
    for wish in wishes:
        if wish != "All":
            cause = field_errors.not_supported("dryRun", wish, ["All"])
            raise _invalid_options("CreateOptions", [cause])
    return bool(wishes)


def _invalid_options(kind: str, causes: list[Any]) -> status.StatusError:
    return status.invalid(GroupKind("meta.k8s.io", kind), "", causes)


def needs_thread(context: Context) -> bool:
    """Whether reading the body takes too long for the event loop."""
    return codec.is_yaml(context.request.headers.get("content-type") or "")
