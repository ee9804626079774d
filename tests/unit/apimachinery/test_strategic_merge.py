"""Strategic merge patch: rules of lists and maps, directives, order, and rejected patches."""

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.merge_patch import apply_merge_patch
from restow.apimachinery.status import BadRequest, Invalid, StatusError
from restow.apimachinery.strategic_merge import apply_strategic_merge_patch
from restow.apimachinery.strategic_merge_types import merge_schema
from restow.apimachinery.types import Field, ListOf, MapOf, Scalar, Struct, StructRef


@dataclass(frozen=True)
class Rule:
    """A rule for tests."""

    strategies: tuple[str, ...] = ()
    merge_key: str | None = None
    child: "Schema | None" = None
    is_list: bool = False


@dataclass(frozen=True)
class Schema:
    """A schema for tests."""

    fields: dict[str, Rule] = field(default_factory=dict)

    def field(self, name: str) -> Rule | None:
        """Return the rule of a member."""
        return self.fields.get(name)


PORT = Schema()
CONTAINER = Schema(
    {
        "ports": Rule(("merge",), "containerPort", PORT, is_list=True),
        "args": Rule(is_list=True),
    }
)
SCHEMA = Schema(
    {
        "containers": Rule(("merge",), "name", CONTAINER, is_list=True),
        "volumes": Rule(("merge", "retainKeys"), "name", Schema(), is_list=True),
        "finalizers": Rule(("merge",), is_list=True),
        "items": Rule(child=CONTAINER, is_list=True),
        "strategy": Rule(("retainKeys",), child=Schema()),
        "whole": Rule(("replace",), child=Schema()),
        "spec": Rule(child=CONTAINER),
        "nameless": Rule(("merge",), is_list=True),
    }
)


def merged(document: dict[str, Any], patch: Any) -> Any:
    """Return the result, after checking that no argument was modified."""
    before = json.dumps([document, patch])
    result = apply_strategic_merge_patch(document, patch, SCHEMA)
    assert json.dumps([document, patch]) == before
    return result


def names(*texts: str) -> list[dict[str, Any]]:
    return [{"name": text} for text in texts]


@pytest.mark.parametrize(
    ("document", "patch", "wanted"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1, "b": 2}, {"a": None, "c": None, "d": 3}, {"b": 2, "d": 3}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({}, {"a": {"b": None, "c": {"d": None}}}, {"a": {"c": {}}}),
        ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
        ({"a": {"b": 2}}, {"a": [1]}, {"a": [1]}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"items": names("a")}, {"items": [{"name": "b", "x": None}]}, None),
        ({}, {"items": [{"name": "b", "x": None}, None]}, {"items": [{"name": "b"}, None]}),
        ({"whole": {"a": 1}}, {"whole": {"b": None}}, {"whole": {"b": None}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": None}}, {"a": {"c": None}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete", "c": 2}}, {"a": {}}),
        ({"a": 1}, {"a": {"$patch": "replace"}, "b": {"$patch": "delete"}, "c": {}}, {"c": {}}),
        ({"whole": {"a": 1}}, {"whole": {"b": 2}}, {"whole": {"b": 2}}),
        ({"spec": {"args": ["a"]}}, {"spec": {"args": ["b"]}}, {"spec": {"args": ["b"]}}),
        ({"$ref": "a"}, {"$ref": "b", "$schema": "c"}, {"$ref": "b", "$schema": "c"}),
    ],
)
def test_maps(document: Any, patch: Any, wanted: Any) -> None:
    """Objects are merged by member, null removes members, other lists are replaced."""
    assert merged(document, patch) == (patch if wanted is None else wanted)


@pytest.mark.parametrize(
    ("old", "patch", "wanted"),
    [
        ([], names("a"), names("a")),
        (names("a"), [], names("a")),
        (names("a", "b"), [{"name": "b", "x": 1}], [{"name": "a"}, {"name": "b", "x": 1}]),
        (names("a", "b"), names("c"), names("c", "a", "b")),
        (names("a", "b", "c"), names("c", "d"), names("a", "b", "c", "d")),
        (names("a", "b", "c"), names("c", "a"), names("b", "c", "a")),
        (names("a", "b"), [{"name": "a", "$patch": "delete"}], names("b")),
        (names("a"), [{"name": "z", "$patch": "delete"}], names("a")),
        (names("a", "b"), [{"$patch": "replace"}, {"name": "c"}], names("c")),
        (names("a", "b"), [{"$patch": "replace"}], []),
        ([{"name": "a", "x": 1}], [{"name": "b", "x": 1}, {"name": "b", "y": 2}], None),
        (names("a", "b"), [{"name": "a", "$patch": "delete"}, *names("a")], names("a", "b")),
        (names("a"), [{"$patch": "replace"}, *names("b", "c", "b")], names("b", "b", "c")),
        ([{"name": "a", "x": 1}], [{"name": "a", "x": None}], names("a")),
        (names("a"), [{"name": "b", "x": None}], [{"name": "b", "x": None}, {"name": "a"}]),
    ],
)
def test_lists_by_key(old: Any, patch: Any, wanted: Any) -> None:
    """Items are merged by key; those of the patch come in its order, the others keep their
    position.
    """
    wanted = [{"name": "b", "x": 1, "y": 2}, {"name": "a", "x": 1}] if wanted is None else wanted
    assert merged({"containers": old}, {"containers": patch}) == {"containers": wanted}


