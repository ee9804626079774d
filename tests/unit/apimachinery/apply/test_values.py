"""Computation and comparison of field sets, merging and removal: single rules and properties."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.apply import sets
from restow.apimachinery.apply.field_removal import extract, remove
from restow.apimachinery.apply.merge import merge
from restow.apimachinery.apply.schema import (
    ANY,
    DEDUCED,
    FLAG,
    NUMBER,
    TEXT,
    Elements,
    Members,
    SchemaNode,
)
from restow.apimachinery.apply.schema_check import ApplySchemaError, check
from restow.apimachinery.apply.schema_reconciliation import reconcile, with_named_fields
from restow.apimachinery.apply.sets import FieldSet, WireReader
from restow.apimachinery.apply.values import SAME, compare, field_set_of
from restow.apimachinery.codec import DEPTH_MAX

TEXTS = SchemaNode(members=Members(element=TEXT))
ITEM = SchemaNode(members=Members({"name": TEXT, "value": NUMBER, "texts": TEXTS}.get))
ITEMS = SchemaNode(elements=Elements(ITEM, is_associative=True, keys=("name",)))
SET = SchemaNode(elements=Elements(TEXT, is_associative=True))
PORT = SchemaNode(members=Members({"port": NUMBER, "protocol": TEXT}.get))
FIELDS = {
    "name": TEXT,
    "flag": FLAG,
    "texts": TEXTS,
    "items": ITEMS,
    "set": SET,
    "list": SchemaNode(elements=Elements(TEXT)),
    "atomic": SchemaNode(members=Members(element=TEXT), is_atomic_map=True),
    "any": ANY,
    "structs": SchemaNode(members=Members(element=ITEM)),
    "ports": SchemaNode(
        elements=Elements(
            PORT, is_associative=True, keys=("port", "protocol"), defaults={"protocol": "TCP"}
        )
    ),
}
SPEC = SchemaNode(members=Members(FIELDS.get))
ROOT = SchemaNode(members=Members({"spec": SPEC}.get))


def _name(item: Any) -> Any:
    return item["name"]


NAMES = st.sampled_from("abc")
NUMBERS = st.integers(0, 2)
STRINGS = st.sampled_from(("", "x", "y"))
MAPS = st.dictionaries(NAMES, STRINGS, max_size=3)
VALUES = st.recursive(
    NUMBERS | STRINGS | st.none(),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(NAMES, each, max_size=2),
    max_leaves=5,
)
ITEM_VALUES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"name": NAMES}, optional={"value": NUMBERS, "texts": MAPS}
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "name": STRINGS,
        "texts": MAPS,
        "items": st.lists(ITEM_VALUES, max_size=3, unique_by=_name),
        "set": st.lists(NAMES, max_size=3, unique=True),
        "list": st.lists(NAMES, max_size=2),
        "atomic": MAPS,
        "any": VALUES,
        "structs": st.dictionaries(NAMES, ITEM_VALUES, max_size=2),
    },
)
OBJECTS = st.fixed_dictionaries({}, optional={"spec": SPECS})


def paths_of(value: Any) -> FieldSet:
    """Return every path that a value has."""
    return compare(ROOT, {}, value).added


@given(OBJECTS)
def test_nothing_differs_from_itself(value: Any) -> None:
    """A value equals its copy; against the empty value, everything is added."""
    assert compare(ROOT, value, copy.deepcopy(value)) == SAME
    assert compare(ROOT, value, copy.deepcopy(value)).is_same
    check(ROOT, value)


@given(OBJECTS, OBJECTS)
def test_a_reversed_comparison(old: Any, new: Any) -> None:
    """Comparing in reverse swaps added and removed, and keeps modified."""
    given_values = json.dumps([old, new])
    there, back = compare(ROOT, old, new), compare(ROOT, new, old)
    assert there.added == back.removed
    assert there.removed == back.added
    assert there.modified == back.modified
    assert json.dumps([old, new]) == given_values


@given(OBJECTS, OBJECTS)
def test_paths_follow_the_changes(old: Any, new: Any) -> None:
    """The paths of the new value are those of the old one, minus removed, plus added."""
    found = compare(ROOT, old, new)
    kept = sets.difference(paths_of(old), found.removed)
    assert paths_of(new) == sets.union(kept, found.added)
    assert sets.intersection(found.added, found.removed) == {}
    assert sets.difference(found.modified, kept) == {}
    assert sets.difference(field_set_of(ROOT, new), paths_of(new)) == {}


@given(OBJECTS, OBJECTS)
def test_applied_fields_are_in_the_result(live: Any, config: Any) -> None:
    """After a merge the configuration's fields have its values; merging again changes nothing."""
    given_values = json.dumps([live, config])
    merged = merge(ROOT, live, config)
    fields = field_set_of(ROOT, config)
    differs = compare(ROOT, config, merged)
    assert sets.intersection(fields, differs.modified) == {}
    assert sets.intersection(fields, differs.removed) == {}
    assert merge(ROOT, merged, config) == merged
    assert json.dumps([live, config]) == given_values


