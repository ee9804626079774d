"""Defaults: fields that the server adds to an object."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.kinds.builtin import all_kinds
from restow.kinds.defaults import apply_defaults, prepare_create
from restow.kinds.defaults.images import pull_policy
from tests.unit.kinds.strategies import JSON

Object = dict[str, Any]


def defaulted(group: str, version: str, kind: str, obj: Object) -> Object:
    """Returns a copy of an object with its defaults."""
    obj = copy.deepcopy(obj)
    apply_defaults(group, version, kind, obj)
    return obj


def test_deployment() -> None:
    """A deployment gets its replicas, strategy and limits, and its pods their defaults."""
    template = {"spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{}]}]}}
    spec = defaulted("apps", "v1", "Deployment", {"spec": {"template": template}})["spec"]
    pod = spec.pop("template")["spec"]
    assert spec == {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
    }
    assert pod == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "ports": [{"protocol": "TCP"}],
                "imagePullPolicy": "Always",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
    }


def test_older_deployment() -> None:
    """The oldest version selects its own labels and keeps less history."""
    template = {"metadata": {"labels": {"a": "b"}}}
    obj = defaulted("apps", "v1beta1", "Deployment", {"spec": {"template": template}})
    assert obj["spec"]["selector"] == {"matchLabels": {"a": "b"}}
    assert obj["spec"]["revisionHistoryLimit"] == 2
    assert obj["metadata"]["labels"] == {"a": "b"}


def test_given_values_stay() -> None:
    """A default never replaces a given value, including zero and false."""
    given_spec = {"replicas": 0, "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 0}
    spec = defaulted("apps", "v1", "Deployment", {"spec": given_spec})["spec"]
    assert {name: spec[name] for name in given_spec} == given_spec
    job = defaulted("batch", "v1", "CronJob", {"spec": {"suspend": True}})
    assert job["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
        ("nginx:latest@sha256:abc", "Always"),
        ("", "IfNotPresent"),
        (None, "IfNotPresent"),
    ],
)
def test_pull_policy(image: str | None, policy: str) -> None:
    """An image without a fixed version is pulled each time."""
    assert pull_policy(image) == policy


def test_namespace() -> None:
    """A new namespace has its label, its finalizer and its phase; an update does not restore
    them."""
    namespace: Object = {"metadata": {"name": "n"}}
    prepare_create("", "Namespace", namespace)
    assert namespace == {
        "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
    emptied = defaulted("", "v1", "Namespace", {**namespace, "spec": {}})
    assert emptied["spec"] == {}


def test_secret() -> None:
    """`stringData` becomes data, and the default type is filled in."""
    obj = {"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "é"}}
    assert defaulted("", "v1", "Secret", obj) == {
        "data": {"a": "w6k=", "b": "eQ=="},
        "type": "Opaque",
    }


def test_service() -> None:
    """A service gets its type, its affinity, and its target ports."""
    obj = {"spec": {"ports": [{"port": 80}, {"port": 81, "targetPort": "web"}]}}
    assert defaulted("", "v1", "Service", obj)["spec"] == {
        "ports": [
            {"port": 80, "protocol": "TCP", "targetPort": 80},
            {"port": 81, "protocol": "TCP", "targetPort": "web"},
        ],
        "sessionAffinity": "None",
        "type": "ClusterIP",
        "internalTrafficPolicy": "Cluster",
    }


@pytest.mark.parametrize(
    ("containers", "whole", "requests"),
    [
        ({}, {"limits": {"cpu": "1", "memory": "1Gi"}}, {"cpu": "1", "memory": "1Gi"}),
        ({"requests": {"cpu": "250m"}}, {"limits": {"cpu": "1"}}, {"cpu": "500m"}),
        ({"limits": {"memory": "1Mi"}}, {}, {"memory": "2Mi"}),
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "3"}}, {"cpu": "3"}),
        ({"requests": {"example.com/gpu": "1"}}, {"limits": {"hugepages-2Mi": "2Mi"}}, "limits"),
        ({}, {}, None),
    ],
)
def test_resources_of_a_pod(containers: Object, whole: Object, requests: Any) -> None:
    """The sum of its containers' requests, or else its limits; only for pods with resources of
    their own."""
    spec = {"containers": [{"resources": copy.deepcopy(containers)} for _ in range(2)]}
    assert "resources" not in defaulted("", "v1", "Pod", {"spec": copy.deepcopy(spec)})["spec"]
    spec = defaulted("", "v1", "Pod", {"spec": {**spec, "resources": whole}})["spec"]
    wanted = whole["limits"] if requests == "limits" else requests
    assert spec["resources"].get("requests") == wanted


@pytest.mark.parametrize(
    ("version", "spec"),
    [
        ("v1", {"minReplicas": 1, "targetCPUUtilizationPercentage": 80}),
        (
            "v2",
            {
                "minReplicas": 1,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "cpu",
                            "target": {"type": "Utilization", "averageUtilization": 80},
                        },
                    }
                ],
            },
        ),
    ],
)
def test_autoscaler(version: str, spec: Object) -> None:
    """An autoscaler without metrics uses the CPU, in the fields of each version."""
    obj = defaulted("autoscaling", version, "HorizontalPodAutoscaler", {})
    assert obj["spec"] == spec


def test_role_binding() -> None:
    """References of a binding have the RBAC group unless they name another."""
    obj = {
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}],
    }
    assert defaulted("rbac.authorization.k8s.io", "v1", "RoleBinding", obj) == {
        "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [
            {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": "s"},
        ],
    }


def test_definition_of_a_custom_resource() -> None:
    """Names that follow from the kind are filled in."""
    obj = {"spec": {"names": {"kind": "Foo", "plural": "foos"}}}
    spec = defaulted("apiextensions.k8s.io", "v1", "CustomResourceDefinition", obj)["spec"]
    assert spec["names"] == {
        "kind": "Foo",
        "plural": "foos",
        "singular": "foo",
        "listKind": "FooList",
    }
    assert spec["conversion"] == {"strategy": "None"}


def test_webhooks() -> None:
    """A webhook fails closed and matches equivalent versions; the old version did not."""
    group, kind = "admissionregistration.k8s.io", "MutatingWebhookConfiguration"
    newer = defaulted(group, "v1", kind, {"webhooks": [{"rules": [{}]}]})["webhooks"][0]
    older = defaulted(group, "v1beta1", kind, {"webhooks": [{}]})["webhooks"][0]
    assert newer == {
        "rules": [{"scope": "*"}],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": 10,
        "namespaceSelector": {},
        "objectSelector": {},
        "reinvocationPolicy": "Never",
    }
    assert older["failurePolicy"] == "Ignore"
    assert older["sideEffects"] == "Unknown"


@given(st.sampled_from(all_kinds()), st.dictionaries(st.text(max_size=3), JSON), JSON)
def test_any_object(kind: Any, rest: Object, spec: Any) -> None:
    """For any object, defaults do not fail, and applying them twice changes nothing."""
    obj = {**rest, "spec": spec, "webhooks": spec, "subjects": spec, "metadata": {"name": "n"}}
    for version in kind.versions:
        once = defaulted(kind.group, version, kind.kind, obj)
        assert defaulted(kind.group, version, kind.kind, once) == once
