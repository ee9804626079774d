"""Lists in a strategic merge patch: merged by key or as sets, and ordered.

The order is that of Kubernetes: items in the patch have the order of the patch; the others keep
their order, each before the patch items that it preceded before.

Everything is linear in the length of the lists.

Not here: maps, and directives outside of lists (`strategic_merge`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from restow.apimachinery.json_values import scalar_identity
from restow.apimachinery.status import BadRequest, Invalid, bad_request, invalid_patch

PATCH: Final = "$patch"


class MergeSchema(Protocol):
    """The merge rules of an object's members."""

    def field(self, name: str) -> FieldRule | None:
        """Return the rule of a member; None if the schema does not have it."""
        ...


class FieldRule(Protocol):
    """The merge rule of one member."""

    @property
    def strategies(self) -> tuple[str, ...]:
        """Any of `merge`, `replace`, `retainKeys`."""
        ...

    @property
    def merge_key(self) -> str | None:
        """The member that identifies list items; None for a list of plain values."""
        ...

    @property
    def child(self) -> MergeSchema | None:
        """The schema of the object, or of the list's items."""
        ...

    @property
    def is_list(self) -> bool:
        """Whether the member is a list."""
        ...


Maps = Callable[[dict[str, Any], dict[str, Any], MergeSchema | None], dict[str, Any]]
Identity = tuple[bool, Any]


def merge_lists(
    old: list[Any], new: list[Any], rule: FieldRule, merge_maps: Maps
) -> tuple[list[Any], list[Any]]:
    """Merge two lists, by key if they contain objects, as sets if they contain plain values.

    Also returns the order of the server's items, for callers that order the merged list again.
    """
    if not old and not new:
        return old, old
    if check_items(old, new) is not dict:
        return in_order(_distinct([*old, *new]), new, old, None), old
    if not (key := rule.merge_key):
        raise invalid_patch("cannot merge lists without merge key")
    kept, patch, is_replaced = _without_special(old, new, key)
    if is_replaced:
        # The items of such a patch replace the list, unmerged.
        return in_order(patch, [], patch, key), old
    merged = _merged_by_key(kept, patch, rule, merge_maps)
    # New items take the positions of deleted ones, in the server's order.
    return in_order(merged, patch, kept, key), merged[: len(old)]


def without_values(items: list[Any], unwanted: list[Any]) -> list[Any]:
    """Return a list of plain values without the unwanted ones."""
    if not items and not unwanted:
        return items
    if check_items(items, unwanted) is dict:
        raise invalid_patch("values can be deleted only from a list of plain values")
    removed = {scalar_identity(value) for value in unwanted}
    return [item for item in items if scalar_identity(item) not in removed]


def in_order(
    merged: list[Any], order: list[Any], before: list[Any], merge_key: str | None
) -> list[Any]:
    """Order the merged list: items in `order` as specified, the others at their old positions."""
    wanted = _positions(order, merge_key)
    was = _positions(before, merge_key)
    named: list[tuple[Identity, Any]] = []
    others: list[tuple[Identity, Any]] = []
    unlisted: list[Any] = []
    for item in merged:
        identity = _identity(item, merge_key)
        if identity in wanted:
            named.append((identity, item))
        elif identity in was:
            others.append((identity, item))
        else:
            unlisted.append(item)
    named.sort(key=lambda pair: wanted[pair[0]])
    others.sort(key=lambda pair: was[pair[0]])
    result = []
    waiting = iter(others)
    other = next(waiting, None)
    for identity, item in named:
        position = was.get(identity)
        while other is not None and position is not None and was[other[0]] < position:
            result.append(other[1])
            other = next(waiting, None)
        result.append(item)
    while other is not None:
        result.append(other[1])
        other = next(waiting, None)
    # Items in neither list occur only if the order is empty. Kubernetes inserts each of them before
    # the previous one.
    return result + unlisted[::-1]


