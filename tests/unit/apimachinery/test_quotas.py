"""Usage of objects, quotas, and messages of violations."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.quotas import (
    growth,
    names_of,
    read_quota,
    resource_of,
    usage_of,
    with_used,
)


@pytest.mark.parametrize(
    ("group", "plural", "names"),
    [
        ("", "configmaps", {"count/configmaps", "configmaps"}),
        ("", "endpoints", {"count/endpoints"}),
        ("apps", "deployments", {"count/deployments.apps"}),
        ("example.com", "pods", {"count/pods.example.com"}),
        ("", "services", {"count/services", "services"}),
        ("", "events", set()),
        ("events.k8s.io", "events", set()),
    ],
)
def test_names_round_trip(group: str, plural: str, names: set[str]) -> None:
    """Each name under which an object counts as one leads back to its resource."""
    assert names_of(group, plural) == names
    assert {resource_of(name) for name in names} <= {(group, plural)}


@pytest.mark.parametrize(
    ("name", "plural"),
    [
        ("services.nodeports", "services"),
        ("cpu", "pods"),
        ("requests.memory", "pods"),
        ("limits.ephemeral-storage", "pods"),
        ("hugepages-2Mi", "pods"),
        ("requests.hugepages-2Mi", "pods"),
        ("requests.example.com/gpu", "pods"),
        ("requests.storage", "persistentvolumeclaims"),
        ("gold.storageclass.storage.k8s.io/requests.storage", "persistentvolumeclaims"),
        ("gold.storageclass.storage.k8s.io/persistentvolumeclaims", "persistentvolumeclaims"),
    ],
)
def test_names_of_resource_quantities(name: str, plural: str) -> None:
    """Names other than object counts lead to the resource whose objects use them."""
    assert resource_of(name) == ("", plural)


def test_uncounted_resources() -> None:
    """Events and unknown names are not counted."""
    names = ("count/events", "count/events.events.k8s.io", "x/y", "requests.kubernetes.io/x")
    for name in (
        *names,
        "limits.example.com/gpu",
        "requests.gpu",
        "x.storageclass.storage.k8s.io/y",
    ):
        assert resource_of(name) is None


def service(kind: str, *, allocates: bool | None = None, **port: int) -> dict[str, Any]:
    spec: dict[str, Any] = {"type": kind, "ports": [{"port": 1}, {"port": 2, **port}]}
    if allocates is not None:
        spec["allocateLoadBalancerNodePorts"] = allocates
    return {"spec": spec}


@pytest.mark.parametrize(
    ("obj", "ports", "balancers"),
    [
        (service("ClusterIP"), 0, 0),
        (service("NodePort"), 2, 0),
        (service("LoadBalancer"), 2, 1),
        (service("LoadBalancer", allocates=False), 0, 1),
        (service("LoadBalancer", allocates=False, nodePort=30000), 1, 1),
        ({}, 0, 0),
    ],
)
def test_services(obj: dict[str, Any], ports: int, balancers: int) -> None:
    """Node ports are counted as the service requests them, whether they are allocated or not."""
    used = usage_of("", "services", obj)
    assert used["services"] == used["count/services"] == 1
    assert (used["services.nodeports"], used["services.loadbalancers"]) == (ports, balancers)


def test_terminated_pods() -> None:
    """Terminated pods count as objects, but not as pods."""
    for phase, pods in (("Running", 1), ("Succeeded", 0), ("Failed", 0), (None, 1)):
        used = usage_of("", "pods", {"status": {"phase": phase}})
        assert used == {"count/pods": 1, "pods": pods}


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used}}


def test_messages_list_exceeded_resources() -> None:
    """The message lists only exceeded resources, sorted, with Kubernetes' wording."""
    found = read_quota(quota({"a/b": "1", "pods": "1k", "count/pods": "2"}, {"pods": "1k"}))
    assert found.hard == {"pods": 1000, "count/pods": 2}
    assert found.problem({"pods": 1, "count/pods": 1}) == (
        "status unknown for quota: q, resources: count/pods"
    )
    found = read_quota(
        quota(
            {"secrets": "3", "count/secrets": "3", "count/x.y": "9"},
            {"secrets": "3", "count/secrets": "3", "count/x.y": "0"},
        )
    )
    wanted = found.wanted({"secrets": 1, "count/secrets": 1, "count/x.y": 1, "configmaps": 1})
    assert found.problem(wanted) == (
        "exceeded quota: q, requested: count/secrets=1,secrets=1, used: count/secrets=3,secrets=3,"
        " limited: count/secrets=3,secrets=3"
    )
    assert found.problem({"count/x.y": 9}) == ""
    assert found.charged({"count/x.y": 9}).used["count/x.y"] == 9


def test_unsupported_resources_are_kept() -> None:
    """Charging keeps unsupported resources, and formats large amounts canonically."""
    before = quota({"pods": "5k"}, {"pods": "999", "cpu": "250m"})
    after = with_used(before, read_quota(before).charged({"pods": 1}).used)
    assert after["status"]["used"] == {"pods": "1k", "cpu": "250m"}
    assert before["status"]["used"]["pods"] == "999"


POD: dict[str, Any] = {"spec": {"containers": [{"name": "c"}]}}
BUSY: dict[str, Any] = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
ENDING: dict[str, Any] = {"spec": {"activeDeadlineSeconds": 5}}
HIGH: dict[str, Any] = {"spec": {"priorityClassName": "high"}}


@pytest.mark.parametrize(
    ("scope", "pod", "is_about"),
    [
        ("BestEffort", POD, True),
        ("BestEffort", BUSY, False),
        ("NotBestEffort", BUSY, True),
        ("Terminating", ENDING, True),
        ("Terminating", POD, False),
        ("NotTerminating", POD, True),
        ("PriorityClass", HIGH, True),
        ("PriorityClass", POD, False),
        ("CrossNamespacePodAffinity", POD, False),
    ],
)
def test_scopes_select_pods(scope: str, pod: dict[str, Any], is_about: bool) -> None:
    """A quota with scopes applies only to pods in all of them."""
    found = read_quota(quota({"pods": "1"}, {}, scopes=[scope]))
    assert found.is_about("", "pods", pod) is is_about
    assert not found.is_about("", "configmaps", {})


@pytest.mark.parametrize(
    ("operator", "values", "is_about"),
    [
        ("In", ["high"], True),
        ("In", ["low"], False),
        ("NotIn", ["low"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_priority_classes(operator: str, values: list[str], is_about: bool) -> None:
    """Priority classes are selected by name."""
    selector = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    found = read_quota(quota({}, {}, scopeSelector={"matchExpressions": [selector]}))
    assert found.is_about("", "pods", HIGH) is is_about


def test_growth_is_never_negative() -> None:
    """Decreased usage is not given back; the controller's recalculation does that."""
    assert growth({"a": 3, "b": 1, "c": 1}, {"a": 1, "b": 2}) == {"a": 2, "c": 1}
