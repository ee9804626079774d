"""Objects as webhooks are sent them, and how what is made of one comes back.

A rule may match a write in another version than the one that was asked for; then objects are sent
in the version of the rule. What cannot be converted is a 500, as it is in the reference.

Not here: the rest of what they are told (`request_values`), who is told, and what they answer.
"""

from __future__ import annotations

from restow.admission.matchers import Hosted
from restow.admission.request_values import converted_at_once
from restow.admission.review import Attributes, has_own_kind
from restow.apimachinery import status
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.metadata_rules import check_types
from restow.apimachinery.status_error import StatusError
from restow.registry.custom.conversion import convert
from restow.registry.resource import Object


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
    resource = target.resource
    before = source.resource.api_version(source.version)
    after = resource.api_version(target.version)
    typed = {**obj, "kind": source.resource.kind.kind, "apiVersion": before}
    if before == after:
        return typed
    try:
        if resource.remote is not None:
            [found] = await convert(resource, [typed], after)
            return found
        return converted_at_once(typed, before, target)
    except (StatusError, MachineryError) as error:
        kind = resource.kind.kind
        raise status.internal(f"unable to convert to {after}, Kind={kind}: {error}") from error


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
