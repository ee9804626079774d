"""The metadata-only forms of objects and lists."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.endpoints.partial_metadata import (
    metadata_bytes,
    partial_list_bytes,
    partial_object,
    partial_object_bytes,
)

_KEYS = st.sampled_from(["metadata", "kind", "spec", "a"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(_KEYS, _VALUES, max_size=4)


def test_only_the_metadata_remains() -> None:
    """The form has its own kind and version, and only the metadata of the object."""
    found = partial_object({"kind": "Secret", "metadata": {"name": "a"}, "data": {"x": "eQ=="}})
    assert found == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a"},
    }


@given(_OBJECTS)
def test_bytes_and_dicts_agree_on_one_object(obj: dict[str, object]) -> None:
    """Cutting the metadata out of bytes yields the same as decoding and selecting it."""
    assert orjson.loads(partial_object_bytes(orjson.dumps(obj))) == partial_object(obj)


@given(st.lists(_OBJECTS, max_size=3))
def test_bytes_and_dicts_agree_on_a_list(objects: list[dict[str, object]]) -> None:
    """The same holds for a list, in an older version too."""
    metadata, older = {"resourceVersion": "7"}, "meta.k8s.io/v1beta1"
    encoded = partial_list_bytes(
        [orjson.dumps(obj) for obj in objects],
        metadata=orjson.dumps(metadata),
        api_version=older,
    )
    assert orjson.loads(encoded) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": older,
        "metadata": metadata,
        "items": [partial_object(obj, api_version=older) for obj in objects],
    }


def test_metadata_bytes_are_unchanged() -> None:
    """The bytes of the metadata are unchanged, so numbers and order are preserved."""
    assert metadata_bytes(b'{"spec":[1],"metadata": {"b":1.0,"a":2}}').strip() == b'{"b":1.0,"a":2}'


def test_invalid_json_is_rejected() -> None:
    """Invalid JSON is an error, not an empty object."""
    with pytest.raises(msgspec.DecodeError):
        metadata_bytes(b'{"metadata":')
