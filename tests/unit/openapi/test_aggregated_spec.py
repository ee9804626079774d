"""Aggregated servers' v2 documents: the extracted pieces, and their names in our document."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.kinds.types import load_types
from restow.openapi import (
    ForeignDocumentBad,
    ForeignSpec,
    V2Assembly,
    foreign_spec,
)
from restow.openapi.aggregated_spec import DEPTH_MAX, GVK
from restow.openapi.v2_merge import Merged, Ours, merge
from tests.unit.openapi import gnostic
from tests.unit.openapi.catalogue import INFO, KINDS

PATH = "/apis/g.example/v1/things"


def _document(**definitions: Any) -> dict[str, Any]:
    """Return a document with one path that refers to the definition `Thing`."""
    answer = {"description": "OK", "schema": {"$ref": "#/definitions/Thing"}}
    return {
        "swagger": "2.0",
        "paths": {PATH: {"get": {"responses": {"200": answer}}}},
        "definitions": {"Thing": {"type": "object"}, **definitions},
    }


def _spec(document: Any) -> ForeignSpec:
    found = foreign_spec(document, group="g.example", version="v1")
    assert found is not None
    return found


def _merged(*documents: dict[str, Any], **ours: dict[str, Any]) -> Merged:
    own = Ours(definitions=set(ours), definition=ours.get, parameters={})
    return merge([_spec(each) for each in documents], own)


def _kind(name: str) -> dict[str, str]:
    return {"group": "g.example", "version": "v1", "kind": name}


def test_only_referenced_definitions_are_kept() -> None:
    """Definitions that no path of the version refers to are dropped, transitive ones are kept."""
    document = _document(
        Thing={"properties": {"part": {"$ref": "#/definitions/Part"}}},
        Part={"items": {"$ref": "#/definitions/Thing"}},
        Other={"type": "object"},
    )
    assert _spec(document).names == {"Thing", "Part"}
    assert foreign_spec(document, group="g.example", version="v2") is None


def test_dangling_references() -> None:
    """A missing definition becomes an object of any shape; a missing parameter is dropped."""
    document = _document()
    del document["definitions"]
    document["paths"][PATH]["parameters"] = [{"$ref": "#/parameters/none"}]
    pieces = _spec(document).read()
    assert pieces.definitions == {"Thing": {"type": "object"}}
    assert pieces.paths[PATH]["parameters"] == []


@pytest.mark.parametrize("document", [None, [], {}, {"swagger": "2.0"}, {"openapi": "3.0.0"}])
def test_invalid_documents_are_rejected(document: Any) -> None:
    """Only a v2 document with paths is accepted."""
    with pytest.raises(ForeignDocumentBad):
        foreign_spec(document, group="g.example", version="v1")


@pytest.mark.parametrize("word", ["items", "x-any", "default"])
def test_depth_is_limited(word: str) -> None:
    """Pieces that are nested too deep to encode are rejected, wherever they are."""
    deep: dict[str, Any] = {}
    for _ in range(DEPTH_MAX + 1):
        deep = {word if word == "items" else "a": deep}
    with pytest.raises(ForeignDocumentBad, match="levels deep"):
        _spec(_document(Thing={word: deep}))


def test_the_hash_is_of_the_content() -> None:
    """The hash ignores the order of a document, but not its content."""
    one = _spec(_document(Thing={"type": "object", "description": "A"}))
    other = _spec(_document(Thing={"description": "A", "type": "object"}))
    assert one.digest == other.digest
    assert one.digest != _spec(_document(Thing={"type": "object"})).digest


def test_equal_definitions_are_shared() -> None:
    """A definition equal to ours is shared, and its kinds are added to ours."""
    kind = {"type": "object", "description": "Theirs.", GVK: [_kind("Thing")]}
    merged = _merged(_document(Thing=kind), Thing={"type": "object", "description": "Ours."})
    assert merged.definitions == {}
    assert merged.kinds == [("Thing", ("g.example", "v1", "Thing"))]


def test_other_definitions_get_another_name() -> None:
    """The number is incremented until the name is free, or has equal content; references follow."""
    first = _document(Thing={"type": "object"}, Thing_v2={"type": "string"})
    second = _document(Thing={"type": "integer"})
    second["paths"] = {f"{PATH}/more": second["paths"][PATH]}
    merged = _merged(first, second, first, Thing={"type": "boolean"})
    assert merged.definitions == {
        "Thing_v2": {"type": "object"},
        "Thing_v3": {"type": "integer"},
    }
    schemas = [item["get"]["responses"]["200"]["schema"]["$ref"] for item in merged.paths.values()]
    assert schemas == ["#/definitions/Thing_v2", "#/definitions/Thing_v3"]


def test_a_new_name_does_not_conflict_with_the_same_document() -> None:
    """A name that the same document uses otherwise is not assigned."""
    document = _document(
        Thing={"properties": {"next": {"$ref": "#/definitions/Thing_v2"}}},
        Thing_v2={"type": "string"},
    )
    merged = _merged(document, Thing={"type": "boolean"})
    assert merged.definitions == {
        "Thing_v3": {"properties": {"next": {"$ref": "#/definitions/Thing_v2"}}},
        "Thing_v2": {"type": "string"},
    }


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    "type $ref items properties required enum default allOf x-a in name "
                    f"schema parameters responses get 200 tags {GVK}"
                ).split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(path=_JSON, thing=_JSON, parameter=_JSON)
def test_no_document_breaks_ours(path: Any, thing: Any, parameter: Any) -> None:
    """Both forms of our document can be encoded and decoded with any aggregated document."""
    document = _document(Thing=thing)
    document["paths"]["/apis/g.example/v1/any"] = path
    document["paths"][PATH]["parameters"] = [{"$ref": "#/parameters/a"}]
    document["parameters"] = {"a": parameter}
    spec = _spec(document)
    for protobuf in (False, True):
        assembly = V2Assembly(load_types(), INFO, protobuf=protobuf)
        body = assembly.whole([], "AB", [spec]).body
        if protobuf:
            gnostic.document(body)
        else:
            assert PATH in orjson.loads(body)["paths"]


def test_foreign_pieces_are_cached_until_they_change() -> None:
    """Equal pieces are not encoded again; changed pieces, or changed kinds of ours, are."""
    assembly = V2Assembly(load_types(), INFO, protobuf=False)
    parts = [assembly.part(kind) for kind in KINDS]
    name = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
    document = _document(Thing={"$ref": f"#/definitions/{name}"}, **{name: {"type": "object"}})
    alone = orjson.loads(assembly.whole([], "AB", [_spec(document)]).body)
    both = orjson.loads(assembly.whole(parts, "AB", [_spec(document)]).body)
    again = orjson.loads(assembly.whole(parts, "AB", [_spec(document)]).body)
    assert f"{name}_v2" not in alone["definitions"]
    assert both["definitions"][f"{name}_v2"] == {"type": "object"}
    assert again == both
    assert PATH not in orjson.loads(assembly.whole(parts, "AB").body)["paths"]