def test_nested_lists() -> None:
    """The schema of an item applies to lists inside it."""
    old = {"containers": [{"name": "a", "ports": [{"containerPort": 80}], "args": ["x"]}]}
    patch = {
        "containers": [
            {
                "name": "a",
                "ports": [{"containerPort": 81}, {"containerPort": 80, "name": "w"}],
                "args": ["y"],
            }
        ]
    }
    assert merged(old, patch) == {
        "containers": [
            {
                "name": "a",
                "ports": [{"containerPort": 81}, {"containerPort": 80, "name": "w"}],
                "args": ["y"],
            }
        ]
    }


def test_item_replaced_inside() -> None:
    """A directive can replace or empty a map in an item."""
    old = {"containers": [{"name": "a", "env": {"x": 1}, "limits": {"y": 2}}]}
    patch = {
        "containers": [
            {
                "name": "a",
                "env": {"$patch": "replace", "z": 3},
                "limits": {"$patch": "delete"},
            }
        ]
    }
    assert merged(old, patch) == {"containers": [{"name": "a", "env": {"z": 3}, "limits": {}}]}


def test_new_values() -> None:
    """New values are not merged: parts with `$patch` are dropped, other directives are kept."""
    patch: dict[str, Any] = {
        "containers": [
            {
                "name": "a",
                "$setElementOrder/ports": [{"containerPort": 1}],
                "$retainKeys": ["name"],
            },
            {"name": "b", "$patch": "delete"},
        ],
        "items": [{"$patch": "replace", "name": "c"}],
        "spec": {"$patch": "replace", "$deleteFromPrimitiveList/args": ["x"], "a": 1},
        "whole": {"$patch": None, "a": 1},
    }
    assert merged({}, patch) == {
        "containers": [patch["containers"][0]],
        "items": [],
        "whole": {"a": 1},
    }
    twice = {"containers": names("a", "a")}
    assert merged({}, twice) == twice
    ordered = {"$setElementOrder/containers": names("a", "a"), **twice}
    assert merged({}, ordered) == twice


@pytest.mark.parametrize(
    ("old", "patch", "wanted"),
    [
        (["a", "b"], {"finalizers": ["b", "c"]}, ["a", "b", "c"]),
        (["a", "b"], {"finalizers": ["c"]}, ["c", "a", "b"]),
        (["a", "b", "a"], {"$deleteFromPrimitiveList/finalizers": ["a"]}, ["b"]),
        (["a"], {"$deleteFromPrimitiveList/finalizers": ["z"]}, ["a"]),
        (
            ["a", "b", "c"],
            {
                "$deleteFromPrimitiveList/finalizers": ["b"],
                "finalizers": ["d"],
                "$setElementOrder/finalizers": ["d", "c", "a"],
            },
            ["d", "c", "a"],
        ),
        (["a", "b", "c"], {"$setElementOrder/finalizers": ["c", "a"]}, ["b", "c", "a"]),
        ([1, 2], {"$deleteFromPrimitiveList/finalizers": [1]}, [2]),
        (
            ["a"],
            {"$deleteFromPrimitiveList/finalizers": ["b"], "finalizers": ["b"]},
            ["a"],
        ),
        (["a"], {"$deleteFromPrimitiveList/finalizers": "a"}, ["a"]),
        (["a"], {"$setElementOrder/finalizers": [], "finalizers": ["b", "c"]}, ["a", "c", "b"]),
    ],
)
def test_sets(old: Any, patch: Any, wanted: Any) -> None:
    """Lists of plain values are sets, with removal of values and an order."""
    result = merged({"finalizers": old}, patch)["finalizers"]
    assert json.dumps(result) == json.dumps(wanted)