def check_order(patch: list[Any], order: list[Any], merge_key: str | None) -> None:
    """Raise if the order does not contain the items of the patch, in their order."""
    if not order or not patch:
        return
    waiting = iter(order)
    for item in patch:
        if merge_key is not None:
            if type(item) is not dict:
                raise wrong_type(item)
            if PATCH in item:
                continue
        identity = _identity(item, merge_key)
        if not any(identity == _identity(each, merge_key) for each in waiting):
            raise invalid_patch("The order in patch list doesn't match $setElementOrder list")


def check_items(*several: list[Any], may_be_empty: bool = True) -> type | None:
    """Return the type of all items. Raises for mixed types, and for lists of lists."""
    found: type | None = None
    for items in several:
        for item in items:
            kind = type(item)
            if kind is not found:
                if kind is list:
                    raise invalid_patch("lists of lists are not supported")
                if found is not None or item is None:
                    raise invalid_patch("list element types are not identical")
                found = kind
    if found is None and not may_be_empty:
        raise invalid_patch("no elements in any of the given slices")
    return found


def _without_special(
    old: list[Any], new: list[Any], merge_key: str
) -> tuple[list[Any], list[Any], bool]:
    """Return the remaining old items, the items to merge, and whether the patch replaces the
    list.
    """
    deleted: set[Identity] = set()
    patch = []
    is_replaced = False
    for item in new:
        if PATCH not in item:
            patch.append(item)
            continue
        match item[PATCH]:
            case "replace":
                # Such an item applies to the whole list, and is not itself an item.
                is_replaced = True
            case "delete":
                deleted.add(_identity(item, merge_key))
            case "merge":
                raise invalid_patch("merging lists cannot yet be specified in the patch")
            case other:
                raise unknown_directive(other, item)
    if deleted:
        old = [item for item in old if _identity(item, merge_key) not in deleted]
    return old, patch, is_replaced


def _merged_by_key(
    old: list[Any], patch: list[Any], rule: FieldRule, merge_maps: Maps
) -> list[Any]:
    key, child = rule.merge_key, rule.child
    result = list(old)
    positions = _positions(result, key)
    for item in patch:
        identity = _identity(item, key)
        position = positions.get(identity)
        if position is None:
            positions[identity] = len(result)
            result.append(item)
        else:
            result[position] = merge_maps(result[position], item, child)
    return result


def _positions(items: list[Any], merge_key: str | None) -> dict[Identity, int]:
    """Return the first index of each item."""
    found: dict[Identity, int] = {}
    for index, item in enumerate(items):
        found.setdefault(_identity(item, merge_key), index)
    return found


def _identity(item: Any, merge_key: str | None) -> Identity:
    """Return the identity of a list item; raises if it has none."""
    if merge_key is not None:
        if type(item) is not dict:
            raise wrong_type(item)
        if merge_key not in item:
            raise invalid_patch(
                f"map: {str(item)[:256]} does not contain declared merge key: {merge_key}"
            )
        item = item[merge_key]
    identity = scalar_identity(item)
    if identity is None:
        raise invalid_patch("objects and lists cannot identify the items of a list")
    return identity


def _distinct(items: list[Any]) -> list[Any]:
    return list({scalar_identity(item): item for item in reversed(items)}.values())[::-1]


def bad_format(directive: str) -> BadRequest:
    """Return the error for a malformed directive."""
    return bad_request(f"invalid patch format of {directive}")


def wrong_type(value: Any) -> Invalid:
    """Return the error for a value of the patch or object that has the wrong type."""
    return invalid_patch(f"expected a list or an object, but received {str(value)[:64]}")


def unknown_directive(directive: Any, where: dict[str, Any]) -> Invalid:
    """Return the error for an unknown value of `$patch`."""
    return invalid_patch(f"unknown patch type: {str(directive)[:64]} in map: {str(where)[:256]}")
