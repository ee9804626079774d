"""Removes fields from objects, or extracts them.

Not here: which fields (`server_side_apply`).
"""

from __future__ import annotations

from typing import Any

from restow.apimachinery.apply.schema import Elements, Members, SchemaNode
from restow.apimachinery.apply.sets import SELF, FieldSet


def remove(node: SchemaNode, value: Any, fields: FieldSet) -> Any:
    """Return a value without the fields of a set. Parts that become empty become null.

    An atomic part is removed as a whole if the set contains anything in it.
    """
    if not fields or not value:
        return value
    kind = type(value)
    if kind is dict and node.members is not None:
        if node.granular_map is None:
            return None
        return _without_members(node.granular_map, value, fields)
    if kind is list and node.elements is not None:
        if node.granular_list is None:
            return None
        return _without_items(node.granular_list, value, fields)
    return value


def _without_members(members: Members, value: dict[str, Any], fields: FieldSet) -> Any:
    out = {}
    for name, member in value.items():
        entry = members[name]
        below = fields.get(entry.wire)
        if below is None:
            out[name] = member
        elif below and SELF not in below:
            out[name] = member if entry.node is None else remove(entry.node, member, below)
    return out or None


def _without_items(elements: Elements, value: list[Any], fields: FieldSet) -> Any:
    out = []
    for key, item in zip(elements.elements_of(value), value, strict=True):
        below = fields.get(key)
        if below is None:
            out.append(item)
        elif below and SELF not in below:
            out.append(item if elements.item is None else remove(elements.item, item, below))
    return out or None


def extract(node: SchemaNode, value: Any, fields: FieldSet) -> Any:
    """Return only the fields of a set, as their owner would apply them; null if there are none.

    The keys of a list item are included with it. Atomic parts are included as a whole.
    """
    if not value:
        return value
    kind = type(value)
    out: Any = None
    if kind is dict and node.granular_map is not None:
        out = {}
        for name, member in value.items():
            entry = node.granular_map[name]
            below = fields.get(entry.wire)
            if below is not None:
                out[name] = _extracted(entry.walk, member, below)
    elif kind is list and node.granular_list is not None:
        elements = node.granular_list
        out = []
        for key, item in zip(elements.elements_of(value), value, strict=True):
            below = fields.get(key)
            if below is None:
                continue
            found = _extracted(elements.walk, item, below)
            if elements.keys and type(item) is dict and type(found) is dict:
                keys = {name: item[name] for name in elements.keys if name in item}
                found = {**keys, **found}
            out.append(found)
    else:
        return value
    return out or None


def _extracted(walk: SchemaNode | None, value: Any, below: FieldSet) -> Any:
    if walk is None:
        return value
    if not below:
        # The set contains the member but nothing below it: return it empty.
        return _emptied(walk, value)
    found = extract(walk, value, below)
    return _emptied(walk, value) if found is None and SELF in below else found


def _emptied(walk: SchemaNode, value: Any) -> Any:
    kind = type(value)
    if kind is dict and walk.granular_map is not None:
        return {}
    if kind is list and walk.granular_list is not None:
        return []
    return value
