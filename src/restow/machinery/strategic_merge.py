"""Strategic merge patch: a merge patch that knows which lists are really maps.

A schema says of each field how it merges. Lists with a merge key are merged item by item; all
other lists are replaced, unless they are sets of plain values. In the patch, directives say more:

    $patch: replace | delete | merge    in a map, or in an item of a list
    $retainKeys: [names]                all other members of this map go
    $setElementOrder/LIST: [items]      the order of the merged list
    $deleteFromPrimitiveList/LIST: []   values to take out of a set

The object and the patch stay as they are; the new object shares with them what did not change.
Lists are in `strategic_merge_lists`.

Not here: the types of kinds. They come as a `MergeSchema`.
"""

from __future__ import annotations

from typing import Any, Final

from restow.machinery import strategic_merge_lists as lists
from restow.machinery.codec import too_deep
from restow.machinery.status import bad_request
from restow.machinery.strategic_merge_lists import (
    FieldRule,
    MergeSchema,
    bad_format,
    unknown_directive,
)

__all__ = ["FieldRule", "MergeSchema", "apply_strategic_merge_patch"]

_PATCH: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder"
_DELETE_FROM: Final = "$deleteFromPrimitiveList"


def apply_strategic_merge_patch(
    document: dict[str, Any], patch: Any, schema: MergeSchema | None
) -> dict[str, Any]:
    """The document with the patch merged into it; without a schema, no list is merged."""
    if type(patch) is not dict:
        raise bad_request("a strategic merge patch must be a JSON object")
    try:
        return merge_maps(document, patch, schema)
    except RecursionError:
        raise too_deep() from None


def merge_maps(
    original: dict[str, Any], patch: dict[str, Any], schema: MergeSchema | None
) -> dict[str, Any]:
    """Two objects merged. What is missing in the original is merged into nothing."""
    if _PATCH in patch:
        directive = patch[_PATCH]
        if directive == "delete":
            return {}
        patch = {key: value for key, value in patch.items() if key != _PATCH}
        if directive == "replace":
            original = {}
        elif directive != "merge":
            raise unknown_directive(directive)
    result = _retained(original, patch) if _RETAIN_KEYS in patch else original.copy()
    ordered = _ordered_lists(patch)
    for key, value in patch.items():
        if _is_directive(key):
            if key.startswith(_DELETE_FROM):
                _delete_from_list(result, key, value)
        elif value is None:
            result.pop(key, None)
        elif key not in ordered:
            rule = schema.field(key) if schema is not None else None
            result[key] = merge_values(result.get(key), value, rule)
    for key, order in ordered.items():
        rule = schema.field(key) if schema is not None else None
        _put_in_order(result, key, rule=rule, patch=patch, order=order)
    return result


def merge_values(old: Any, new: Any, rule: FieldRule | None) -> Any:
    """A member of a patch merged into what was there, which may be nothing or another type."""
    kind = type(new)
    if kind is dict:
        if rule is not None and "replace" in rule.strategies:
            return without_directives(new)
        child = rule.child if rule is not None and not rule.is_list else None
        return merge_maps(old if type(old) is dict else {}, new, child)
    if kind is list:
        if rule is None or "merge" not in rule.strategies:
            return without_directives(new)
        return lists.merge_lists(old if type(old) is list else [], new, rule, merge_maps)
    return new


def without_directives(value: Any) -> Any:
    """A value that is taken whole: null members mean nothing, and directives are for us."""
    if type(value) is dict:
        return {
            key: without_directives(member)
            for key, member in value.items()
            if member is not None and not _is_directive(key)
        }
    if type(value) is list:
        return [without_directives(item) for item in value]
    return value


def _is_directive(key: str) -> bool:
    if not key.startswith("$"):
        return False
    # A schema of a custom resource has members such as `$ref`, which are none.
    return key in (_PATCH, _RETAIN_KEYS) or key.startswith((_ORDER, _DELETE_FROM))


def _retained(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The members that `$retainKeys` keeps; the patch may set no others."""
    names = patch[_RETAIN_KEYS]
    if type(names) is not list or not all(type(name) is str for name in names):
        raise bad_format(_RETAIN_KEYS)
    kept = set(names)
    for key, value in patch.items():
        if value is not None and not _is_directive(key) and key not in kept:
            raise bad_format(_RETAIN_KEYS)
    return {key: value for key, value in original.items() if key in kept}


def _list_name(key: str, directive: str) -> str:
    """What stands behind the slash."""
    name = key.removeprefix(directive)
    if len(name) < 2 or name[0] != "/":
        raise bad_format(directive)
    return name[1:]


def _ordered_lists(patch: dict[str, Any]) -> dict[str, list[Any]]:
    found = {}
    for key, order in patch.items():
        if key.startswith(_ORDER):
            if type(order) is not list:
                raise bad_format(_ORDER)
            found[_list_name(key, _ORDER)] = order
    return found


def _delete_from_list(result: dict[str, Any], key: str, values: Any) -> None:
    name = _list_name(key, _DELETE_FROM)
    if type(values) is not list:
        raise bad_format(_DELETE_FROM)
    old = result.get(name)
    if type(old) is list:
        result[name] = lists.without_values(old, values)


def _put_in_order(
    result: dict[str, Any],
    key: str,
    *,
    rule: FieldRule | None,
    patch: dict[str, Any],
    order: list[Any],
) -> None:
    """Merges a list for which the patch gives the order."""
    old, new = result.get(key), patch.get(key)
    if new is not None and type(new) is not list:
        raise bad_format(_ORDER)
    if key in patch and new is None:
        result.pop(key, None)
        return
    merge_key = rule.merge_key if rule is not None else None
    if new is not None:
        lists.check_order(new, order, merge_key)
        result[key] = merge_values(old, new, rule)
    if type(merged := result.get(key)) is list:
        before = old if type(old) is list else []
        result[key] = lists.in_order(merged, order, before, merge_key)
