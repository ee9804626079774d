"""Removes fields that an applier no longer applies.

A field, or an item of a list or map, is removed if the manager's previous configuration had it, the
new one does not, and no other manager owns it. Fields below it that were never applied stay, and so
do its parents. The previous configuration may be in another version; then pruning happens there.

Pure. Not here: conflicts, and the entries afterwards (`server_side_apply`).
"""

from __future__ import annotations

from collections.abc import Sequence

from restow.apimachinery.apply import entries, sets
from restow.apimachinery.apply.entries import Entry
from restow.apimachinery.apply.field_managers import Convert, ManagedKind, Object
from restow.apimachinery.apply.field_removal import remove
from restow.apimachinery.apply.schema import SchemaNode
from restow.apimachinery.apply.schema_reconciliation import with_named_fields
from restow.apimachinery.apply.sets import FieldSet
from restow.apimachinery.apply.values import field_set_of


def prune(
    kind: ManagedKind,
    merged: Object,
    last: Entry,
    mine: Entry,
    *,
    others: Sequence[Entry],
    convert: Convert,
) -> Object:
    """Return the merged object without the fields that its applier no longer applies.

    `last` is the applier's previous entry, `mine` the new one; `others` are all entries, including
    it.
    """
    version, now = last["apiVersion"], mine["apiVersion"]
    was, is_applied = entries.fields_of(last), entries.fields_of(mine)
    if not was or (version == now and not sets.difference(was, is_applied)):
        return merged
    before = merged if version == now else convert(merged, version)
    if before is None:
        return merged
    node = kind.field_schema(version)
    pruned = remove(node, before, with_named_fields(node, was))
    managed: dict[str, FieldSet] = {version: entries.UNMANAGED}
    for entry in others:
        fields = managed.get(entry["apiVersion"], entries.UNMANAGED)
        managed[entry["apiVersion"]] = sets.union(fields, entries.fields_of(entry))
    # Start with the version of the previous configuration: other versions may own what this
    # restores.
    at = version
    whole = before
    for each in sorted(managed, key=lambda name: name != version):
        next_whole = whole if each == at else convert(whole, each)
        next_pruned = pruned if each == at else convert(pruned, each)
        if next_whole is None or next_pruned is None:
            continue
        whole, at = next_whole, each
        pruned = _added_back(kind.field_schema(each), whole, next_pruned, managed[each])
    if at != version:
        back = convert(pruned, version)
        if back is None:
            return merged
        pruned = back
    pruned = _limited_to_owned(node, before, pruned, was)
    if version == now:
        return pruned
    found = convert(pruned, now)
    return merged if found is None else found


def _added_back(node: SchemaNode, merged: Object, pruned: Object, managed: FieldSet) -> Object:
    """Restore the removed fields that are owned by any manager."""
    present = with_named_fields(node, field_set_of(node, merged))
    left = with_named_fields(node, field_set_of(node, pruned))
    kept = sets.union(left, with_named_fields(node, managed))
    found: Object = remove(node, merged, sets.difference(present, kept))
    return found


def _limited_to_owned(node: SchemaNode, merged: Object, pruned: Object, was: FieldSet) -> Object:
    """Limit the removal to fields that the applier owned itself."""
    present = with_named_fields(node, field_set_of(node, merged))
    left = with_named_fields(node, field_set_of(node, pruned))
    removed = sets.intersection(sets.difference(present, left), with_named_fields(node, was))
    found: Object = remove(node, merged, removed)
    return found
