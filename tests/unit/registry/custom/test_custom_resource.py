"""The resource that is made from a CRD."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from restow.kinds.kind import SCALE, STATUS
from restow.registry.catalog import Catalog
from restow.registry.custom.custom_resource import VERBS, PublishedSchema, custom_resource
from restow.registry.resource import PrinterColumn, ScalePaths
from tests.unit.registry.custom.samples import (
    BETA,
    DEFINITION,
    SCHEMA,
    V1,
    changed,
    definition,
    resource,
    widget,
)


def test_the_kind() -> None:
    """A custom resource has its accepted names and behaves as in kube-apiserver."""
    made = resource(changed("spec", "names", to={"plural": "others", "kind": "Other"}))
    kind = made.kind
    assert (kind.group, kind.kind, kind.plural, kind.singular) == (
        "example.com",
        "Widget",
        "widgets",
        "widget",
    )
    assert (kind.list_kind, kind.short_names, kind.categories) == ("Widgets", ("w",), ("all",))
    assert made.root == "/registry/example.com/widgets/"
    assert kind.verbs == VERBS
    assert kind.namespaced
    assert kind.tracks_generation
    assert kind.status_keeps_metadata
    assert not kind.create_on_update
    assert not kind.unconditional_update
    assert kind.name_problem("A_b")


def test_names_that_are_not_said() -> None:
    """Default names are derived from the kind."""
    made = resource(changed("status", "acceptedNames", to={"plural": "widgets", "kind": "Widget"}))
    assert (made.kind.list_kind, made.kind.singular) == ("WidgetList", "widget")
    assert resource(changed("spec", "scope", to="Cluster")).kind.namespaced is False


def test_the_versions() -> None:
    """Served versions in order of priority; all are decodable; one is the storage version."""
    made = resource()
    assert made.served == ("v1", "v1beta1")
    assert made.decodable == (V1, "example.com/v1beta1", "example.com/v1alpha1")
    assert made.storage_api_version == V1
    assert set(made.traits) == {"v1", "v1beta1", "v1alpha1"}
    assert Catalog([made]).find("example.com", "v1alpha1", "widgets") is None
    other = deepcopy(DEFINITION)
    other["spec"]["versions"][0]["storage"] = True
    other["spec"]["versions"][2] |= {"storage": False, "served": False}
    made = resource(other)
    assert made.served == ("v1beta1",)
    assert made.decodable[0] == made.storage_api_version == BETA
    assert set(made.decodable) == {V1, BETA, "example.com/v1alpha1"}


def test_conversion_changes_the_version_only() -> None:
    """Without a webhook, conversion changes only apiVersion, between any two versions."""
    made = resource()
    for source in made.decodable:
        for target in made.decodable:
            found = made.converter.convert(widget(source, spec={"x": 1}), source, target)
            assert found == widget(target, spec={"x": 1})


class Remote:
    """A conversion webhook."""

    async def convert(self, objects: Any, target: str) -> list[Any]:
        return [{**each, "apiVersion": target} for each in objects]


def test_where_it_comes_from() -> None:
    """A resource refers to its CRD, with its deletion and conversion webhook."""
    closing = changed("metadata", "deletionTimestamp", to="2026-01-01T00:00:00Z")
    remote = Remote()
    made = custom_resource(definition(closing, 9), remote=remote)
    assert made.remote is remote
    assert made.origin is not None
    assert (made.origin.uid, made.origin.revision, made.origin.is_closing) == ("u-1", 9, True)
    assert made.origin.key.endswith("/widgets.example.com")
    assert resource().remote is None


def test_traits() -> None:
    """Each version has its own subresources, columns, selectable fields, and schema."""
    made = resource()
    first, beta = made.traits["v1"], made.traits["v1beta1"]
    assert first.subresources == (STATUS, SCALE)
    assert made.subresources("v1beta1") == ()
    assert (made.has_status(V1), made.has_status(BETA)) == (True, False)
    assert first.scale == ScalePaths(
        spec_replicas=".spec.replicas",
        status_replicas=".status.replicas",
        label_selector=".status.selector",
    )
    assert first.columns == (
        PrinterColumn(name="Replicas", type="integer", path=".spec.replicas", priority=1),
    )
    (field,) = first.selectable_fields
    assert field.label == "spec.color"
    assert field.value_of(widget(spec={"color": "red"})) == "red"
    assert not beta.selectable_fields
    assert not beta.columns
    assert made.traits["v1alpha1"].schema is None


def test_a_published_schema_equals_the_declared_one() -> None:
    """The published schema is a mapping with all declared fields, parsed on each access."""
    schema = resource().traits["v1"].schema
    assert isinstance(schema, PublishedSchema)
    assert dict(schema) == schema.read() == SCHEMA
    assert len(schema) == len(SCHEMA)
    schema.read().clear()
    assert schema["type"] == "object"
    bad = resource(changed("spec", "versions", 2, "schema", "openAPIV3Schema", to=[1]))
    assert dict(bad.traits["v1"].schema or {}) == {}


@pytest.mark.parametrize(
    ("versions", "warning"),
    [
        ([], "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget"),
        ([{"deprecationWarning": "stop"}], "stop"),
        ([{"deprecationWarning": ""}], ""),
        ([{"deprecated": False, "deprecationWarning": "stop"}], ""),
        ([{}, {}, {"deprecated": True}], "example.com/v1beta1 Widget is deprecated"),
        ([{}, {}, {"served": False}], "example.com/v1beta1 Widget is deprecated"),
        (
            [{}, {"name": "v2", "served": True, "deprecated": False}],
            "example.com/v1beta1 Widget is deprecated; use example.com/v2 Widget",
        ),
        (
            [{}, {"served": True, "deprecated": False}, {"served": False}],
            "example.com/v1beta1 Widget is deprecated",
        ),
    ],
)
def test_deprecation(versions: list[dict[str, Any]], warning: str) -> None:
    """A deprecated version has the declared warning, or one that names the best other version."""
    made = deepcopy(DEFINITION)
    for version, change in zip(made["spec"]["versions"], versions, strict=False):
        version.update(change)
    assert resource(made).traits["v1beta1"].deprecation == warning
