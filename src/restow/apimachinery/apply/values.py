"""Computes and compares the field sets of objects, by the schema of their kind.

Every write calls `field_set_of` or `compare`, so both descend only where they must: parts that are
equal, or atomic, are skipped. Values are not validated, because stored objects were: a list item
without a valid key is identified by its index. Only `check` and `merge`, which read applied
configurations, reject values.

Values that are equal in Python are not distinguished: 1 equals true where any type is allowed.

Not here: schemas, ownership (`field_managers`, `server_side_apply`), and conversion between
versions.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from restow.apimachinery.apply.schema import Elements, Members, SchemaNode
from restow.apimachinery.apply.sets import EMPTY, SELF, FieldSet

_ABSENT: Final = object()
_NAMES: Final = {str}


class Comparison(NamedTuple):
    """The changes between two objects. A path is in at most one set, except of duplicate items."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    @property
    def is_same(self) -> bool:
        """Report whether nothing changed."""
        return not (self.added or self.modified or self.removed)


SAME: Final = Comparison(EMPTY, EMPTY, EMPTY)


def field_set_of(node: SchemaNode, value: Any) -> FieldSet:
    """Return the fields that a value sets: those that its applier owns.

    These are scalars, atomic parts, items of lists and members of maps. A struct, a map or a list
    is a member only if it is empty or null, or is itself an item or a map member.
    """
    out: FieldSet = {}
    if type(value) is dict and node.granular_map is not None:
        _add_members(node.granular_map, value, out)
    elif type(value) is list and node.granular_list is not None:
        _add_items(node.granular_list, value, out)
    return out


def _add_members(members: Members, value: dict[str, Any], out: FieldSet) -> None:
    if members.is_plain:
        for name in value:
            out["f:" + name] = EMPTY
        return
    for name, member in value.items():
        entry = members[name]
        wire, walk = entry.wire, entry.walk
        if walk is None:
            out[wire] = EMPTY
        elif not entry.is_declared:
            out[wire] = _item(walk, member)
        elif (kind := type(member)) is dict:
            if not member or walk.granular_map is None:
                out[wire] = EMPTY
                continue
            below: FieldSet = {}
            _add_members(walk.granular_map, member, below)
            if below:
                out[wire] = below
        elif kind is list and walk.granular_list is not None:
            below = {}
            _add_items(walk.granular_list, member, below)
            if below:
                out[wire] = below
        else:
            out[wire] = EMPTY


def _add_items(elements: Elements, value: list[Any], out: FieldSet) -> None:
    walk = elements.walk
    duplicates: set[str] | None = None
    for key, item in zip(elements.elements_of(value), value, strict=True):
        if key in out:
            duplicates = {key} if duplicates is None else {*duplicates, key}
        else:
            out[key] = EMPTY if walk is None else _item(walk, item)
    if duplicates is not None:
        # Duplicate items cannot be distinguished: they are owned together, without their fields.
        for key in duplicates:
            out[key] = EMPTY


def _item(walk: SchemaNode, value: Any) -> FieldSet:
    """Return the field set below a path that is itself a member."""
    below: FieldSet = {SELF: EMPTY}
    if type(value) is dict and walk.granular_map is not None:
        _add_members(walk.granular_map, value, below)
    elif type(value) is list and walk.granular_list is not None:
        _add_items(walk.granular_list, value, below)
    return below if len(below) > 1 else EMPTY


def compare(node: SchemaNode, old: Any, new: Any) -> Comparison:
    """Compare two objects of one kind; either may be empty."""
    if old is new or type(old) is not dict or type(new) is not dict or node.granular_map is None:
        return SAME
    added: FieldSet = {}
    modified: FieldSet = {}
    removed: FieldSet = {}
    # No equality check of the whole objects first: compared objects nearly always differ.
    _compare_members(node.granular_map, old, new, added, modified, removed)
    return Comparison(added, modified, removed)


# The sets under construction are separate arguments: packing them into one object is slower.
def _compare_members(  # noqa: PLR0917 - see above
    members: Members,
    old: dict[str, Any],
    new: dict[str, Any],
    added: FieldSet,
    modified: FieldSet,
    removed: FieldSet,
) -> None:
    if members.is_plain:
        _compare_plain(old, new, added, modified, removed)
        return
    if not old and (outline := members.outlines.get(names := tuple(new)) or members.outline(names)):
        # Most structs of a new object: everything is added.
        added.update(outline[0])
        added.pop(SELF, None)
        for name, wire, inner in outline[1]:
            if member := new[name]:
                added[wire] = _whole(inner, member)
        return
    common = len(new)
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if before is value or before == value:
            continue
        entry = members[name]
        wire, walk = entry.wire, entry.walk
        if before is _ABSENT:
            common -= 1
            added[wire] = EMPTY if walk is None or not value else _whole(walk, value)
        elif walk is None:
            modified[wire] = EMPTY
        else:
            _compare(walk, before, value, wire, added, modified, removed)
    if len(old) > common:
        for name, value in old.items():
            if name not in new:
                entry = members[name]
                walk = entry.walk
                removed[entry.wire] = EMPTY if walk is None else _whole(walk, value)


def _compare_plain(
    old: dict[str, Any],
    new: dict[str, Any],
    added: FieldSet,
    modified: FieldSet,
    removed: FieldSet,
) -> None:
    """Compare maps such as labels and data: no schema lookup, and nothing below the keys."""
    common = len(new)
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if before is _ABSENT:
            common -= 1
            added["f:" + name] = EMPTY
        elif before != value:
            modified["f:" + name] = EMPTY
    if len(old) > common:
        for name in old:
            if name not in new:
                removed["f:" + name] = EMPTY


