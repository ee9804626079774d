"""Field sets: operations compared with sets of paths, encodings, and parsing of client input."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.apply import sets
from restow.apimachinery.apply.elements import value_text
from restow.apimachinery.apply.sets import FieldSet, WireReader

Path = tuple[str, ...]
ELEMENTS = ("f:a", "f:b", 'k:{"n":1}', 'v:"x"', "i:0")
PATHS = st.frozensets(st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=3).map(tuple))


def built(paths: frozenset[Path]) -> FieldSet:
    """Build a field set from its members, one by one."""
    out: FieldSet = {}
    for path in sorted(paths):
        below = out
        for element in path:
            below = below.setdefault(element, {})
        below["."] = {}
    return _normal(out)


def _normal(below: FieldSet) -> FieldSet:
    return {} if set(below) == {"."} else {key: _normal(each) for key, each in below.items()}


@given(PATHS, PATHS)
def test_operations_match_sets_of_paths(one: frozenset[Path], other: frozenset[Path]) -> None:
    """Union, difference and intersection of field sets equal those of their sets of paths."""
    a, b = built(one), built(other)
    before = json.dumps([a, b])
    assert sets.union(a, b) == built(one | other)
    assert sets.difference(a, b) == built(one - other)
    assert sets.intersection(a, b) == built(one & other)
    assert json.dumps([a, b]) == before


@given(PATHS)
def test_members_are_complete_and_unique(paths: frozenset[Path]) -> None:
    """`members` lists every path once, `contains` agrees, and the paths rebuild the set."""
    a = built(paths)
    found = list(sets.members(a))
    assert len(found) == len(paths)
    assert frozenset(found) == paths
    assert all(sets.contains(a, path) for path in paths)
    assert (a == sets.EMPTY) == (not paths)
    assert WireReader().check(a) == a
    leaves = {
        path for path in paths if not any(path == each[: len(path)] for each in paths - {path})
    }
    assert sets.leaves(a) == built(frozenset(leaves))


@given(PATHS)
def test_a_set_and_itself(paths: frozenset[Path]) -> None:
    """Operations on a set with itself, or with the empty set, give the expected results."""
    a, copy = built(paths), built(paths)
    for b in (a, copy):
        assert sets.union(a, b) == a
        assert sets.intersection(a, b) == a
        assert sets.difference(a, b) == {}
    assert sets.union(a, sets.EMPTY) == sets.difference(a, sets.EMPTY) == a
    assert sets.intersection(a, sets.EMPTY) == sets.difference(sets.EMPTY, a) == {}


def test_contains() -> None:
    """Only members are contained, not their parents or children."""
    a: FieldSet = {"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}
    assert sets.contains(a, ("f:a",))
    assert sets.contains(a, ("f:a", "f:b"))
    assert not sets.contains(a, ("f:c",))
    assert not sets.contains(a, ("f:a", "f:b", "f:x"))
    assert not sets.contains(a, ("f:x",))
    assert not sets.contains(a, ())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:metadata", "f:labels", "f:app"), ".metadata.labels.app"),
        (("f:spec", "f:x", "i:0"), ".spec.x[0]"),
        (("f:metadata", "f:finalizers", 'v:"v"'), '.metadata.finalizers[="v"]'),
        (('k:{"a":1,"b":"x"}', "f:c"), '[a=1,b="x"].c'),
        (('k:{"a":true,"b":null,"c":1.5}',), "[a=true,b=null,c=1.5]"),
        (('v:"\\u003c\\u0007\\u200b"',), '[="<\\a\\u200b"]'),
        (("v:[1]",), "[=[1]]"),
    ],
)
def test_path_text(path: Path, text: str) -> None:
    """A path is formatted as Kubernetes shows it."""
    assert sets.path_text(path) == text


def test_the_order_of_elements() -> None:
    """Fields sort before items by key, those before items by value, and indexes come last."""
    keys = ("f:a", "f:b", 'k:{"n":2}', 'k:{"n":10}', 'k:{"n":"x"}', "v:2", "v:10", 'v:"1"', "i:2")
    shuffled: FieldSet = {key: {} for key in reversed(keys)}
    assert [path[0] for path in sets.members(shuffled)] == list(keys)


def test_members_of_a_level_come_first() -> None:
    """The members of a level are listed before anything below them."""
    a: FieldSet = {"f:b": {}, "f:a": {".": {}, "f:x": {}}, "f:c": {"f:y": {}}}
    found = [sets.path_text(path) for path in sets.members(a)]
    assert found == [".a", ".b", ".a.x", ".c.y"]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({}, {}),
        ({".": {}}, {}),
        ({"f:a": None}, {"f:a": {}}),
        ({"f:a": {".": {}}}, {"f:a": {}}),
        ({"f:a": {"x:unknown": {}}}, {"f:a": {}}),
        ({'k:{ "b": 2, "a": "<" }': {}}, {'k:{"a":"\\u003c","b":2}': {}}),
        ({"v:1.0": {}, 'v: "x"': {}}, {"v:1": {}, 'v:"x"': {}}),
        ({"i:007": {}}, {"i:7": {}}),
        ({'k:{"a":1}': {"f:x": {}}, 'k:{"a":1.0}': {}}, {'k:{"a":1}': {".": {}, "f:x": {}}}),
    ],
)
def test_client_input_becomes_canonical(sent: Any, read: FieldSet) -> None:
    """Different encodings of the same element are merged into the canonical one."""
    assert WireReader().check(sent) == read


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [],
        "f:a",
        3,
        {"f": {}},
        {"": {}},
        {"fa": {}},
        {"f:a": 1},
        {"f:a": {"f:b": []}},
        {"k:[1]": {}},
        {"k:{": {}},
        {'k:{"a":1} 2': {}},
        {"v:": {}},
        {"v:NaN": {}},
        {'v:"\\ud800"': {}},
        {"i:x": {}},
        {"i:" + "9" * 5000: {}},
    ],
)
def test_invalid_field_sets(sent: Any) -> None:
    """Anything that is not a field set is rejected."""
    with pytest.raises(ValueError, match=r"."):
        WireReader().check(sent)


def test_a_set_has_a_limit() -> None:
    """A set with more members than the limit is rejected, at any nesting."""
    many: FieldSet = {f"f:{number}": {} for number in range(sets.MEMBERS_MAX // 2 + 1)}
    assert WireReader().check(many) == many
    with pytest.raises(ValueError, match="more than"):
        WireReader().check({"f:a": many, "f:b": many})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'),
        ("<&>", '"\\u003c\\u0026\\u003e"'),
        ('"\\\n\t', '"\\"\\\\\\n\\t"'),
        ("\b\f\x01", '"\\u0008\\u000c\\u0001"'),
        ("é" * 200, '"' + "é" * 200 + '"'),
        (1, "1"),
        (1.0, "1"),
        (0.5, "0.5"),
        (1e-5, "0.00001"),
        (1e-7, "1e-7"),
        (1e22, "1e+22"),
        (True, "true"),
        (None, "null"),
        ({"b": [1], "a": {}}, '{"a":{},"b":[1]}'),
    ],
)
def test_values_in_elements(value: Any, text: str) -> None:
    """Values are encoded as Kubernetes encodes them in path elements."""
    assert value_text(value) == text
