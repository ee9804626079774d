"""Hypothesis strategies for values of structs: valid ones, and nearly valid ones.

Not here: tests.
"""

from collections.abc import Iterator
from datetime import timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from restow.apimachinery.type_values import EPOCH, encode_base64
from restow.apimachinery.types import (
    SCHEMA_NAME,
    ListOf,
    MapOf,
    Scalar,
    Special,
    Struct,
    StructRef,
    Type,
)
from restow.kinds.types import load_types

# Enough for pods in workloads; deeper structs get no optional structs.
DEPTH_MAX = 6

KINDS = (
    ("", "v1", "ConfigMap"),
    ("", "v1", "Secret"),
    ("", "v1", "Namespace"),
    ("", "v1", "ServiceAccount"),
    ("", "v1", "Service"),
    ("", "v1", "Pod"),
    ("", "v1", "Event"),
    ("", "v1", "ResourceQuota"),
    ("", "v1", "Status"),
    ("", "v1", "List"),
    ("", "v1", "ConfigMapList"),
    ("", "v1", "PersistentVolume"),
    ("", "v1", "Node"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "ReplicaSet"),
    ("apps", "v1", "ControllerRevision"),
    ("apps", "v1beta1", "Deployment"),
    ("apps", "v1", "DeleteOptions"),
    ("authentication.k8s.io", "v1", "TokenRequest"),
    ("authentication.k8s.io", "v1", "TokenReview"),
    ("authentication.k8s.io", "v1", "SelfSubjectReview"),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "SubjectAccessReview"),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview"),
    ("autoscaling", "v1", "Scale"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ("batch", "v1", "CronJob"),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"),
    ("coordination.k8s.io", "v1", "Lease"),
    ("discovery.k8s.io", "v1", "EndpointSlice"),
    ("events.k8s.io", "v1", "Event"),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"),
    ("internal.apiserver.k8s.io", "v1alpha1", "StorageVersion"),
    ("policy", "v1", "Eviction"),
    ("policy", "v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    ("storagemigration.k8s.io", "v1beta1", "StorageVersionMigration"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "v1", "APIService"),
)


def struct_of(group: str, version: str, kind: str) -> Struct:
    struct = load_types().of_kind(group, version, kind)
    assert struct is not None, (group, version, kind)
    return struct


# Kinds, and structs that random kinds seldom contain.
structs = st.sampled_from(KINDS).map(lambda kind: struct_of(*kind)) | st.sampled_from(
    (
        SCHEMA_NAME,
        "io.k8s.api.core.v1.Container",
        "io.k8s.api.core.v1.PodSpec",
        "io.k8s.api.core.v1.Volume",
        "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    )
).map(load_types().struct)


def holds_schemas(struct: Struct) -> bool:
    """Returns whether the struct contains a JSON schema; the quick test stops at those."""
    return any(each.name == SCHEMA_NAME for each in reachable(struct))


def reachable(struct: Struct) -> Iterator[Struct]:
    """Returns the struct and all structs reachable from it, each once."""
    seen = {struct.name}
    waiting = [struct]
    while waiting:
        each = waiting.pop()
        yield each
        for field in each:
            child = each.child(field.type)
            if isinstance(field.type, Special) and field.type.name.startswith("SCHEMA"):
                child = each.table.struct(SCHEMA_NAME)
            if child is not None and child.name not in seen:
                seen.add(child.name)
                waiting.append(child)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
times = st.builds(
    lambda moment, minutes: moment.astimezone(timezone(timedelta(minutes=minutes))).isoformat(),
    st.integers(-(2**31), 2**33).map(lambda seconds: EPOCH + timedelta(seconds=seconds / 7)),
    st.integers(-720, 720),
)
_SCALARS: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: texts,
    Scalar.BOOL: st.booleans(),
    Scalar.INT32: st.integers(-(2**31), 2**31 - 1),
    Scalar.INT64: st.integers(-(2**63), 2**63 - 1),
    Scalar.FLOAT64: st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    Scalar.BYTES: st.binary(max_size=6).map(encode_base64),
}
_SPECIALS: dict[Special, st.SearchStrategy[Any]] = {
    Special.TIME: times,
    Special.MICRO_TIME: times,
    Special.DURATION: st.sampled_from(["1h", "90s", "1.5s", "0", "20ms", "-3us"]),
    Special.QUANTITY: st.sampled_from(["0", "1", "500m", "1.5Gi", "1e3", 2, 0.5, ".5", "+3k"]),
    Special.INT_OR_STRING: st.integers(-(2**31), 2**31 - 1) | texts,
    Special.RAW_EXTENSION: json_values,
    Special.FIELDS_V1: json_values,
    Special.JSON: json_values,
}


@st.composite
def values_of(draw: st.DrawFn, struct: Struct, *, depth: int = 0) -> dict[str, Any]:
    """Generates an object of the struct's type; not yet canonical."""
    fields = [field for field in struct if field.json not in ("kind", "apiVersion")]
    count_max = 5 if depth < DEPTH_MAX else 1
    chosen = draw(st.lists(st.sampled_from(fields), max_size=count_max)) if fields else []
    return {field.json: draw(_values(struct, field.type, depth)) for field in chosen}


def _values(struct: Struct, type_: Type, depth: int) -> st.SearchStrategy[Any]:
    match type_:
        case Scalar():
            return _SCALARS[type_]
        case Special.SCHEMA_OR_ARRAY | Special.SCHEMA_OR_BOOL | Special.SCHEMA_OR_STRINGS:
            schema = values_of(struct.table.struct(SCHEMA_NAME), depth=depth + 2)
            return (
                schema
                | {
                    Special.SCHEMA_OR_ARRAY: st.lists(schema, max_size=2),
                    Special.SCHEMA_OR_BOOL: st.booleans(),
                    Special.SCHEMA_OR_STRINGS: st.lists(texts, max_size=2),
                }[type_]
            )
        case Special():
            return _SPECIALS[type_]
        case StructRef(name):
            return values_of(struct.table.struct(name), depth=depth + 1)
        case ListOf(item):
            return st.lists(_values(struct, item, depth), max_size=2)
        case MapOf(item):
            return st.dictionaries(texts, _values(struct, item, depth), max_size=2)


@st.composite
def near_values_of(draw: st.DrawFn, struct: Struct) -> dict[str, Any]:
    """The same with a few fields overwritten by arbitrary values, or with unknown fields."""
    value = draw(values_of(struct))
    for _ in range(draw(st.integers(0, 3))):
        place: Any = value
        while True:
            key = _any_key(draw, place)
            inner = place[key] if not isinstance(place, dict) or key in place else None
            if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
                place[key] = draw(json_values | st.floats() | st.integers())
                break
            place = inner
    return value


def _any_key(draw: st.DrawFn, place: Any) -> Any:
    if isinstance(place, list):
        return draw(st.integers(0, len(place) - 1))
    return draw(st.sampled_from([*place, "name", "foo", "metadata", "spec"]))