def _compare_items(  # noqa: PLR0917 - see above
    elements: Elements,
    old: list[Any],
    new: list[Any],
    added: FieldSet,
    modified: FieldSet,
    removed: FieldSet,
) -> None:
    if (indexes := _changed_indexes(elements, old, new)) is not None:
        walk = elements.walk
        for index in indexes:
            key = elements.element_of(new[index])
            if walk is None:
                modified[key] = EMPTY
            else:
                _compare(walk, old[index], new[index], key, added, modified, removed)
        return
    before = dict(zip(elements.elements_of(old), old, strict=True))
    after = dict(zip(elements.elements_of(new), new, strict=True))
    if len(before) != len(old) or len(after) != len(new):
        _compare_duplicates(elements, old, new, Comparison(added, modified, removed))
        return
    walk = elements.walk
    for key, item in after.items():
        was = before.get(key, _ABSENT)
        if was is item or was == item:
            continue
        if was is _ABSENT:
            added[key] = EMPTY if walk is None else _whole(walk, item)
        elif walk is None:
            modified[key] = EMPTY
        else:
            _compare(walk, was, item, key, added, modified, removed)
    for key, item in before.items():
        if key not in after:
            removed[key] = EMPTY if walk is None else _whole(walk, item)


def _changed_indexes(elements: Elements, old: list[Any], new: list[Any]) -> list[int] | None:
    """Return the indexes of changed items, if items have unique names and none was added or moved.

    This is the usual case; it avoids computing the keys of unchanged items.
    """
    if (only := elements.only) is None or len(old) != len(new):
        return None
    try:
        names = [item[only] for item in new]
        if names != [item[only] for item in old] or set(map(type, names)) != _NAMES:
            return None
    except (KeyError, TypeError):
        return None
    if len(set(names)) != len(names):
        return None
    return [index for index, item in enumerate(new) if item != old[index]]


def _compare(  # noqa: PLR0917 - see above
    node: SchemaNode,
    old: Any,
    new: Any,
    wire: str,
    added: FieldSet,
    modified: FieldSet,
    removed: FieldSet,
) -> None:
    """Compare two differing values that exist on both sides; record the changes under a key."""
    a: FieldSet = {}
    m: FieldSet = {}
    r: FieldSet = {}
    members, elements = node.granular_map, node.granular_list
    if members is not None and type(old) is dict and type(new) is dict and (old or new):
        _compare_members(members, old, new, a, m, r)
    # Null counts as an empty map or list. If both sides are empty, the value itself was modified.
    elif members is not None and (old or new) and _are(dict, old, new):
        _compare_members(members, old or EMPTY, new or EMPTY, a, m, r)
    elif elements is not None and (old or new) and _are(list, old, new):
        _compare_items(elements, old or [], new or [], a, m, r)
    else:
        modified[wire] = EMPTY
        # If only one side is a map or list, its contents are added or removed.
        r = _below(node, old)
        a = _below(node, new)
    if a:
        added[wire] = a
    if m:
        modified[wire] = m
    if r:
        removed[wire] = r


def _are(kind: type, old: Any, new: Any) -> bool:
    """Report whether both values have a type; null counts if the other one has it."""
    if type(old) is kind:
        return type(new) is kind or new is None
    return old is None and type(new) is kind


def _compare_duplicates(
    elements: Elements, old: list[Any], new: list[Any], changes: Comparison
) -> None:
    """Compare lists with duplicate items: duplicates are owned together and never merged."""
    added, modified, removed = changes
    before, after = _grouped(elements, old), _grouped(elements, new)
    walk = elements.walk
    for key in {**before, **after}:
        were, are = before.get(key, []), after.get(key, [])
        if len(were) < 2 and len(are) < 2:
            _compare_items(elements, were, are, added, modified, removed)
        elif len(were) >= 2 and len(are) >= 2:
            if were != are:
                modified[key] = EMPTY
        elif len(were) >= 2:
            removed[key] = EMPTY
            if are:
                added[key] = EMPTY if walk is None else _whole(walk, are[0])
        else:
            added[key] = EMPTY
            if were:
                removed[key] = EMPTY if walk is None else _whole(walk, were[0])


def _grouped(elements: Elements, items: list[Any]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for key, item in zip(elements.elements_of(items), items, strict=True):
        out.setdefault(key, []).append(item)
    return out


def _whole(node: SchemaNode, value: Any) -> FieldSet:
    """Return all paths of an added or removed value, including its own path as a member."""
    kind = type(value)
    out: FieldSet = {SELF: EMPTY}
    if kind is dict and (members := node.granular_map) is not None:
        if members.is_plain:
            for name in value:
                out["f:" + name] = EMPTY
        elif outline := members.outlines.get(names := tuple(value)) or members.outline(names):
            wires, walks = outline
            if not walks:
                return wires  # shared by all values with these members; sets are never modified
            out = wires.copy()
            for name, wire, inner in walks:
                if member := value[name]:
                    out[wire] = _whole(inner, member)
        else:
            for name, member in value.items():
                entry = members[name]
                out[entry.wire] = (
                    EMPTY if entry.walk is None or not member else _whole(entry.walk, member)
                )
    elif kind is list and (elements := node.granular_list) is not None:
        walk = elements.walk
        for key, item in zip(elements.elements_of(value), value, strict=True):
            # Of duplicate items only the path itself is a member.
            out[key] = EMPTY if walk is None or key in out else _whole(walk, item)
    return out if len(out) > 1 else EMPTY


def _below(node: SchemaNode, value: Any) -> FieldSet:
    """Return the same paths without the path of the value itself."""
    return {key: below for key, below in _whole(node, value).items() if key != SELF}