@given(OBJECTS)
def test_merging_a_part_of_a_value_changes_nothing(value: Any) -> None:
    """Merging a value with any part of itself, or with nothing, does not change it."""
    fields = field_set_of(ROOT, value)
    assert merge(ROOT, value, extract(ROOT, value, fields) or {}) == value
    assert merge(ROOT, {}, value) == merge(ROOT, value, {}) == value


@given(OBJECTS)
def test_removing_all_fields(value: Any) -> None:
    """Removing all fields of a value, named ones included, leaves only empty parts."""
    everything = sets.union(paths_of(value), with_named_fields(ROOT, field_set_of(ROOT, value)))
    assert not remove(ROOT, value, everything)
    assert remove(ROOT, value, {}) is value


@given(OBJECTS)
def test_sets_of_the_current_schema_are_unchanged(value: Any) -> None:
    """A set that matches the schema is not reconciled."""
    assert reconcile(ROOT, field_set_of(ROOT, value)) is None
    assert reconcile(ROOT, paths_of(value)) is None


def spec_set(spec: Any) -> Any:
    """Return the fields of a spec."""
    return field_set_of(ROOT, {"spec": spec}).get("f:spec")


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"name": "a", "flag": None}, {"f:name": {}, "f:flag": {}}),
        ({"texts": {}}, {"f:texts": {}}),
        ({"texts": None, "set": None}, {"f:texts": {}, "f:set": {}}),
        ({"set": []}, None),
        ({}, {}),
        ({"list": []}, {"f:list": {}}),
        ({"atomic": {"a": "b"}}, {"f:atomic": {}}),
        ({"set": ["a", "b", "a"]}, {"f:set": {'v:"a"': {}, 'v:"b"': {}}}),
        (
            {"items": [{"name": "a", "value": 1}, {"name": "a"}, {"name": "a", "value": 2}]},
            {"f:items": {'k:{"name":"a"}': {}}},
        ),
        ({"items": [{"value": 1}]}, {"f:items": {"i:0": {".": {}, "f:value": {}}}}),
        ({"any": {"a": {}, "b": [1]}}, {"f:any": {"f:a": {}, "f:b": {}}}),
        ({"any": [1]}, {"f:any": {}}),
        ({"structs": {"a": {"name": "b"}}}, {"f:structs": {"f:a": {".": {}, "f:name": {}}}}),
        (
            {"ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}]},
            {
                "f:ports": {
                    'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}},
                    'k:{"port":1,"protocol":"UDP"}': {".": {}, "f:port": {}, "f:protocol": {}},
                }
            },
        ),
        ({"unknown": {"a": 1}}, {"f:unknown": {}}),
    ],
)
def test_fields_of_a_value(spec: Any, fields: Any) -> None:
    """The rules for the fields that an applier owns."""
    assert spec_set(spec) == fields


