"""A write as policies and webhooks are told of it: the fields of an AdmissionRequest, and objects.

What is empty is left out, as it is on the wire. A rule may match a write in another version than
the one that was asked for; then `kind` and `resource` name the version of the rule, and the objects
are shown in it. Most kinds are converted here, at once; for some somebody else has to be asked.

Not here: sending it to anybody, and expressions.
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
    """An AdmissionRequest without its uid and its objects."""
    asked = Hosted(attributes.resource, attributes.version)
    subresource = attributes.subresource
    found: dict[str, Any] = {
        "kind": _kind(hosted, subresource),
        "resource": _resource(hosted),
        "subResource": subresource,
        "requestKind": _kind(asked, subresource),
        "requestResource": _resource(asked),
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
    """The namespace of what is written; a namespace is in itself."""
    return attributes.name if is_namespace(attributes.resource) else attributes.namespace


def user_values(user: User) -> dict[str, Any]:
    """A UserInfo."""
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
    """The options of a write. Those of a patch are those of the update that it is here."""
    info = attributes.context.info
    if attributes.operation == "DELETE":
        said = read_options(attributes.context)
    else:
        names = ("fieldManager", "fieldValidation")
        said = {name: value for name in names if (value := info.parameter(name))}
    found = {**said, "kind": _OPTIONS[attributes.operation], "apiVersion": "meta.k8s.io/v1"}
    if attributes.dry_run:
        found["dryRun"] = ["All"]
    return found


def is_shown_at_once(hosted: Hosted, attributes: Attributes) -> bool:
    """Whether nobody else need be asked to show objects in a version."""
    return hosted.resource.remote is None or hosted.version == attributes.version


def shown(obj: Object | None, hosted: Hosted, attributes: Attributes) -> Object | None:
    """An object of a write in a version, its type with it, if nobody else must convert it.

    To look at: it may share parts with what it was made of. Raises a StatusError.
    """
    if obj is None or has_own_kind(attributes):
        return obj
    resource, version = hosted
    asked, wanted = (
        attributes.resource.api_version(attributes.version),
        resource.api_version(version),
    )
    typed = _typed(obj, attributes.resource.kind.kind, asked)
    if asked == wanted:
        return typed
    try:
        return converted_at_once(typed, asked, hosted)
    except MachineryError as error:
        raise of_machinery_error(error) from error


async def shown_later(obj: Object | None, hosted: Hosted, attributes: Attributes) -> Object | None:
    """The same, if somebody else converts it. Raises a StatusError."""
    if obj is None or is_shown_at_once(hosted, attributes) or has_own_kind(attributes):
        return shown(obj, hosted, attributes)
    asked = attributes.resource.api_version(attributes.version)
    typed = _typed(obj, attributes.resource.kind.kind, asked)
    [converted] = await convert(
        hosted.resource, [typed], hosted.resource.api_version(hosted.version)
    )
    return converted


def converted_at_once(typed: Object, before: str, target: Hosted) -> Object:
    """An object of one version in another that is converted here, with the defaults of that one.
    Raises a MachineryError."""
    resource, after = target.resource, target.resource.api_version(target.version)
    converted = resource.converter.convert(typed, before, after)
    # Defaults change an object, and what was converted shares parts with what is to be stored.
    fresh = orjson.loads(orjson.dumps(converted))
    return resource.shape.default(after, {**fresh, "kind": resource.kind.kind})


def _typed(obj: Object, kind: str, api_version: str) -> Object:
    if obj.get("kind") == kind and obj.get("apiVersion") == api_version:
        return obj
    return {**obj, "kind": kind, "apiVersion": api_version}
