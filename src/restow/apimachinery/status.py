"""What the API says when it says no: the same errors in the server and in the client.

    StatusError                     any other code
    ├── BadRequest             400      the request makes no sense
    ├── Unauthorized           401      no credential, or a bad one
    ├── Forbidden              403      rules, admission or state forbid it
    ├── NotFound               404      no such object, or no such resource
    ├── MethodNotAllowed       405      the resource exists, but not this verb
    ├── NotAcceptable          406      no answer in a form that the client takes
    ├── Conflict               409      the object is not in the state the client assumes
    ├── AlreadyExists          409      the name is taken
    ├── Gone                   410      what was there is no longer there
    │   └── Expired            410      that resource version is forgotten
    ├── RequestEntityTooLarge  413      more than one request may hold
    ├── UnsupportedMediaType   415      a body in a form that is not read here
    ├── Invalid                422      understood, but it breaks a rule: see the causes
    ├── TooManyRequests        429      later, please
    ├── InternalError          500      the server is at fault
    ├── ServerTimeout          500      the store could not do it now
    ├── ServiceUnavailable     503      not ready
    └── Timeout                504      the time of the request is over

Raise what the functions below make: clients read some of the messages, so each is worded once. The
root class and its form on the wire are in `status_error`, and are given on from here.

Not here: HTTP. The error filter writes these to a client, and the client reads them back. Errors
of single fields are made in `field_errors`.
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
"""The Retry-After of answers to requests that may be repeated soon."""
# More causes than this help nobody, and a body can be made to have a hundred thousand.
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
    """A parameter, a body, a selector or a token that cannot be understood."""
    return BadRequest(message)


def strict_decoding(problems: Iterable[str]) -> BadRequest:
    """Fields that `fieldValidation=Strict` does not let pass, such as `unknown field "a"`."""
    return BadRequest(f"strict decoding error: {', '.join(problems)}")


def unauthorized() -> Unauthorized:
    """Says no more than this: a guesser learns nothing."""
    return Unauthorized("Unauthorized")


def forbidden(
    why: str,
    *,
    resource: GroupResource | None = None,
    name: str = "",
    causes: Sequence[StatusCause] = (),
) -> Forbidden:
    """Not allowed; without a resource, it is about a path."""
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
    """What the authorizer said no to. A namespace of None is the scope of the cluster."""
    where = "at the cluster scope" if namespace is None else f'in the namespace "{namespace}"'
    part = f"{resource.resource}/{subresource}" if subresource else resource.resource
    return forbidden(
        f'User {_quoted(user)} cannot {verb} resource "{part}" in API group "{resource.group}" '
        f"{where}" + (f": {why}" if why else ""),
        resource=resource,
        name=name,
    )


def cannot_path(user: str, verb: str, *, path: str, why: str = "") -> Forbidden:
    """The same for a path that is no resource."""
    said = f"User {_quoted(user)} cannot {verb} path {_quoted(path)}"
    return forbidden(f"{said}: {why}" if why else said)


def namespace_terminating(resource: GroupResource, name: str, *, namespace: str) -> Forbidden:
    """Nothing new may be made in a namespace that is being emptied."""
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
    """No object of this name."""
    return NotFound(f"{resource} {_quoted(name)} not found", details=_about(resource, name))


def resource_not_found() -> NotFound:
    """No such resource in a group version that exists."""
    return NotFound("the server could not find the requested resource", details=Details())


def method_not_allowed(
    resource: GroupResource | None = None, verb: str | None = None
) -> MethodNotAllowed:
    """The path exists, but not with this method."""
    if resource is None:
        return MethodNotAllowed("the server does not allow this method on the requested resource")
    return MethodNotAllowed(
        f'{verb} is not supported on resources of kind "{resource}"',
        details=_about(resource, ""),
    )


def not_acceptable(media_types: Iterable[str]) -> NotAcceptable:
    """The client takes none of these, which are all that there are."""
    return NotAcceptable(f"only the following media types are accepted: {', '.join(media_types)}")


def already_exists(
    resource: GroupResource, name: str, *, is_being_deleted: bool = False
) -> AlreadyExists:
    """The name is taken, perhaps by an object that is on its way out."""
    prefix = "object is being deleted: " if is_being_deleted else ""
    message = f"{prefix}{resource} {_quoted(name)} already exists"
    return AlreadyExists(message, details=_about(resource, name))


def generated_name_taken(resource: GroupResource, name: str) -> AlreadyExists:
    """All the generated names were taken; the next try makes others."""
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
    """A resource version, or another precondition, that does not hold."""
    return Conflict(
        f"Operation cannot be fulfilled on {resource} {_quoted(name)}: {why}",
        details=_about(resource, name),
    )


def precondition_failed(
    resource: GroupResource, name: str, *, what: str, wanted: str, found: str
) -> Conflict:
    """A `uid` or `resourceVersion` of the client that is not the object's; `what` says which."""
    why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
    return conflict(resource, name, why=why)