@pytest.mark.parametrize(
    ("old", "new", "added", "modified", "removed"),
    [
        ({"name": ""}, {"name": "x"}, None, {"f:name": {}}, None),
        ({}, {"texts": {"a": "b"}}, {"f:texts": {".": {}, "f:a": {}}}, None, None),
        ({"texts": {}}, {"texts": {"a": "b"}}, {"f:texts": {"f:a": {}}}, None, None),
        ({"texts": None}, {"texts": {"a": "b"}}, {"f:texts": {"f:a": {}}}, None, None),
        ({"texts": {"a": "b"}}, {"texts": None}, None, None, {"f:texts": {"f:a": {}}}),
        ({"texts": {}}, {"texts": None}, None, {"f:texts": {}}, None),
        ({"set": []}, {"set": None}, None, {"f:set": {}}, None),
        ({"set": None}, {"set": ["a"]}, {"f:set": {'v:"a"': {}}}, None, None),
        ({"set": ["a", "b"]}, {"set": ["b", "a"]}, None, None, None),
        ({"list": ["a"]}, {"list": ["b"]}, None, {"f:list": {}}, None),
        ({"any": {"a": 1}}, {"any": 2}, None, {"f:any": {}}, {"f:any": {"f:a": {}}}),
        ({"any": 2}, {"any": {"a": 1}}, {"f:any": {"f:a": {}}}, {"f:any": {}}, None),
        ({"any": None}, {"any": 1}, None, {"f:any": {}}, None),
        (
            {"items": [{"name": "a"}, {"name": "b"}]},
            {"items": [{"name": "b", "value": 1}, {"name": "c"}]},
            {
                "f:items": {
                    'k:{"name":"b"}': {"f:value": {}},
                    'k:{"name":"c"}': {".": {}, "f:name": {}},
                }
            },
            None,
            {"f:items": {'k:{"name":"a"}': {".": {}, "f:name": {}}}},
        ),
        (
            {"set": ["a", "a"]},
            {"set": ["a"]},
            {"f:set": {'v:"a"': {}}},
            None,
            {"f:set": {'v:"a"': {}}},
        ),
        (
            {"set": ["a"]},
            {"set": ["a", "a"]},
            {"f:set": {'v:"a"': {}}},
            None,
            {"f:set": {'v:"a"': {}}},
        ),
        (
            {"items": [{"name": "a"}, {"name": "a", "value": 1}, {"name": "b"}]},
            {"items": [{"name": "a"}, {"name": "a", "value": 2}, {"name": "b", "value": 1}]},
            {"f:items": {'k:{"name":"b"}': {"f:value": {}}}},
            {"f:items": {'k:{"name":"a"}': {}}},
            None,
        ),
        (
            {"items": [{"name": "a"}, {"name": "a", "value": 1}]},
            {"items": [{"name": "a", "value": 1}]},
            {"f:items": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:value": {}}}},
            None,
            {"f:items": {'k:{"name":"a"}': {}}},
        ),
    ],
)
def test_comparing(old: Any, new: Any, added: Any, modified: Any, removed: Any) -> None:
    """The rules of comparison."""
    found = compare(ROOT, {"spec": old}, {"spec": new})
    assert found.added.get("f:spec") == added
    assert found.modified.get("f:spec") == modified
    assert found.removed.get("f:spec") == removed


@pytest.mark.parametrize(
    ("live", "config", "merged"),
    [
        ({"name": "a"}, {"name": None}, {"name": None}),
        ({"texts": {"a": "1", "b": "2"}}, {"texts": {"b": "3"}}, {"texts": {"a": "1", "b": "3"}}),
        ({"texts": {"a": "1"}}, {"texts": None}, {"texts": {"a": "1"}}),
        ({"texts": {"a": "1"}}, {"texts": {}}, {"texts": {"a": "1"}}),
        ({"texts": {}}, {"texts": None}, {"texts": None}),
        ({"set": ["a"]}, {"set": None}, {"set": ["a"]}),
        ({"set": []}, {"set": None}, {"set": None}),
        ({"list": ["a"]}, {"list": ["b"]}, {"list": ["b"]}),
        ({"list": ["a"]}, {"list": None}, {"list": None}),
        ({"atomic": {"a": "b"}}, {"atomic": {"c": "d"}}, {"atomic": {"c": "d"}}),
        ({"any": {"a": 1, "b": {"c": 1}}}, {"any": {"a": {}, "b": 3}}, {"any": {"a": {}, "b": 3}}),
        ({"any": {"a": 1}}, {"any": None}, {"any": {"a": 1}}),
        ({"any": 1}, {"any": None}, {"any": None}),
        (
            {"items": [{"name": "a", "value": 1}, {"name": "b", "texts": {"x": "y"}}]},
            {"items": [{"name": "b", "value": 2, "texts": {"z": ""}}]},
            {
                "items": [
                    {"name": "a", "value": 1},
                    {"name": "b", "texts": {"x": "y", "z": ""}, "value": 2},
                ]
            },
        ),
        # Duplicates are replaced by one applied item, and stay if none is applied.
        (
            {"items": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]},
            {"items": [{"name": "a", "texts": {"x": "y"}}]},
            {"items": [{"name": "a", "texts": {"x": "y"}}]},
        ),
        ({"set": ["a", "a"]}, {"set": ["b"]}, {"set": ["a", "a", "b"]}),
    ],
)
def test_merging(live: Any, config: Any, merged: Any) -> None:
    """The rules of merging a configuration."""
    assert merge(ROOT, {"spec": live}, {"spec": config}) == {"spec": merged}


