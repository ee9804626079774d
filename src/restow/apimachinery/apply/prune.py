"""What goes when somebody applies less than before.

A field, or an item of a list or map, is taken away if it was applied last time and is not now, and
if nobody else manages it. What stands below it and was never applied by anybody stays, as does what
holds it. The last configuration may have been in another version: then it is found there.

Pure. Not here: conflicts, and who has which entry afterwards (`server_side_apply`).
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
    """The merged object without what its applier has given up.

    `last` is the applier's entry before, `mine` the one now; `others` are all entries, with it.
    """
    version, now = last["apiVersion"], mine["apiVersion"]
    was, is_now = entries.fields_of(last), entries.fields_of(mine)
    if not was or (version == now and not sets.difference(was, is_now)):
        return merged
    before = merged if version == now else convert(merged, version)
    if before is None:
        return merged
    node = kind.field_schema(version)
    pruned = remove(node, before, with_named_fields(node, was))
    managed: dict[str, FieldSet] = {version: entries.NOBODYS}
    for entry in others:
        fields = managed.get(entry["apiVersion"], entries.NOBODYS)
        managed[entry["apiVersion"]] = sets.union(fields, entries.fields_of(entry))
    # The version of the last configuration first: others may need what is added back there.
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
    pruned = _not_dangling(node, before, pruned, was)
    if version == now:
        return pruned
    found = convert(pruned, now)
    return merged if found is None else found


def _added_back(node: SchemaNode, merged: Object, pruned: Object, managed: FieldSet) -> Object:
    """What was taken away and somebody manages is there again."""
    there = with_named_fields(node, field_set_of(node, merged))
    left = with_named_fields(node, field_set_of(node, pruned))
    kept = sets.union(left, with_named_fields(node, managed))
    found: Object = remove(node, merged, sets.difference(there, kept))
    return found


def _not_dangling(node: SchemaNode, merged: Object, pruned: Object, was: FieldSet) -> Object:
    """Only what the applier had itself is gone."""
    there = with_named_fields(node, field_set_of(node, merged))
    left = with_named_fields(node, field_set_of(node, pruned))
    gone = sets.intersection(sets.difference(there, left), with_named_fields(node, was))
    found: Object = remove(node, merged, gone)
    return found
