"""What webhooks and policies are told of a write, and how what is made of an object comes back.

What is empty is left out of a request, as it is on the wire. A rule may match a write in another
version than the one that was asked for; then `kind` and `resource` name the version of the rule,
and the objects are shown in it.

Not here: who is told, and what they answer.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from restow.machinery import status
from restow.machinery.errors import MachineryError
from restow.machinery.metadata_rules import check_types
from restow.machinery.status_error import StatusError
from restow.resources.custom.conversion import convert
from restow.resources.definition import Object
from restow.serving.admission.matching import Hosted
from restow.serving.admission.review import Attributes, has_own_kind, kind_of
from restow.serving.context import User
from restow.serving.handlers.deleting import read_options

_META: Final = "meta.k8s.io/v1"
# Parameters of a write that its options show.
_SAID: Final = ("fieldManager", "fieldValidation")


def request_of(attributes: Attributes, hosted: Hosted) -> Object:
    """The request without its objects and its uid, as one sees it who knows that version."""
    asked = Hosted(attributes.resource, attributes.version)
    subresource, namespace = attributes.subresource, attributes.namespace
    if attributes.resource.plural == "namespaces" and not attributes.resource.group:
        namespace = attributes.name  # a namespace is in itself
    found: Object = {
        "kind": _kind(hosted, subresource),
        "resource": _resource(hosted),
        "subResource": subresource,
        "requestKind": _kind(asked, subresource),
        "requestResource": _resource(asked),
        "requestSubResource": subresource,
        "name": attributes.name,
        "namespace": namespace,
        "operation": attributes.operation,
        "userInfo": user_info(attributes.user),
    }
    found = {name: value for name, value in found.items() if value}
    found["dryRun"] = attributes.dry_run
    found["options"] = _options(attributes)
    return found


def user_info(user: User) -> Object:
    """Who asks."""
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


def _options(attributes: Attributes) -> Object:
    info = attributes.context.info
    found: Object = {"kind": "DeleteOptions", "apiVersion": _META}
    if attributes.operation == "DELETE":
        found = {**read_options(attributes.context), **found}
    else:
        # Those of a patch are told as those of an update, which it is to webhooks.
        found["kind"] = f"{attributes.operation.capitalize()}Options"
        found |= {name: value for name in _SAID if (value := info.parameter(name))}
    if attributes.dry_run:
        found["dryRun"] = ["All"]
    return found


async def in_version(attributes: Attributes, hosted: Hosted, obj: Object | None) -> Object | None:
    """An object of a write as one sees it who knows that version. Raises a 500."""
    asked = Hosted(attributes.resource, attributes.version)
    if obj is None or has_own_kind(attributes):
        return obj
    return await _converted(obj, asked, hosted)


async def back_in_version(attributes: Attributes, hosted: Hosted, obj: Object) -> Object:
    """The same, back in the version of the request. Raises a 500."""
    asked = Hosted(attributes.resource, attributes.version)
    return obj if has_own_kind(attributes) else await _converted(obj, hosted, asked)


async def _converted(obj: Object, source: Hosted, target: Hosted) -> Object:
    resource, kind = target.resource, target.resource.kind.kind
    before = source.resource.api_version(source.version)
    after = resource.api_version(target.version)
    typed = {**obj, "kind": source.resource.kind.kind, "apiVersion": before}
    if before == after:
        return typed
    try:
        if resource.remote is not None:
            [found] = await convert(resource, [typed], after)
            return found
        converted = resource.converter.convert(typed, before, after)
    except (StatusError, MachineryError) as error:
        raise status.internal(f"unable to convert to {after}, Kind={kind}: {error}") from error
    # Defaults change an object, and what was converted shares parts with what is to be stored.
    fresh = orjson.loads(orjson.dumps(converted))
    return resource.shape.default(after, {**fresh, "kind": kind})


def completed(attributes: Attributes, hosted: Hosted, patched: Object) -> Object:
    """What a webhook has made of an object, as that would be had it come from a client."""
    if has_own_kind(attributes):
        return patched
    resource = hosted.resource
    version = resource.api_version(hosted.version)
    check_types(patched.get("metadata"))
    checked, _ = resource.shape.check(version, patched)
    metadata = checked.get("metadata")
    fresh = {**checked, "metadata": dict(metadata) if isinstance(metadata, dict) else {}}
    return resource.shape.default(version, fresh)
