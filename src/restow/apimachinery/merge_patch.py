"""JSON merge patch: members of the patch replace members of the object, null removes them.

The patched object is not modified. Parts that the patch does not change are shared with the result,
and an object without changes is returned itself.

Not here: patches that use the types of fields (`strategic_merge`).
"""

from __future__ import annotations

from typing import Any

from restow.apimachinery.codec import DEPTH_MAX, too_deep
from restow.apimachinery.status import bad_request


def apply_merge_patch(document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return the document with the patch merged into it."""
    if type(patch) is not dict:
        raise bad_request("a merge patch must be a JSON object")
    return _merged(document, patch, 1)


def _merged(target: dict[str, Any], patch: dict[str, Any], depth: int) -> dict[str, Any]:
    if depth > DEPTH_MAX:
        raise too_deep()
    result = target
    for key, value in patch.items():
        if value is None:
            if key in result:
                result = target.copy() if result is target else result
                del result[key]
            continue
        old = target.get(key)
        new: Any
        if type(value) is dict:
            # Also without an old object: a null in a patch is never stored, at any depth.
            new = _merged(old if type(old) is dict else {}, value, depth + 1)
            if new is old:
                continue
        elif type(value) is list:
            # Kubernetes removes nulls in a list, unless the list replaces an object.
            new = value if type(old) is dict else _without_nulls(value, depth + 1)
        else:
            new = value
            if type(old) is type(value) and old == value:
                continue
        result = target.copy() if result is target else result
        result[key] = new
    return result


def _without_nulls(items: list[Any], depth: int) -> list[Any]:
    """Return a list whose objects have no null members, at any depth; null items stay."""
    if depth > DEPTH_MAX:
        raise too_deep()
    return [
        _merged({}, item, depth + 1)
        if type(item) is dict
        else (_without_nulls(item, depth + 1) if type(item) is list else item)
        for item in items
    ]
