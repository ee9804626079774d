"""The apply schemas of built-in and custom kinds, against the type tables."""

import pytest

from restow.apimachinery.apply.schema import ATOMIC_STRUCTS, OBJECT_META, SchemaNode, from_struct
from restow.apimachinery.apply.structural_schema import from_structural
from restow.apimachinery.structural.schema import read_schema
from restow.apimachinery.types import UnknownType
from restow.kinds.derived_types import all_types
from restow.kinds.types import load_types

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
CORE = "io.k8s.api.core.v1."


def at(node: SchemaNode, *names: str) -> SchemaNode:
    """Return the node at a path; lists are skipped."""
    for name in names:
        while node.members is None:
            assert node.elements is not None
            assert node.elements.item is not None
            node = node.elements.item
        found = node.members[name].node
        assert found is not None
        node = found
    return node


def test_every_struct_compiles() -> None:
    """Each field of each built-in type has a node, and repeated lookups return the same one."""
    types = load_types()
    for group_version in types.group_versions():
        for struct in types.structs(*group_version):
            node = from_struct(struct)
            assert from_struct(struct) is node
            assert node.members is not None
            assert all(node.members[field.json].node is not None for field in struct.fields)


@pytest.mark.parametrize("name", sorted(ATOMIC_STRUCTS))
def test_atomic_structs_exist(name: str) -> None:
    """Each struct that is listed as atomic exists, and is atomic."""
    try:
        struct = all_types().struct(name)
    except UnknownType:
        pytest.fail(f"there is no {name}")
    assert from_struct(struct).is_leaf


def test_metadata_is_that_of_the_tables() -> None:
    """The metadata of custom kinds has the fields of built-in ones, with the same merge rules."""
    struct = all_types().struct(META)
    table = from_struct(struct)
    for field in struct.fields:
        ours, theirs = at(OBJECT_META, field.json), at(table, field.json)
        assert ours.scalar == theirs.scalar
        assert ours.is_leaf == theirs.is_leaf
        if ours.elements is not None and theirs.elements is not None:
            assert ours.elements.keys == theirs.elements.keys
            assert ours.elements.defaults == theirs.elements.defaults
    assert OBJECT_META.members is not None
    assert OBJECT_META.members["nope"].node is None


def test_rules_of_built_in_kinds() -> None:
    """Merge rules of fields whose rules have different sources."""
    pod = from_struct(all_types().struct(CORE + "PodSpec"))
    assert at(pod, "nodeSelector").is_leaf
    assert at(pod, "tolerations").is_leaf
    assert at(pod, "imagePullSecrets", "name").is_leaf
    ports = at(pod, "containers", "ports").elements
    assert ports is not None
    assert ports.element_of({"containerPort": 1}) == 'k:{"containerPort":1,"protocol":"TCP"}'
    assert ports.element_of({}) == 'k:{"containerPort":0,"protocol":"TCP"}'
    assert at(from_struct(all_types().struct(CORE + "ObjectReference")), "name").is_leaf
    volume = from_struct(all_types().struct(CORE + "PersistentVolumeSpec"))
    # An ObjectReference is atomic; this field overrides that.
    assert not at(volume, "claimRef").is_leaf
    secrets = at(from_struct(all_types().struct(CORE + "ServiceAccount")), "secrets").elements
    assert secrets is not None
    with pytest.raises(ValueError, match="omits all key fields"):
        secrets.element_of({"namespace": "x"})


def test_types_that_contain_themselves() -> None:
    """A recursive type has the same node at any depth."""
    prefix = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
    schema = from_struct(all_types().struct(prefix + "JSONSchemaProps"))
    assert at(schema, "properties").members is not None
    members = at(schema, "properties").members
    assert members is not None
    assert members.element is schema
    assert at(schema, "not") is schema


def test_names_of_users_are_not_kept() -> None:
    """Members with arbitrary names are not cached in the schema."""
    labels = at(OBJECT_META, "labels").members
    assert labels is not None
    assert labels["any"].node is not None
    assert not labels
    assert not OBJECT_META.members or "nope" not in OBJECT_META.members


def test_rules_of_custom_kinds() -> None:
    """Unknown fields are accepted where they are preserved; elsewhere they are rejected."""
    node = from_structural(
        read_schema(
            {
                "type": "object",
                "properties": {
                    "metadata": {"type": "object"},
                    "strict": {"type": "object", "properties": {"a": {"type": "string"}}},
                    "closed": {"type": "object", "additionalProperties": False},
                    "open": {"type": "object", "additionalProperties": True},
                    "time": {"type": "string", "format": "date-time"},
                    "untyped": {"x-kubernetes-preserve-unknown-fields": True},
                    "kept": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "properties": {
                            "inner": {"type": "object", "properties": {"a": {"type": "string"}}}
                        },
                    },
                },
            }
        )
    )
    assert at(node, "metadata") is OBJECT_META
    assert node.members is not None
    assert node.members["nope"].node is None
    for name, is_open in (("strict", False), ("closed", False), ("open", True), ("kept", True)):
        members = at(node, name).members
        assert members is not None
        assert (members["nope"].node is not None) == is_open
    assert at(node, "kept", "inner", "nope").scalar == "untyped"
    assert at(node, "time").scalar == "untyped"
    assert not at(node, "untyped").is_leaf
