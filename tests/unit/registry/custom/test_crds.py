"""Decoding stored CRDs, and comparing two of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.registry.custom.crds import (
    CrdUnreadable,
    definition_key,
    definition_of,
    read_definition,
)
from restow.storage.interface import Item, Key, Revision
from tests.unit.registry.custom.samples import DEFINITION, Json, changed, definition


def item(value: bytes) -> Item:
    return Item(definition_key("widgets.example.com"), value, Revision(7), Revision(2))


def test_everything_is_read() -> None:
    """All fields of a CRD are decoded, from the store and from an object."""
    for found in (definition(), read_definition(item(orjson.dumps(DEFINITION) + b"\n"))):
        assert found.key == "/registry/apiextensions.k8s.io/customresourcedefinitions/" + found.name
        assert (found.name, found.uid, found.revision) == ("widgets.example.com", "u-1", 7)
        assert (found.generation, found.created_at) == (3, "2026-01-01T00:00:00Z")
        assert found.finalizers == ("customresourcecleanup.apiextensions.k8s.io",)
        assert (found.group, found.is_namespaced) == ("example.com", True)
        assert found.names == found.accepted_names
        assert found.names.list_kind == "Widgets"
        assert [version.name for version in found.versions] == ["v1beta1", "v1alpha1", "v1"]
        assert found.storage_version == "v1"
        assert found.stored_versions == ("v1beta1", "v1")
        assert (found.names_accepted, found.established, found.is_closing) == (True, False, False)
        assert found.is_hostable
        assert not found.conversion.is_remote
        beta, alpha, first = found.versions
        assert (beta.has_status, beta.scale) == (False, None)
        assert first.has_status
        assert first.scale is not None
        assert alpha.schema_bytes() == b"null"
        assert orjson.loads(first.schema_bytes())["type"] == "object"
        assert "widgets.example.com" in repr(found)


def test_a_webhook_is_read() -> None:
    """The client configuration of a conversion webhook is decoded."""
    made = changed(
        "spec",
        "conversion",
        to={
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {
                    "service": {"namespace": "n", "name": "s", "path": "/p", "port": 8443},
                    "caBundle": "Zm9v",
                },
            },
        },
    )
    webhook = definition(made).conversion.webhook
    assert definition(made).conversion.is_remote
    assert webhook is not None
    assert webhook.conversion_review_versions == ["v1"]
    assert webhook.client_config is not None
    assert webhook.client_config.ca_bundle == "Zm9v"
    assert webhook.client_config.service is not None
    assert webhook.client_config.service.port == 8443


@pytest.mark.parametrize(
    ("conditions", "names", "is_hostable"),
    [
        ([("NamesAccepted", "True")], {"plural": "widgets", "kind": "Widget"}, True),
        ([("Established", "True")], {"plural": "widgets", "kind": "Widget"}, True),
        ([("NamesAccepted", "False")], {"plural": "widgets", "kind": "Widget"}, False),
        ([("NamesAccepted", "True")], {"plural": "", "kind": ""}, False),
        ([], {"plural": "widgets", "kind": "Widget"}, False),
    ],
)
def test_crds_with_accepted_names_can_be_hosted(
    conditions: list[tuple[str, str]], names: Json, is_hostable: bool
) -> None:
    """A CRD can be served once it has accepted names, and while later names are rejected."""
    status = {
        "acceptedNames": names,
        "conditions": [{"type": kind, "status": status} for kind, status in conditions],
        "storedVersions": None,
    }
    assert definition(changed("status", to=status)).is_hostable is is_hostable


def test_a_fresh_definition_has_no_status() -> None:
    """A new CRD without a status is decoded, and cannot be served."""
    made = deepcopy(DEFINITION)
    del made["status"]
    found = definition(made)
    assert not found.is_hostable
    assert (found.accepted_names.plural, found.stored_versions, found.conditions) == ("", (), ())


@pytest.mark.parametrize(
    "note",
    [
        changed("metadata", "generation", to=4),
        changed("metadata", "labels", to={"a": "b"}),
        changed("metadata", "finalizers", to=[]),
        changed("metadata", "deletionTimestamp", to="2026-01-01T00:00:01Z"),
        changed("status", "storedVersions", to=["v1"]),
        changed("status", "conditions", 1, "status", to="True"),
        changed("status", "conditions", 0, "message", to="other"),
        changed("spec", to=dict(reversed(DEFINITION["spec"].items()))),
    ],
)
def test_notes_mean_the_same(note: Json) -> None:
    """Changes of other fields, and of the order of fields, do not replace the resource."""
    assert definition().means_the_same_as(definition(note, 8))
    assert definition(note, 8).means_the_same_as(definition())


@pytest.mark.parametrize(
    "other",
    [
        changed("metadata", "uid", to="u-2"),
        changed("status", "acceptedNames", "shortNames", to=[]),
        changed("status", "conditions", 0, "status", to="False"),
        changed("spec", "versions", 0, "served", to=False),
        changed("spec", "versions", 2, "schema", "openAPIV3Schema", "description", to="x"),
        changed(
            "spec", "versions", 2, "schema", "openAPIV3Schema", "properties", "spec", "properties",
            "replicas", "default", to=1.0,
        ),
        changed("spec", "conversion", to={"strategy": "Webhook"}),
    ],
)  # fmt: skip
def test_changes_mean_another(other: Json) -> None:
    """Every field of the resource counts, and so does the notation of a number."""
    assert not definition().means_the_same_as(definition(other, 8))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b'{"metadata":{"name":"a"},"spec":null}',
        b'{"metadata":{"name":"a"},"spec":{"group":"g","names":{},"scope":"x","versions":[]}}',
        orjson.dumps(changed("spec", "versions", 2, "storage", to=False)),
        orjson.dumps(changed("spec", "versions", to={})),
        orjson.dumps(changed("metadata", "name", to=1)),
        b"[" * 100_000,
    ],
)
def test_other_values_are_unreadable_crds(value: bytes) -> None:
    """Any other stored value raises CrdUnreadable, with the key."""
    with pytest.raises(CrdUnreadable, match=r"customresourcedefinitions/widgets"):
        read_definition(item(value))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    members = enumerate(value) if isinstance(value, list) else ()
    for name, member in value.items() if isinstance(value, dict) else members:
        found += places(member, (*path, name))
    return found


@given(place=st.sampled_from(places(DEFINITION)), value=json_values)
def test_odd_data_never_surprises(place: tuple[str | int, ...], value: Any) -> None:
    """With any value at any place, a CRD is decoded completely or raises CrdUnreadable."""
    try:
        found = definition_of(changed(*place, to=value))
    except CrdUnreadable:
        return
    assert found.storage_version
    assert found.means_the_same_as(found)
    found.means_the_same_as(definition())
    for version in found.versions:
        version.schema_bytes()
        assert version.has_status in (True, False)


def test_an_object_that_is_no_json() -> None:
    """An object without a name, or with a value that JSON does not support, is rejected."""
    for bad in ({}, {"metadata": 1}, {"metadata": {"name": "a"}, "spec": object()}):
        with pytest.raises(CrdUnreadable):
            definition_of(bad)
    assert definition_key("a") == Key("/registry/apiextensions.k8s.io/customresourcedefinitions/a")
