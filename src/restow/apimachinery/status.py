"""Status errors of the API, used by the server and the client.

    StatusError                     any other code
    ├── BadRequest             400      malformed request
    ├── Unauthorized           401      missing or invalid credentials
    ├── Forbidden              403      denied by authorization, admission or state
    ├── NotFound               404      no such object or resource
    ├── MethodNotAllowed       405      the resource does not support this verb
    ├── NotAcceptable          406      no response format that the client accepts
    ├── Conflict               409      the object was modified, or a precondition failed
    ├── AlreadyExists          409      the name is already used
    ├── Gone                   410      no longer available
    │   └── Expired            410      the resource version is too old
    ├── RequestEntityTooLarge  413      a size limit is exceeded
    ├── UnsupportedMediaType   415      unsupported format of the body
    ├── Invalid                422      validation failed: see the causes
    ├── TooManyRequests        429      rate limited; retry later
    ├── InternalError          500      server error
    ├── ServerTimeout          500      storage could not complete the operation
    ├── ServiceUnavailable     503      not ready
    └── Timeout                504      the request timed out

Use the functions below to create errors: clients parse some of the messages, so each has one place.
The root class and its wire format are in `status_error`, and re-exported here.

Not here: HTTP. The error filter writes these errors, and the client parses them. Errors of single
fields are created in `field_errors`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from restow.apimachinery.errors import InvalidName, MachineryError, UnknownKind
from restow.apimachinery.names import GroupKind, GroupResource
from restow.apimachinery.status_error import Details, StatusCause, StatusError

__all__ = [
    "CAUSES_MAX",
    "RETRY_AFTER_SECONDS",
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Details",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ServerTimeout",
    "ServiceUnavailable",
    "StatusCause",
    "StatusError",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
    "already_exists",
    "apply_conflict",
    "bad_request",
    "body_too_large",
    "cannot",
    "cannot_path",
    "conflict",
    "expired",
    "forbidden",
    "generated_name_taken",
    "gone",
    "internal",
    "invalid",
    "invalid_patch",
    "method_not_allowed",
    "namespace_terminating",
    "not_acceptable",
    "not_found",
    "of_machinery_error",
    "precondition_failed",
    "precondition_of_delete_failed",
    "resource_not_found",
    "resource_version_too_large",
    "resource_version_too_old",
    "server_timeout",
    "strict_decoding",
    "timeout",
    "too_large",
    "too_many_requests",
    "unauthorized",
    "unavailable",
    "unfit_patch",
    "unsupported_media_type",
]

RETRY_AFTER_SECONDS: Final = 1
"""The Retry-After of responses to requests that may be retried soon."""
# More causes are not useful, and a request could provoke a hundred thousand.
CAUSES_MAX: Final = 100


class BadRequest(StatusError, code=400): ...


class Unauthorized(StatusError, code=401): ...


class Forbidden(StatusError, code=403): ...


class NotFound(StatusError, code=404): ...


class MethodNotAllowed(StatusError, code=405): ...


class NotAcceptable(StatusError, code=406): ...


class Conflict(StatusError, code=409): ...


class AlreadyExists(StatusError, code=409): ...


class Gone(StatusError, code=410): ...


class Expired(Gone, code=410): ...


class RequestEntityTooLarge(StatusError, code=413): ...


class UnsupportedMediaType(StatusError, code=415): ...


class Invalid(StatusError, code=422): ...


class TooManyRequests(StatusError, code=429): ...


class InternalError(StatusError, code=500): ...


class ServerTimeout(StatusError, code=500): ...


class ServiceUnavailable(StatusError, code=503): ...


class Timeout(StatusError, code=504): ...


def bad_request(message: str) -> BadRequest:
    """A parameter, body, selector or token is malformed."""
    return BadRequest(message)


def strict_decoding(problems: Iterable[str]) -> BadRequest:
    """`fieldValidation=Strict` found fields such as `unknown field "a"`."""
    return BadRequest(f"strict decoding error: {', '.join(problems)}")


def unauthorized() -> Unauthorized:
    """The credentials are missing or invalid. Contains no details, which would help an attacker."""
    return Unauthorized("Unauthorized")


def forbidden(
    why: str,
    *,
    resource: GroupResource | None = None,
    name: str = "",
    causes: Sequence[StatusCause] = (),
) -> Forbidden:
    """Not allowed; without a resource, it concerns a path."""
    what = f"{resource} " if resource else ""
    if name:
        what += f"{_quoted(name)} "
    verb = "is forbidden" if what else "forbidden"
    about = _about(resource, name) if resource else Details(name=name)
    return Forbidden(f"{what}{verb}: {why}", details=about, causes=tuple(causes))


def cannot(
    user: str,
    verb: str,
    *,
    resource: GroupResource,
    name: str = "",
    subresource: str = "",
    namespace: str | None = None,
    why: str = "",
) -> Forbidden:
    """Denied by the authorizer. A namespace of None means cluster scope."""
    where = "at the cluster scope" if namespace is None else f'in the namespace "{namespace}"'
    part = f"{resource.resource}/{subresource}" if subresource else resource.resource
    return forbidden(
        f'User {_quoted(user)} cannot {verb} resource "{part}" in API group "{resource.group}" '
        f"{where}" + (f": {why}" if why else ""),
        resource=resource,
        name=name,
    )


def cannot_path(user: str, verb: str, *, path: str, why: str = "") -> Forbidden:
    """Denied by the authorizer, for a non-resource path."""
    message = f"User {_quoted(user)} cannot {verb} path {_quoted(path)}"
    return forbidden(f"{message}: {why}" if why else message)


def namespace_terminating(resource: GroupResource, name: str, *, namespace: str) -> Forbidden:
    """No objects can be created in a terminating namespace."""
    cause = StatusCause(
        "NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace"
    )
    return forbidden(
        f"unable to create new content in namespace {namespace} because it is being terminated",
        resource=resource,
        name=name,
        causes=(cause,),
    )


def not_found(resource: GroupResource, name: str) -> NotFound:
    """There is no object of this name."""
    return NotFound(f"{resource} {_quoted(name)} not found", details=_about(resource, name))


def resource_not_found() -> NotFound:
    """The group version exists, but not the resource."""
    return NotFound("the server could not find the requested resource", details=Details())


def method_not_allowed(
    resource: GroupResource | None = None, verb: str | None = None
) -> MethodNotAllowed:
    """The path does not support this method."""
    if resource is None:
        return MethodNotAllowed("the server does not allow this method on the requested resource")
    return MethodNotAllowed(
        f'{verb} is not supported on resources of kind "{resource}"',
        details=_about(resource, ""),
    )


def not_acceptable(media_types: Iterable[str]) -> NotAcceptable:
    """The client accepts no supported media type; `media_types` are the supported ones."""
    return NotAcceptable(f"only the following media types are accepted: {', '.join(media_types)}")


def already_exists(
    resource: GroupResource, name: str, *, is_being_deleted: bool = False
) -> AlreadyExists:
    """The name is used, possibly by an object that is being deleted."""
    prefix = "object is being deleted: " if is_being_deleted else ""
    message = f"{prefix}{resource} {_quoted(name)} already exists"
    return AlreadyExists(message, details=_about(resource, name))


def generated_name_taken(resource: GroupResource, name: str) -> AlreadyExists:
    """All generated names were used; a retry generates others."""
    return AlreadyExists(
        f"{resource} {_quoted(name)} already exists, the server was not able to generate a unique "
        "name for the object",
        details=_about(resource, name),
        retry_after_seconds=1,
    )


def conflict(
    resource: GroupResource,
    name: str,
    *,
    why: str = "the object has been modified; "
    "please apply your changes to the latest version and try again",
) -> Conflict:
    """The resourceVersion, or another precondition, does not match."""
    return Conflict(
        f"Operation cannot be fulfilled on {resource} {_quoted(name)}: {why}",
        details=_about(resource, name),
    )


def precondition_failed(
    resource: GroupResource, name: str, *, what: str, wanted: str, found: str
) -> Conflict:
    """A `uid` or `resourceVersion` precondition failed; `what` is the name of the field."""
    why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
    return conflict(resource, name, why=why)


def precondition_of_delete_failed(
    kind: GroupKind, name: str, *, what: str, wanted: str, found: str
) -> Conflict:
    """The same for a delete, for which Kubernetes has another message with the kind."""
    fate = "deleted and then recreated" if what == "UID" else "modified"
    why = (
        f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})."
        f" The object might have been {fate}"
    )
    return conflict(GroupResource(kind.group, kind.kind), name, why=why)


def apply_conflict(causes: Sequence[StatusCause]) -> Conflict:
    """Fields are owned by other managers; each cause names the manager and the field."""
    shown = tuple(causes[:CAUSES_MAX])
    if len(shown) == 1:
        return Conflict(
            f"Apply failed with 1 conflict: {shown[0].message}: {shown[0].field}", causes=shown
        )
    lines: dict[str, list[str]] = {}
    for cause in shown:
        lines.setdefault(cause.message, []).append(f"- {cause.field}")
    texts = [
        "\n".join([f"{message.replace('conflict', 'conflicts', 1)}:", *fields])
        for message, fields in lines.items()
    ]
    return Conflict(f"Apply failed with {len(causes)} conflicts: " + "\n".join(texts), causes=shown)


def expired(message: str, *, continue_token: str = "") -> Expired:
    """Too old to serve; the token continues the list from the current state."""
    return Expired(message, continue_token=continue_token)


def resource_version_too_old(requested: int, oldest: int) -> Expired:
    """A watch started at a compacted resource version."""
    return Expired(f"too old resource version: {requested} ({oldest})")


def gone(message: str) -> Gone:
    """A resource is permanently gone."""
    return Gone(message)


def too_large(message: str) -> RequestEntityTooLarge:
    """A limit of a request is exceeded."""
    return RequestEntityTooLarge(message)


def body_too_large(limit_bytes: int) -> RequestEntityTooLarge:
    """The body exceeds the limit."""
    return RequestEntityTooLarge(f"Request entity too large: limit is {limit_bytes}")


def unsupported_media_type(media_types: Iterable[str]) -> UnsupportedMediaType:
    """The body has an unsupported media type; `media_types` are the supported ones."""
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(media_types)}"
    )


def invalid(kind: GroupKind, name: str, causes: Sequence[StatusCause]) -> Invalid:
    """Validation failed; all causes are reported at once."""
    shown = tuple(causes[:CAUSES_MAX])
    # Omit duplicate messages.
    texts = list(dict.fromkeys(map(str, shown)))
    if len(causes) > CAUSES_MAX:
        texts.append(f"and {len(causes) - CAUSES_MAX} more")
    message = f"{kind} {_quoted(name)} is invalid"
    return Invalid(
        f"{message}: {_joined(texts)}" if texts else message,
        details=Details(name=name, group=kind.group, kind=kind.kind),
        causes=shown,
    )


def invalid_patch(why: str) -> Invalid:
    """A well-formed patch does not match the object: a missing path, a failed test."""
    return Invalid(f"the server rejected our request due to an error in our request: {why}")


def unfit_patch(why: str) -> Invalid:
    """A patched object is not valid for its kind. The object may be long, so it is not included."""
    cause = StatusCause("FieldValueInvalid", f'Invalid value: "": {why}', "patch")
    return invalid(GroupKind("", ""), "", [cause])


def too_many_requests(
    message: str = "Too many requests, please try again later.",
    *,
    retry_after_seconds: int = RETRY_AFTER_SECONDS,
) -> TooManyRequests:
    """This client, or all clients together, exceed a limit."""
    return TooManyRequests(message, retry_after_seconds=retry_after_seconds)


def internal(message: str) -> InternalError:
    """An error of the server. Clients see the message, so it must not contain secrets."""
    return InternalError(f"Internal error occurred: {message}", causes=(StatusCause("", message),))


def server_timeout(
    resource: GroupResource, verb: str, *, retry_after_seconds: int = 2
) -> ServerTimeout:
    """Storage is currently unavailable."""
    return ServerTimeout(
        f"The {verb.upper()} operation against {resource} could not be completed at this time, "
        "please try again.",
        details=_about(resource, ""),
        retry_after_seconds=retry_after_seconds,
    )


def unavailable(message: str, *, retry_after_seconds: int = 0) -> ServiceUnavailable:
    """The server, or a backend, is not ready."""
    return ServiceUnavailable(message, retry_after_seconds=retry_after_seconds)


def timeout(message: str, *, retry_after_seconds: int = 0) -> Timeout:
    """The request timed out."""
    return Timeout(f"Timeout: {message}", retry_after_seconds=retry_after_seconds)


def resource_version_too_large(requested: int, current: int) -> Timeout:
    """Storage did not reach the requested resource version in time."""
    return Timeout(
        f"Timeout: Too large resource version: {requested}, current: {current}",
        causes=(StatusCause("ResourceVersionTooLarge", "Too large resource version"),),
        retry_after_seconds=1,
    )


def of_machinery_error(error: MachineryError) -> StatusError:
    """Convert an error of this package: caused by the client, or by the server."""
    if isinstance(error, InvalidName | UnknownKind):
        return bad_request(str(error))
    return internal(str(error))


def _about(resource: GroupResource, name: str) -> Details:
    return Details(name=name, group=resource.group, kind=resource.resource)


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _quoted(text: str) -> str:
    """Quote a string, with control characters and quotes escaped."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return json.dumps(text, ensure_ascii=False)
