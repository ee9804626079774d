"""Lists in a strategic merge patch: merged by key or as sets, and put in order.

The order is the reference's: items that the patch names stand in the order of the patch; the
others keep their order, each before those items of the patch that it stood before already.

All of it is linear in the length of the lists, whatever is in them.

Not here: maps, and directives outside of lists (`strategic_merge`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from restow.machinery.json_values import scalar_identity
from restow.machinery.status import BadRequest, Invalid, bad_request, invalid_patch


class MergeSchema(Protocol):
    """How the members of one kind of object merge."""

    def field(self, name: str) -> FieldRule | None:
        """The rule of a member, or None if the schema does not know it."""
        ...


class FieldRule(Protocol):
    """How one member merges."""

    @property
    def strategies(self) -> tuple[str, ...]:
        """Any of `merge`, `replace`, `retainKeys`."""
        ...

    @property
    def merge_key(self) -> str | None:
        """The member that tells the items of a list apart; None for a list of plain values."""
        ...

    @property
    def child(self) -> MergeSchema | None:
        """The schema of the object, or of the items of the list."""
        ...

    @property
    def is_list(self) -> bool:
        """Whether the member is a list."""
        ...


Maps = Callable[[dict[str, Any], dict[str, Any], MergeSchema | None], dict[str, Any]]
Identity = tuple[bool, Any] | None


def merge_lists(old: list[Any], new: list[Any], rule: FieldRule, merge_maps: Maps) -> list[Any]:
    """Two lists merged: by key if they hold objects, as sets if they hold plain values."""
    _check_items(old, new)
    first = new[0] if new else (old[0] if old else None)
    if type(first) is not dict:
        merged = _distinct([*old, *new])
        return in_order(merged, new, old, None)
    if not rule.merge_key:
        raise invalid_patch("a list of objects without a merge key cannot be merged")
    kept, patch, is_replaced = _without_special(old, new, rule.merge_key)
    merged = _merged_by_key(kept, patch, rule, merge_maps)
    return merged if is_replaced else in_order(merged, patch, kept, rule.merge_key)


def without_values(items: list[Any], unwanted: list[Any]) -> list[Any]:
    """A list of plain values without these."""
    _check_items(unwanted)
    gone = {scalar_identity(value) for value in unwanted}
    return [item for item in items if (found := scalar_identity(item)) is None or found not in gone]


def in_order(
    merged: list[Any], order: list[Any], before: list[Any], merge_key: str | None
) -> list[Any]:
    """The merged list: what the order names as it says, the others where they were."""
    wanted = _positions(order, merge_key)
    was = _positions(before, merge_key)
    named: list[tuple[Identity, Any]] = []
    others: list[tuple[Identity, Any]] = []
    for item in merged:
        identity = _identity(item, merge_key)
        (named if identity in wanted else others).append((identity, item))
    # The others are in their old order already: merging only adds what the patch names.
    named.sort(key=lambda pair: wanted[pair[0]])
    result = []
    waiting = iter(others)
    other = next(waiting, None)
    for identity, item in named:
        place = was.get(identity)
        while other is not None and place is not None and was.get(other[0], place) < place:
            result.append(other[1])
            other = next(waiting, None)
        result.append(item)
    while other is not None:
        result.append(other[1])
        other = next(waiting, None)
    return result


def check_order(patch: list[Any], order: list[Any], merge_key: str | None) -> None:
    """Refuses an order that does not name the items of the patch, in their order."""
    waiting = iter([_identity(item, merge_key) for item in order])
    for item in patch:
        if type(item) is dict and item.get("$patch") in ("delete", "replace"):
            continue
        identity = _identity(item, merge_key)
        if not any(identity == each for each in waiting):
            raise bad_request(
                "the order of the list in the patch doesn't match its $setElementOrder list"
            )


def _without_special(
    old: list[Any], new: list[Any], merge_key: str
) -> tuple[list[Any], list[Any], bool]:
    """The old items that stay, the items to merge, and whether the patch replaces the list."""
    deleted: set[Identity] = set()
    patch = []
    is_replaced = False
    for item in new:
        directive = item.get("$patch")
        if directive is None or directive == "merge":
            patch.append(item)
        elif directive == "replace":
            # Such an item stands for the whole list, and is none of its items.
            is_replaced = True
        elif directive == "delete":
            deleted.add(_needed_identity(item, merge_key))
        else:
            raise unknown_directive(directive)
    if is_replaced:
        return [], patch, True
    if not deleted:
        return old, patch, False
    return [item for item in old if _identity(item, merge_key) not in deleted], patch, False


def _merged_by_key(
    old: list[Any], patch: list[Any], rule: FieldRule, merge_maps: Maps
) -> list[Any]:
    key, child = rule.merge_key, rule.child
    assert key is not None
    result = list(old)
    positions = _positions(result, key)
    for item in patch:
        identity = _needed_identity(item, key)
        position = positions.get(identity)
        if position is None:
            positions[identity] = len(result)
            result.append(merge_maps({}, item, child))
        else:
            result[position] = merge_maps(result[position], item, child)
    return result


def _positions(items: list[Any], merge_key: str | None) -> dict[Identity, int]:
    """Where each item is first."""
    found: dict[Identity, int] = {}
    for index, item in enumerate(items):
        identity = _identity(item, merge_key)
        if identity is not None and identity not in found:
            found[identity] = index
    return found


def _identity(item: Any, merge_key: str | None) -> Identity:
    """What tells an item apart from others; None if nothing does."""
    if merge_key is None or type(item) is not dict:
        return scalar_identity(item)
    return scalar_identity(item[merge_key]) if merge_key in item else None


def _needed_identity(item: dict[str, Any], merge_key: str) -> Identity:
    identity = _identity(item, merge_key)
    if identity is None or item[merge_key] is None:
        raise invalid_patch(
            f"map: {str(item)[:256]} does not contain declared merge key: {merge_key}"
        )
    return identity


def _check_items(*several: list[Any]) -> None:
    """Refuses lists of lists, and objects among plain values: they cannot be merged."""
    has_maps = has_others = False
    for items in several:
        for item in items:
            if type(item) is list:
                raise invalid_patch("lists of lists are not supported")
            if type(item) is dict:
                has_maps = True
            else:
                has_others = True
    if has_maps and has_others:
        raise invalid_patch("a list of objects and plain values cannot be merged")


def _distinct(items: list[Any]) -> list[Any]:
    return list({scalar_identity(item): item for item in reversed(items)}.values())[::-1]


def bad_format(directive: str) -> BadRequest:
    """A directive that cannot be understood."""
    return bad_request(f"invalid patch format of {directive} directive")


def unknown_directive(directive: Any) -> Invalid:
    """A `$patch` that says none of the words we know."""
    return invalid_patch(f"unknown patch type found: {str(directive)[:64]}")