@pytest.mark.parametrize(
    ("old", "patch", "order", "wanted"),
    [
        ("abc", None, "cab", "cab"),
        ("abc", "", "cb", "acb"),
        ("ab", "cd", "cadb", "cadb"),
        ("axby", "c", "bca", "xbcay"),
        ("ab", "c", "c", "cab"),
        ("", "ab", "ab", "ab"),
    ],
)
def test_order(old: str, patch: str | None, order: str, wanted: str) -> None:
    """The merged list has the order of the patch; items that only the server has keep theirs."""
    body: dict[str, Any] = {"$setElementOrder/containers": names(*order)}
    if patch is not None:
        body["containers"] = names(*patch)
    assert merged({"containers": names(*old)}, body) == {"containers": names(*wanted)}


def test_order_with_deletion() -> None:
    """A patch can delete an item and order the rest, as a three-way apply does."""
    patch = {
        "$setElementOrder/containers": names("c", "a"),
        "containers": [{"name": "a", "x": 1}, {"name": "b", "$patch": "delete"}],
    }
    assert merged({"containers": names("a", "b", "c")}, patch) == {
        "containers": [{"name": "c"}, {"name": "a", "x": 1}]
    }
    assert merged({}, {"$setElementOrder/containers": names("a")}) == {}
    gone: dict[str, Any] = {"$deleteFromPrimitiveList/finalizers": None}
    assert merged({"finalizers": ["a"]}, gone) == {}


def test_retain_keys() -> None:
    """Only the named members are kept, in addition to those that the patch sets."""
    old = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
    patch = {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
    assert merged(old, patch) == {"strategy": {"type": "Recreate"}}
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {}}]
    patch_volumes = [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"x": 1}}]
    assert merged({"volumes": volumes}, {"volumes": patch_volumes}) == {
        "volumes": [{"name": "v", "secret": {"x": 1}}, {"name": "w", "secret": {}}]
    }


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        (None, BadRequest),
        ([], BadRequest),
        ("x", BadRequest),
        ({"$patch": "other"}, Invalid),
        ({"$patch": None}, Invalid),
        ({"$patch": ["replace"]}, Invalid),
        ({"containers": [{"name": "a", "$patch": "other"}]}, Invalid),
        ({"containers": [{"x": 1}]}, Invalid),
        ({"containers": [{"name": "a", "$patch": "merge"}]}, Invalid),
        ({"spec": {"$patch": "merge"}}, Invalid),
        ({"containers": [None]}, Invalid),
        ({"finalizers": [1]}, Invalid),
        ({"containers": [{"name": {}}]}, Invalid),
        ({"containers": [{"$patch": "delete"}]}, Invalid),
        ({"containers": ["a"]}, Invalid),
        ({"containers": [["a"]]}, Invalid),
        ({"containers": [{"name": "b"}, 1]}, Invalid),
        ({"finalizers": [{"name": "a"}]}, Invalid),
        ({"nameless": [{"name": "b"}]}, Invalid),
        ({"$retainKeys": "a"}, BadRequest),
        ({"$retainKeys": [1], "a": 1}, BadRequest),
        ({"$retainKeys": [["a"]]}, BadRequest),
        ({"$retainKeys": ["a"], "b": 1}, BadRequest),
        ({"$setElementOrder": []}, BadRequest),
        ({"$setElementOrderx/containers": []}, BadRequest),
        ({"$setElementOrder/": []}, Invalid),
        ({"$setElementOrder/nothing": []}, Invalid),
        ({"$setElementOrder/spec": []}, Invalid),
        ({"$setElementOrder/containers": {}}, Invalid),
        ({"$setElementOrder/containers": None}, Invalid),
        ({"$setElementOrder/containers": [{}]}, Invalid),
        ({"$setElementOrder/containers": [], "containers": {}}, Invalid),
        ({"$setElementOrder/containers": [], "containers": None}, Invalid),
        ({"$setElementOrder/containers": names("a"), "containers": names("b")}, Invalid),
        ({"$setElementOrder/containers": names("a", "b"), "containers": names("b", "a")}, Invalid),
        ({"$deleteFromPrimitiveList": []}, BadRequest),
        ({"$deleteFromPrimitiveListx/finalizers": []}, BadRequest),
        ({"$deleteFromPrimitiveList/finalizers": [1]}, Invalid),
        ({"$deleteFromPrimitiveList/containers": names("a")}, Invalid),
        ({"$deleteFromPrimitiveList/finalizers": [["a"]]}, Invalid),
    ],
)
def test_refused(patch: Any, error: type[StatusError]) -> None:
    """An invalid directive is a 400, a patch that cannot be merged a 422."""
    with pytest.raises(error):
        merged(
            {
                "containers": names("a"),
                "finalizers": ["f"],
                "nameless": names("a"),
                "spec": {},
            },
            patch,
        )


