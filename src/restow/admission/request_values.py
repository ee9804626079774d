"""The fields of an AdmissionRequest for policies and webhooks, and objects in a target version.

Empty fields are omitted. A rule may match a write in another version than the requested one; then
`kind` and `resource` name the version of the rule, and the objects are converted to it. Most kinds
are converted in this process; some need a conversion webhook.

Not here: sending the request, and expressions.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from restow.admission.matchers import Hosted, is_namespace
from restow.admission.review import Attributes, has_own_kind, kind_of
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status import of_machinery_error
from restow.registry.custom.conversion import convert
from restow.registry.resource import Object
from restow.request.context import User
from restow.request.delete_options import read_options

_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


def request_values(attributes: Attributes, hosted: Hosted) -> dict[str, Any]:
    """Return an AdmissionRequest without its uid and objects."""
    requested = Hosted(attributes.resource, attributes.version)
    subresource = attributes.subresource
    found: dict[str, Any] = {
        "kind": _kind(hosted, subresource),
        "resource": _resource(hosted),
        "subResource": subresource,
        "requestKind": _kind(requested, subresource),
        "requestResource": _resource(requested),
        "requestSubResource": subresource,
        "name": attributes.name,
        "namespace": namespace_of(attributes),
        "operation": attributes.operation,
        "userInfo": user_values(attributes.user),
    }
    found = {name: value for name, value in found.items() if value}
    found["dryRun"] = attributes.dry_run
    found["options"] = _options(attributes)
    return found


def namespace_of(attributes: Attributes) -> str:
    """Return the namespace of the object; a Namespace is in itself."""
    return attributes.name if is_namespace(attributes.resource) else attributes.namespace


def user_values(user: User) -> dict[str, Any]:
    """Return a UserInfo."""
    found: dict[str, Any] = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra},
    }
    return {name: value for name, value in found.items() if value}


def _kind(hosted: Hosted, subresource: str) -> dict[str, str]:
    return kind_of(hosted.resource, hosted.version, subresource)


def _resource(hosted: Hosted) -> dict[str, str]:
    resource, version = hosted
    return {"group": resource.group, "version": version, "resource": resource.plural}


def _options(attributes: Attributes) -> dict[str, Any]:
    """Return the options of a write. A patch has UpdateOptions, because it is an update here."""
    info = attributes.context.info
    if attributes.operation == "DELETE":
        options = read_options(attributes.context)
    else:
        names = ("fieldManager", "fieldValidation")
        options = {name: value for name in names if (value := info.parameter(name))}
    found = {**options, "kind": _OPTIONS[attributes.operation], "apiVersion": "meta.k8s.io/v1"}
    if attributes.dry_run:
        found["dryRun"] = ["All"]
    return found


def is_converted_locally(hosted: Hosted, attributes: Attributes) -> bool:
    """Return whether conversion to a version needs no conversion webhook."""
    return hosted.resource.remote is None or hosted.version == attributes.version


def in_target_version(obj: Object | None, hosted: Hosted, attributes: Attributes) -> Object | None:
    """Return the object of a write, with its type, converted to the version of `hosted`.

    Call it only if `is_converted_locally`. The result is read-only: it may share parts with the
    given object. Raises a StatusError.
    """
    if obj is None or has_own_kind(attributes):
        return obj
    resource, version = hosted
    requested, wanted = (
        attributes.resource.api_version(attributes.version),
        resource.api_version(version),
    )
    typed = _typed(obj, attributes.resource.kind.kind, requested)
    if requested == wanted:
        return typed
    try:
        return converted_locally(typed, requested, hosted)
    except MachineryError as error:
        raise of_machinery_error(error) from error


async def in_target_version_async(
    obj: Object | None, hosted: Hosted, attributes: Attributes
) -> Object | None:
    """Return an object in a version, using a conversion webhook if needed. Raises a StatusError."""
    if obj is None or is_converted_locally(hosted, attributes) or has_own_kind(attributes):
        return in_target_version(obj, hosted, attributes)
    requested = attributes.resource.api_version(attributes.version)
    typed = _typed(obj, attributes.resource.kind.kind, requested)
    [converted] = await convert(
        hosted.resource, [typed], hosted.resource.api_version(hosted.version)
    )
    return converted


def converted_locally(typed: Object, before: str, target: Hosted) -> Object:
    """Convert an object in this process and apply the defaults of the target version. Raises a
    MachineryError."""
    resource, after = target.resource, target.resource.api_version(target.version)
    converted = resource.converter.convert(typed, before, after)
    # Copy, because defaulting changes the object and it shares parts with the one to store.
    fresh = orjson.loads(orjson.dumps(converted))
    return resource.shape.default(after, {**fresh, "kind": resource.kind.kind})


def _typed(obj: Object, kind: str, api_version: str) -> Object:
    if obj.get("kind") == kind and obj.get("apiVersion") == api_version:
        return obj
    return {**obj, "kind": kind, "apiVersion": api_version}
