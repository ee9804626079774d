"""Adapts field sets to the schema: sets of an older schema, and the structs above owned fields.

Not here: values.
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.apply.schema import ANY, SchemaNode
from restow.apimachinery.apply.sets import EMPTY, SELF, FieldSet

_FIELD: Final = "f"
_ITEM_KEYS: Final = ("k", "v")


def reconcile(node: SchemaNode, fields: FieldSet) -> FieldSet | None:
    """Adapt a set that was written under an older schema; None if nothing has to change.

    The owner of a path below one that has become atomic then owns the atomic value.
    """
    found = _reconcile_below(node, fields, is_root=True)
    return None if found is fields else found


def _reconcile_below(node: SchemaNode, below: FieldSet, *, is_root: bool = False) -> FieldSet:
    """Return the same object if nothing has to change."""
    if not below:
        return below
    if (members := node.members) is not None:
        if members.element is ANY and not members.has_declared:
            return below
        if node.granular_map is None and not is_root:
            return EMPTY
    elif node.scalar:
        return below
    elif node.elements is not None and not node.elements.is_associative and not is_root:
        return EMPTY
    changed: FieldSet | None = None
    for key, inner in below.items():
        if not inner:
            continue
        child = _child(node, key)
        if child is None:
            continue
        found = _reconcile_below(child, inner)
        if found is not inner:
            changed = dict(below) if changed is None else changed
            changed[key] = found
    return below if changed is None else changed


def with_named_fields(node: SchemaNode, fields: FieldSet) -> FieldSet:
    """Return a set with every struct field added that has members of the set below it.

    A field set names leaves. When something is removed, the structs around it are removed too, and
    they are restored if anything in them is owned.
    """
    out = {}
    for key, below in fields.items():
        if not below or key == SELF:
            out[key] = below
            continue
        child = _child(node, key)
        inner = below if child is None else with_named_fields(child, below)
        if SELF not in inner and _is_declared(node, key):
            inner = {SELF: EMPTY, **inner}
        out[key] = inner
    return out


def _child(node: SchemaNode, key: str) -> SchemaNode | None:
    kind = key[0]
    if kind == _FIELD:
        return None if node.members is None else node.members[key[2:]].node
    if kind in _ITEM_KEYS and node.elements is not None:
        return node.elements.item
    return None


def _is_declared(node: SchemaNode, key: str) -> bool:
    return key[0] == _FIELD and node.members is not None and node.members[key[2:]].is_declared