@pytest.mark.parametrize("items", [[{"name": "a"}, {"name": "a"}], [None], [{"value": 1}]])
def test_items_that_cannot_be_merged(items: Any) -> None:
    """A configuration whose items have no unique keys is rejected."""
    with pytest.raises(ApplySchemaError, match=r"^\.spec\.items: "):
        merge(ROOT, {"spec": {"items": [{"name": "z"}]}}, {"spec": {"items": items}})


@pytest.mark.parametrize(
    ("spec", "fields", "left"),
    [
        ({"name": "a", "flag": True}, {"f:name": {}}, {"flag": True}),
        ({"texts": {"a": "1", "b": "2"}}, {"f:texts": {"f:a": {}}}, {"texts": {"b": "2"}}),
        (
            {"texts": {"a": "1"}, "name": "x"},
            {"f:texts": {"f:a": {}}},
            {"texts": None, "name": "x"},
        ),
        ({"set": ["a", "b"]}, {"f:set": {'v:"a"': {}}}, {"set": ["b"]}),
        (
            {"items": [{"name": "a", "value": 1}]},
            {"f:items": {'k:{"name":"a"}': {"f:value": {}}}},
            {"items": [{"name": "a"}]},
        ),
        (
            {"items": [{"name": "a"}]},
            {"f:items": {'k:{"name":"a"}': {".": {}, "f:x": {}}}},
            {"items": None},
        ),
        ({"list": ["a"], "name": "x"}, {"f:list": {"i:0": {}}}, {"list": None, "name": "x"}),
        ({"name": "x"}, {"f:name": {}}, None),
    ],
)
def test_removing(spec: Any, fields: Any, left: Any) -> None:
    """The rules of removing fields."""
    assert remove(ROOT, {"spec": spec}, {"f:spec": fields}) == {"spec": left}


def test_extracting() -> None:
    """Only owned fields are extracted: items with their keys, and atomic parts as a whole."""
    value = {
        "spec": {
            "name": "a",
            "texts": {"a": "1", "b": "2"},
            "items": [{"name": "a", "value": 1, "texts": {"x": "y"}}, {"name": "b"}],
            "atomic": {"a": "b"},
            "any": {"a": {"b": 1}},
        }
    }
    fields = {
        "f:spec": {
            "f:texts": {"f:b": {}},
            "f:items": {'k:{"name":"a"}': {".": {}, "f:value": {}}},
            "f:atomic": {},
            "f:any": {},
            "f:gone": {},
        }
    }
    assert extract(ROOT, value, fields) == {
        "spec": {
            "texts": {"b": "2"},
            "items": [{"name": "a", "value": 1}],
            "atomic": {"a": "b"},
            "any": {},
        }
    }
    assert extract(ROOT, value, {}) is None


