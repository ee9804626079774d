"""OpenAPI v2: the single document, in JSON and in protobuf."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from restow.kinds.types import load_types
from restow.openapi import Document, ServedKind, V2Assembly, fingerprint, in_order
from restow.openapi.declared import DEPTH_MAX, publish
from restow.openapi.v2_protobuf import schema as encode_schema
from tests.unit.openapi import gnostic
from tests.unit.openapi.catalogue import INFO, KINDS, served


def document(kinds: Sequence[ServedKind], *, protobuf: bool) -> Document:
    assembly = V2Assembly(load_types(), INFO, protobuf=protobuf)
    parts = [assembly.part(kind) for kind in in_order(list(kinds))]
    return assembly.whole(parts, fingerprint(kinds, INFO))


@cache
def as_json() -> dict[str, Any]:
    made = document(KINDS, protobuf=False)
    loaded: dict[str, Any] = orjson.loads(made.body)
    return loaded


def test_both_forms_are_equal() -> None:
    """The protobuf form, decoded by its public layout, equals the JSON form."""
    made = document(KINDS, protobuf=True)
    decoded, expected = gnostic.document(made.body), as_json()
    assert set(decoded) == set(expected)
    for part in ("definitions", "paths", "parameters"):
        assert set(decoded[part]) == set(expected[part])
        for name, value in expected[part].items():
            assert decoded[part][name] == value, name
    assert decoded["swagger"] == expected["swagger"] == "2.0"
    assert decoded["info"] == expected["info"]


def test_the_forms_have_different_hashes() -> None:
    """A cache with one form must not answer requests for the other."""
    json_form = document(KINDS, protobuf=False)
    protobuf_form = document(KINDS, protobuf=True)
    assert json_form.etag != protobuf_form.etag


def test_old_kubectl_may_create_and_apply() -> None:
    """PATCH lists fieldValidation and dryRun inline, and its media types."""
    path = "/api/v1/namespaces/{namespace}/configmaps/{name}"
    patch = as_json()["paths"][path]["patch"]
    names = {each.get("name") for each in patch["parameters"]}
    assert {"fieldValidation", "dryRun", "body"} <= names
    assert "application/strategic-merge-patch+json" in patch["consumes"]
    gvk = {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert patch["x-kubernetes-group-version-kind"] == gvk


def test_references_stand_without_allof() -> None:
    """Old clients do not support allOf, so references have their extensions as siblings."""
    spec = as_json()["definitions"]["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]
    assert spec["template"] == {"$ref": "#/definitions/io.k8s.api.core.v1.PodTemplateSpec"}
    assert spec["strategy"]["x-kubernetes-patch-strategy"] == "retainKeys"
    quantity = as_json()["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert quantity == {"type": "string"}


def test_optional_fields_of_clients() -> None:
    """A role may omit rules, although Go always writes them; a container needs a name."""
    kinds = [
        served(
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRole",
            namespaced=False,
            type_name="io.k8s.api.rbac.v1.ClusterRole",
        )
    ]
    made = document(kinds, protobuf=False)
    definitions = orjson.loads(made.body)["definitions"]
    assert "required" not in definitions["io.k8s.api.rbac.v1.ClusterRole"]
    assert "name" in as_json()["definitions"]["io.k8s.api.core.v1.Container"]["required"]


def test_declared_schemas_become_simpler() -> None:
    """What v2 cannot express becomes "anything", so that old clients reject nothing valid."""
    definitions = as_json()["definitions"]
    spec = definitions["com.example.stable.v1.CronTab"]["properties"]["spec"]["properties"]
    assert spec["maybe"] == spec["choice"] == {}
    assert spec["size"] == {"x-kubernetes-int-or-string": True}
    assert spec["any"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert spec["cron"] == {"type": "string", "pattern": "^x", "maxLength": 10}
    assert spec["list"]["x-kubernetes-list-type"] == "set"
    assert spec["level"]["enum"] == ["low", "high"]
    assert spec["raw"] == {
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert set(spec["template"]["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    assert "properties" not in definitions["com.example.open.v1.Thing"]


def test_a_document_from_kept_parts() -> None:
    """Cached parts give the same document as all kinds together, in both forms."""
    for protobuf in (False, True):
        whole = document(KINDS, protobuf=protobuf)
        assembly = V2Assembly(load_types(), INFO, protobuf=protobuf)
        parts = [assembly.part(kind) for kind in in_order(list(KINDS))]
        assembly.whole(parts[:3], "F0")
        assert assembly.whole(parts, fingerprint(KINDS, INFO)) == whole


def test_kinds_with_equal_names_do_not_break_the_document() -> None:
    """Two kinds whose definitions have the same name give it only once."""
    twice = [
        served("a.example.com", "v1", "Odd", schema={"type": "object", "description": about})
        for about in ("one", "two")
    ]
    made = document(twice, protobuf=False)
    assert made.body.count(b'"com.example.a.v1.Odd":{') == 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
_WORDS = st.sampled_from(
    (
        "type",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "maximum",
        "maxLength",
        "description",
        "x-kubernetes-list-type",
        "x-odd",
        "$ref",
        "oneOf",
        "nullable",
        "enum",
    )
)
_SCHEMAS = st.recursive(
    st.dictionaries(_WORDS, _JSON, max_size=4),
    lambda inner: st.dictionaries(
        _WORDS, inner | st.dictionaries(st.text(max_size=3), inner) | _JSON, max_size=4
    ),
    max_leaves=6,
)


@given(_SCHEMAS)
def test_no_declared_schema_breaks_a_document(schema: dict[str, Any]) -> None:
    """Whatever is declared, all documents can be encoded, and the v2 one can be decoded."""
    kinds = [served("example.com", "v1", "Odd", schema=schema)]
    orjson.loads(document(kinds, protobuf=False).body)
    gnostic.document(document(kinds, protobuf=True).body)


def test_a_bottomless_schema_is_cut() -> None:
    """Below the limit a schema accepts anything; one too deep for JSON counts as missing."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(DEPTH_MAX + 10):
        schema = {"type": "object", "properties": {"a": schema}}
    inner: Any = publish(schema, {}, v3=True)
    for _ in range(DEPTH_MAX):
        inner = inner["properties"]["a"]
    assert inner == {}
    for _ in range(5000):
        schema = {"type": "object", "properties": {"a": schema}}
    kinds = [served("example.com", "v1", "Deep", schema=schema)]
    made = document(kinds, protobuf=False)
    assert "properties" not in orjson.loads(made.body)["definitions"]["com.example.v1.Deep"]


@pytest.mark.parametrize("value", ["merge", "ä\x7f\x85😀", ["a", {"b": 1}], True, None, "\\ud83d"])
def test_extensions_are_strict_yaml(value: object) -> None:
    """Strict YAML parsers can read extensions with any characters."""
    encoded = encode_schema({"x-a": value})
    named = dict(gnostic.fields(gnostic.one(encoded, 31)))
    raw = gnostic.one(named[2], 2).decode()
    assert raw.isascii()
    assert yaml.safe_load(raw) == value
