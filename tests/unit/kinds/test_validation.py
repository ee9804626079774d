"""Validation of built-in kinds: each violation has its field, and valid objects pass."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.kinds.builtin import all_kinds
from restow.kinds.defaults import apply_defaults
from restow.kinds.types import load_types
from restow.kinds.validation import kind_rules, pod_rules, validate, volume_rules
from tests.unit.kinds.strategies import JSON

Object = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
POD = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
JOB = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
MANUAL_JOB = {
    "manualSelector": True,
    "selector": {"matchLabels": {"a": "b"}},
    "template": {**JOB["template"], "metadata": {"labels": {"a": "b"}}},
}
ROLE_REF = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"}
DEFINITION = {
    "metadata": {"name": "foos.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"kind": "Foo", "listKind": "FooList", "plural": "foos", "singular": "foo"},
        "versions": [
            {"name": "v1", "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
    "status": {"storedVersions": ["v1"]},
}
MIGRATION = {"spec": {"resource": {"group": "apps", "resource": "deployments"}}}

GOOD: list[tuple[str, str, Object]] = [
    ("", "ConfigMap", {"data": {"a.b_c-D": "x"}, "binaryData": {"y": "eA=="}}),
    ("", "Secret", {"type": "Opaque", "data": {"a": "eA=="}}),
    ("", "Service", {"spec": {"ports": [{"port": 80, "protocol": "TCP"}], "type": "ClusterIP"}}),
    ("", "Service", {"spec": {"clusterIP": "None"}}),
    ("", "Event", {"metadata": {"namespace": "n"}, "involvedObject": {"namespace": "n"}}),
    ("", "Event", {"metadata": {"namespace": "default"}, "involvedObject": {"kind": "Node"}}),
    ("", "Pod", {"spec": POD}),
    ("apps", "Deployment", {"spec": SELECTED}),
    ("apps", "StatefulSet", {"spec": SELECTED}),
    ("batch", "Job", {"spec": MANUAL_JOB}),
    ("batch", "CronJob", {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": JOB}}}),
    ("batch", "CronJob", {"spec": {"schedule": "@hourly", "jobTemplate": {"spec": JOB}}}),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        {
            "spec": {
                "maxReplicas": 2,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            }
        },
    ),
    ("policy", "PodDisruptionBudget", {"spec": {"minAvailable": "50%"}}),
    ("coordination.k8s.io", "Lease", {"spec": {"leaseDurationSeconds": 15}}),
    (RBAC, "ClusterRoleBinding", {"roleRef": ROLE_REF}),
    (RBAC, "Role", {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
    ("apiextensions.k8s.io", "CustomResourceDefinition", DEFINITION),
    ("storagemigration.k8s.io", "StorageVersionMigration", MIGRATION),
    ("internal.apiserver.k8s.io", "StorageVersion", {"metadata": {"name": "apps.deployments"}}),
]

# The fields with errors.
BAD: list[tuple[str, str, Object, list[str]]] = [
    ("", "ConfigMap", {"data": {"a/b": "x"}}, ["data[a/b]"]),
    ("", "ConfigMap", {"data": {"ok": "x", "a/b": "x", "": "x"}}, ["data[a/b]", "data[]"]),
    ("", "ConfigMap", {"data": {"ok": "x", "k" * 254: "x"}}, [f"data[{'k' * 64}...]"]),
    ("", "ConfigMap", {"data": {"..": "x"}}, ["data[..]"]),
    ("", "ConfigMap", {"data": {"a": "x"}, "binaryData": {"a": "eA=="}}, ["data[a]"]),
    ("", "ConfigMap", {"data": {"a": "x" * (1024 * 1024 + 1)}}, [""]),
    ("", "Secret", {"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}, ["data[tls.key]"]),
    ("", "Service", {"spec": {}}, ["spec.ports"]),
    (
        "",
        "Service",
        {"spec": {"type": "X", "ports": [{"port": 0}]}},
        ["spec.type", "spec.ports[0].port"],
    ),
    (
        "",
        "Service",
        {"spec": {"ports": [{"port": 1}, {"port": 1, "name": "a"}]}},
        ["spec.ports[0].name", "spec.ports[1]"],
    ),
    (
        "",
        "Event",
        {"metadata": {"namespace": "n"}, "involvedObject": {"namespace": "m"}},
        ["involvedObject.namespace"],
    ),
    ("", "Pod", {"spec": {}}, ["spec.containers"]),
    (
        "apps",
        "Deployment",
        {"spec": {"template": TEMPLATE}},
        ["spec.selector", "spec.template.metadata.labels"],
    ),
    (
        "apps",
        "Deployment",
        {"spec": {**SELECTED, "selector": {"matchLabels": {"a": "c"}}}},
        ["spec.template.metadata.labels"],
    ),
    ("apps", "Deployment", {"spec": {**SELECTED, "replicas": -1}}, ["spec.replicas"]),
    (
        "batch",
        "CronJob",
        {"spec": {"schedule": "x", "jobTemplate": {"spec": JOB}}},
        ["spec.schedule"],
    ),
    (
        "batch",
        "Job",
        {"spec": {**MANUAL_JOB, "template": TEMPLATE}},
        ["spec.template.spec.restartPolicy"],
    ),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        {"spec": {"minReplicas": 3, "maxReplicas": 2}},
        [
            "spec.maxReplicas",
            "spec.scaleTargetRef.kind",
            "spec.scaleTargetRef.name",
            "spec.scaleTargetRef.apiVersion",
        ],
    ),
    ("policy", "PodDisruptionBudget", {"spec": {"minAvailable": 1, "maxUnavailable": 1}}, ["spec"]),
    (
        "coordination.k8s.io",
        "Lease",
        {"spec": {"leaseDurationSeconds": 0}},
        ["spec.leaseDurationSeconds"],
    ),
    (RBAC, "ClusterRoleBinding", {"roleRef": {**ROLE_REF, "kind": "Role"}}, ["roleRef.kind"]),
    (
        RBAC,
        "ClusterRole",
        {"rules": [{}]},
        ["rules[0].verbs", "rules[0].apiGroups", "rules[0].resources"],
    ),
    (
        "internal.apiserver.k8s.io",
        "StorageVersion",
        {"metadata": {"name": "pods"}},
        ["metadata.name"],
    ),
    ("storagemigration.k8s.io", "StorageVersionMigration", {}, ["spec.resource.resource"]),
    ("node.k8s.io", "RuntimeClass", {}, ["handler"]),
]

# Immutable fields, from the first to the second object.
CHANGES: list[tuple[str, str, Object, Object, list[str]]] = [
    (
        "",
        "ConfigMap",
        {"immutable": True, "data": {"a": "x"}},
        {"data": {"a": "y"}},
        ["immutable", "data"],
    ),
    ("", "Secret", {"type": "a"}, {"type": "b"}, ["type"]),
    ("", "Pod", {"spec": POD}, {"spec": {**POD, "hostNetwork": True}}, ["spec"]),
    (
        "apps",
        "Deployment",
        {"spec": SELECTED},
        {
            "spec": {
                **SELECTED,
                "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            }
        },
        ["spec.selector"],
    ),
    (
        "apps",
        "StatefulSet",
        {"spec": SELECTED},
        {"spec": {**SELECTED, "serviceName": "s"}},
        ["spec"],
    ),
    (
        RBAC,
        "ClusterRoleBinding",
        {"roleRef": ROLE_REF},
        {"roleRef": {**ROLE_REF, "name": "s"}},
        ["roleRef"],
    ),
    (
        "storagemigration.k8s.io",
        "StorageVersionMigration",
        {**MIGRATION, "status": {"resourceVersion": "5"}},
        {"spec": {"resource": {"resource": "pods"}}, "status": {"resourceVersion": "6"}},
        ["spec", "status.resourceVersion"],
    ),
    ("scheduling.k8s.io", "PriorityClass", {"value": 1}, {"value": 2}, ["value"]),
]


@pytest.mark.parametrize(("group", "kind", "obj"), GOOD)
def test_good(group: str, kind: str, obj: Object) -> None:
    """A valid object passes, and may be updated unchanged."""
    assert validate(group, kind, obj) == []
    assert validate(group, kind, obj, obj) == []


@pytest.mark.parametrize(("group", "kind", "obj", "fields"), BAD)
def test_bad(group: str, kind: str, obj: Object, fields: list[str]) -> None:
    """An invalid object has an error for each invalid field, and no other."""
    assert [cause.field for cause in validate(group, kind, obj)] == fields


@pytest.mark.parametrize(("group", "kind", "old", "new", "fields"), CHANGES)
def test_changes(group: str, kind: str, old: Object, new: Object, fields: list[str]) -> None:
    """Immutable fields are reported."""
    assert [cause.field for cause in validate(group, kind, new, old)] == fields


def test_image_of_a_pod_may_change() -> None:
    """The few mutable fields of a pod may change."""
    container = {"name": "c", "image": "j"}
    new = {"spec": {**POD, "containers": [container], "activeDeadlineSeconds": 5}}
    assert validate("", "Pod", new, {"spec": POD}) == []


def test_messages() -> None:
    """The messages are those of Kubernetes."""
    (cause,) = validate("", "ConfigMap", {"data": {}}, {"immutable": True, "data": {}})
    assert str(cause) == "immutable: Forbidden: field is immutable when `immutable` is set"
    (cause,) = validate("apps", "Deployment", {"spec": {**SELECTED, "replicas": -1}})
    assert str(cause) == "spec.replicas: Invalid value: -1: must be greater than or equal to 0"


def test_finished_migrations_stay_finished() -> None:
    """A migration that succeeded or failed cannot be restarted."""

    def migration(**conditions: str) -> Object:
        listed = [
            {"type": each, "status": status, "reason": "R", "lastTransitionTime": "t"}
            for each, status in conditions.items()
        ]
        return {**MIGRATION, "status": {"conditions": listed}}

    group, kind = "storagemigration.k8s.io", "StorageVersionMigration"
    done = migration(Succeeded="True")
    assert validate(group, kind, done, migration(Running="True")) == []
    assert validate(group, kind, migration(Succeeded="False"), done) != []
    assert validate(group, kind, migration(Succeeded="True", Failed="True"), done) != []


@given(
    st.sampled_from(all_kinds()),
    JSON,
    st.dictionaries(
        st.sampled_from(["data", "rules", "roleRef", "webhooks", "subsets", "status", "value"]),
        JSON,
    ),
)
def test_any_object(kind: Any, spec: Any, rest: Object) -> None:
    """No object causes an exception in the rules."""
    obj = {"metadata": {"name": "n"}, **rest, "spec": spec}
    assert isinstance(validate(kind.group, kind.kind, obj), list)
    assert isinstance(validate(kind.group, kind.kind, obj, {"spec": {}}), list)
    apply_defaults(kind.group, kind.versions[0], kind.kind, obj)
    assert isinstance(validate(kind.group, kind.kind, obj), list)


def test_a_repeated_scope_is_checked_once() -> None:
    """A quota that repeats a scope has one error for its limits."""
    hard = {"services": "1"}
    selector = {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}] * 3}
    for spec in ({"scopes": ["BestEffort"] * 3}, {"scopeSelector": selector}):
        obj = {"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": hard, **spec}}
        [cause] = validate("", "ResourceQuota", obj)
        assert cause.message.endswith("unsupported scope applied to resource")


def test_every_rule_is_about_an_existing_field() -> None:
    """A misspelled field name would make a rule ineffective without notice."""
    types = load_types()
    fields: dict[str, set[str]] = {}
    for group, version in types.group_versions():
        for struct in types.structs(group, version):
            *_, package, _version, name = struct.name.split(".")
            fields.setdefault(f"{package}/{name}", {""}).update(struct.by_name)
    tables = (pod_rules.RULES, volume_rules.RULES, kind_rules.RULES)
    assert sum(map(len, tables)) == len({name for table in tables for name in table})
    for table in tables:
        for struct_name, rules in table.items():
            # Some sources of volumes have their own type in persistent volumes.
            shared = struct_name.replace("PersistentVolumeSource", "VolumeSource")
            known = fields.get(struct_name) or fields[shared]
            assert rules.keys() <= known, struct_name
