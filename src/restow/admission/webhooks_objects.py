"""Conversion of objects to the version that a webhook gets, and back.

A rule may match a write in another version than the requested one; then objects are sent in the
version of the rule. A failed conversion is a 500, as in kube-apiserver.

Not here: the other fields of a review (`request_values`), and calls of webhooks.
"""

from __future__ import annotations

from restow.admission.matchers import Hosted
from restow.admission.request_values import converted_locally
from restow.admission.review import Attributes, has_own_kind
from restow.apimachinery import status
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.metadata_rules import check_types
from restow.apimachinery.status_error import StatusError
from restow.registry.custom.conversion import convert
from restow.registry.resource import Object


async def in_version(attributes: Attributes, hosted: Hosted, obj: Object | None) -> Object | None:
    """Return an object of a write in a version. Raises a 500."""
    requested = Hosted(attributes.resource, attributes.version)
    if obj is None or has_own_kind(attributes):
        return obj
    return await _converted(obj, requested, hosted)


async def back_in_version(attributes: Attributes, hosted: Hosted, obj: Object) -> Object:
    """Convert an object back to the version of the request. Raises a 500."""
    requested = Hosted(attributes.resource, attributes.version)
    return obj if has_own_kind(attributes) else await _converted(obj, hosted, requested)


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
        return converted_locally(typed, before, target)
    except (StatusError, MachineryError) as error:
        kind = resource.kind.kind
        raise status.internal(f"unable to convert to {after}, Kind={kind}: {error}") from error


def validated_patch(attributes: Attributes, hosted: Hosted, patched: Object) -> Object:
    """Validate and default an object that a webhook patched, like a request body."""
    if has_own_kind(attributes):
        return patched
    resource = hosted.resource
    version = resource.api_version(hosted.version)
    check_types(patched.get("metadata"))
    checked, _ = resource.shape.check(version, patched)
    metadata = checked.get("metadata")
    fresh = {**checked, "metadata": dict(metadata) if isinstance(metadata, dict) else {}}
    return resource.shape.default(version, fresh)
