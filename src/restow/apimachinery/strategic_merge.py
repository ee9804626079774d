"""Strategic merge patch: a merge patch that merges keyed lists.

A schema defines how each field merges. Lists with a merge key are merged item by item; all other
lists are replaced, unless they are sets of plain values. Directives in the patch refine this:

    $patch: replace | delete            in a map, or in an item of a list
    $retainKeys: [names]                remove all other members of this map
    $setElementOrder/LIST: [items]      the order of the merged list
    $deleteFromPrimitiveList/LIST: []   values to remove from a set

Directives apply in values that are merged. A value that is taken as a whole, because there was no
old one or one of another type, loses its nulls and any part with `$patch`. A value that replaces
another one because of the schema or `$patch: replace` is kept unchanged, including nulls, which are
then interpreted by the types of the kind. Kubernetes does the same, and clients see the difference.

The object and the patch are not modified; the new object shares unchanged parts with them. Lists
are in `strategic_merge_lists`.

Not here: the types of kinds, which are passed as a `MergeSchema`.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import strategic_merge_lists as lists
from restow.apimachinery.codec import too_deep
from restow.apimachinery.status import bad_request, invalid_patch
from restow.apimachinery.strategic_merge_lists import (
    PATCH,
    MergeSchema,
    bad_format,
    unknown_directive,
    wrong_type,
)

_RETAIN_KEYS: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder"
_DELETE_FROM: Final = "$deleteFromPrimitiveList"
_REMOVED: Final = object()


def apply_strategic_merge_patch(
    document: dict[str, Any], patch: Any, schema: MergeSchema | None
) -> dict[str, Any]:
    """Return the document with the patch merged into it; without a schema, no list is merged."""
    if type(patch) is not dict:
        raise bad_request("a strategic merge patch must be a JSON object")
    try:
        return merge_maps(document, patch, schema)
    except RecursionError:
        raise too_deep() from None


def merge_maps(
    original: dict[str, Any], patch: dict[str, Any], schema: MergeSchema | None
) -> dict[str, Any]:
    """Return two objects merged."""
    if PATCH in patch:
        return _by_directive(patch)
    result = _retained(original, patch) if _RETAIN_KEYS in patch else original.copy()
    deletions: list[tuple[str, Any]] = []
    ordered = _merge_ordered(result, patch, schema)
    for key, value in patch.items():
        if key.startswith("$") and _is_directive(key):
            if key.startswith(_DELETE_FROM):
                deletions.append((_list_name(key, _DELETE_FROM, "primitive list"), value))
        elif value is None:
            result.pop(key, None)
        elif key not in ordered:
            merged = _merge_member(result.get(key), value, key, schema)
            if merged is _REMOVED:
                result.pop(key, None)
            else:
                result[key] = merged
    # After all lists are merged, so that the order of members in the patch is irrelevant.
    for name, values in deletions:
        _delete_from_list(result, name, values)
    return result


def taken(value: Any, *, keeps_nulls: bool = False) -> Any:
    """Return a patch value that has nothing to merge with; `_REMOVED` if it contains `$patch`."""
    kind = type(value)
    if kind is dict:
        if PATCH in value and (keeps_nulls or value[PATCH] is not None):
            return _REMOVED
        result = {}
        for key, member in value.items():
            if member is None and not keeps_nulls:
                continue
            new = taken(member, keeps_nulls=keeps_nulls)
            if new is not _REMOVED:
                result[key] = new
        return result
    if kind is list:
        items = [taken(item, keeps_nulls=keeps_nulls) for item in value]
        return [item for item in items if item is not _REMOVED]
    return value


def _merge_member(old: Any, new: Any, key: str, schema: MergeSchema | None) -> Any:
    kind = type(new)
    if type(old) is not kind:
        return taken(new)
    if kind is dict:
        rule = schema.field(key) if schema is not None else None
        if rule is not None and "replace" in rule.strategies:
            return new
        return merge_maps(old, new, rule.child if rule is not None and not rule.is_list else None)
    if kind is list:
        rule = schema.field(key) if schema is not None else None
        if rule is None or "merge" not in rule.strategies:
            return new
        return lists.merge_lists(old, new, rule, merge_maps)[0]
    return new


def _by_directive(patch: dict[str, Any]) -> dict[str, Any]:
    """Return a map that is replaced or deleted by a directive."""
    match patch[PATCH]:
        case "delete":
            return {}
        case "replace":
            return {key: value for key, value in patch.items() if key != PATCH}
        case other:
            raise unknown_directive(other, patch)


def _is_directive(key: str) -> bool:
    # The schema of a custom resource has members such as `$ref`, which are not directives.
    return key == _RETAIN_KEYS or key.startswith((_ORDER, _DELETE_FROM))


def _retained(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the members that `$retainKeys` keeps; the patch may set no others."""
    names = patch[_RETAIN_KEYS]
    if type(names) is not list or any(type(name) in (dict, list) for name in names):
        raise bad_format("retainKeys")
    kept = {name for name in names if type(name) is str}
    for key, value in patch.items():
        if value is None or key == _RETAIN_KEYS or key.startswith((_ORDER, _DELETE_FROM)):
            continue
        if key not in kept:
            raise bad_format("retainKeys")
    return {key: value for key, value in original.items() if key in kept}


def _list_name(key: str, directive: str, shown: str) -> str:
    """Return the list name after the slash."""
    name = key.removeprefix(directive)
    if name[:1] != "/":
        raise bad_format(shown)
    return name[1:]


def _delete_from_list(result: dict[str, Any], name: str, values: Any) -> None:
    if values is None:
        result.pop(name, None)
    elif type(old := result.get(name)) is list and type(values) is list:
        result[name] = lists.without_values(old, values)


def _merge_ordered(
    result: dict[str, Any], patch: dict[str, Any], schema: MergeSchema | None
) -> set[str]:
    """Merge the lists for which the patch specifies an order; return their names."""
    done = set()
    for directive, order in patch.items():
        if directive.startswith(_ORDER):
            if type(order) is not list:
                raise wrong_type(order)
            name = _list_name(directive, _ORDER, "setElementOrder list")
            _put_in_order(result, name, patch=patch, order=order, schema=schema)
            done.add(name)
    return done


def _put_in_order(
    result: dict[str, Any],
    name: str,
    *,
    patch: dict[str, Any],
    order: list[Any],
    schema: MergeSchema | None,
) -> None:
    is_old, is_new = name in result, name in patch
    old, new = result.get(name), patch.get(name)
    if is_old and type(old) is not list:
        raise wrong_type(old)
    if is_new and type(new) is not list:
        raise wrong_type(new)
    rule = schema.field(name) if schema is not None else None
    if schema is not None and (rule is None or not rule.is_list):
        raise invalid_patch(f"unable to find a list for the json field {name[:64]!r}")
    merge_key = rule.merge_key if rule is not None else None
    lists.check_order(new or [], order, merge_key)
    if not is_old and not is_new:
        return
    before = old or []
    if not is_new:
        merged = before
    elif not is_old:
        merged = taken(new, keeps_nulls=True)
    elif rule is not None and "merge" in rule.strategies:
        merged, before = lists.merge_lists(before, new or [], rule, merge_maps)
    else:
        merged = new or []
    lists.check_items(old or [], new or [], may_be_empty=False)
    result[name] = lists.in_order(merged, order, before, merge_key)
