"""JSON merge patch: members of the patch replace members of the object, null removes them.

The object that is patched stays as it is. What the patch does not touch is shared between the old
object and the new one, and an object in which nothing changes is given back itself.

Not here: patches that know the types of fields (`strategic_merge`).
"""

from __future__ import annotations

from typing import Any

from restow.apimachinery.codec import DEPTH_MAX, too_deep
from restow.apimachinery.status import bad_request


def apply_merge_patch(document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The document with the patch merged into it."""
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
            # Also where there was no object: null means nothing at any depth of a patch.
            new = _merged(old if type(old) is dict else {}, value, depth + 1)
            if new is old:
                continue
        elif type(value) is list:
            # The reference looks for nulls in a list unless it takes the place of an object.
            new = value if type(old) is dict else _without_nulls(value, depth + 1)
        else:
            new = value
            if type(old) is type(value) and old == value:
                continue
        result = target.copy() if result is target else result
        result[key] = new
    return result


def _without_nulls(items: list[Any], depth: int) -> list[Any]:
    """A list whose objects have no null members, at any depth; null items stay."""
    if depth > DEPTH_MAX:
        raise too_deep()
    return [
        _merged({}, item, depth + 1)
        if type(item) is dict
        else (_without_nulls(item, depth + 1) if type(item) is list else item)
        for item in items
    ]
