"""JSON merge patch, against its definition in a few lines.

As in Kubernetes, a list that replaces an object is kept unchanged; in any other list, null members
of objects are removed.
"""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.codec import DEPTH_MAX
from restow.apimachinery.merge_patch import apply_merge_patch
from restow.apimachinery.status import BadRequest

leaves = st.sampled_from([0, 1, 1.0, True, None, "x"])
values: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=10,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def naive(target: Any, patch: Any) -> Any:
    if isinstance(patch, list) and not isinstance(target, dict):
        return [naive(None, item) for item in patch]
    if not isinstance(patch, dict):
        return patch
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = naive(result.get(key), value)
    return result


@given(document=objects, patch=objects)
def test_against_naive(document: dict[str, Any], patch: dict[str, Any]) -> None:
    """The result equals the definition, and neither document nor patch is modified."""
    before = json.dumps([document, patch])
    wanted = json.dumps(naive(document, patch), sort_keys=True)
    assert json.dumps(apply_merge_patch(document, patch), sort_keys=True) == wanted
    assert json.dumps([document, patch]) == before


def test_nothing_changes() -> None:
    """A patch without changes returns the same document."""
    document = {"a": {"b": 1, "c": [1]}, "d": "x"}
    patches: list[Any] = [{}, {"a": {}}, {"a": {"b": 1}}, {"d": "x"}, {"e": None}]
    for patch in [*patches, {"a": {"x": None}}]:
        assert apply_merge_patch(document, patch) is document


def test_sharing() -> None:
    """Unchanged parts are shared between the old and the new document."""
    document = {"a": {"b": 1}, "c": {"d": {}}}
    result = apply_merge_patch(document, {"a": {"b": 2}})
    assert result == {"a": {"b": 2}, "c": {"d": {}}}
    assert result["c"] is document["c"]


@pytest.mark.parametrize("patch", [None, [], "x", 1, True])
def test_no_object(patch: Any) -> None:
    """A patch that would replace the whole object by another type is a 400."""
    with pytest.raises(BadRequest):
        apply_merge_patch({}, patch)


def test_depth() -> None:
    """A patch that is too deep is a 400 and does not crash."""
    patch: dict[str, Any] = {}
    for _ in range(DEPTH_MAX - 1):
        patch = {"a": patch}
    assert apply_merge_patch({}, patch) == patch
    with pytest.raises(BadRequest, match="depth"):
        apply_merge_patch({}, {"a": patch})
    for _ in range(100_000):
        patch = {"a": patch}
    with pytest.raises(BadRequest, match="depth"):
        apply_merge_patch({}, patch)
