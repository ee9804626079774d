"""Field sets, merged lists and rejections, compared with recorded answers of a kube-apiserver."""

from functools import cache
from typing import Any

import pytest

from restow.apimachinery.apply import sets
from restow.apimachinery.apply.blank import blank
from restow.apimachinery.apply.entries import stripped
from restow.apimachinery.apply.merge import merge
from restow.apimachinery.apply.schema import SchemaNode, from_struct
from restow.apimachinery.apply.schema_check import ApplySchemaError, check
from restow.apimachinery.apply.structural_schema import from_structural
from restow.apimachinery.apply.values import compare, field_set_of
from restow.apimachinery.structural.schema import read_schema
from restow.apimachinery.types import Struct
from restow.kinds.derived_types import all_types
from tests.unit.apimachinery.apply import reference_cases as cases
from tests.unit.apimachinery.apply.kinds import seen


@cache
def thing() -> SchemaNode:
    """Return the node of the custom kind in the recorded cases."""
    return from_structural(read_schema(cases.OBJECT_SCHEMA))


def struct_of(obj: dict[str, Any]) -> Struct | None:
    """Return the built-in type of an object; None if it is a custom kind."""
    group, _, version = obj["apiVersion"].rpartition("/")
    return all_types().of_kind(group, version, obj["kind"])


def node_of(obj: dict[str, Any]) -> SchemaNode:
    """Return the node of any recorded object."""
    struct = struct_of(obj)
    return thing() if struct is None else from_struct(struct)


def created(obj: dict[str, Any]) -> sets.FieldSet:
    """Return the fields that the creator of an object owns."""
    struct = struct_of(obj)
    found = compare(node_of(obj), {} if struct is None else blank(struct), seen(obj))
    return stripped(sets.union(found.added, found.modified))


@pytest.mark.parametrize(
    ("name", "config", "fields"), cases.APPLIED, ids=lambda each: str(each)[:9]
)
def test_fields_owned_by_an_applier(name: str, config: dict[str, Any], fields: Any) -> None:
    """The fields of a configuration are those that Kubernetes assigns to its applier."""
    del name
    check(node_of(config), config)
    assert stripped(field_set_of(node_of(config), config)) == fields


@pytest.mark.parametrize(("name", "obj", "fields"), cases.CREATED, ids=lambda each: str(each)[:9])
def test_fields_owned_by_a_creator(name: str, obj: dict[str, Any], fields: Any) -> None:
    """The fields of a new object are those that Kubernetes assigns to its creator."""
    del name
    assert created(obj) == fields


@pytest.mark.parametrize(
    ("name", "old", "new", "creators", "updaters"), cases.UPDATED, ids=lambda each: str(each)[:9]
)
def test_fields_moved_by_an_update(
    name: str, old: dict[str, Any], new: dict[str, Any], creators: Any, updaters: Any
) -> None:
    """Fields that an update changes move to its manager as in Kubernetes."""
    del name
    node = node_of(old)
    found = compare(node, seen(old), seen(new))
    assert stripped(sets.union(found.added, found.modified)) == updaters
    touched = sets.union(sets.union(found.added, found.modified), found.removed)
    left = sets.difference(created(old), touched)
    assert left == creators


@pytest.mark.parametrize(("live", "config", "merged"), cases.MERGED)
def test_the_order_of_merged_items(live: str, config: str, merged: str) -> None:
    """Items of an associative list are merged in the order of Kubernetes."""
    found = merge(thing(), {"spec": {"set": list(live)}}, {"spec": {"set": list(config)}})
    assert "".join(found["spec"]["set"]) == merged


@pytest.mark.parametrize(("spec", "problem"), cases.REFUSED, ids=lambda each: str(each)[:40])
def test_schema_violations(spec: dict[str, Any], problem: str) -> None:
    """A configuration that does not match the schema is rejected with Kubernetes' message."""
    with pytest.raises(ApplySchemaError) as refused:
        check(thing(), {"spec": spec})
    assert str(refused.value) == problem


def test_paths_of_a_conflict() -> None:
    """The paths of a conflict are formatted and ordered as in Kubernetes."""
    node = thing()
    name = 'a"b\n<\u00e9'
    old, new = (
        {
            "metadata": {"labels": {"app": text}},
            "spec": {
                "ports": [{"port": 1, "name": text}],
                "items": [{"name": name, "value": text}],
                "set": ['q"r'],
                "color": {"r": number},
                "texts": {"a.b/c": text},
            },
        }
        for number, text in enumerate("xy")
    )
    changed = compare(node, old, new).modified
    assert [sets.path_text(path) for path in sets.members(changed)] == [
        ".metadata.labels.app",
        ".spec.color",
        '.spec.items[name="a\\"b\\n<\u00e9"].value',
        '.spec.ports[port=1,protocol="TCP"].name',
        ".spec.texts.a.b/c",
    ]
