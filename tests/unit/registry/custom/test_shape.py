"""Processing of custom resources from clients and from the store."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from restow.apimachinery.status import BadRequest, InternalError, UnsupportedMediaType
from restow.registry.custom.shape import CustomShape, splicer_of
from restow.registry.declared import declare_kind
from restow.registry.stored_bytes import Splicer, encode
from restow.storage.errors import StoreDamaged
from tests.unit.registry.custom.samples import BETA, V1, Json, changed, resource, widget


def shape() -> CustomShape:
    made = resource().shape
    assert isinstance(made, CustomShape)
    return made


def causes(new: Json, old: Json | None = None, *, subresource: str = "") -> list[str]:
    version = new["apiVersion"]
    return [str(each) for each in shape().problems(version, new, old, subresource=subresource)]


def test_objects_of_clients_are_coerced() -> None:
    """Nulls are removed, defaults added, unknown fields pruned and reported, metadata first."""
    metadata = {
        "name": "a",
        "bad": 1,
        "labels": {"x": None},
        "annotations": None,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "no": 1}],
    }
    sent = widget(spec={"color": None, "note": None, "other": 1}, extra=1) | {"metadata": metadata}
    found, unknown = shape().check(V1, sent)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    assert found == widget(spec={"note": None, "replicas": 1}, status={"phase": "New"}) | {
        "metadata": {"name": "a", "labels": {"x": ""}, "ownerReferences": [owner]}
    }
    assert unknown == [
        "metadata.bad",
        "metadata.ownerReferences[0].no",
        "extra",
        "spec.other",
    ]


def test_each_version_has_its_schema() -> None:
    """Each version prunes by its own schema; one without a schema keeps all fields."""
    sent = widget(BETA, spec={"other": 1}, extra={"x": None})
    assert shape().check(BETA, orjson.loads(orjson.dumps(sent))) == (sent, [])
    sent = widget("example.com/v1alpha1", spec={"other": 1})
    assert shape().default("example.com/v1alpha1", sent) == sent
    assert shape().problems("example.com/v1alpha1", sent, None) == []
    assert shape().default(V1, widget(V1, spec={"other": 1}))["spec"] == {"replicas": 1}


def test_metadata_of_wrong_types_is_refused() -> None:
    """Wrong types of metadata are rejected before validation; other errors are reported
    together."""
    with pytest.raises(BadRequest):
        shape().check(V1, widget() | {"metadata": {"name": "a", "labels": {"x": 1}}})
    with pytest.raises(BadRequest):
        shape().check(V1, widget() | {"metadata": {"creationTimestamp": "x"}})
    assert shape().check(V1, widget(spec=3, status={}))[0]["spec"] == 3
    assert causes(widget(spec=3, status={})) == [
        'spec: Invalid value: "integer": spec in body must be of type object: "integer"',
        (
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: 3 is of the type"
            " int64, expected map[string]interface{}"
        ),
        (
            "<nil>: Invalid value: null: some validation rules were not checked because the object"
            " was invalid; correct the existing errors to complete validation"
        ),
    ]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"replicas": 1}, []),
        ({"replicas": 1, "size": "5%"}, []),
        ({"replicas": 10}, ["spec: Invalid value: too many replicas"]),
        ({"replicas": -1}, [".spec.replicas: Invalid value: -1: should be a non-negative integer"]),
        (
            {"replicas": 1, "tags": ["x", "x"]},
            ['spec.tags[1]: Duplicate value: "x"'],
        ),
        (
            {"replicas": 1, "template": {"kind": "Pod"}},
            ["spec.template.apiVersion: Required value", "<nil>: Invalid value: null"],
        ),
    ],
)
def test_problems(spec: Json, text: list[str]) -> None:
    """Types, replicas, embedded objects, lists and rules are all validated."""
    found = causes(widget(spec=spec))
    assert len(found) == len(text)
    for got, wanted in zip(found, text, strict=True):
        assert got.startswith(wanted)


def test_unchanged_invalid_fields_are_accepted() -> None:
    """Ratcheting: an object that violates a newer schema may be updated in other fields."""
    old = widget(spec={"color": "green", "replicas": 1})
    new = widget(spec={"color": "green", "replicas": 2})
    assert causes(new, old) == []
    assert len(causes(new)) == 2
    assert causes(widget(spec={"color": "pink", "replicas": 1}), old)


def test_writes_of_the_status() -> None:
    """A write of the status validates only the status, and its replicas."""
    old = widget(spec={"color": "green", "replicas": -1}, status={"phase": "New"})
    good = old | {"status": {"phase": "Old"}}
    assert causes(good, old, subresource="status") == []
    bad = old | {"status": {"phase": 1, "replicas": -2, "selector": 5}}
    assert [each.partition(":")[0] for each in causes(bad, old, subresource="status")] == [
        "status.phase",
        "status.selector",
        ".status.replicas",
        ".status.selector",
        "<nil>",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<nil> is of the type <nil>"),
        (True, "true is of the type bool"),
        (1.5, "1.5 is of the type float64"),
        ("x", "x is of the type string"),
        ([1, "x", None], "[1 x <nil>] is of the type []interface {}"),
        ({"b": [False], "a": 1}, "map[a:1 b:[false]] is of the type map[string]interface {}"),
    ],
)
def test_replicas_of_other_types(value: Any, text: str) -> None:
    """A replica count of the wrong type is reported as by kube-apiserver."""
    made = changed("spec", "versions", 2, "schema", to=None)
    found = resource(made).shape.problems(V1, widget(spec={"replicas": value}), None)
    assert [str(each) for each in found] == [
        f".spec.replicas: Invalid value: 0: .spec.replicas accessor error: {text}, expected int64"
    ]
    many = resource(made).shape.problems(V1, widget(spec={"replicas": 2**31}), None)
    assert "should be less than or equal to 2147483647" in many[0].message


def test_a_status_that_is_taken_away_has_its_default() -> None:
    """The response to a write has the default of a removed status, as later reads will."""
    made = widget(spec={"replicas": 1})
    shape().prepare_create(made)
    assert made["status"] == {"phase": "New"}
    made = widget(spec={"replicas": 1})
    shape().prepare_update(made, widget(status={"phase": "Old"}))
    assert made["status"] == {"phase": "New"}
    made = widget(status={"phase": "Old"})
    shape().prepare_update(made, made)
    assert made["status"] == {"phase": "Old"}
    beta = widget(BETA)
    shape().prepare_create(beta)
    assert "status" not in beta


def test_forms_that_are_not_taken() -> None:
    """Custom resources have no protobuf form and no strategic merge patch."""
    assert shape().merge_schema(V1) is None
    with pytest.raises(UnsupportedMediaType):
        shape().decode_protobuf(V1, b"")


def test_a_damaged_schema() -> None:
    """Objects can be read with a damaged schema; writes report the error."""
    made = resource(changed("spec", "versions", 2, "schema", "openAPIV3Schema", to={"type": 5}))
    stored = encode(widget(spec={"x": 1}), V1, "Widget")
    assert orjson.loads(splicer_of(made).serve(stored, 5)[2])["spec"] == {"x": 1}
    with pytest.raises(InternalError, match="schema of the CustomResourceDefinition cannot"):
        made.shape.check(V1, widget())


def test_definitions_from_before_schemas_were_required() -> None:
    """With preserveUnknownFields, nothing is pruned or defaulted, and everything is validated."""
    made = resource(changed("spec", "preserveUnknownFields", to=True))
    assert made.shape.check(V1, widget(spec={"x": None})) == (widget(spec={"x": None}), [])
    assert made.shape.problems(V1, widget(spec={"color": "pink", "replicas": 1}), None)


def served(value: bytes, made: Splicer | None = None) -> Json:
    revision, version, body = (made or splicer_of(resource())).serve(value, 5)
    found: Json = orjson.loads(body)
    assert (revision, version) == (5, found["apiVersion"])
    assert body.startswith(b'{"kind":"Widget","apiVersion":"%b","metadata":{' % version.encode())
    assert found["metadata"].pop("resourceVersion") == "5"
    return found


def test_stored_objects_are_brought_up_to_their_schema() -> None:
    """Objects are read with the current defaults and without fields that are unknown now."""
    stored = encode(widget(spec={"x": 1, "color": None}), V1, "Widget")
    assert served(stored) == widget(spec={"replicas": 1}, status={"phase": "New"})
    beta = encode(widget(BETA, spec={"x": 1, "color": None}), BETA, "Widget")
    assert served(beta) == widget(BETA, spec={"x": 1, "color": None})


def test_stored_objects_that_are_right_keep_their_bytes() -> None:
    """Objects that need no change keep their bytes, including the notation of numbers."""
    template = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}
    fields = widget(spec={"replicas": 1, "template": template}, status={})
    stored = encode(fields, V1, "Widget")
    odd = stored.replace(b'"replicas":1', b'"replicas":1e0').replace(b'"status"', b' "status"')
    body = splicer_of(resource()).serve(odd, 5)[2]
    assert body == odd.rstrip(b"\n").replace(b'{"name"', b'{"resourceVersion":"5","name"', 1)


def test_stored_objects_of_other_writers() -> None:
    """Another order of fields and a stored resource version are accepted; metadata is pruned."""
    template = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "bad": 1}, "spec": {}}
    fields = widget(spec={"replicas": 1, "template": template}, status={})
    fields["metadata"]["resourceVersion"] = "3"
    value = orjson.dumps(dict(sorted(fields.items())))
    del fields["metadata"]["resourceVersion"]
    del fields["spec"]["template"]["metadata"]["bad"]
    assert served(value) == fields


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"kind":"Widget","apiVersion":"example.com/v1","metadata":null}',
        b'{"kind":"Widget","apiVersion":"example.com/v1","metadata":[]}',
        b'{"kind":"Other","apiVersion":"example.com/v1","metadata":{}}',
        b'{"kind":"Widget","apiVersion":"example.com/v9","metadata":{}}',
        b'{"kind":"Widget","apiVersion":["example.com/v1"],"metadata":{}}',
    ],
)
def test_stored_values_that_are_no_objects(value: bytes) -> None:
    """A value that is not an object of the kind in one of its versions is damaged."""
    with pytest.raises(StoreDamaged):
        splicer_of(resource()).serve(value, 5)


def test_other_resources_have_plain_splicers() -> None:
    """Other kinds are served as they are stored."""
    made = declare_kind(group="example.com", kind="Widget", plural="widgets", versions={"v1": None})
    assert type(splicer_of(made)) is Splicer
    assert served(encode(widget(x=None), V1, "Widget"), splicer_of(made)) == widget(x=None)