def test_a_part_that_became_atomic() -> None:
    """The owner of a field in a part that became atomic owns the whole part; the rest is kept."""
    fields: FieldSet = {
        "f:spec": {
            "f:atomic": {"f:a": {}},
            "f:list": {".": {}, "i:0": {}},
            "f:texts": {"f:a": {}},
            "f:any": {"f:a": {"f:b": {}}},
            "f:items": {'k:{"name":"a"}': {".": {}, "f:value": {}}},
        }
    }
    before = json.dumps(fields)
    found = reconcile(ROOT, fields)
    assert found == {"f:spec": {**fields["f:spec"], "f:atomic": {}, "f:list": {}}}
    assert json.dumps(fields) == before


def test_a_part_that_became_granular() -> None:
    """The owner of an atomic part that became granular keeps the part, without its contents."""
    assert reconcile(ROOT, {"f:spec": {"f:texts": {}, "f:items": {}}}) is None


def test_named_fields() -> None:
    """Structs above owned fields are added to the set, map members and items are not."""
    fields: FieldSet = {"f:spec": {"f:structs": {"f:a": {"f:texts": {"f:x": {}}}}, "f:name": {}}}
    assert with_named_fields(ROOT, fields) == {
        "f:spec": {
            ".": {},
            "f:structs": {".": {}, "f:a": {"f:texts": {".": {}, "f:x": {}}}},
            "f:name": {},
        }
    }
    items: FieldSet = {"f:spec": {".": {}, "f:items": {'k:{"name":"a"}': {"f:texts": {"f:x": {}}}}}}
    assert with_named_fields(ROOT, items) == {
        "f:spec": {
            ".": {},
            "f:items": {".": {}, 'k:{"name":"a"}': {"f:texts": {".": {}, "f:x": {}}}},
        }
    }


def test_an_object_without_a_schema() -> None:
    """Any field is accepted, but the metadata is that of every object."""
    value = {
        "metadata": {"finalizers": ["a"], "labels": {"l": "m"}, "ownerReferences": [{"uid": "u"}]},
        "data": {"x": {"y": 1}, "z": [1]},
    }
    check(DEDUCED, value)
    assert field_set_of(DEDUCED, value) == {
        "f:metadata": {
            "f:finalizers": {'v:"a"': {}},
            "f:labels": {"f:l": {}},
            "f:ownerReferences": {'k:{"uid":"u"}': {}},
        },
        "f:data": {".": {}, "f:x": {".": {}, "f:y": {}}, "f:z": {}},
    }


def test_the_deepest_objects() -> None:
    """Objects of the maximum depth that the decoder allows cause no stack overflow."""
    one: Any = "x"
    other: Any = "y"
    for _ in range(DEPTH_MAX):
        one, other = {"a": one}, {"a": other}
    fields = field_set_of(DEDUCED, one)
    changed = compare(DEDUCED, one, other).modified
    assert len(next(sets.members(changed))) == DEPTH_MAX
    assert merge(DEDUCED, one, other) == other
    assert extract(DEDUCED, one, fields) == one
    assert remove(DEDUCED, one, changed) is not None
    assert reconcile(DEDUCED, fields) is None
    assert sets.union(fields, changed) == with_named_fields(DEDUCED, fields) == fields
    assert WireReader().check(fields) == fields
    check(DEDUCED, one)


def test_problems_are_bounded() -> None:
    """The number and length of reported problems is limited."""
    with pytest.raises(ApplySchemaError) as refused:
        check(ROOT, {"spec": {"structs": {str(n): {"name": n} for n in range(10_000)}}})
    assert len(str(refused.value)) < 20_000
    with pytest.raises(ApplySchemaError) as refused:
        check(ROOT, {"spec": {"name": ["x" * 1_000] * 1_000}})
    assert len(str(refused.value)) < 1_000