def test_long_lists() -> None:
    """Lists of a hundred thousand items merge in a second; quadratic time would take hours."""
    old = {"containers": [{"name": f"n{index}"} for index in range(100_000)]}
    order = [{"name": f"n{index}"} for index in reversed(range(100_000))]
    items = [{"name": f"n{index}", "x": 1} for index in reversed(range(0, 100_000, 2))]
    patch = {"$setElementOrder/containers": order, "containers": items}
    result = apply_strategic_merge_patch(old, patch, SCHEMA)["containers"]
    assert [item["name"] for item in result] == [item["name"] for item in order]


def test_depth() -> None:
    """A patch that is too deep is a 400 and does not crash."""
    patch: Any = {}
    for _ in range(50_000):
        patch = {"a": patch}
    with pytest.raises(BadRequest, match="depth"):
        apply_strategic_merge_patch({}, patch, SCHEMA)
    with pytest.raises(BadRequest, match="depth"):
        apply_strategic_merge_patch({}, {"whole": patch}, SCHEMA)


values: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([0, True, None, "x"]),
    lambda inner: (
        st.lists(st.sampled_from([1, "y"]), max_size=2)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=10,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(document=objects, patch=objects)
def test_without_schema(document: dict[str, Any], patch: dict[str, Any]) -> None:
    """Without schema and directives it is a plain merge patch."""
    wanted = apply_merge_patch(document, patch)
    result = apply_strategic_merge_patch(document, patch, None)
    assert json.dumps(result, sort_keys=True) == json.dumps(wanted, sort_keys=True)


odd: st.SearchStrategy[Any] = st.sampled_from(
    [None, 1, "a", [], {}, [1], ["a"], [{"name": "a"}], [{"name": 1}], [[]]]
)
directives: st.SearchStrategy[Any] = st.sampled_from(["replace", "delete", "merge", "?", None, []])
items = st.fixed_dictionaries(
    {},
    optional={"name": st.sampled_from(["a", "b", 1, None, {}]), "$patch": directives, "x": odd},
)
odd_patches = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.lists(items, max_size=3) | odd,
        "finalizers": st.lists(st.sampled_from(["a", "b", 1, True, None]), max_size=3) | odd,
        "$patch": directives,
        "$retainKeys": odd,
        "$setElementOrder/containers": st.lists(items, max_size=3) | odd,
        "$setElementOrder/finalizers": odd,
        "$deleteFromPrimitiveList/finalizers": odd,
        "spec": st.fixed_dictionaries({}, optional={"$patch": directives, "args": odd}) | odd,
    },
)


@given(document=odd_patches, patch=odd_patches)
def test_any_patch(document: dict[str, Any], patch: dict[str, Any]) -> None:
    """Any object and patch give an object or a 4xx."""
    before = copy.deepcopy((document, patch))
    try:
        result = apply_strategic_merge_patch(document, patch, SCHEMA)
    except (BadRequest, Invalid):
        pass
    else:
        assert isinstance(result, dict)
    assert (document, patch) == before


class Table:
    """A table of two structs, one of which is recursive."""

    def __init__(self) -> None:
        container = Struct(
            name="Container",
            fields=(Field(json="name", type=Scalar.STRING),),
            table=self,
        )
        pod = Struct(
            name="Pod",
            fields=(
                Field(
                    json="containers",
                    type=ListOf(StructRef("Container")),
                    patch_strategies=("merge",),
                    merge_key="name",
                ),
                Field(json="pods", type=MapOf(StructRef("Pod"))),
                Field(json="lists", type=MapOf(ListOf(StructRef("Container")))),
                Field(json="labels", type=MapOf(Scalar.STRING)),
            ),
            table=self,
        )
        self.structs = {"Pod": pod, "Container": container}

    def struct(self, name: str) -> Struct:
        """Return the struct of that name."""
        return self.structs[name]


def test_typed_schema() -> None:
    """The schema of a struct has its lists, also inside maps, and is created once."""
    pod = Table().struct("Pod")
    schema = merge_schema(pod)
    assert merge_schema(pod) is schema
    old = {"pods": {"p": {"containers": names("a")}}, "lists": {"l": names("a")}}
    patch = {
        "pods": {"p": {"containers": [{"name": "b"}]}, "q": {"labels": {"x": "y"}}},
        "lists": {"l": names("b")},
        "unknown": {"z": 1},
    }
    assert apply_strategic_merge_patch(old, patch, schema) == {
        "pods": {"p": {"containers": names("b", "a")}, "q": {"labels": {"x": "y"}}},
        "lists": {"l": names("b")},
        "unknown": {"z": 1},
    }
