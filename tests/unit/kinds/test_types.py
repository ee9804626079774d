"""The type tables in the package."""

import pytest

from restow.apimachinery.types import (
    Embedded,
    ListOf,
    MapOf,
    Scalar,
    Special,
    StructRef,
    UnknownType,
)
from restow.kinds.types import DATA, Types, load_types
from tests.typed_values import KINDS, struct_of

META = "io.k8s.apimachinery.pkg.apis.meta.v1"


def test_every_type_that_a_field_names_is_in_the_tables() -> None:
    """Every reference in every group version has a target."""
    types = load_types()
    count = 0
    for group, version in types.group_versions():
        for struct in types.structs(group, version):
            count += 1
            for field in struct:
                struct.child(field.type)
            for embedded in struct.embedded:
                types.struct(embedded.name)
    assert count > 1000


def test_names_and_numbers_are_unique_in_a_struct() -> None:
    """Flattening an embedded struct hides no field, and each number is unique."""
    types = load_types()
    for group, version in types.group_versions():
        for struct in types.structs(group, version):
            assert len(struct.by_name) == len(struct.fields), struct.name
            own = [field for field in struct if field.number and not field.inline]
            assert len(struct.by_number) == len(own) + len(struct.embedded), struct.name


@pytest.mark.parametrize(("group", "version", "kind"), KINDS)
def test_a_kind_is_found_by_its_group_version(group: str, version: str, kind: str) -> None:
    """All kinds that clients send exist, with kind and apiVersion."""
    struct = struct_of(group, version, kind)
    assert struct.short_name == kind
    assert struct.is_kind
    assert {"kind", "apiVersion"} <= set(struct.by_name)


def test_options_are_found_in_every_group() -> None:
    """Clients name DeleteOptions with the group version of the resource, even an unknown one."""
    for group, version in (("", "v1"), ("apps", "v1"), ("example.com", "v1alpha1")):
        struct = load_types().of_kind(group, version, "DeleteOptions")
        assert struct is not None
        assert struct.name == f"{META}.DeleteOptions"


def test_unknown_kinds_and_types() -> None:
    """An unknown kind is None, and an unknown type is an error with its name."""
    types = load_types()
    assert types.of_kind("apps", "v1", "Nothing") is None
    assert types.of_kind("apps", "v1", "DeploymentSpec") is None
    assert types.of_kind("example.com", "v1", "Deployment") is None
    assert types.kinds("example.com", "v1") == ()
    assert list(types.structs("example.com", "v1")) == []
    for name in ("io.k8s.api.core.v1.Nothing", "Nothing", "io.k8s.api.core.v9.Pod"):
        with pytest.raises(UnknownType, match=r"Nothing|v9"):
            types.struct(name)


def test_an_embedded_struct_is_flat_in_json_and_apart_in_protobuf() -> None:
    """A volume has the fields of its source, which have no numbers of their own in it."""
    volume = load_types().struct("io.k8s.api.core.v1.Volume")
    assert volume.by_name["configMap"].inline
    assert volume.by_number[2] == Embedded(2, "io.k8s.api.core.v1.VolumeSource")
    assert set(volume.by_number) == {1, 2}


def test_fields_carry_their_facts() -> None:
    """Pointers, merge strategies and keys, list types and numbers are those of Kubernetes."""
    spec = load_types().struct("io.k8s.api.apps.v1.DeploymentSpec")
    replicas = spec.by_name["replicas"]
    assert (replicas.type, replicas.pointer, replicas.omitempty) == (Scalar.INT32, True, True)
    assert spec.by_name["strategy"].patch_strategies == ("retainKeys",)
    pod = load_types().struct("io.k8s.api.core.v1.PodSpec")
    containers = pod.by_name["containers"]
    assert containers.type == ListOf(StructRef("io.k8s.api.core.v1.Container"))
    assert (containers.patch_strategies, containers.merge_key) == (("merge",), "name")
    assert (containers.list_type, containers.list_keys) == ("map", ("name",))
    assert pod.by_name["volumes"].patch_strategies == ("merge", "retainKeys")
    assert pod.by_name["nodeSelector"].map_type == "atomic"
    meta = load_types().struct(f"{META}.ObjectMeta")
    assert meta.by_name["managedFields"].number == 17
    assert meta.by_name["creationTimestamp"].type is Special.TIME
    assert meta.by_name["labels"].type == MapOf(Scalar.STRING)
    secret = struct_of("", "v1", "Secret")
    assert secret.by_name["data"].type == MapOf(Scalar.BYTES)


def test_types_are_parsed_on_demand() -> None:
    """A server that uses one kind does not parse a thousand structs."""
    types = Types(DATA.read_bytes())
    assert types._structs == {}
    types.of_kind("", "v1", "ConfigMap")
    assert set(types._structs) == {"io.k8s.api.core.v1.ConfigMap"}


def test_the_file_stays_small() -> None:
    """It is part of every download."""
    assert DATA.stat().st_size < 150_000
