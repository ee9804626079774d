"""JSON patch: operations, structural sharing, and rejected patches."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery import json_patch
from restow.apimachinery.codec import DEPTH_MAX
from restow.apimachinery.json_patch import JsonPatch
from restow.apimachinery.json_values import json_equal, scalar_identity
from restow.apimachinery.status import BadRequest, Invalid, RequestEntityTooLarge, StatusError


def patched(document: dict[str, Any], *operations: Any) -> Any:
    return JsonPatch.parse(list(operations)).apply(document)


@pytest.mark.parametrize(
    ("document", "operation", "wanted"),
    [
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"op": "add", "path": "/a", "value": None}, {"a": None}),
        ({"a": [1]}, {"op": "add", "path": "/a/0", "value": 0}, {"a": [0, 1]}),
        ({"a": [1]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": [2]}, {"a": [1, [2]]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-2", "value": 2}, {"a": [2, 1]}),
        ({"a": [1]}, {"op": "add", "path": "/a/01", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/+1", "value": 2}, {"a": [1, 2]}),
        ({"a": 1}, {"op": "add", "path": "/b"}, {"a": 1, "b": None}),
        ({"a": {}}, {"op": "add", "path": "a/b", "value": 1}, {"a": {}, "b": 1}),
        ({}, {"op": "add", "path": "/~2~", "value": 1}, {"~2~": 1}),
        ({"a": [1, 2]}, {"op": "remove", "path": "/a/-1"}, {"a": [1]}),
        ({"a": 1}, {"op": "replace", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"op": "copy", "from": "/x", "path": "/b"}, {"a": 1, "b": None}),
        ({"a": [{}, {}]}, {"op": "move", "from": "/a/0", "path": "/a/0/b"}, {"a": [{"b": {}}]}),
        ({"a": 1}, {"op": "add", "path": "/", "value": 2}, {"a": 1, "": 2}),
        ({"a": 1, "b": 2}, {"op": "remove", "path": "/a"}, {"b": 2}),
        ({"a": [1, 2]}, {"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"a": {"b": 1}}, {"op": "replace", "path": "/a/b", "value": 2}, {"a": {"b": 2}}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/1", "value": 3}, {"a": [1, 3]}),
        ({"a": 1}, {"op": "replace", "path": "", "value": {}}, {}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a/b", "path": "/c"}, {"a": {}, "c": 1}),
        ({"a": [1, 2, 3]}, {"op": "move", "from": "/a/0", "path": "/a/2"}, {"a": [2, 3, 1]}),
        ({"a": 1}, {"op": "move", "from": "/a", "path": "/a"}, {"a": 1}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a/b", "path": "/a"}, {"a": 1}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}),
        ({"a/b": 1, "c~d": 2}, {"op": "remove", "path": "/a~1b"}, {"c~d": 2}),
        ({"a/b": 1, "c~d": 2}, {"op": "remove", "path": "/c~0d"}, {"a/b": 1}),
        ({"~1": 1}, {"op": "remove", "path": "/~01"}, {}),
        ({"-": 1}, {"op": "remove", "path": "/-"}, {}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": 1.0}, {"a": 1}),
        ({"a": {"b": [1]}}, {"op": "test", "path": "", "value": {"a": {"b": [1]}}}, None),
        ({"a": {}}, {"op": "test", "path": "/a/b", "value": None}, {"a": {}}),
        ({"a": None}, {"op": "test", "path": "/a", "value": None}, {"a": None}),
    ],
)
def test_operations(document: Any, operation: Any, wanted: Any) -> None:
    """Each operation has its effect, and the original document is not modified."""
    before = copy.deepcopy(document)
    if wanted is None:
        wanted = before
    assert patched(document, operation) == wanted
    assert document == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/x"},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "/list/3"},
        {"op": "remove", "path": "/list/-"},
        {"op": "replace", "path": "/x/y", "value": 1},
        {"op": "replace", "path": ""},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "replace", "path": "", "value": [1]},
        {"op": "add", "path": "", "value": {}},
        {"op": "copy", "from": "", "path": "/x"},
        {"op": "copy", "from": "/list", "path": ""},
        {"op": "merge", "path": "/a", "value": 1},
        {"op": "ADD", "path": "/a", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": None, "value": 1},
        {"op": "add"},
        {"op": "move", "path": "/a"},
        {"path": "/a"},
        {},
        None,
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/text/y", "value": 1},
        {"op": "add", "path": "/null/y", "value": 1},
        {"op": "add", "path": "/list/4", "value": 1},
        {"op": "add", "path": "/list/-5", "value": 1},
        {"op": "remove", "path": "/list/-4"},
        {"op": "remove", "path": "/list/+-1"},
        {"op": "add", "path": "/list/1e0", "value": 1},
        {"op": "add", "path": "/list/", "value": 1},
        {"op": "add", "path": "/list/²", "value": 1},
        {"op": "add", "path": "/list/99999999999999999999", "value": 1},
        {"op": "add", "path": "/list/-/x", "value": 1},
        {"op": "test", "path": "/number", "value": True},
        {"op": "test", "path": "/number", "value": "1"},
        {"op": "test", "path": "/list", "value": [True, 2, 3]},
        {"op": "test", "path": "/x", "value": 1},
        {"op": "test", "path": "/x/y", "value": None},
        {"op": "test", "path": "/list/7", "value": None},
        {"op": "test", "path": "", "value": {}},
        {"op": "move", "from": "/x", "path": "/y"},
        {"op": "move", "from": "/object", "path": "/object/inner"},
        {"op": "move", "from": "", "path": "/x"},
        {"op": "copy", "from": "/x/y", "path": "/y"},
        {"op": "copy", "from": "/list/7", "path": "/y"},
        {"op": "remove", "path": "/a" * (DEPTH_MAX + 1)},
        {"op": "copy", "from": "/list/-", "path": "/y"},
        {"op": "add", "path": "/a" * DEPTH_MAX, "value": {}},
    ],
)
def test_does_not_fit(operation: Any) -> None:
    """A valid patch that does not match the document is a 422 that names the operation."""
    document = {"number": 1, "text": "a", "null": None, "list": [1, 2, 3], "object": {}}
    before = copy.deepcopy(document)
    with pytest.raises(Invalid, match="rejected our request"):
        patched(document, operation)
    assert document == before


@pytest.mark.parametrize(
    "patch",
    [
        {},
        None,
        "x",
        [1],
        [[]],
        [{"op": 1, "path": "/a"}],
        [{"op": "add", "path": ["a"], "value": 1}],
        [{"op": "copy", "path": "/a", "from": 1}],
        [{"op": "add", "path": "/a", "value": 1}, "x"],
    ],
)
def test_makes_no_sense(patch: Any) -> None:
    """A malformed patch is a 400, before it is applied."""
    with pytest.raises(BadRequest):
        JsonPatch.parse(patch)


def test_no_operations() -> None:
    """An empty list changes nothing; unknown members are reported with their paths."""
    assert JsonPatch.parse([]).apply({"a": 1}) == {"a": 1}
    odd = [{"op": "remove", "path": "/a"}, {"op": "add", "path": "/b", "value": {"x": 1}, "y": 2}]
    assert JsonPatch.parse(odd).unknown == ("[1].y",)


def test_too_many_operations() -> None:
    """One operation above the limit is a 413; the limit itself is accepted."""
    operation = {"op": "test", "path": "/a", "value": 1}
    limit = json_patch.OPERATIONS_MAX
    assert patched({"a": 1}, *[operation] * limit) == {"a": 1}
    with pytest.raises(RequestEntityTooLarge, match="10000, got 10001"):
        JsonPatch.parse([operation] * (limit + 1))


def test_doubling_copies() -> None:
    """Copies that double a list repeatedly reach the limit of copied bytes."""
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 9_999
    with pytest.raises(StatusError) as caught:
        patched({"a": ["x" * 100]}, *doubling)
    assert caught.value.code in (413, 422)
    wide = [{"op": "copy", "from": "/a", "path": f"/b{number}"} for number in range(9_999)]
    with pytest.raises(RequestEntityTooLarge):
        patched({"a": "x" * 1_000}, *wide)


def test_nesting() -> None:
    """A patch cannot nest a document deeper than the limit."""
    adding = [{"op": "add", "path": "/a" * depth, "value": {}} for depth in range(1, DEPTH_MAX)]
    deep = patched({}, *adding)
    with pytest.raises(Invalid, match="deep"):
        patched(deep, {"op": "add", "path": "/a" * (DEPTH_MAX - 1) + "/b", "value": {}})
    for name in ("move", "copy"):
        with pytest.raises(Invalid, match="deep"):
            patched({**deep, "b": {}}, {"op": name, "from": "/a", "path": "/b/c"})


def test_deep_test() -> None:
    """A test operation on a copy that is too deep fails without crashing the process."""
    steps = [{"op": "copy", "from": "/a", "path": "/a" * 200}] * 3
    document: dict[str, Any] = {"a": {}}
    for depth in range(1, 200):
        document = patched(document, {"op": "add", "path": "/a" * depth, "value": {}})
    with pytest.raises(Invalid):
        patched(document, *steps, {"op": "test", "path": "/a", "value": 1})


def test_long_lists() -> None:
    """Thousands of insertions at the front of a short list succeed; a long list reaches the
    limit.
    """
    front = [{"op": "add", "path": "/a/0", "value": 1}] * json_patch.OPERATIONS_MAX
    document = {"a": [0] * 1_000}
    assert len(patched(document, *front[:5000])["a"]) == 6_000
    assert document == {"a": [0] * 1_000}
    with pytest.raises(RequestEntityTooLarge, match="too often"):
        patched({"a": [0] * 1_000_000}, *front)
    removing = [{"op": "remove", "path": "/a/0"}] * json_patch.OPERATIONS_MAX
    with pytest.raises(RequestEntityTooLarge, match="too often"):
        patched({"a": [0] * 1_000_000}, *removing)


def test_one_copy_of_a_large_object() -> None:
    """Ten thousand operations on one large object copy it once; otherwise the test would not
    finish.
    """
    document = {f"k{number}": number for number in range(100_000)}
    operations = [
        {"op": "replace", "path": f"/k{number}", "value": -1}
        for number in range(json_patch.OPERATIONS_MAX)
    ]
    result = patched(document, *operations)
    assert result["k9999"] == -1
    assert document["k9999"] == 9999


def test_sharing() -> None:
    """Unchanged parts are shared; values of the patch are not modified, so it can be reused."""
    document = {"a": {"b": 1}, "c": {"d": 1}}
    patch = JsonPatch.parse(
        [
            {"op": "add", "path": "/a/list", "value": [{}]},
            {"op": "add", "path": "/a/list/0/x", "value": 1},
            {"op": "copy", "from": "/a/list", "path": "/a/copy"},
            {"op": "add", "path": "/a/copy/-", "value": 2},
        ]
    )
    first = patch.apply(document)
    assert first["c"] is document["c"]
    assert first["a"] == {"b": 1, "list": [{"x": 1}], "copy": [{"x": 1}, 2]}
    assert patch.apply(document) == first


def test_json_equality() -> None:
    """Numbers are equal by value, but never equal to booleans, at any depth."""
    assert json_equal({"a": [1, 1.5, None, "x"]}, {"a": [1.0, 1.5, None, "x"]})
    assert not json_equal(1, True)
    assert not json_equal({"a": [0]}, {"a": [False]})
    assert not json_equal([1], [1, 1])
    assert json_equal([True, {}], [True, {}])
    assert scalar_identity(1) != scalar_identity(True)
    assert scalar_identity([]) is None


class Naive:
    """A simple implementation that copies the whole document for each operation."""

    def __init__(self, document: Any) -> None:
        self.root = copy.deepcopy(document)

    def get(self, path: list[str]) -> Any:
        value = self.root
        for part in path:
            value = value[self.at(value, part)]
        return value

    @staticmethod
    def at(container: Any, part: str, *, end: int = 0) -> Any:
        if isinstance(container, dict):
            return part
        if not isinstance(container, list) or not 0 <= int(part) < len(container) + end:
            raise KeyError(part)
        return int(part)

    def remove(self, path: list[str]) -> Any:
        container = self.get(path[:-1])
        return container.pop(self.at(container, path[-1]))

    def add(self, path: list[str], value: Any) -> None:
        container = self.get(path[:-1])
        if isinstance(container, dict):
            container[path[-1]] = value
        elif path[-1] == "-" and isinstance(container, list):
            container.append(value)
        else:
            container.insert(self.at(container, path[-1], end=1), value)

    def perform(self, operation: dict[str, Any]) -> None:
        path = operation["path"].split("/")[1:]
        source = operation.get("from", "").split("/")[1:]
        value = copy.deepcopy(operation.get("value"))
        match operation["op"]:
            case "add":
                self.add(path, value)
            case "remove":
                self.remove(path)
            case "replace":
                if path:
                    container = self.get(path[:-1])
                    container[self.at(container, path[-1])] = value
                else:
                    self.root = value
            case "copy":
                container = self.get(source[:-1])
                found = container.get(source[-1]) if isinstance(container, dict) else None
                if not isinstance(container, dict):
                    found = self.get(source)
                self.add(path, copy.deepcopy(found))
            case "move":
                self.add(path, self.remove(source))


parts = st.sampled_from(["a", "b", "0", "1", "-"])
paths = st.lists(parts, max_size=3).map(lambda found: "".join(f"/{part}" for part in found))
leaves = st.sampled_from([0, 1, True, None, "x"])
values: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab01"), inner, max_size=3)
    ),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from("ab01"), values, max_size=3)
operations_strategy = st.one_of(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "replace"]), "path": paths, "value": values}
    ),
    st.fixed_dictionaries({"op": st.just("remove"), "path": paths}),
    st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "path": paths, "from": paths}),
)


@given(document=documents, operations=st.lists(operations_strategy, max_size=6))
def test_against_naive(document: Any, operations: list[Any]) -> None:
    """Copying on write gives the same result as full copies, and modifies no argument."""
    before = json.dumps([document, operations])
    naive: Any = Naive(document)
    try:
        for operation in operations:
            naive.perform(operation)
        wanted = naive.root
        if not isinstance(wanted, dict):
            raise TypeError
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        with pytest.raises(Invalid):
            patched(document, *operations)
    else:
        assert json.dumps(patched(document, *operations)) == json.dumps(wanted)
    assert json.dumps([document, operations]) == before