def precondition_of_delete_failed(
    kind: GroupKind, name: str, *, what: str, wanted: str, found: str
) -> Conflict:
    """The same for a delete, where the reference names the kind and has other words."""
    fate = "deleted and then recreated" if what == "UID" else "modified"
    why = (
        f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})."
        f" The object might have been {fate}"
    )
    return conflict(GroupResource(kind.group, kind.kind), name, why=why)


def apply_conflict(causes: Sequence[StatusCause]) -> Conflict:
    """Fields that other managers own; each cause names the manager and the field."""
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
    """Too old to be answered; the token says how to go on with what is stored now."""
    return Expired(message, continue_token=continue_token)


def resource_version_too_old(asked: int, oldest: int) -> Expired:
    """A watch from a version that is forgotten."""
    return Expired(f"too old resource version: {asked} ({oldest})")


def gone(message: str) -> Gone:
    """What was there is gone for good."""
    return Gone(message)


def too_large(message: str) -> RequestEntityTooLarge:
    """More of something than a request may have."""
    return RequestEntityTooLarge(message)


def body_too_large(limit_bytes: int) -> RequestEntityTooLarge:
    """A body above the limit."""
    return RequestEntityTooLarge(f"Request entity too large: limit is {limit_bytes}")


def unsupported_media_type(media_types: Iterable[str]) -> UnsupportedMediaType:
    """A body in none of these forms, which are all that are read here."""
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(media_types)}"
    )


def invalid(kind: GroupKind, name: str, causes: Sequence[StatusCause]) -> Invalid:
    """An object that breaks rules: all of them are told at once."""
    shown = tuple(causes[:CAUSES_MAX])
    # The same sentence twice says nothing more.
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
    """A well-formed patch that does not fit the object: a missing path, a failed test."""
    return Invalid(f"the server rejected our request due to an error in our request: {why}")


def unfit_patch(why: str) -> Invalid:
    """A patch that leaves no object of its kind. The object is not shown: it may be long."""
    cause = StatusCause("FieldValueInvalid", f'Invalid value: "": {why}', "patch")
    return invalid(GroupKind("", ""), "", [cause])


def too_many_requests(
    message: str = "Too many requests, please try again later.",
    *,
    retry_after_seconds: int = RETRY_AFTER_SECONDS,
) -> TooManyRequests:
    """This client, or all of them together, ask too much at once."""
    return TooManyRequests(message, retry_after_seconds=retry_after_seconds)


def internal(message: str) -> InternalError:
    """The server's own fault. The message must not tell secrets: clients read it."""
    return InternalError(f"Internal error occurred: {message}", causes=(StatusCause("", message),))


def server_timeout(
    resource: GroupResource, verb: str, *, retry_after_seconds: int = 2
) -> ServerTimeout:
    """The store cannot be reached now."""
    return ServerTimeout(
        f"The {verb.upper()} operation against {resource} could not be completed at this time, "
        "please try again.",
        details=_about(resource, ""),
        retry_after_seconds=retry_after_seconds,
    )


def unavailable(message: str, *, retry_after_seconds: int = 0) -> ServiceUnavailable:
    """Not ready, or what stands behind is not."""
    return ServiceUnavailable(message, retry_after_seconds=retry_after_seconds)


def timeout(message: str, *, retry_after_seconds: int = 0) -> Timeout:
    """The time that the request had is over."""
    return Timeout(f"Timeout: {message}", retry_after_seconds=retry_after_seconds)


def resource_version_too_large(asked: int, current: int) -> Timeout:
    """A version that the store has not reached, after having waited for it."""
    return Timeout(
        f"Timeout: Too large resource version: {asked}, current: {current}",
        causes=(StatusCause("ResourceVersionTooLarge", "Too large resource version"),),
        retry_after_seconds=1,
    )


def of_machinery_error(error: MachineryError) -> StatusError:
    """What a client is told when the machinery raised: its own fault, or ours."""
    if isinstance(error, InvalidName | UnknownKind):
        return bad_request(str(error))
    return internal(str(error))


def _about(resource: GroupResource, name: str) -> Details:
    return Details(name=name, group=resource.group, kind=resource.resource)


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _quoted(text: str) -> str:
    """In double quotes, with what would break a line or the quotes escaped."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return json.dumps(text, ensure_ascii=False)
