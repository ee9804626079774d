"""Validation of decoded JSON: types, unknown fields, and the canonical form."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.status import BadRequest
from restow.apimachinery.typed_json import check, is_canonical
from restow.apimachinery.typed_json_repair import DEPTH_MAX, STRUCTS_MAX, UNKNOWN_FIELDS_MAX, repair
from tests.typed_values import holds_schemas, near_values_of, struct_of, structs, values_of

CONFIG_MAP = struct_of("", "v1", "ConfigMap")
DEPLOYMENT = struct_of("apps", "v1", "Deployment")
LEASE = struct_of("coordination.k8s.io", "v1", "Lease")
DEFINITION = struct_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition")


def deployment(**container: Any) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", **container}]}}},
    }


def with_empties(value: dict[str, Any]) -> dict[str, Any]:
    """Return a deployment with the empty fields that Go always writes."""
    value["spec"]["strategy"] = {}
    value["spec"]["template"]["metadata"] = {}
    return value | {"status": {}}


def container_of(value: Any) -> Any:
    return check(DEPLOYMENT, value).value["spec"]["template"]["spec"]["containers"][0]


def test_a_canonical_object_is_returned_itself() -> None:
    """The usual write is neither copied nor modified."""
    env, ports = [{"name": "A", "value": "b"}], [{"containerPort": 1}]
    value = with_empties(deployment(image="i", env=env, ports=ports, resources={}))
    checked = check(DEPLOYMENT, value)
    assert checked.value is value
    assert checked.unknown == []


def test_unknown_fields_are_listed_with_their_paths_and_removed() -> None:
    """Paths have indexes, as in warnings; the value is not modified."""
    value = deployment(foo=1, resources={"limits": {"cpu": "1"}, "bar": {}})
    value["metadata"]["baz"] = None
    value["spec"]["x"] = [1]
    before = copy.deepcopy(value)
    checked = check(DEPLOYMENT, value)
    assert set(checked.unknown) == {
        "metadata.baz",
        "spec.x",
        "spec.template.spec.containers[0].foo",
        "spec.template.spec.containers[0].resources.bar",
    }
    assert checked.value == with_empties(deployment(resources={"limits": {"cpu": "1"}}))
    assert value == before


def test_unknown_fields_below_a_map_have_its_key_in_their_path() -> None:
    """Unknown fields of nested schemas are reported with their path."""
    schema = {"properties": {"a.b": {"foo": 1}}, "items": {"bar": 2}}
    versions = [{"schema": {"openAPIV3Schema": schema}}]
    unknown = check(DEFINITION, {"spec": {"versions": versions}}).unknown
    base = "spec.versions[0].schema.openAPIV3Schema"
    assert unknown == [f"{base}.properties.a.b.foo", f"{base}.items.bar"]


def test_the_list_of_unknown_fields_is_bounded() -> None:
    """All are removed, and a hundred are listed."""
    checked = check(CONFIG_MAP, {f"x{number}": 1 for number in range(1000)})
    assert checked.value == {"metadata": {}}
    assert len(checked.unknown) == UNKNOWN_FIELDS_MAX


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"data": {"a": 1}},
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            {"data": []},
            (
                "json: cannot unmarshal array into Go struct field ConfigMap.data "
                "of type map[string]string"
            ),
        ),
        (
            {"immutable": "yes"},
            "json: cannot unmarshal string into Go struct field ConfigMap.immutable of type bool",
        ),
        (
            {"metadata": {"generation": 1.5}},
            (
                "json: cannot unmarshal number 1.5 into Go struct field "
                "ObjectMeta.metadata.generation of type int64"
            ),
        ),
        (
            {"metadata": {"ownerReferences": [{"uid": True}]}},
            (
                "json: cannot unmarshal bool into Go struct field "
                "OwnerReference.metadata.ownerReferences.uid of type string"
            ),
        ),
        (
            {"metadata": "x"},
            (
                "json: cannot unmarshal string into Go struct field ConfigMap.metadata "
                "of type v1.ObjectMeta"
            ),
        ),
        (
            {"metadata": {"ownerReferences": [7]}},
            (
                "json: cannot unmarshal number into Go struct field "
                "ObjectMeta.metadata.ownerReferences of type v1.OwnerReference"
            ),
        ),
        (
            {"metadata": {"creationTimestamp": "yesterday"}},
            'metadata.creationTimestamp: cannot parse "yesterday" as an RFC 3339 time',
        ),
        ({"binaryData": {"a": "%"}}, "binaryData: illegal base64 data"),
    ],
)
def test_a_wrong_type_is_reported_with_its_field(value: Any, message: str) -> None:
    """The message equals that of Kubernetes, which people and tools know."""
    with pytest.raises(BadRequest) as caught:
        check(CONFIG_MAP, value)
    prefix = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
    assert str(caught.value) == prefix + message


@pytest.mark.parametrize("value", [None, [], "x", 1, True])
def test_non_objects_are_rejected(value: object) -> None:
    """Only an object can be a ConfigMap."""
    with pytest.raises(BadRequest, match=r"into Go value of type v1\.ConfigMap"):
        check(CONFIG_MAP, value)


@pytest.mark.parametrize(
    "number",
    [2**31, -(2**31) - 1, pytest.param(10**5000, id="long"), 1.0, float("inf"), float("nan"), True],
)
def test_integers_have_their_range(number: Any) -> None:
    """A number out of range is a 400 that names the field, however many digits it has."""
    with pytest.raises(BadRequest, match=r"DeploymentSpec\.spec\.replicas of type int32"):
        check(DEPLOYMENT, {"spec": {"replicas": number}})


def test_null_is_absent() -> None:
    """A null field counts as absent, for every type."""
    value = {field.json: None for field in DEPLOYMENT}
    assert check(DEPLOYMENT, value) == check(DEPLOYMENT, {})


def test_zeros_are_omitted_as_in_go() -> None:
    """The stored object equals what a Go client writes for it."""
    written = deployment(resources={}, env=[], image="", tty=False, command=None)
    written["metadata"] |= {"creationTimestamp": None, "labels": {}, "generation": 0}
    written["spec"]["strategy"] = {}
    written["spec"]["template"]["metadata"] = {"creationTimestamp": None}
    written["status"] = {}
    stored = with_empties(deployment(resources={}))
    assert check(DEPLOYMENT, written).value == stored
    assert check(DEPLOYMENT, deployment()).value == stored


def test_zeros_of_pointers_stay() -> None:
    """Zero replicas differ from missing replicas."""
    value = {"metadata": {}, "spec": {"replicas": 0, "paused": False, "revisionHistoryLimit": 0}}
    spec = check(DEPLOYMENT, value).value["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"]) == (0, 0)
    assert "paused" not in spec
    assert container_of(deployment(securityContext={})) == {
        "name": "c",
        "resources": {},
        "securityContext": {},
    }


def test_fields_that_go_always_writes_are_there() -> None:
    """Clients with required fields can read objects whose writer omitted them."""
    role = check(struct_of("rbac.authorization.k8s.io", "v1", "ClusterRole"), {}).value
    assert role == {"metadata": {}, "rules": []}
    replica_set = check(struct_of("apps", "v1", "ReplicaSet"), {"spec": {}}).value
    assert replica_set["status"] == {"replicas": 0}
    pod = struct_of("", "v1", "Pod")
    conditions = [{"type": "Ready", "status": "True"}, None]
    status = {"conditions": conditions, "containerStatuses": [{"name": "a"}]}
    status = check(pod, {"status": status}).value["status"]
    assert status["conditions"][1] == {"type": "", "status": ""}
    assert status["containerStatuses"][0]["ready"] is False
    assert status["containerStatuses"][0]["restartCount"] == 0


def test_zeros_that_were_put_in_are_not_shared() -> None:
    """Two objects never share a default value."""
    role = struct_of("rbac.authorization.k8s.io", "v1", "ClusterRole")
    first, second = check(role, {}).value, check(role, {}).value
    first["rules"].append({})
    first["metadata"]["name"] = "a"
    assert second == {"metadata": {}, "rules": []}


def test_times_of_python_clients_become_canonical() -> None:
    """An offset becomes Z, and a MicroTime has six digits."""
    spec = {"renewTime": "2026-11-15T19:51:08.742963+00:00", "leaseDurationSeconds": 0}
    value = {"metadata": {"creationTimestamp": "2026-11-15T20:51:08+01:00"}, "spec": spec}
    assert check(LEASE, value).value == {
        "metadata": {"creationTimestamp": "2026-11-15T19:51:08Z"},
        "spec": {"renewTime": "2026-11-15T19:51:08.742963Z", "leaseDurationSeconds": 0},
    }


def test_quantities_may_be_numbers_and_become_canonical() -> None:
    """A number becomes a string, and equal quantities have one form."""
    limits = {"cpu": 0.5, "memory": "1024Mi", "pods": 3, "x": None}
    container = container_of(deployment(resources={"limits": limits}))
    assert container["resources"]["limits"] == {
        "cpu": "500m",
        "memory": "1Gi",
        "pods": "3",
        "x": "0",
    }
    with pytest.raises(BadRequest, match="quantities must match"):
        check(DEPLOYMENT, deployment(resources={"limits": {"cpu": "much"}}))


def test_a_port_is_a_number_or_a_name() -> None:
    """Both forms are accepted unchanged, others are rejected."""
    for port in (80, "http", 0):
        probe = {"httpGet": {"port": port}}
        assert container_of(deployment(livenessProbe=probe))["livenessProbe"] == probe
    refused: tuple[Any, ...] = (True, 1.5, 2**31, [])
    for wrong in refused:
        with pytest.raises(BadRequest, match=r"intstr\.IntOrString"):
            check(DEPLOYMENT, deployment(livenessProbe={"httpGet": {"port": wrong}}))


def test_managed_fields_are_data() -> None:
    """Field sets are kept unchanged, including empty objects."""
    entry = {"manager": "m", "operation": "Update", "fieldsV1": {"f:data": {".": {}, "f:a": {}}}}
    value = {"metadata": {"managedFields": [entry]}}
    assert check(CONFIG_MAP, value).value is value


def test_schemas_hold_schemas_lists_booleans_and_any_value() -> None:
    """The schema unions accept each of their forms, and `default` any value."""
    schema = {
        "type": "object",
        "items": [{"type": "string"}],
        "additionalProperties": False,
        "dependencies": {"a": ["b"], "c": {"type": "string"}},
        "enum": [None, 1, "a"],
        "default": {"a": [0]},
        "minimum": 2,
        "x-kubernetes-validations": [{"rule": "true"}],
    }
    names = {"plural": "as", "kind": "A"}
    spec = {
        "group": "g",
        "names": names,
        "scope": "Cluster",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        ],
    }
    checked = check(DEFINITION, {"spec": spec})
    assert checked.unknown == []
    assert checked.value["spec"] == spec
    schema["minimum"] = 2.0
    assert check(DEFINITION, {"spec": spec}).value["spec"] == spec
    for name, wrong in (("items", True), ("additionalProperties", [1]), ("dependencies", {"a": 1})):
        with pytest.raises(BadRequest, match=rf"JSONSchemaProps\..*{name}"):
            check(DEFINITION, {"spec": {**spec, "versions": [_with_schema({name: wrong})]}})


def _with_schema(schema: object) -> dict[str, Any]:
    return {"schema": {"openAPIV3Schema": schema}}


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 5000])
def test_endless_schemas_are_refused(depth: int) -> None:
    """Excessive nesting is a 400, not a RecursionError."""
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    with pytest.raises(BadRequest, match="nested deeper"):
        check(DEFINITION, {"spec": {"versions": [_with_schema(schema)]}})


def test_a_flood_of_empty_objects_is_refused() -> None:
    """Empty objects of two bytes each cannot expand to unlimited memory."""
    with pytest.raises(BadRequest, match="nested objects"):
        check(DEPLOYMENT, deployment(env=[{}] * (STRUCTS_MAX + 1)))


@given(st.data())
def test_checking_is_idempotent_and_both_passes_agree(data: st.DataObject) -> None:
    """A checked object passes unchanged, and the two passes never disagree."""
    struct = data.draw(structs)
    value = data.draw(values_of(struct))
    before = copy.deepcopy(value)
    checked = check(struct, value)
    assert checked.unknown == []
    assert value == before
    again, unknown = repair(struct, checked.value)
    assert orjson.dumps(again) == orjson.dumps(checked.value)
    assert unknown == []
    if not holds_schemas(struct):
        assert is_canonical(struct, checked.value)
        assert check(struct, checked.value).value is checked.value


@given(st.data())
def test_nearly_valid_objects_are_repaired_or_rejected(data: st.DataObject) -> None:
    """The result is a 400, or an object that can be encoded and passes the next check."""
    struct = data.draw(structs)
    value = data.draw(near_values_of(struct))
    try:
        checked = check(struct, value)
    except BadRequest:
        assert not is_canonical(struct, value)
        return
    again = repair(struct, checked.value)
    assert again[1] == []
    assert repr(again[0]) == repr(checked.value) or again[0] == checked.value
    if is_canonical(struct, value):
        assert repair(struct, value)[0] == value
