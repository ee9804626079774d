"""The optimized paths of field tracking give the same results as the general ones."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.apply import sets
from restow.apimachinery.apply.entries import Manager, identity, stripped
from restow.apimachinery.apply.field_managers import track_create, track_update
from restow.apimachinery.apply.schema import Members, Outline, SchemaNode
from restow.apimachinery.apply.sets import FieldSet
from restow.apimachinery.apply.values import compare
from tests.unit.apimachinery.apply.kinds import Object, convert_single_version
from tests.unit.apimachinery.apply.test_values import ITEM_VALUES, ROOT, SPECS

Paths = frozenset[tuple[str, ...]]
Managed = dict[tuple[str, ...], tuple[Paths, str]]
"""By identity of the entry: its fields, and its time."""

WRITERS = (Manager("one"), Manager("two"), Manager("two", "status"))
VERSION = "v1"
NAMED = st.builds(lambda items: {"items": items}, st.lists(ITEM_VALUES, max_size=3))
"""Items of which several may have the same name."""


class _Kind:
    def __init__(self, node: SchemaNode) -> None:
        self.node = node

    def field_schema(self, version: str) -> SchemaNode:
        return self.node

    def blank(self, version: str) -> Object:
        return {}


class _LongMembers(Members):
    __slots__ = ()

    def outline(self, names: tuple[str, ...]) -> Outline | None:
        return None


def _without_shortcuts(node: SchemaNode, done: dict[int, SchemaNode] | None = None) -> SchemaNode:
    """Return the same schema without anything that enables an optimized path."""
    done = {} if done is None else done
    if id(node) in done:
        return done[id(node)]
    found = done[id(node)] = copy.copy(node)
    if node.granular_map is not None:
        members = found.granular_map = copy.copy(node.granular_map)
        members.__class__ = _LongMembers
        members.is_plain, members.outlines = False, {}
        for name in ("spec", "name", "flag", "texts", "items", "set", "any", "structs", "ports"):
            entry = members[name] = copy.copy(members[name])
            entry.walk = None if entry.walk is None else _without_shortcuts(entry.walk, done)
        if members.element is not None:
            members.element = _without_shortcuts(members.element, done)
    if node.granular_list is not None:
        elements = found.granular_list = copy.copy(node.granular_list)
        elements.only = None
        elements.walk = None if elements.walk is None else _without_shortcuts(elements.walk, done)
    return found


LONG_WAY = _without_shortcuts(ROOT)


def _object(spec: Any) -> Object:
    return {"apiVersion": VERSION, "metadata": {"name": "a", "resourceVersion": "1"}, "spec": spec}


def _paths(fields: FieldSet) -> Paths:
    return frozenset(sets.members(fields))


def _next(managed: Managed, old: Object, new: Object, manager: Manager, time: str) -> Managed:
    """Return the ownership after a write, computed from complete sets of paths."""
    added, modified, removed = (_paths(stripped(each)) for each in compare(LONG_WAY, old, new))
    gone = added | modified | removed
    if not gone:
        return managed
    left = {who: (paths - gone, when) for who, (paths, when) in managed.items()}
    if taken := added | modified:
        me = (manager.name, "Update", VERSION, manager.subresource)
        mine = managed.get(me, (frozenset(), ""))[0]
        left[me] = ((mine - removed) | taken, time)
    return {who: found for who, found in left.items() if found[0]}


def _found(obj: Object) -> Managed:
    entries = obj["metadata"].get("managedFields", [])
    return {identity(each): (_paths(each["fieldsV1"]), each["time"]) for each in entries}


@given(old=SPECS | NAMED, new=SPECS | NAMED)
def test_optimized_comparison_finds_the_same(old: Any, new: Any) -> None:
    """Maps of strings and lists of unmoved named items compare like all other values."""
    was, now = _object(old), _object(new)
    assert compare(ROOT, was, now) == compare(LONG_WAY, was, now)


@given(specs=st.lists(st.tuples(SPECS, st.sampled_from(WRITERS)), min_size=2, max_size=5))
def test_entries_match_plain_sets(specs: list[tuple[Any, Manager]]) -> None:
    """After any sequence of writes the entries equal the model; stored objects are not modified."""
    kind, obj = _Kind(ROOT), _object(specs[0][0])
    track_create(kind, obj, specs[0][1], VERSION, "0")
    managed = _next({}, {}, obj, specs[0][1], "0")
    for number, (spec, manager) in enumerate(specs[1:], start=1):
        if not managed:
            break  # an object without fields has no entries
        before, new = copy.deepcopy(obj), _object(copy.deepcopy(spec))
        managed = _next(managed, obj, new, manager, str(number // 2))
        track_update(
            kind,
            obj,
            new,
            manager=manager,
            api_version=VERSION,
            time=partial(str, number // 2),
            convert=convert_single_version,
        )
        assert _found(new) == managed
        assert obj == before
        obj = new
